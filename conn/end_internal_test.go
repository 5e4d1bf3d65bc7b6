package conn

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// opener is a transport that gives out dead links.
type opener struct{}

func (opener) Open(context.Context) (transport.Link, error) { return deadLink{}, nil }

// faulty makes the core panic with a call settled, and its caller not told yet.
type faulty struct{ plain }

func (faulty) Cancel(int64, error) Message { panic("cancel") }

// Guarantees: G-0001.11
func TestPanicInTheCoreLosesNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(opener{}, Options{})
		ended := make(chan error, 1)
		l, err := c.enter(t.Context(), func(err error) { ended <- err })
		if err != nil {
			t.Fatal(err)
		}
		l.core.dialect = faulty{}
		go l.run()
		synctest.Wait()
		results := make(chan error, 2)
		ctx, cancel := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() {
				_, err := c.Call(ctx, Request{Method: "m"})
				results <- err
			}()
		}
		synctest.Wait()
		cancel()
		for range 2 {
			var failed *CallError
			if err := <-results; !errors.As(err, &failed) || failed.Delivery != Unknown {
				t.Errorf("got %v", err)
			}
		}
		var panicked *PanicError
		if err := <-ended; !errors.As(err, &panicked) {
			t.Errorf("run: %v", err)
		}
	})
}

// closable counts how often it was closed.
type closable struct {
	deadLink
	closes int
}

func (c *closable) Close(time.Duration) error { c.closes++; return nil }

// What lies in the mailbox when a loop ends is seen to: a link is closed, a
// caller is told.
//
// Guarantees: G-0001.11, G-0009.2, G-0009.4
func TestNothingIsLeftInTheMailbox(t *testing.T) {
	for name, end := range map[string]func(*loop){
		"regular end": func(l *loop) { l.close() },
		"panic":       func(l *loop) { l.discard(errors.New("panic"), l.mailbox.close()) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(New(opener{}, Options{}), context.Background())
			l.unpark()
			l.step(&event{kind: stopAsked})
			link, caller := &closable{}, &call{done: make(chan outcome, 1)}
			l.mailbox.start(func() {}, false)
			l.mailbox.post(event{kind: linkOpened, particulars: &particulars{link: link}})
			l.mailbox.post(event{kind: callMade, out: &outboundFrame{id: 1, call: caller}})
			end(l)
			if link.closes != 1 {
				t.Errorf("the link was closed %d times", link.closes)
			}
			select {
			case o := <-caller.done:
				if o.delivery != NotSent {
					t.Errorf("the caller was told: %s", o.delivery)
				}
			default:
				t.Error("the caller was not told")
			}
		})
	}
}

// Wherever a panic finds them, a caller is told and a link is closed.
//
// Guarantees: G-0001.11, G-0009.4
func TestPanicEndsCallsAndLinks(t *testing.T) {
	for name, test := range map[string]struct {
		place func(*loop, *call, transport.Link)
		want  Delivery
	}{
		"the call of the event that is stepped": {func(l *loop, caller *call, link transport.Link) {
			l.buffers.current = &event{kind: callMade, out: &outboundFrame{id: 1, call: caller}, particulars: &particulars{link: link}}
		}, NotSent},
		"a notification that the link may have taken": {func(l *loop, caller *call, link transport.Link) {
			l.buffers.unperformed = []effect{{out: outboundFrame{notification: true, call: caller}, particulars: &particulars{link: link}}}
		}, Unknown},
		"what the core had said when it panicked": {func(l *loop, caller *call, link transport.Link) {
			l.buffers.current = &event{kind: callLeft, id: 1}
			l.core.out = []effect{{kind: settle, id: 1, call: caller, delivery: Sent, particulars: &particulars{link: link}}}
		}, Sent},
	} {
		l := newLoop(New(opener{}, Options{}), context.Background())
		l.unpark()
		link, caller := &closable{}, &call{done: make(chan outcome, 1)}
		test.place(l, caller, link)
		l.settleCallers(errors.New("panic"))
		select {
		case o := <-caller.done:
			if o.delivery != test.want || link.closes != 1 {
				t.Errorf("%s: %s, and the link was closed %d times", name, o.delivery, link.closes)
			}
		default:
			t.Errorf("%s: the caller was not told", name)
		}
	}
}

// readyLoop is the loop of a Conn that is ready; the test has its turns.
func readyLoop(t *testing.T, c *Conn) *loop {
	l := entered(t, c)
	for c.State() != Ready {
		l.work(nil)
		synctest.Wait()
	}
	return l
}

// What comes behind an interruption, in one turn with it, is not begun, and
// nobody waits for it.
//
// Guarantees: G-0001.15
func TestInterruptionEndsTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(opener{}, Options{})
		l := readyLoop(t, c)
		defer l.leave()
		link, caller := &closable{}, &call{done: make(chan outcome, 1)}
		l.mailbox.post(event{kind: interrupted, err: ErrInterrupted})
		l.mailbox.post(event{kind: linkOpened, epoch: 1, particulars: &particulars{link: link}})
		l.mailbox.post(event{kind: callMade, epoch: 1, out: &outboundFrame{id: 1, call: caller}})
		if _, over, err := l.work(nil); !over || !errors.Is(err, ErrInterrupted) {
			t.Errorf("over: %v, %v", over, err)
		}
		if o := <-caller.done; o.cause != LinkLost || o.delivery != NotSent || link.closes != 1 {
			t.Errorf("the caller was told: %s, %s; the link was closed %d times", o.cause, o.delivery, link.closes)
		}
	})
}

// A Conn that was interrupted before its first link stays in its state, which is no
// transition.
//
// Guarantees: G-0001.15
func TestInterruptionWhileStartingIsNoTransition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []telemetry.Transition
		c := New(opener{}, Options{Hooks: telemetry.Hooks{Transition: func(e telemetry.Transition) { told = append(told, e) }}})
		l := entered(t, c)
		defer l.leave()
		l.mailbox.post(event{kind: interrupted, err: ErrInterrupted})
		if _, over, err := l.work(nil); !over || !errors.Is(err, ErrInterrupted) {
			t.Errorf("over: %v, %v", over, err)
		}
		synctest.Wait()
		if c.State() != Starting || len(told) != 0 {
			t.Errorf("the state is %s; transitions: %+v", c.State(), told)
		}
	})
}

// A handler that returns right behind an interruption, in one turn with it, is
// not waited for, and leaves no goroutine.
//
// Guarantees: G-0001.15
func TestHandlerReturnsBehindAnInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		c := New(opener{}, Options{Handler: handles(func() { <-finish })})
		l := readyLoop(t, c)
		in := incomingRequest(1)
		in.conn, in.Epoch = c, 1
		l.mailbox.post(event{kind: requested, epoch: 1, incoming: in, frames: 1})
		l.work(nil)
		l.mailbox.post(event{kind: interrupted, err: ErrInterrupted})
		close(finish)
		synctest.Wait()
		before := time.Now()
		_, over, err := l.work(nil)
		if stuck := new(StuckError); !over || !errors.Is(err, ErrInterrupted) || errors.As(err, &stuck) {
			t.Errorf("over: %v, %v", over, err)
		}
		if waited := time.Since(before); waited != 0 {
			t.Errorf("it waited for %v", waited)
		}
		l.leave() // synctest reports a worker that is left
	})
}

// handles is a Handler that calls a function for each request.
type handles func()

func (f handles) ServeRequest(context.Context, *Incoming) (json.RawMessage, error) {
	f()
	return nil, nil
}

func (handles) ServeNotification(context.Context, *Incoming) {}

// A Stop right behind an interruption closes the Conn for good.
//
// Guarantees: G-0001.15
func TestStopBehindAnInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(opener{}, Options{})
		l := readyLoop(t, c)
		defer l.leave()
		l.mailbox.post(event{kind: interrupted, err: ErrInterrupted})
		c.Stop()
		_, over, err := l.work(nil)
		for !over {
			synctest.Wait()
			_, over, err = l.work(nil)
		}
		if err != nil || c.State() != Closing {
			t.Errorf("%s: %v", c.State(), err)
		}
	})
}

// A Close right behind an interruption, or a panic, is not heard of by that
// Run, but by the next.
//
// Guarantees: G-0001.11, G-0001.15, G-0009.1
func TestCloseBehindTheEndOfARun(t *testing.T) {
	for name, end := range map[string]event{
		"interruption": {kind: interrupted, err: ErrInterrupted},
		"panic":        {epoch: 1}, // there is no such event
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, closing := New(opener{}, Options{}), make(chan error, 1)
				l := readyLoop(t, c)
				l.mailbox.post(end)
				go func() { closing <- c.Close(context.Background()) }()
				synctest.Wait()
				if _, over, err := l.work(nil); !over || err == nil || c.State() != Starting {
					t.Errorf("over: %v, %s, %v", over, c.State(), err)
				}
				l.leave()
				if err := <-closing; !errors.Is(err, ErrNotRunning) {
					t.Errorf("Close: %v", err)
				}
				if err := c.Run(t.Context()); err != nil || c.State() != Closing || c.Status().Epoch != 1 {
					t.Errorf("run again: %v, %s in epoch %d", err, c.State(), c.Status().Epoch)
				}
			})
		})
	}
}
