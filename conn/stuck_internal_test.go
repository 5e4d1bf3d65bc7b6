package conn

import (
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A handler that ignores its context keeps its place for the grace, and no longer.
//
// Guarantees: G-0003.17
func TestStuckHandlerLosesItsPlace(t *testing.T) {
	d := driveReady(t, Options{MaxServing: 1, CancelGrace: time.Minute})
	first := d.request(1)
	d.advance(time.Second)
	d.cancel(1)
	second := d.request(2)
	d.dropEffects()
	d.advance(time.Minute - 1)
	d.wantNothing("the grace is not over")
	d.advanceToDeadline()
	if fx := d.want(stuck); fx.incoming != first {
		t.Fatalf("%+v is stuck", fx.incoming)
	}
	if fx := d.want(serve); fx.incoming != second {
		t.Fatalf("%+v is served", fx.incoming)
	}
	d.wantNothing("it is told once")
	if due := d.core.deadline(); due != 0 {
		t.Fatalf("a tick is wanted at %v", due)
	}
	d.handled(second)
	d.wantReply()
	if d.core.park(); d.core.incoming.stuck != 1 {
		t.Fatal("a parked core forgets what is stuck")
	}
	d.handled(first)
	d.wantNothing("it is not answered")
}

// A handler that returns within the grace is not stuck.
//
// Guarantees: G-0003.17
func TestHandlerHasAGraceToReturn(t *testing.T) {
	d := driveReady(t, Options{CancelGrace: time.Minute})
	first, second := d.request(1), d.request(2)
	d.cancel(1)
	d.advance(time.Second)
	d.cancel(2)
	d.handled(first)
	d.dropEffects()
	d.advanceToDeadline()
	if fx := d.want(stuck); fx.incoming != second {
		t.Fatalf("%+v is stuck", fx.incoming)
	}
	d.wantNothing("the first has returned")
}

// What is stuck gives up whatever it is: the one that holds all others, or one that
// stays.
//
// Guarantees: G-0003.17
func TestStuckHandlerFreesItsPlace(t *testing.T) {
	for name, request := range map[string]*Incoming{
		"exclusive": {key: incomingKey{id: jsonrpc.IntegerID(1)}, exclusive: true},
		"streaming": {key: incomingKey{id: jsonrpc.IntegerID(1)}, streaming: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{MaxStreaming: 1})
			d.stepCurrent(event{kind: requested, frames: 1, incoming: request})
			d.cancel(1)
			d.advanceToDeadline()
			d.dropEffects()
			next := &Incoming{key: incomingKey{id: jsonrpc.IntegerID(2)}, exclusive: request.exclusive, streaming: request.streaming}
			d.stepCurrent(event{kind: requested, frames: 1, incoming: next})
			if fx := d.want(serve); fx.incoming != next {
				t.Fatalf("%+v is served", fx.incoming)
			}
			d.dropEffects()
			d.handled(request)
			d.handled(next)
			d.wantReply()
			d.wantNothing("both are over")
		})
	}
}

// Stuck handlers that do not count are eight times as many as may run. What they
// hold still counts.
//
// Guarantees: G-0003.17
func TestStuckHandlersAreBounded(t *testing.T) {
	const places = 2
	d := driveReady(t, Options{MaxServing: places, MaxHeld: 1000})
	var all []*Incoming
	for id := range int64(stuckPerPlace*places + places) {
		in := incomingRequest(id)
		in.size = 10
		d.stepCurrent(event{kind: requested, incoming: in, frames: 1})
		d.cancel(id)
		if all = append(all, in); len(all)%places == 0 && d.core.deadline() != 0 {
			d.advanceToDeadline()
		}
	}
	if in := &d.core.incoming; in.stuck != stuckPerPlace*places || in.len() != places || in.bytes != 10*len(all) {
		t.Fatalf("%d are stuck, %d count, %d bytes are held", in.stuck, in.len(), in.bytes)
	}
	waiting := d.request(1000)
	d.dropEffects()
	d.advance(time.Hour)
	d.wantNothing("as many are stuck as may be")
	d.handled(all[0])
	d.wantNothing("one that did not count has returned")
	d.advanceToDeadline()
	d.want(stuck)
	if fx := d.want(serve); fx.incoming != waiting {
		t.Fatalf("%+v is served", fx.incoming)
	}
	d.handled(waiting)
	for _, in := range all {
		d.handled(in)
	}
	if in := &d.core.incoming; in.stuck != 0 || in.len() != 0 || in.bytes != 0 {
		t.Fatalf("%d are stuck, %d count, %d bytes are held", in.stuck, in.len(), in.bytes)
	}
}

// A drain does not wait for a handler that is stuck.
//
// Guarantees: G-0003.17
func TestDrainDoesNotWaitForStuckHandlers(t *testing.T) {
	d := driveReady(t, Options{})
	d.request(1)
	d.cancel(1)
	d.drain(time.Hour)
	d.dropEffects()
	d.advanceToDeadline()
	d.want(stuck)
	d.wantTransition(Closing, Drained)
}
