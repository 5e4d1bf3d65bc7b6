package conn

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// Close before the Conn is ready closes it at once.
//
// Guarantees: G-0009.6
func TestDrainBeforeReadyClosesAtOnce(t *testing.T) {
	for state, reach := range map[State]func(*driver){
		Starting:     func(d *driver) { d.start() },
		Initializing: func(d *driver) { d.start(); d.open() },
		Backoff:      func(d *driver) { d.start(); d.open(); d.loseLink() },
	} {
		t.Run(string(state), func(t *testing.T) {
			d := drive(t, initiator, Options{})
			reach(d)
			d.wantState(state)
			d.dropEffects()
			d.drain(time.Minute)
			d.wantTransition(Closing, Drained)
		})
	}
}

// If calls are still unfinished when Close stops waiting, it returns an error that says so, with
// and without a deadline of its context. Those calls do not end as timed out.
//
// Guarantees: G-0009.7
func TestCloseReportsInterruptedWork(t *testing.T) {
	for name, deadline := range map[string]time.Duration{"DrainGrace": 0, "a deadline": 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := New(deadTransport{}, Options{})
			ended, called := make(chan error, 1), make(chan error, 2)
			go func() { ended <- c.Run(context.Background()) }()
			synctest.Wait()
			for range 2 {
				go func() {
					_, err := c.Call(context.Background(), Request{Method: "m"})
					called <- err
				}()
			}
			synctest.Wait()
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if deadline > 0 {
				ctx, cancel = context.WithTimeout(ctx, deadline)
			}
			defer cancel()
			if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || deadline == 0 && !strings.Contains(err.Error(), "2 calls of ours") {
				t.Errorf("%s: Close returned %v, want DeadlineExceeded", name, err)
			}
			if err := <-called; errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: the call returned %v, want another error than DeadlineExceeded", name, err)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Errorf("%s: a second Close returned %v, want no error", name, err)
			}
			if err := <-ended; err != nil {
				t.Errorf("%s: Run returned %v, want no error", name, err)
			}
		})
	}
}

// A draining Conn that loses its link closes and does not reconnect.
func TestDrainingConnDoesNotReconnect(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.drain(time.Minute)
	d.dropEffects()
	d.loseLink()
	d.wantTransition(Closing, LinkBroken)
	d.want(endTasks)
	d.wantSettled(1, LinkLost, Unknown)
}

// streamingRequest lets a request of the peer come in that stays open until one side ends it.
func (d *driver) streamingRequest(id int64) *Incoming {
	in := &Incoming{streaming: true, key: incomingKey{id: jsonrpc.IntegerID(id)}}
	d.stepCurrent(event{kind: requested, incoming: in})
	return in
}

// A drain ends the context of a streaming request once, also if Close is called again.
//
// Guarantees: G-0019.7
func TestDrainCancelsAStreamingRequestOnce(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.streamingRequest(1)
	d.want(serve)
	d.drain(time.Minute)
	d.want(cancelServing)
	d.drain(time.Minute)
	d.wantNothing("its context has already ended")
}

// On Main, a streaming request that is answered because of a drain is also cancelled, behind
// its answer. Another stream ends with the answer.
//
// Guarantees: G-0019.7
func TestDrainCancelsWhatItAnswers(t *testing.T) {
	for _, test := range []struct {
		stream  transport.Stream
		drains  bool
		cancels bool
	}{{transport.Main, true, true}, {transport.Main, false, false}, {2, true, false}} {
		d := driveAcceptor(t, Options{Dialect: cancellingDialect{}})
		if test.stream != transport.Main {
			d.streamOpened(test.stream, 0)
			d.effects = nil
		}
		in := &Incoming{streaming: true, key: incomingKey{test.stream, jsonrpc.StringID("a")}}
		d.stepCurrent(event{kind: requested, incoming: in})
		d.want(serve)
		if test.drains {
			d.drain(time.Minute)
			d.want(cancelServing)
		}
		d.handled(in)
		d.wantReply()
		if !test.cancels {
			d.wantNothing("the answer is the end")
			continue
		}
		if out := d.want(transmit).out; out.route.Method != "cancel" || out.route.ID != in.key.id {
			t.Errorf("%q follows the answer, want the cancellation of %v", out.frame, in.key.id)
		}
	}
}

// The context of a streaming request whose handler is called during a drain ends at once.
// Other requests that wait are served to their end.
//
// Guarantees: G-0019.7
func TestDrainCancelsAStreamingRequestThatWaited(t *testing.T) {
	d := driveAcceptor(t, Options{})
	first := &Incoming{exclusive: true, key: incomingKey{id: jsonrpc.IntegerID(1)}}
	d.stepCurrent(event{kind: requested, incoming: first})
	stays, work := d.streamingRequest(2), d.request(3)
	d.drain(time.Minute)
	d.handled(first)
	for d.effects[0].kind != transmit {
		d.effects = d.effects[1:]
	}
	d.wantReply()
	if fx := d.want(serve); fx.incoming != stays {
		t.Fatalf("%v is served, want %v", fx.incoming.key, stays.key)
	}
	if fx := d.want(cancelServing); fx.incoming != stays || fx.err != ErrDraining {
		t.Fatalf("%v was cancelled with %v, want %v with ErrDraining", fx.incoming.key, fx.err, stays.key)
	}
	if fx := d.want(serve); fx.incoming != work {
		t.Fatalf("%v is served, want %v", fx.incoming.key, work.key)
	}
	d.wantNothing("other work may finish")
}

// A draining core whose link is busy has its next deadline only at the next attempt to send.
func TestDrainingConnDoesNotSpin(t *testing.T) {
	d := driveAcceptor(t, Options{})
	in := d.request(1)
	d.drain(time.Minute)
	d.dropEffects()
	d.handled(in)
	d.busy(d.wantReply())
	if wait := d.core.deadline() - d.now; wait != busyDelay {
		t.Fatalf("the next tick is in %v, want %v", wait, busyDelay)
	}
}

// If a busy link refuses a call for good during a drain, the reply that was offered after that call
// is still sent before the Conn closes.
//
// Guarantees: G-0007.5, G-0009.6
func TestReplyBehindARefusalIsSent(t *testing.T) {
	d := driveReady(t, Options{})
	in := d.request(7)
	d.call(1, 0)
	call := d.frame(1)
	call.attempts = busyRetries
	d.drain(time.Minute)
	d.handled(in)
	d.dropEffects()
	d.busy(call)
	d.wantSettled(1, Refused, NotSent)
	d.wantNothing("the link will return the reply behind the call, too")
	d.notOffered(outboundFrame{reply: true})
	d.stepCurrent(event{kind: writable})
	d.wantReply()
	d.advanceToDeadline()
	d.wantTransition(Closing, Drained)
}
