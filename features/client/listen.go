package client

import (
	"context"
	"errors"
	"sync"
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
	both    sync.WaitGroup
}

func newWatch() *watch {
	w := &watch{changes: make(chan struct{}, 1)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// watchTools begins to tell of changes of the tools, if the program wants that.
func (s *Session) watchTools() {
	if s.watch == nil {
		return
	}
	met := s.latest.Load() // before the program has asked it anything
	s.watch.both.Go(s.tell)
	s.watch.both.Go(func() { s.follow(met) })
}

// end stops the telling, and waits until that is over.
func (w *watch) end() {
	if w != nil {
		w.stop()
		w.both.Wait()
	}
}

// changed has the program told, if it wants that. Changes that come meanwhile
// are told as one.
func (w *watch) changed() {
	if w == nil {
		return
	}
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

// follow has each server tell of changes, until the session is over. Nothing is
// replayed. So a server that has replaced another has changes to tell of, which
// its acknowledgement does unless it gives none.
func (s *Session) follow(before *meeting) {
	defer s.watch.stop()
	delays := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(time.Second), backoff.WithMaxInterval(lasting),
		backoff.WithRandomizationFactor(0.2), backoff.WithMaxElapsedTime(0))
	for s.conn.AwaitReady(s.watch.ctx) == nil {
		met, began := s.latest.Load(), time.Now()
		var refused *jsonrpc.Error
		if errors.As(s.subscribe(met), &refused) && met != before {
			s.watch.changed()
		}
		before = met
		if refused != nil && refused.Code == jsonrpc.CodeMethodNotFound {
			s.outlast(met)
			continue
		}
		if time.Since(began) >= lasting {
			delays.Reset()
		}
		if s.conn.State() == conn.Ready { // else AwaitReady waits
			s.pause(delays.NextBackOff())
		}
	}
}

// subscribe listens until that has an end. A server that tells of changes
// unasked, as a legacy one does, or not at all, is not asked: it would say that
// it does not know the method.
func (s *Session) subscribe(met *meeting) error {
	if tools := met.server.Capabilities.Tools; !met.modern() || tools == nil || !tools.ListChanged {
		return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "not asked"}
	}
	params := &protocol.ListenParams{Notifications: protocol.SubscriptionFilter{ToolsListChanged: true}}
	params.AddMeta(met.members)
	raw, err := protocol.Marshal(params)
	if err != nil {
		return err
	}
	_, err = met.incarnation.Call(s.watch.ctx, conn.Request{Method: protocol.MethodListen, Params: raw, Streaming: true})
	return err
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
