package conn

import (
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// The handler of a cancelled request keeps its place for CancelGrace. Then it is reported as stuck, once,
// and another request is served.
//
// Guarantees: G-0003.17
func TestStuckHandlerLosesItsPlace(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{MaxServing: 1, CancelGrace: time.Minute, Patience: -1}})
	first := d.request(1)
	d.advance(time.Second)
	d.cancel(1)
	second := d.request(2)
	d.dropEffects()
	d.advance(time.Minute - 1)
	d.wantNothing("the grace has not passed")
	d.advanceToDeadline()
	if fx := d.want(stuck); fx.incoming != first {
		t.Fatalf("%+v is stuck, want the first request", fx.incoming)
	}
	if fx := d.want(serve); fx.incoming != second {
		t.Fatalf("%+v is served, want the second request", fx.incoming)
	}
	d.wantNothing("it is reported once")
	if due := d.core.deadline(); due != 0 {
		t.Fatalf("the deadline is %v, want none", due)
	}
	d.handled(second)
	d.wantReply()
	if d.core.park(); d.core.incoming.stuck != 1 {
		t.Fatalf("a parked core counts %d stuck handlers, want 1", d.core.incoming.stuck)
	}
	d.handled(first)
	d.wantNothing("a cancelled request is not answered")
}

// A handler that returns within the grace is not stuck.
//
// Guarantees: G-0003.17
func TestHandlerHasAGraceToReturn(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{CancelGrace: time.Minute}})
	first, second := d.request(1), d.request(2)
	d.cancel(1)
	d.advance(time.Second)
	d.cancel(2)
	d.handled(first)
	d.dropEffects()
	d.advanceToDeadline()
	if fx := d.want(stuck); fx.incoming != second {
		t.Fatalf("%+v is stuck, want the second request", fx.incoming)
	}
	d.wantNothing("the first has returned")
}

// A stuck handler also gives up the place of an exclusive or of a streaming request.
//
// Guarantees: G-0003.17
func TestStuckExclusiveOrStreamingHandlerFreesItsPlace(t *testing.T) {
	for name, request := range map[string]*Incoming{
		"exclusive": {key: incomingKey{id: jsonrpc.IntegerID(1)}, exclusive: true},
		"streaming": {key: incomingKey{id: jsonrpc.IntegerID(1)}, streaming: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{Tuning: Tuning{MaxStreaming: 1}})
			d.stepCurrent(event{kind: requested, frames: 1, incoming: request})
			d.cancel(1)
			d.advanceToDeadline()
			d.dropEffects()
			next := &Incoming{key: incomingKey{id: jsonrpc.IntegerID(2)}, exclusive: request.exclusive, streaming: request.streaming}
			d.stepCurrent(event{kind: requested, frames: 1, incoming: next})
			if fx := d.want(serve); fx.incoming != next {
				t.Fatalf("%+v is served, want the next request", fx.incoming)
			}
			d.dropEffects()
			d.handled(request)
			d.handled(next)
			d.wantReply()
			d.wantNothing("both requests have ended")
		})
	}
}

// At most stuckPerPlace times MaxServing stuck handlers give up their place. All of them still count
// towards MaxHeld.
//
// Guarantees: G-0003.17
func TestStuckHandlersAreBounded(t *testing.T) {
	const places = 2
	d := driveReady(t, Options{Tuning: Tuning{MaxServing: places, MaxHeld: 1000, Patience: -1}})
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
		t.Fatalf("%d are stuck, %d hold a place, %d bytes are held; want %d, %d, %d",
			in.stuck, in.len(), in.bytes, stuckPerPlace*places, places, 10*len(all))
	}
	waiting := d.request(1000)
	d.dropEffects()
	d.advance(time.Hour)
	d.wantNothing("no further handler may give up its place")
	d.handled(all[0])
	d.wantNothing("the handler that returned held no place")
	d.advanceToDeadline()
	d.want(stuck)
	if fx := d.want(serve); fx.incoming != waiting {
		t.Fatalf("%+v is served, want the request that waited", fx.incoming)
	}
	d.handled(waiting)
	for _, in := range all {
		d.handled(in)
	}
	if in := &d.core.incoming; in.stuck != 0 || in.len() != 0 || in.bytes != 0 {
		t.Fatalf("%d are stuck, %d hold a place, %d bytes are held; want none", in.stuck, in.len(), in.bytes)
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
