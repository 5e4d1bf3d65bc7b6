package conn

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// servingHere has a loop that is ready, and a receiver of a link that lends its
// goroutine to handlers.
func servingHere(t *testing.T, serve func(context.Context, *Incoming)) (*loop, *receiver) {
	c := New(dead{}, Options{Dialect: cancellingDialect{}, Handler: handlerFunc(func(ctx context.Context, in *Incoming) (json.RawMessage, error) {
		serve(ctx, in)
		return nil, nil
	})})
	l := entered(t, c)
	for c.State() != Ready {
		l.work(nil)
		synctest.Wait()
	}
	t.Cleanup(l.leave)
	l.mailbox.start(func() {}, true)
	l.mailbox.take(nil)
	l.ownWaits, l.woken = true, make(chan struct{}, 1)
	return l, &receiver{conn: c, loop: l, epoch: 1, dialect: l.core.dialect}
}

type handlerFunc func(context.Context, *Incoming) (json.RawMessage, error)

func (f handlerFunc) ServeRequest(ctx context.Context, in *Incoming) (json.RawMessage, error) {
	return f(ctx, in)
}
func (handlerFunc) ServeNotification(context.Context, *Incoming) {}

// Guarantees: G-0055.1
func TestQuickHandlersRunOnTheGoroutineOfTheLink(t *testing.T) {
	for name, test := range map[string]struct {
		pace pace
		more bool
		here bool
	}{
		"none was served yet":        {0, false, false},
		"quick":                      {quickHandler, false, true},
		"quick, but more waits":      {quickHandler, true, false},
		"very quick, and more waits": {quickestHandler, true, true},
		"slow":                       {quickHandler + 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				served := make(chan bool, 1)
				l, r := servingHere(t, func(_ context.Context, in *Incoming) { served <- in.worker == nil })
				l.unpark()
				l.buffers.pace = test.pace
				r.Receive(transport.Inbound{Frame: []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`), Work: true})
				r.Serve(test.more, func() { t.Error("the link was told that it takes long") })
				if here := <-served; here != test.here {
					t.Errorf("on the goroutine of the link: %v", here)
				}
				synctest.Wait()
				if l.tasks.n > 0 || l.buffers.kept.Incoming != nil || l.buffers.keepUpTo != 0 {
					t.Error("the request has not ended")
				}
				r.Serve(false, nil) // there is nothing to serve
				l.finish()
			})
		})
	}
}

// A handler that asks the peer waits for what the link brings.
//
// Guarantees: G-0055.2
func TestHandlerThatAsksLeavesTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := servingHere(t, func(ctx context.Context, in *Incoming) {
			ctx, cancel := context.WithCancel(ctx)
			cancel() // so that it need not be answered
			for range 2 {
				if _, err := in.Call(ctx, Request{Method: "m"}); err == nil {
					t.Error("a call of nobody was answered")
				}
			}
		})
		l.unpark()
		l.buffers.pace = 1
		left := 0
		r.Receive(transport.Inbound{Frame: []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`), Work: true})
		r.Serve(false, func() { left++ })
		if left != 1 {
			t.Errorf("the link was left %d times", left)
		}
		l.finish()
	})
}

// A slow handler is remembered for dozens of quick ones, and forgotten in the end.
//
// Guarantees: G-0055.1
func TestPaceOfHandlers(t *testing.T) {
	var p pace
	quickOnes := func() (n int) {
		for ; !p.isAtMost(quickHandler); n++ {
			p.note(time.Microsecond)
		}
		return n
	}
	if n := quickOnes(); n < 10 || n > 30 {
		t.Errorf("a new loop needs %d quick handlers", n)
	}
	p.note(50 * time.Millisecond)
	if n := quickOnes(); n < 25 || n > 60 {
		t.Errorf("after a slow one it needs %d", n)
	}
	p.note(time.Hour)
	if n := quickOnes(); n > 80 {
		t.Errorf("after a very slow one it needs %d", n)
	}
	for range 1000 {
		p.note(0)
	}
	if !p.isAtMost(quickestHandler) || p.isAtMost(0) {
		t.Errorf("the pace is %d", p)
	}
}
