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

// A watch tells the program of changes for as long as the session lasts. It
// has two goroutines, and the session waits for both.
type watch struct {
	changes chan struct{} // capacity one: a token waits while there is something to tell
	ctx     context.Context
	stop    context.CancelFunc
}

// watchTools begins to tell of changes of the tools, if the program wants that.
func (s *Session) watchTools() {
	if s.client.options.OnToolsChanged == nil {
		return
	}
	s.watching.Go(s.tell)
	s.watching.Go(s.follow)
}

// changed has the program told. Changes that come meanwhile are told as one.
func (w *watch) changed() {
	select {
	case w.changes <- struct{}{}:
	default: // it will be told already
	}
}

func (s *Session) tell() {
	for {
		select {
		case <-s.watch.changes:
			s.client.options.OnToolsChanged(s.watch.ctx, s)
		case <-s.watch.ctx.Done():
			return
		}
	}
}

// follow has each server tell of changes. Nothing is replayed, so whenever
// that has not been so for a while there may have been some.
func (s *Session) follow() {
	delays := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(time.Second), backoff.WithMaxInterval(lasting), backoff.WithMaxElapsedTime(0))
	for first := true; s.conn.AwaitReady(s.watch.ctx) == nil; first = false {
		if !first {
			s.watch.changed()
		}
		met, began := s.latest.Load(), time.Now()
		if !s.subscribe(met) {
			s.outlast(met)
			continue
		}
		if time.Since(began) >= lasting {
			delays.Reset()
		}
		if met.current(s.conn.Status()) {
			s.pause(delays.NextBackOff())
		}
	}
}

// subscribe listens until that has an end. It reports false when there is
// nothing to listen to: a legacy server tells unasked, or not at all.
func (s *Session) subscribe(met *meeting) bool {
	tools := met.server.Capabilities.Tools
	if met.members == nil || tools == nil || !tools.ListChanged {
		return false
	}
	params := &protocol.ListenParams{Notifications: protocol.SubscriptionFilter{ToolsListChanged: true}}
	params.AddMeta(met.members)
	raw, err := protocol.Marshal(params)
	if err != nil {
		return false
	}
	_, err = met.incarnation.Call(s.watch.ctx, conn.Request{Method: protocol.MethodListen, Params: raw, Streaming: true})
	var fault *jsonrpc.Error
	return !errors.As(err, &fault) || fault.Code != jsonrpc.CodeMethodNotFound
}

// current reports whether the server that was met is there still.
func (m *meeting) current(status conn.Status) bool {
	return status.State == conn.Ready && status.Epoch == m.incarnation.Epoch()
}

// outlast waits until the server that was met is gone.
func (s *Session) outlast(met *meeting) {
	for status := s.conn.Status(); met.current(status); status = s.conn.Status() {
		select {
		case <-status.Changed():
		case <-s.watch.ctx.Done():
			return
		}
	}
}

func (s *Session) pause(wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.watch.ctx.Done():
	}
}
