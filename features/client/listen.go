package client

import (
	"context"
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/cenkalti/backoff/v4"
)

// lasting is how long a subscription has to last for the next one not to wait.
const lasting = 30 * time.Second

// watchTools begins to tell of changes of the tools, if the program wants that,
// from what was before: a server that the program knows of, or none. Both of what
// does so runs beside the Conn, which ends it and waits for it.
func (s *Session) watchTools(before *meeting) {
	if s.changes == nil {
		return
	}
	s.conn.Go("OnToolsChanged", s.tell)
	s.conn.Go(protocol.MethodListen, func(ctx context.Context) { s.follow(ctx, before) })
}

// toolsChanged has the program told, if it wants that. Changes that come
// meanwhile are told as one.
func (s *session) toolsChanged() {
	select {
	case s.changes <- struct{}{}:
	default: // it will be told already, or nobody is
	}
}

// tell is the goroutine that the program is told on. Should the program end it,
// by a panic for instance, another goes on.
func (s *Session) tell(ctx context.Context) {
	over := false
	defer func() {
		if !over {
			s.conn.Go("OnToolsChanged", s.tell)
		}
	}()
	for {
		select {
		case <-s.changes:
			s.client.options.OnToolsChanged(ctx, s)
		case <-ctx.Done():
			over = true
			return
		}
	}
}

// follow has each server tell of changes, until the session is over. Nothing is
// replayed. So a server that has replaced another has changes to tell of, which
// its acknowledgement does unless it gives none.
func (s *Session) follow(ctx context.Context, before *meeting) {
	delays := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(time.Second), backoff.WithMaxInterval(lasting),
		backoff.WithRandomizationFactor(0.2), backoff.WithMaxElapsedTime(0))
	for s.conn.AwaitReady(ctx) == nil {
		met, began := s.latest.Load(), time.Now()
		var refused *jsonrpc.Error
		if errors.As(s.subscribe(ctx, met), &refused) && met != before {
			s.toolsChanged()
		}
		before = met
		if refused != nil && refused.Code == jsonrpc.CodeMethodNotFound {
			s.outlast(ctx, met)
			continue
		}
		if time.Since(began) >= lasting {
			delays.Reset()
		}
		if s.conn.State() == conn.Ready { // else AwaitReady waits
			pause(ctx, delays.NextBackOff())
		}
	}
}

// subscribe listens until that has an end. A server that tells of changes
// unasked, as a legacy one does, or not at all, is not asked: it would say that
// it does not know the method.
func (s *Session) subscribe(ctx context.Context, met *meeting) error {
	if tools := met.server.Capabilities.Tools; !met.modern() || tools == nil || !tools.ListChanged {
		return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "not asked"}
	}
	params := &protocol.ListenParams{Notifications: protocol.SubscriptionFilter{ToolsListChanged: true}}
	params.AddMeta(met.members)
	raw, err := protocol.Marshal(params)
	if err != nil {
		return err
	}
	_, err = met.incarnation.Call(ctx, conn.Request{
		Method: protocol.MethodListen, Params: raw, Version: met.server.ProtocolVersion, Streaming: true,
	})
	return err
}

// current reports whether the server that was met is there still.
func (m *meeting) current(status conn.Status) bool {
	return status.State == conn.Ready && status.Epoch == m.incarnation.Epoch()
}

// outlast waits until the server that was met is gone.
func (s *Session) outlast(ctx context.Context, met *meeting) {
	for status := s.conn.Status(); met.current(status); status = s.conn.Status() {
		select {
		case <-status.Changed():
		case <-ctx.Done():
			return
		}
	}
}

func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
