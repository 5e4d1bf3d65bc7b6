package conn

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// readyReceiver returns a ready loop, and the receiver of a link that lends its goroutine to handlers.
func readyReceiver(t *testing.T, serve func(context.Context, *Incoming)) (*loop, *receiver) {
	return sharingReceiver(t, new(Wheel), serve)
}

// sharingReceiver does what readyReceiver does, for a Conn that shares a Wheel.
func sharingReceiver(t *testing.T, w *Wheel, serve func(context.Context, *Incoming)) (*loop, *receiver) {
	c := New(dead{}, Options{Tuning: Tuning{Wheel: w}, Dialect: cancellingDialect{}, Handler: handlerFunc(func(ctx context.Context, in *Incoming) (json.RawMessage, error) {
		serve(ctx, in)
		return nil, nil
	})})
	l := entered(t, c)
	for c.State() != Ready {
		worked(l)
		synctest.Wait()
	}
	t.Cleanup(l.leave)
	resting(l)
	return l, &receiver{record: &c.record, loop: l, epoch: 1, dialect: l.core.dialect}
}

type handlerFunc func(context.Context, *Incoming) (json.RawMessage, error)

func (f handlerFunc) ServeRequest(ctx context.Context, in *Incoming) (json.RawMessage, error) {
	return f(ctx, in)
}
func (handlerFunc) ServeNotification(context.Context, *Incoming) {}

// A worker that has served a request of one Conn serves that of another as a worker of the other.
func TestWorkerServesTheConnOfItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, by := new(Wheel), make(map[*worker]string)
		var loops []*loop
		for _, name := range []string{"a", "b"} {
			l, r := sharingReceiver(t, w, func(_ context.Context, in *Incoming) { by[in.worker] += name })
			l.unpark()
			r.Receive(transport.Inbound{Frame: []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`), Work: true})
			r.Serve(false, nil)
			synctest.Wait()
			if l.tasks.n > 0 {
				t.Errorf("%s: %d handlers still count, want none", name, l.tasks.n)
			}
			loops = append(loops, l)
		}
		for one, served := range by {
			if len(by) != 1 || one == nil || served != "ab" {
				t.Errorf("worker %p has served %q, of %d workers; want one that has served a and then b", one, served, len(by))
			}
		}
		for _, l := range loops {
			finish(l)
		}
	})
}

// If handlers are quick on average, they run on the goroutine of a link that lends it. While more requests
// wait, they must be very quick.
//
// Guarantees: G-0055.1
func TestQuickHandlersRunOnTheGoroutineOfTheLink(t *testing.T) {
	for name, test := range map[string]struct {
		pace pace
		more bool
		here bool
	}{
		"no average yet":             {0, false, false},
		"quick":                      {quickHandler, false, true},
		"quick, and more waits":      {quickHandler, true, false},
		"very quick, and more waits": {quickestHandler, true, true},
		"slow":                       {quickHandler + 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				served := make(chan bool, 1)
				l, r := readyReceiver(t, func(_ context.Context, in *Incoming) { served <- in.worker == nil })
				l.unpark()
				l.buffers.pace = test.pace
				r.Receive(transport.Inbound{Frame: []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`), Work: true})
				r.Serve(test.more, func() { t.Error("leave was called for a handler that does not wait") })
				if here := <-served; here != test.here {
					t.Errorf("served on the goroutine of the link: %v, want %v", here, test.here)
				}
				synctest.Wait()
				if l.tasks.n > 0 || l.buffers.kept.Incoming != nil || l.buffers.keepUpTo != 0 {
					t.Errorf("%d tasks, kept request %v; want none", l.tasks.n, l.buffers.kept.Incoming)
				}
				r.Serve(false, nil) // no request is left
				finish(l)
			})
		})
	}
}

// A handler that calls the peer on the goroutine of the link gives that goroutine back, once, since the
// answer comes through it.
//
// Guarantees: G-0055.2
func TestHandlerThatCallsGivesTheGoroutineBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := readyReceiver(t, func(ctx context.Context, in *Incoming) {
			ctx, cancel := context.WithCancel(ctx)
			cancel() // so the call needs no answer
			for range 2 {
				if _, err := in.Call(ctx, Request{Method: "m"}); err == nil {
					t.Error("a call with an ended context returned no error")
				}
			}
		})
		l.unpark()
		l.buffers.pace = 1
		left := 0
		r.Receive(transport.Inbound{Frame: []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`), Work: true})
		r.Serve(false, func() { left++ })
		if left != 1 {
			t.Errorf("the goroutine was given back %d times, want once", left)
		}
		finish(l)
	})
}

// A slow handler raises the average for dozens of quick ones. In the end it has no effect.
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
		t.Errorf("a new loop needs %d quick handlers, want 10 to 30", n)
	}
	p.note(50 * time.Millisecond)
	if n := quickOnes(); n < 25 || n > 60 {
		t.Errorf("after a slow handler it needs %d, want 25 to 60", n)
	}
	p.note(time.Hour)
	if n := quickOnes(); n > 80 {
		t.Errorf("after a very slow handler it needs %d, want 80 at most", n)
	}
	for range 1000 {
		p.note(0)
	}
	if !p.isAtMost(quickestHandler) || p.isAtMost(0) {
		t.Errorf("the average is %d, want more than 0 and %d at most", p, quickestHandler)
	}
}
