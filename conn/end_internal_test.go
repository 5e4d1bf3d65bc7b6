package conn

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// A deadTransport opens links that do nothing.
type deadTransport struct{}

func (deadTransport) Open(context.Context) (transport.Link, error) { return deadLink{}, nil }

// A panickingDialect makes the core panic after a call is settled and before its caller has the result.
type panickingDialect struct{ plainDialect }

func (panickingDialect) Cancel(jsonrpc.ID, error) Message { panic("cancel") }

// A panic of the core ends every pending call and the run.
//
// Guarantees: G-0001.11
func TestPanicInTheCoreLosesNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(deadTransport{}, Options{})
		ended := make(chan error, 1)
		l, held, err := c.enter(t.Context(), func(err error) { ended <- err })
		if err != nil {
			t.Fatal(err)
		}
		l.core.dialect = panickingDialect{}
		l.mailbox.resume(held)
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
				t.Errorf("got %v, want a CallError with delivery Unknown", err)
			}
		}
		var panicked *PanicError
		if err := <-ended; !errors.As(err, &panicked) {
			t.Errorf("run returned %v, want a PanicError", err)
		}
	})
}

// A countingLink counts how often it was closed.
type countingLink struct {
	deadLink
	closes int
}

func (c *countingLink) Close(time.Duration) error { c.closes++; return nil }

// When a loop ends, it closes the links that are still in its mailbox and settles the calls.
//
// Guarantees: G-0001.11, G-0009.2, G-0009.4
func TestNothingIsLeftInTheMailbox(t *testing.T) {
	for name, end := range map[string]func(*loop){
		"regular end": func(l *loop) { l.close() },
		"panic":       func(l *loop) { l.discard(errors.New("panic"), l.mailbox.close()) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(&New(deadTransport{}, Options{}).record, context.Background())
			l.unpark()
			l.step(&event{kind: stopAsked})
			link, caller := &countingLink{}, &call{done: make(chan outcome, 1)}
			plays(l)
			l.mailbox.post(event{kind: linkOpened, eventExtra: &eventExtra{link: link}})
			l.mailbox.post(event{kind: callMade, out: &outboundFrame{id: 1, call: caller}})
			end(l)
			if link.closes != 1 {
				t.Errorf("the link was closed %d times, want 1", link.closes)
			}
			select {
			case o := <-caller.done:
				if o.delivery != NotSent {
					t.Errorf("the caller got delivery %s, want %s", o.delivery, NotSent)
				}
			default:
				t.Error("the caller was not settled")
			}
		})
	}
}

// After a panic the loop settles calls and closes links, wherever it had got to with them.
//
// Guarantees: G-0001.11, G-0009.4
func TestPanicEndsCallsAndLinks(t *testing.T) {
	for name, test := range map[string]struct {
		place func(*loop, *call, transport.Link)
		want  Delivery
	}{
		"the call of the event that is stepped": {func(l *loop, caller *call, link transport.Link) {
			l.buffers.current = &event{kind: callMade, out: &outboundFrame{id: 1, call: caller}, eventExtra: &eventExtra{link: link}}
		}, NotSent},
		"a notification that the link may have taken": {func(l *loop, caller *call, link transport.Link) {
			l.buffers.unperformed = []effect{{out: outboundFrame{notification: true, call: caller}, eventExtra: &eventExtra{link: link}}}
		}, Unknown},
		"an effect of the core when it panicked": {func(l *loop, caller *call, link transport.Link) {
			l.buffers.current = &event{kind: callLeft, id: 1}
			l.core.out = []effect{{kind: settle, id: 1, call: caller, delivery: Sent, eventExtra: &eventExtra{link: link}}}
		}, Sent},
	} {
		l := newLoop(&New(deadTransport{}, Options{}).record, context.Background())
		l.unpark()
		link, caller := &countingLink{}, &call{done: make(chan outcome, 1)}
		test.place(l, caller, link)
		l.settleCallers(errors.New("panic"))
		select {
		case o := <-caller.done:
			if o.delivery != test.want || link.closes != 1 {
				t.Errorf("%s: delivery %s, and the link was closed %d times; want %s, once",
					name, o.delivery, link.closes, test.want)
			}
		default:
			t.Errorf("%s: the caller was not settled", name)
		}
	}
}

// An endedRequests notes the requests of which it is told as an Auditor.
type endedRequests struct {
	Handler
	told []*Incoming
}

func (e *endedRequests) RequestEnded(_ context.Context, in *Incoming, _ telemetry.ServeStopped) {
	e.told = append(e.told, in)
}

// After a panic the loop tells the Auditor of each request that has no handler, wherever it had got to with it.
//
// Guarantees: G-0071.1
func TestPanicEndsRequests(t *testing.T) {
	for name, place := range map[string]func(*loop, *Incoming){
		"the event that is stepped": func(l *loop, in *Incoming) { l.buffers.current = &event{kind: requested, incoming: in} },
		"an event that was taken":   func(l *loop, in *Incoming) { l.buffers.batch = []event{{kind: requested, incoming: in}} },
		"an event that was put back": func(l *loop, in *Incoming) {
			l.buffers.returned = []event{{kind: requested, incoming: in}}
		},
		"an effect that was not performed": func(l *loop, in *Incoming) {
			l.buffers.unperformed = []effect{{kind: unserved, incoming: in}}
		},
		"an effect of the core when it panicked": func(l *loop, in *Incoming) {
			l.buffers.current = &event{kind: tick}
			l.core.out = []effect{{kind: unserved, incoming: in}}
		},
	} {
		auditor, in := new(endedRequests), &Incoming{Method: "m"}
		l := newLoop(&New(deadTransport{}, Options{Handler: auditor}).record, context.Background())
		l.unpark()
		place(l, in)
		l.settleCallers(errors.New("panic"))
		if len(auditor.told) != 1 || auditor.told[0] != in {
			t.Errorf("%s: the Auditor was told of %d requests, want of one", name, len(auditor.told))
		}
	}
}

// readyLoop returns the loop of a Conn that is ready. The test calls its work.
func readyLoop(t *testing.T, c *Conn) *loop {
	l := entered(t, c)
	for c.State() != Ready {
		worked(l)
		synctest.Wait()
	}
	return l
}

// Events behind an interruption in the same batch are not stepped: a link is closed, and a call
// ends as not sent.
//
// Guarantees: G-0001.15
func TestInterruptionEndsTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(deadTransport{}, Options{})
		l := readyLoop(t, c)
		defer l.leave()
		link, caller := &countingLink{}, &call{done: make(chan outcome, 1)}
		l.mailbox.post(event{kind: interrupted, err: ErrInterrupted})
		l.mailbox.post(event{kind: linkOpened, epoch: 1, eventExtra: &eventExtra{link: link}})
		l.mailbox.post(event{kind: callMade, epoch: 1, out: &outboundFrame{id: 1, call: caller}})
		if over, err := worked(l); !over || !errors.Is(err, ErrInterrupted) {
			t.Errorf("over %v, error %v; want true, ErrInterrupted", over, err)
		}
		if o := <-caller.done; o.cause != LinkLost || o.delivery != NotSent || link.closes != 1 {
			t.Errorf("the caller got %s, %s; the link was closed %d times; want LinkLost, NotSent, once",
				o.cause, o.delivery, link.closes)
		}
	})
}

// A loop has memory for its end only once there is something to remember: not while it is
// ready, and not when a link was closed without an error.
func TestReadyLoopHasNoMemoryForItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(deadTransport{}, Options{})
		l := readyLoop(t, c)
		defer l.leave()
		has := func(when string, want bool) {
			t.Helper()
			if got := l.lastly != nil; got != want {
				t.Errorf("%s: memory for its end is %t, want %t", when, got, want)
			}
		}
		has("ready", false)
		l.linkClosed(nil)
		has("a link was closed", false)
		left := errors.New("left behind")
		l.linkClosed(left)
		has("a link was not closed", true)
		l.mailbox.post(event{kind: interrupted, err: ErrInterrupted})
		if over, err := worked(l); !over || !errors.Is(err, ErrInterrupted) {
			t.Errorf("over %v, error %v; want true, ErrInterrupted", over, err)
		}
		if got := l.atEnd(); got.interruption == nil || got.closeErr != nil {
			t.Errorf("it remembers %+v, want the interruption and the end of the last link", got)
		}
	})
}

// A Conn that is interrupted before its first link stays in Starting, and reports no transition.
//
// Guarantees: G-0001.15
func TestInterruptionWhileStartingIsNoTransition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var transitions []telemetry.Transition
		hook := func(e telemetry.Transition) { transitions = append(transitions, e) }
		c := New(deadTransport{}, Options{Tuning: Tuning{Hooks: telemetry.Hooks{Transition: hook}}})
		l := entered(t, c)
		defer l.leave()
		l.mailbox.post(event{kind: interrupted, err: ErrInterrupted})
		if over, err := worked(l); !over || !errors.Is(err, ErrInterrupted) {
			t.Errorf("over %v, error %v; want true, ErrInterrupted", over, err)
		}
		synctest.Wait()
		if c.State() != Starting || len(transitions) != 0 {
			t.Errorf("state %s, transitions %+v; want starting, none", c.State(), transitions)
		}
	})
}

// A handler that returns right after an interruption, in the same batch of events, is not waited
// for and leaves no goroutine.
//
// Guarantees: G-0001.15
func TestHandlerReturnsBehindAnInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		c := New(deadTransport{}, Options{Handler: handlerCalls(func() { <-finish })})
		l := readyLoop(t, c)
		in := incomingRequest(1)
		in.caller, in.Epoch = &c.caller, 1
		l.mailbox.post(event{kind: requested, epoch: 1, incoming: in, frames: 1})
		worked(l)
		l.mailbox.post(event{kind: interrupted, err: ErrInterrupted})
		close(finish)
		synctest.Wait()
		before := time.Now()
		over, err := worked(l)
		if stuck := new(StuckError); !over || !errors.Is(err, ErrInterrupted) || errors.As(err, &stuck) {
			t.Errorf("over %v, error %v; want true and ErrInterrupted without a StuckError", over, err)
		}
		if waited := time.Since(before); waited != 0 {
			t.Errorf("the loop waited for %v, want 0", waited)
		}
		l.leave() // synctest would report a worker that is left
	})
}

// handlerCalls is a Handler that calls a function for each request.
type handlerCalls func()

func (f handlerCalls) ServeRequest(context.Context, *Incoming) (json.RawMessage, error) {
	f()
	return nil, nil
}

func (handlerCalls) ServeNotification(context.Context, *Incoming) {}

// A Stop right after an interruption closes the Conn for good.
//
// Guarantees: G-0001.15
func TestStopBehindAnInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(deadTransport{}, Options{})
		l := readyLoop(t, c)
		defer l.leave()
		l.mailbox.post(event{kind: interrupted, err: ErrInterrupted})
		c.Stop()
		over, err := worked(l)
		for !over {
			synctest.Wait()
			over, err = worked(l)
		}
		if err != nil || c.State() != Closing {
			t.Errorf("state %s, error %v; want closing and none", c.State(), err)
		}
	})
}

// A Close right after an interruption or a panic returns ErrNotRunning. The next Run then closes the Conn.
//
// Guarantees: G-0001.11, G-0001.15, G-0009.1
func TestCloseBehindTheEndOfARun(t *testing.T) {
	for name, end := range map[string]event{
		"interruption": {kind: interrupted, err: ErrInterrupted},
		"panic":        {epoch: 1}, // there is no such event
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, closing := New(deadTransport{}, Options{}), make(chan error, 1)
				l := readyLoop(t, c)
				l.mailbox.post(end)
				go func() { closing <- c.Close(context.Background()) }()
				synctest.Wait()
				if over, err := worked(l); !over || err == nil || c.State() != Starting {
					t.Errorf("over %v, state %s, error %v; want true, starting, an error", over, c.State(), err)
				}
				l.leave()
				if err := <-closing; !errors.Is(err, ErrNotRunning) {
					t.Errorf("Close: %v, want ErrNotRunning", err)
				}
				if err := c.Run(t.Context()); err != nil || c.State() != Closing || c.Status().Epoch != 1 {
					t.Errorf("the second Run: %v, %s in epoch %d; want no error, closing in epoch 1",
						err, c.State(), c.Status().Epoch)
				}
			})
		})
	}
}
