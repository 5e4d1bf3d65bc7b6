package conn

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/transport"
)

// A simulation drives a core with random events of callers, a peer, a link that is sometimes busy,
// and a clock. It counts what the core must settle and how much credit it may grant.
type simulation struct {
	*driver
	rt            *rapid.T
	options       Options
	role          role
	busy          bool                      // the link refuses frames
	linkOpen      bool                      // bound, and not reported as closed
	granted       map[transport.Stream]int  // frames the present link's streams may still deliver
	answered      map[transport.Stream]bool // streams of the peer that have brought their frame
	opened        transport.Stream          // the number of the last stream
	lastID        int64
	lastProbe     int64 // the ids of probes are negative
	settled       map[int64]int
	notifications map[*call]int
	serving       []*Incoming
	history       []recordedStep
}

// A recordedStep is one step of a history.
type recordedStep struct {
	at      instant
	event   event
	effects []effect
}

func newSimulation(rt *rapid.T, r role) *simulation {
	o := Options{Dialect: cancellingDialect{}, Tuning: Tuning{MaxServing: 2, MaxStreaming: 2, MaxWaiting: 2, MaxMalformed: 3, Credit: 2, Liveness: 5 * time.Second}}
	sim := &simulation{driver: drive(rt, r, o), rt: rt, options: o, role: r, settled: map[int64]int{}, notifications: map[*call]int{}}
	sim.inject(event{kind: started, eventExtra: &eventExtra{link: deadLink{}}})
	return sim
}

// inject steps the core as the loop does: if a link is busy, the frame that it refused and all
// frames behind it go back to the core at once.
func (sim *simulation) inject(ev event) {
	pendingEvents := []event{ev}
	for len(pendingEvents) > 0 {
		ev, pendingEvents = pendingEvents[0], pendingEvents[1:]
		given := ev
		effects := cloneEffects(sim.core.step(sim.now, &ev))
		sim.history = append(sim.history, recordedStep{sim.now, given, effects})
		for _, fx := range effects {
			if back, refused := sim.perform(fx, len(pendingEvents) > 0); refused {
				pendingEvents = append(pendingEvents, back)
			}
		}
		sim.check()
	}
	sim.checkStreams()
}

// checkStreams checks that each stream of the peer that still waits for an answer has a request in
// the core.
func (sim *simulation) checkStreams() {
	c := sim.core
	if !c.attached() || !c.outbound.empty() {
		return
	}
	for number := range sim.answered {
		if s := c.streams.others[number]; s == nil || len(s.requests) == 0 {
			sim.t.Fatalf("stream %d waits for an answer, but the core has no request for it", number)
		}
	}
}

func (sim *simulation) perform(fx effect, behind bool) (back event, refused bool) {
	switch fx.kind {
	case bind:
		sim.linkOpen, sim.granted = true, map[transport.Stream]int{transport.Main: 0}
		sim.answered = map[transport.Stream]bool{}
	case grant:
		if _, open := sim.granted[fx.stream]; !open {
			sim.t.Fatalf("credit was granted to stream %d, which has ended", fx.stream)
		}
		sim.granted[fx.stream] += fx.frames
	case endStream:
		sim.endStream(fx.stream)
	case settle:
		if fx.id == 0 {
			sim.notifications[fx.call]++
		} else {
			sim.settled[fx.id]++
		}
	case serve:
		sim.serving = append(sim.serving, fx.incoming)
	case offerMore:
		return event{kind: writable, epoch: fx.epoch}, !behind
	case transmit:
		if sim.busy || behind {
			return event{kind: busy, epoch: fx.epoch, out: returned(fx.out), tried: !behind, random: sim.random()}, true
		}
		if fx.out.notification {
			sim.notifications[fx.out.call]++
		}
		if fx.out.last {
			sim.endStream(fx.out.stream)
		}
	}
	return event{}, false
}

// endStream ends a stream, which must have been open.
func (sim *simulation) endStream(number transport.Stream) {
	if _, open := sim.granted[number]; !open || number == transport.Main {
		sim.t.Fatalf("stream %d was ended although it was not open", number)
	}
	delete(sim.granted, number)
	delete(sim.answered, number)
}

func (sim *simulation) random() float64 { return rapid.Float64Range(0, 1).Draw(sim.rt, "random") }

// check checks what must be true after every step.
func (sim *simulation) check() {
	c := sim.core
	switch {
	case !c.attached() && (c.pending.len() > 0 || c.incoming.len() > 0 || !c.outbound.empty()):
		sim.t.Fatalf("in %s %d requests are pending, %d served, %d frames queued; want none",
			c.state(), c.pending.len(), c.incoming.len(), len(c.outbound.waiting()))
	case c.outbound.empty() != (c.outbound.retryAt == 0):
		sim.t.Fatalf("%d frames are queued, the next offer is at %v; want both or neither",
			len(c.outbound.waiting()), c.outbound.retryAt)
	case !c.attached() && (len(c.streams.others) > 0 || c.streams.deadline() != 0):
		sim.t.Fatalf("in %s there are %d streams and a deadline at %v, want neither",
			c.state(), len(c.streams.others), c.streams.deadline())
	case c.tombstones.len() > maxTombstones || len(c.tombstones.order) != c.tombstones.len():
		sim.t.Fatalf("%d tombstones, %d in order; want the same number, %d at most",
			c.tombstones.len(), len(c.tombstones.order), maxTombstones)
	case c.incoming.running()-len(c.incoming.streaming) > 2 || len(c.incoming.streaming) > 2 || len(c.incoming.waiting) > 2:
		sim.t.Fatalf("%d served, %d streaming, %d waiting; want 2 at most of each",
			c.incoming.running(), len(c.incoming.streaming), len(c.incoming.waiting))
	}
	for number, frames := range sim.granted {
		if frames > c.options.Credit {
			sim.t.Fatalf("stream %d may deliver %d frames, want %d at most", number, frames, c.options.Credit)
		}
	}
	for id, n := range sim.settled {
		if _, isPending := c.pending.byID[id]; n > 1 || isPending {
			sim.t.Fatalf("request %d was settled %d times, still pending %v; want once at most, and then not pending",
				id, n, isPending)
		}
	}
}

// receiveFrame steps the event of a frame that has used one credit.
func (sim *simulation) receiveFrame(ev event) {
	if !sim.linkOpen || sim.granted[ev.stream] == 0 || !sim.core.attached() {
		return
	}
	sim.granted[ev.stream]--
	ev.epoch, ev.frames = sim.core.epoch, 1
	sim.inject(ev)
}

func (sim *simulation) report(ev event) {
	ev.epoch, ev.random = sim.core.epoch, sim.random()
	sim.inject(ev)
}

func (sim *simulation) someID() int64 { return rapid.Int64Range(1, sim.lastID+2).Draw(sim.rt, "id") }

func (sim *simulation) nextProbe() int64 {
	sim.lastProbe--
	return sim.lastProbe
}

func (sim *simulation) makeCall(timeout time.Duration, serving bool) {
	sim.lastID++
	sim.report(event{
		kind:      callMade,
		timeout:   timeout,
		serving:   serving,
		handshake: rapid.Bool().Draw(sim.rt, "handshake"),
		streaming: timeout == 0 && rapid.Bool().Draw(sim.rt, "streaming"),
		out:       &outboundFrame{id: sim.lastID, call: new(call)},
	})
}

// actions returns the events that can happen, by their names.
func (sim *simulation) actions() map[string]func(*rapid.T) {
	gone := errors.New("gone")
	return map[string]func(*rapid.T){
		"a call":          func(*rapid.T) { sim.makeCall(0, false) },
		"a timed call":    func(*rapid.T) { sim.makeCall(time.Second, false) },
		"a handler calls": func(*rapid.T) { sim.makeCall(0, true) },
		"a notification": func(*rapid.T) {
			caller := new(call)
			sim.notifications[caller] = 0
			sim.report(event{kind: notificationMade, out: &outboundFrame{call: caller, notification: true}})
		},
		"a caller leaves":   func(*rapid.T) { sim.inject(event{kind: callLeft, id: sim.someID(), err: gone}) },
		"an answer":         func(*rapid.T) { sim.receiveFrame(event{kind: replied, id: sim.someID()}) },
		"a request":         func(*rapid.T) { sim.receiveFrame(event{kind: requested, incoming: incomingRequest(sim.someID() % 5)}) },
		"a cancellation":    func(*rapid.T) { sim.receiveFrame(event{kind: cancelled, incoming: incomingRequest(sim.someID() % 5)}) },
		"a probe":           func(*rapid.T) { sim.receiveFrame(event{kind: probed, out: &outboundFrame{reply: true}}) },
		"a malformed frame": func(*rapid.T) { sim.receiveFrame(event{kind: malformed, err: gone, random: sim.random()}) },
		"a handler returns": func(*rapid.T) { sim.handlerReturns() },
		"the link is busy":  func(*rapid.T) { sim.busy = true },
		"the link has room": func(*rapid.T) { sim.busy = false; sim.report(event{kind: writable}) },
		"time passes":       func(*rapid.T) { sim.advanceBy(rapid.Int64Range(1, int64(20*time.Second)).Draw(sim.rt, "for")) },
		"the timer fires":   func(*rapid.T) { sim.advanceBy(int64(max(sim.core.deadline()-sim.now, 0))) },
		"a link opens":      func(*rapid.T) { sim.linkOpens() },
		"no link opens":     func(*rapid.T) { sim.noLinkOpens() },
		"a handshake":       func(*rapid.T) { sim.report(event{kind: handshakeDone, id: sim.nextProbe()}) },
		"no handshake": func(*rapid.T) {
			sim.report(event{kind: handshakeFailed, eventExtra: &eventExtra{reason: Reason{Kind: HandshakeFailed}}})
		},
		"the link is lost":   func(*rapid.T) { sim.loss() },
		"the link is closed": func(*rapid.T) { sim.closed() },
		"the peer ends":      func(*rapid.T) { sim.report(event{kind: linkEnded}) },
		"a message fails": func(*rapid.T) {
			sim.report(event{kind: failed, out: &outboundFrame{id: sim.someID()}, unsent: rapid.Bool().Draw(sim.rt, "unsent"), err: gone})
		},
		"the probe is answered": func(*rapid.T) { sim.receiveFrame(event{kind: replied, id: sim.core.liveness.probe}) },
		"a doubt": func(*rapid.T) {
			id := sim.someID()
			if rapid.Bool().Draw(sim.rt, "of the probe") {
				id = sim.core.liveness.probe
			}
			sim.report(event{kind: doubted, id: sim.nextProbe(), out: &outboundFrame{id: id}, err: gone})
		},
		"a stream for a request": func(*rapid.T) { sim.streamOpens(sim.someID()) },
		"a stream of the peer":   func(*rapid.T) { sim.streamOpens(0) },
		"a request on a stream": func(*rapid.T) {
			sim.receiveOnStream(event{kind: requested, incoming: incomingRequest(sim.someID() % 5)})
		},
		"a streaming request": func(*rapid.T) {
			in := incomingRequest(sim.someID() % 5)
			in.streaming = true
			sim.receiveOnStream(event{kind: requested, incoming: in})
		},
		"a probe on a stream": func(*rapid.T) { sim.receiveOnStream(event{kind: probed, out: &outboundFrame{reply: true}}) },
		"an answer on a stream": func(*rapid.T) {
			number, last := sim.someStream(), rapid.Bool().Draw(sim.rt, "last")
			if s := sim.core.streams.others[number]; s != nil && s.request != 0 {
				if last && sim.granted[number] > 0 {
					defer delete(sim.granted, number)
				}
				sim.receiveFrame(event{kind: replied, id: sim.someID(), stream: number, last: last})
			}
		},
		"a stream is lost": func(*rapid.T) { sim.streamIsLost() },
		"wake":             func(*rapid.T) { sim.inject(event{kind: woken}) },
		"drain":            func(*rapid.T) { sim.rarely(event{kind: drainAsked, timeout: 3 * time.Second}) },
		"stop":             func(*rapid.T) { sim.rarely(event{kind: stopAsked}) },
	}
}

func (sim *simulation) someStream() transport.Stream {
	return transport.Stream(rapid.Uint64Range(0, uint64(sim.opened)).Draw(sim.rt, "stream"))
}

func (sim *simulation) streamOpens(request int64) {
	if !sim.linkOpen || !sim.core.attached() {
		return
	}
	sim.opened++
	sim.granted[sim.opened] = 0
	sim.report(event{kind: streamOpened, stream: sim.opened, id: request})
}

// receiveOnStream lets the only frame of a stream come in that the peer has opened.
func (sim *simulation) receiveOnStream(ev event) {
	s := sim.core.streams.others[sim.someStream()]
	if s == nil || s.request != 0 || s.complete || sim.granted[s.number] == 0 {
		return
	}
	if ev.incoming != nil {
		ev.incoming.key.stream = s.number
	}
	if ev.out != nil {
		ev.out.stream = s.number
	}
	ev.stream, ev.last = s.number, true
	sim.answered[s.number] = true
	sim.receiveFrame(ev)
}

func (sim *simulation) streamIsLost() {
	number, resumable := sim.someStream(), rapid.Bool().Draw(sim.rt, "resumable")
	if s := sim.core.streams.find(number); sim.linkOpen && sim.core.attached() && s != nil {
		if number != transport.Main && !resumable {
			delete(sim.granted, number)
			delete(sim.answered, number)
		}
		sim.report(event{kind: streamLost, stream: number, resumable: resumable, eventExtra: new(eventExtra)})
	}
}

func (sim *simulation) rarely(ev event) {
	if rapid.IntRange(0, 9).Draw(sim.rt, "rarely") == 0 {
		sim.inject(ev)
	}
}

func (sim *simulation) handlerReturns() {
	if len(sim.serving) > 0 {
		in := sim.serving[0]
		sim.serving = sim.serving[1:]
		sim.inject(event{kind: handled, incoming: in})
	}
}

func (sim *simulation) linkOpens() {
	if sim.core.state() == Starting {
		sim.report(event{kind: linkOpened, eventExtra: &eventExtra{link: deadLink{}}})
	}
}

func (sim *simulation) noLinkOpens() {
	if sim.core.state() == Starting {
		sim.report(event{kind: openFailed, eventExtra: &eventExtra{reason: Reason{Kind: OpenFailed}}})
	}
}

func (sim *simulation) loss() {
	if sim.linkOpen {
		sim.report(event{kind: linkLost, eventExtra: &eventExtra{reason: Reason{Kind: LinkBroken}, tags: []transport.Tag{transport.Tag(sim.someID())}}})
	}
}

func (sim *simulation) closed() {
	if sim.linkOpen && !sim.core.attached() {
		sim.linkOpen = false
		sim.report(event{kind: linkGone})
	}
}

// advanceBy lets time pass. Two ticks must do everything that is due, or else the loop would spin.
func (sim *simulation) advanceBy(wait int64) {
	sim.now += instant(wait)
	for range 2 {
		sim.report(event{kind: tick, id: sim.nextProbe()})
	}
	if due := sim.core.deadline(); due != 0 && due <= sim.now {
		sim.t.Fatalf("at %v the deadline is still %v", sim.now, due)
	}
}

// finish stops the Conn, and checks that everything was settled once.
func (sim *simulation) finish() {
	sim.inject(event{kind: stopAsked})
	sim.closed()
	for id := range sim.lastID {
		if n := sim.settled[id+1]; n != 1 {
			sim.t.Fatalf("request %d was settled %d times, want once", id+1, n)
		}
	}
	for _, n := range sim.notifications {
		if n != 1 {
			sim.t.Fatalf("a notification was settled %d times, want once", n)
		}
	}
	if due := sim.core.deadline(); due != 0 && due != sim.core.tombstones.sweepAt && due != sim.core.closeDue {
		sim.t.Fatalf("a closed Conn has a deadline at %v, want none", due)
	}
}

// TestStatsAddUp checks with random histories that each call is settled once, that nothing is left
// outside of a ready incarnation, that credit keeps its limit, and that every deadline passes.
//
// Guarantees: G-0001.2, G-0003.1, G-0003.3, G-0004.1, G-0005.4, G-0009.2
func TestStatsAddUp(t *testing.T) {
	for name, r := range map[string]role{"initiator": initiator, "acceptor": acceptor} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				sim := newSimulation(rt, r)
				rt.Repeat(sim.actions())
				sim.finish()
			})
		})
	}
}

// TestEqualEventsGiveEqualEffects steps the events of random histories a second time in another core,
// which must return the same effects.
//
// Guarantees: G-0001.10
func TestEqualEventsGiveEqualEffects(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sim := newSimulation(rt, initiator)
		rt.Repeat(sim.actions())
		again := drive(rt, initiator, sim.options)
		for i, m := range sim.history {
			ev := m.event
			effects := cloneEffects(again.core.step(m.at, &ev))
			if !reflect.DeepEqual(effects, m.effects) {
				rt.Fatalf("step %d returned %+v first and %+v the second time, want the same", i, m.effects, effects)
			}
		}
	})
}
