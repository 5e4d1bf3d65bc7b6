package conn

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

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

// Who closes without a deadline learns of what was cut, as one with a deadline
// does.
//
// Guarantees: G-0009.7
func TestCloseReportsInterruptedWork(t *testing.T) {
	for name, deadline := range map[string]time.Duration{"DrainGrace": 0, "a deadline": 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := New(opener{}, Options{})
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
				t.Errorf("%s: Close returned %v", name, err)
			}
			if err := <-called; errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: who called is told that the call has timed out: %v", name, err)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Errorf("%s: Close of what is closed returned %v", name, err)
			}
			if err := <-ended; err != nil {
				t.Errorf("%s: Run returned %v", name, err)
			}
		})
	}
}

// What drains does not come back: it closes with its link.
func TestDrainingConnDoesNotReconnect(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.drain(time.Minute)
	d.dropEffects()
	d.loseLink()
	d.wantTransition(Closing, LinkBroken)
	d.wantSettled(1, LinkLost, Unknown)
}

// streamingRequest brings a request of the peer's that stays until a side ends it.
func (d *driver) streamingRequest(id int64) *Incoming {
	in := &Incoming{streaming: true, key: incomingKey{id: jsonrpc.IntegerID(id)}}
	d.stepCurrent(event{kind: requested, incoming: in})
	return in
}

// Guarantees: G-0019.7
func TestStreamingRequestIsToldOnceOfADrain(t *testing.T) {
	d := driveAcceptor(t, Options{})
	d.streamingRequest(1)
	d.want(serve)
	d.drain(time.Minute)
	d.want(cancelServing)
	d.drain(time.Minute)
	d.wantNothing("it has been told")
}

// Guarantees: G-0019.7
func TestStreamingRequestThatIsServedInADrainIsToldAtOnce(t *testing.T) {
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
		t.Fatalf("%v is served", fx.incoming.key)
	}
	if fx := d.want(cancelServing); fx.incoming != stays || fx.err != ErrDraining {
		t.Fatalf("%v was told %v", fx.incoming.key, fx.err)
	}
	if fx := d.want(serve); fx.incoming != work {
		t.Fatalf("%v is served", fx.incoming.key)
	}
	d.wantNothing("other work is let finish")
}

// A drain that waits for a busy link asks for no tick before the next attempt.
func TestDrainingConnDoesNotSpin(t *testing.T) {
	d := driveAcceptor(t, Options{})
	in := d.request(1)
	d.drain(time.Minute)
	d.dropEffects()
	d.handled(in)
	d.busy(d.wantReply())
	if wait := d.core.deadline() - d.now; wait != busyDelay {
		t.Fatalf("the next tick is in %v", wait)
	}
}

// A call that a busy link refuses for good is not the last of what was offered:
// the reply behind it is about to come back, and is sent before a drain is over.
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
	d.wantNothing("what was offered behind the call comes back as well")
	d.notOffered(outboundFrame{reply: true})
	d.stepCurrent(event{kind: writable})
	d.wantReply()
	d.advanceToDeadline()
	d.wantTransition(Closing, Drained)
}
