package conn

import (
	"reflect"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// driveParked returns the core of a Conn that has done some work and then parked.
func driveParked(t *testing.T, work func(*driver)) *driver {
	t.Helper()
	d := driveReady(t, Options{})
	work(d)
	d.core.park()
	return d
}

// driveUnparked returns the core of a Conn that has done some work, parked, and unparked.
func driveUnparked(t *testing.T, work func(*driver)) *driver {
	t.Helper()
	d := driveParked(t, work)
	d.core.unpark(new(scratch))
	d.dropEffects()
	return d
}

// If nothing is under way, a parked core keeps nothing about messages but the highest id.
//
// Guarantees: G-0063.1
func TestIdleCoreGivesItsTrafficAway(t *testing.T) {
	d := driveParked(t, func(d *driver) {
		d.call(1, time.Minute)
		d.reply(1)
		d.handled(d.request(2))
	})
	if d.core.traffic != nil || d.core.deadline() != 0 {
		t.Errorf("it keeps %+v and has a deadline at %v, want neither", d.core.traffic, d.core.deadline())
	}
	d.core.unpark(new(scratch))
	d.dropEffects()
	d.reply(1)
	d.want(late)
}

// A parked core holds no memory for requests, effects and streams.
func TestIdleCoreHoldsNothing(t *testing.T) {
	d := driveParked(t, func(d *driver) {
		d.call(1, time.Minute)
		d.streamOpened(1, 1)
		d.reply(1)
		d.handled(d.request(2))
		d.cutStream(transport.Main, 0)
		d.advanceToDeadline()
	})
	c := d.core
	if c.out != nil || c.pending.byID != nil || c.pending.free != nil || c.incoming.serving != nil {
		t.Errorf("it holds requests %+v, %+v and %d effects, want none", c.pending, c.incoming, cap(c.out))
	}
	if c.streams.others != nil || c.streams.throttled != nil || c.streams.cut != nil {
		t.Errorf("it holds streams %+v, want none", c.streams)
	}
}

// What was under way before a core parked goes on after it unparked.
//
// Guarantees: G-0063.2
func TestParkingLosesNothing(t *testing.T) {
	congest := func(d *driver) {
		for range repliesHigh {
			d.busy(outboundFrame{reply: true})
		}
	}
	for name, c := range map[string]struct {
		work  func(*driver)
		after func(*driver)
	}{
		"a call": {
			func(d *driver) { d.call(1, time.Minute) },
			func(d *driver) { d.advanceToDeadline(); d.wantSettled(1, TimedOut, Unknown) },
		},
		"a request of the peer": {
			func(d *driver) { d.request(1) },
			func(d *driver) { d.cancel(1); d.want(cancelServing) },
		},
		"a stream": {
			func(d *driver) { d.streamOpened(1, 0) },
			func(d *driver) {
				d.stepCurrent(event{kind: notified, incoming: &Incoming{}, stream: 1, frames: 1})
				d.want(notify)
				d.wantGrantOn(1, 1)
			},
		},
		"a stream that was cut": {
			func(d *driver) { d.cutStream(transport.Main, 0) },
			func(d *driver) { d.advanceToDeadline(); d.want(resumeStream) },
		},
		"malformed frames in a row": {
			func(d *driver) {
				d.stepCurrent(event{kind: malformed, err: &jsonrpc.DecodeError{}, size: maxMalformedBytes - 1})
			},
			func(d *driver) {
				d.stepCurrent(event{kind: malformed, err: &jsonrpc.DecodeError{}, size: 1})
				d.wantState(Backoff)
			},
		},
		"credit that is withheld": {
			func(d *driver) { congest(d); d.request(1) },
			func(d *driver) {
				d.stepCurrent(event{kind: writable})
				d.dropEffectsOf(transmit)
				d.want(stallEnded)
				d.wantGrant(1)
			},
		},
	} {
		t.Run(name, func(t *testing.T) { c.after(driveUnparked(t, c.work)) })
	}
}

// The slice of effects is used again unless a step has made it larger than maxEffects.
func TestEffectsOfALargeStepAreNotKept(t *testing.T) {
	for capacity, kept := range map[int]bool{maxEffects: true, maxEffects + 1: false} {
		c := core{traffic: &traffic{out: make([]effect, 1, capacity), extra: make([]eventExtra, 1)}}
		if c.clearEffects(); len(c.out) != 0 || len(c.extra) != 0 || (cap(c.out) == capacity) != kept {
			t.Errorf("capacity %d: %d effects are kept, want reuse: %v", capacity, cap(c.out), kept)
		}
		parks := core{traffic: &traffic{out: make([]effect, 1, capacity)}}
		if given := parks.park().effects; len(given) != 0 || (cap(given) == capacity) != kept {
			t.Errorf("capacity %d: %d effects are given to others, want reuse: %v", capacity, cap(given), kept)
		}
	}
}

// The memory that a core gives up when it parks is used by the next one that becomes busy.
func TestParkedCoreGivesItsMemoryAway(t *testing.T) {
	busy := core{traffic: &traffic{streams: streams{throttled: make([]*stream, 0, 1)}}}
	busy.serve(&Incoming{}, 0)
	clear(busy.incoming.serving)
	busy.pending.byID = map[int64]*request{}
	serving, effects := reflect.ValueOf(busy.incoming.serving).Pointer(), cap(busy.out)
	if effects != fewEffects {
		t.Errorf("a core begins with capacity for %d effects, want %d", effects, fewEffects)
	}
	given := busy.park()
	var next core
	next.unpark(&given)
	if got := reflect.ValueOf(next.incoming.serving).Pointer(); got != serving {
		t.Error("the next core has another map of served requests, want the same")
	}
	if cap(next.streams.throttled) != 1 || cap(next.out) != effects || next.pending.byID == nil {
		t.Errorf("the next core has %d streams, %d effects, requests %v; want 1, %d and a map",
			cap(next.streams.throttled), cap(next.out), next.pending.byID, effects)
	}
	if !reflect.ValueOf(given).IsZero() {
		t.Errorf("the scratch still holds %+v, want nothing", given)
	}
}

// A core that parks does not give memory to others that has become too large.
func TestParkedCoreDropsLargeMemory(t *testing.T) {
	for n, gives := range map[int]bool{maxFree: true, maxFree + 1: false} {
		c := core{traffic: new(traffic)}
		for id := range n {
			c.serve(&Incoming{key: incomingKey{stream: transport.Stream(id)}}, 0)
		}
		clear(c.incoming.serving)
		c.serve(&Incoming{}, 0) // few again
		clear(c.incoming.serving)
		if given := c.park(); (given.serving != nil) != gives || c.large {
			t.Errorf("after %d requests at once: map given %v, large %v; want %v, false",
				n, given.serving != nil, c.large, gives)
		}
		s := streams{throttled: make([]*stream, 0, n)}
		if throttled := s.park(); (throttled != nil) != gives {
			t.Errorf("slice of %d streams given: %v, want %v", n, throttled != nil, gives)
		}
		p := pending{byID: map[int64]*request{}, free: make([]*request, n-1)}
		if given := p.park(); (given.byID != nil) != gives {
			t.Errorf("map given with %d free requests: %v, want %v", n-1, given.byID != nil, gives)
		}
	}
}

// A parked core keeps its traffic while anything is under way.
//
// Guarantees: G-0063.1
func TestParkedCoreKeepsWhatIsUnderWay(t *testing.T) {
	for name, begin := range map[string]func(*traffic){
		"a call":                     func(u *traffic) { u.pending.add(request{id: 7, deadline: time.Hour}) },
		"a tombstone":                func(u *traffic) { u.tombstones.add(7, tombstone{}, time.Hour) },
		"a request being served":     func(u *traffic) { u.incoming.serve(&Incoming{key: incomingKey{id: jsonrpc.IntegerID(7)}}) },
		"a handler that is stuck":    func(u *traffic) { u.incoming.cancelled, u.incoming.stuck = make([]dueRequest, 1), 1 },
		"a frame that waits":         func(u *traffic) { u.outbound.slots = make([]outboundFrame, 1) },
		"a link that is busy":        func(u *traffic) { u.outbound.stuckAt = time.Hour },
		"credit that is withheld":    func(u *traffic) { u.streams.main.withheld = 1 },
		"streams that are throttled": func(u *traffic) { u.streams.throttled = make([]*stream, 1) },
		"a stream that was cut":      func(u *traffic) { u.streams.cut = make([]*stream, 1) },
		"a time to resume":           func(u *traffic) { u.streams.main.resumeAt = time.Hour },
		"delays of a resume":         func(u *traffic) { u.streams.main.schedule = new(schedule) },
		"a complete stream":          func(u *traffic) { u.streams.main.complete = true },
		"a nested request":           func(u *traffic) { u.streams.main.nested = 1 },
		"a pause":                    func(u *traffic) { u.flow.until = time.Hour },
	} {
		d := driveReady(t, Options{})
		begin(d.core.traffic)
		if d.core.park(); d.core.traffic == nil {
			t.Errorf("%s: the core has given its traffic away, want it kept", name)
		}
	}
	d := driveReady(t, Options{})
	d.core.streams.main.number = 7 // nothing that is under way
	if given := d.core.park(); !reflect.DeepEqual(given.traffic, new(traffic)) {
		t.Errorf("the core has given away the traffic %+v, want an empty one", given.traffic)
	}
}
