package conn

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/transport"
)

// A world is a core among random events: callers, a peer, a link that is busy
// at times, and a clock. It keeps the books the core has to balance.
type world struct {
	*driver
	rt       *rapid.T
	options  Options
	role     role
	busy     bool                      // the link refuses frames
	linkOpen bool                      // bound, and not said to be gone
	granted  map[transport.Stream]int  // frames the present link's streams may still deliver
	answered map[transport.Stream]bool // streams of the peer's that have brought their frame
	opened   transport.Stream          // the last stream
	lastID   int64
	settled  map[int64]int
	notices  map[*call]int
	serving  []*Incoming
	history  []moment
}

// A moment is one step of a history.
type moment struct {
	at      instant
	event   event
	effects []effect
}

func newWorld(rt *rapid.T, r role) *world {
	o := Options{MaxServing: 2, MaxStreaming: 2, MaxWaiting: 2, MaxMalformed: 3, Credit: 2, Dialect: cancellingDialect{}}
	w := &world{driver: drive(rt, r, o), rt: rt, options: o, role: r, settled: map[int64]int{}, notices: map[*call]int{}}
	w.happen(event{kind: started, particulars: &particulars{link: deadLink{}}})
	return w
}

// happen steps the core as the shell does: what a busy link refuses goes back
// at once, and everything behind it.
func (w *world) happen(ev event) {
	pendingEvents := []event{ev}
	for len(pendingEvents) > 0 {
		ev, pendingEvents = pendingEvents[0], pendingEvents[1:]
		given := ev
		effects := cloneEffects(w.core.step(w.now, &ev))
		w.history = append(w.history, moment{w.now, given, effects})
		for _, fx := range effects {
			if back, refused := w.perform(fx, len(pendingEvents) > 0); refused {
				pendingEvents = append(pendingEvents, back)
			}
		}
		w.check()
	}
	w.checkStreams()
}

// checkStreams holds that whoever has asked on a stream of its own will be
// answered, or sees the stream end.
func (w *world) checkStreams() {
	c := w.core
	if !c.attached() || !c.outbound.empty() {
		return
	}
	for number := range w.answered {
		if s := c.streams.others[number]; s == nil || len(s.requests) == 0 {
			w.t.Fatalf("stream %d waits for an answer that will not come", number)
		}
	}
}

func (w *world) perform(fx effect, behind bool) (back event, refused bool) {
	switch fx.kind {
	case bind:
		w.linkOpen, w.granted = true, map[transport.Stream]int{transport.Main: 0}
		w.answered = map[transport.Stream]bool{}
	case grant:
		if _, open := w.granted[fx.stream]; !open {
			w.t.Fatalf("credit for stream %d, which is over", fx.stream)
		}
		w.granted[fx.stream] += fx.frames
	case endStream:
		w.over(fx.stream)
	case settle:
		if fx.id == 0 {
			w.notices[fx.call]++
		} else {
			w.settled[fx.id]++
		}
	case serve:
		w.serving = append(w.serving, fx.incoming)
	case offerMore:
		return event{kind: writable, epoch: fx.epoch}, !behind
	case transmit:
		if w.busy || behind {
			return event{kind: busy, epoch: fx.epoch, out: returned(fx.out), tried: !behind, random: w.random()}, true
		}
		if fx.out.notification {
			w.notices[fx.out.call]++
		}
		if fx.out.last {
			w.over(fx.out.stream)
		}
	}
	return event{}, false
}

// over ends a stream, which must have been open.
func (w *world) over(number transport.Stream) {
	if _, open := w.granted[number]; !open || number == transport.Main {
		w.t.Fatalf("stream %d was ended, and was not open", number)
	}
	delete(w.granted, number)
	delete(w.answered, number)
}

func (w *world) random() float64 { return rapid.Float64Range(0, 1).Draw(w.rt, "random") }

// check holds what must be true after every step.
func (w *world) check() {
	c := w.core
	switch {
	case !c.attached() && (c.pending.len() > 0 || c.incoming.len() > 0 || !c.outbound.empty()):
		w.t.Fatalf("in %s %d requests are pending, %d served, %d frames queued", c.state(), c.pending.len(), c.incoming.len(), len(c.outbound.waiting()))
	case c.outbound.empty() != (c.outbound.retryAt == 0):
		w.t.Fatalf("%d frames are queued, to be offered again at %v", len(c.outbound.waiting()), c.outbound.retryAt)
	case !c.attached() && (len(c.streams.others) > 0 || c.streams.deadline() != 0):
		w.t.Fatalf("in %s there are %d streams", c.state(), len(c.streams.others))
	case c.tombstones.len() > maxTombstones || len(c.tombstones.order) != c.tombstones.len():
		w.t.Fatalf("%d tombstones, %d in order", c.tombstones.len(), len(c.tombstones.order))
	case c.incoming.running()-len(c.incoming.streaming) > 2 || len(c.incoming.streaming) > 2 || len(c.incoming.waiting) > 2:
		w.t.Fatalf("%d served, %d waiting", c.incoming.running(), len(c.incoming.waiting))
	}
	for number, frames := range w.granted {
		if frames > c.options.Credit {
			w.t.Fatalf("stream %d may deliver %d frames", number, frames)
		}
	}
	for id, n := range w.settled {
		if _, isPending := c.pending.byID[id]; n > 1 || isPending {
			w.t.Fatalf("request %d was settled %d times; still pending: %v", id, n, isPending)
		}
	}
}

// came is a frame that has used one credit.
func (w *world) came(ev event) {
	if !w.linkOpen || w.granted[ev.stream] == 0 || !w.core.attached() {
		return
	}
	w.granted[ev.stream]--
	ev.epoch, ev.frames = w.core.epoch, 1
	w.happen(ev)
}

func (w *world) report(ev event) {
	ev.epoch, ev.random = w.core.epoch, w.random()
	w.happen(ev)
}

func (w *world) someID() int64 { return rapid.Int64Range(1, w.lastID+2).Draw(w.rt, "id") }

func (w *world) made(timeout time.Duration, serving bool) {
	w.lastID++
	w.report(event{
		kind:      callMade,
		timeout:   timeout,
		serving:   serving,
		handshake: rapid.Bool().Draw(w.rt, "handshake"),
		streaming: timeout == 0 && rapid.Bool().Draw(w.rt, "streaming"),
		out:       &outboundFrame{id: w.lastID, call: new(call)},
	})
}

// actions are what can happen, each named.
func (w *world) actions() map[string]func(*rapid.T) {
	gone := errors.New("gone")
	return map[string]func(*rapid.T){
		"a call":          func(*rapid.T) { w.made(0, false) },
		"a timed call":    func(*rapid.T) { w.made(time.Second, false) },
		"a handler calls": func(*rapid.T) { w.made(0, true) },
		"a notification": func(*rapid.T) {
			caller := new(call)
			w.notices[caller] = 0
			w.report(event{kind: notificationMade, out: &outboundFrame{call: caller, notification: true}})
		},
		"a caller leaves":   func(*rapid.T) { w.happen(event{kind: callLeft, id: w.someID(), err: gone}) },
		"an answer":         func(*rapid.T) { w.came(event{kind: replied, id: w.someID()}) },
		"a request":         func(*rapid.T) { w.came(event{kind: requested, incoming: incomingRequest(w.someID() % 5)}) },
		"a cancellation":    func(*rapid.T) { w.came(event{kind: cancelled, incoming: incomingRequest(w.someID() % 5)}) },
		"a probe":           func(*rapid.T) { w.came(event{kind: probed, out: &outboundFrame{reply: true}}) },
		"a malformed frame": func(*rapid.T) { w.came(event{kind: malformed, err: gone, random: w.random()}) },
		"a handler returns": func(*rapid.T) { w.handlerReturns() },
		"the link is busy":  func(*rapid.T) { w.busy = true },
		"the link has room": func(*rapid.T) { w.busy = false; w.report(event{kind: writable}) },
		"time passes":       func(*rapid.T) { w.pass(rapid.Int64Range(1, int64(20*time.Second)).Draw(w.rt, "for")) },
		"the timer fires":   func(*rapid.T) { w.pass(int64(max(w.core.deadline()-w.now, 0))) },
		"a link opens":      func(*rapid.T) { w.linkOpens() },
		"no link opens":     func(*rapid.T) { w.noLinkOpens() },
		"a handshake":       func(*rapid.T) { w.report(event{kind: handshakeDone}) },
		"no handshake": func(*rapid.T) {
			w.report(event{kind: handshakeFailed, particulars: &particulars{reason: Reason{Kind: HandshakeFailed}}})
		},
		"the link is lost":   func(*rapid.T) { w.loss() },
		"the link is closed": func(*rapid.T) { w.closed() },
		"the peer ends":      func(*rapid.T) { w.report(event{kind: linkEnded}) },
		"a message fails": func(*rapid.T) {
			w.report(event{kind: failed, out: &outboundFrame{id: w.someID()}, unsent: rapid.Bool().Draw(w.rt, "unsent"), err: gone})
		},
		"a stream for a request": func(*rapid.T) { w.streamOpens(w.someID()) },
		"a stream of the peer's": func(*rapid.T) { w.streamOpens(0) },
		"a request on a stream":  func(*rapid.T) { w.asks(event{kind: requested, incoming: incomingRequest(w.someID() % 5)}) },
		"a streaming request": func(*rapid.T) {
			in := incomingRequest(w.someID() % 5)
			in.streaming = true
			w.asks(event{kind: requested, incoming: in})
		},
		"a probe on a stream": func(*rapid.T) { w.asks(event{kind: probed, out: &outboundFrame{reply: true}}) },
		"an answer on a stream": func(*rapid.T) {
			number, last := w.someStream(), rapid.Bool().Draw(w.rt, "last")
			if s := w.core.streams.others[number]; s != nil && s.request != 0 {
				if last && w.granted[number] > 0 {
					defer delete(w.granted, number)
				}
				w.came(event{kind: replied, id: w.someID(), stream: number, last: last})
			}
		},
		"a stream is lost": func(*rapid.T) { w.streamIsLost() },
		"wake":             func(*rapid.T) { w.happen(event{kind: woken}) },
		"drain":            func(*rapid.T) { w.rarely(event{kind: drainAsked, timeout: 3 * time.Second}) },
		"stop":             func(*rapid.T) { w.rarely(event{kind: stopAsked}) },
	}
}

func (w *world) someStream() transport.Stream {
	return transport.Stream(rapid.Uint64Range(0, uint64(w.opened)).Draw(w.rt, "stream"))
}

func (w *world) streamOpens(request int64) {
	if !w.linkOpen || !w.core.attached() {
		return
	}
	w.opened++
	w.granted[w.opened] = 0
	w.report(event{kind: streamOpened, stream: w.opened, id: request})
}

// asks brings the one frame of a stream that the peer has begun.
func (w *world) asks(ev event) {
	s := w.core.streams.others[w.someStream()]
	if s == nil || s.request != 0 || s.complete || w.granted[s.number] == 0 {
		return
	}
	if ev.incoming != nil {
		ev.incoming.key.stream = s.number
	}
	if ev.out != nil {
		ev.out.stream = s.number
	}
	ev.stream, ev.last = s.number, true
	w.answered[s.number] = true
	w.came(ev)
}

func (w *world) streamIsLost() {
	number, resumable := w.someStream(), rapid.Bool().Draw(w.rt, "resumable")
	if s := w.core.streams.find(number); w.linkOpen && w.core.attached() && s != nil {
		if number != transport.Main && !resumable {
			delete(w.granted, number)
			delete(w.answered, number)
		}
		w.report(event{kind: streamLost, stream: number, resumable: resumable, particulars: new(particulars)})
	}
}

func (w *world) rarely(ev event) {
	if rapid.IntRange(0, 9).Draw(w.rt, "rarely") == 0 {
		w.happen(ev)
	}
}

func (w *world) handlerReturns() {
	if len(w.serving) > 0 {
		in := w.serving[0]
		w.serving = w.serving[1:]
		w.happen(event{kind: handled, incoming: in})
	}
}

func (w *world) linkOpens() {
	if w.core.state() == Starting {
		w.report(event{kind: linkOpened, particulars: &particulars{link: deadLink{}}})
	}
}

func (w *world) noLinkOpens() {
	if w.core.state() == Starting {
		w.report(event{kind: openFailed, particulars: &particulars{reason: Reason{Kind: OpenFailed}}})
	}
}

func (w *world) loss() {
	if w.linkOpen {
		w.report(event{kind: linkLost, particulars: &particulars{reason: Reason{Kind: LinkBroken}, tags: []transport.Tag{transport.Tag(w.someID())}}})
	}
}

func (w *world) closed() {
	if w.linkOpen && !w.core.attached() {
		w.linkOpen = false
		w.report(event{kind: linkGone})
	}
}

// pass lets time go by. What was due is done by the second tick at the latest,
// or the loop would spin.
func (w *world) pass(wait int64) {
	w.now += instant(wait)
	for range 2 {
		w.report(event{kind: tick})
	}
	if due := w.core.deadline(); due != 0 && due <= w.now {
		w.t.Fatalf("at %v a tick is due at %v still", w.now, due)
	}
}

// end stops the Conn, and wants the books balanced.
func (w *world) end() {
	w.happen(event{kind: stopAsked})
	w.closed()
	for id := range w.lastID {
		if n := w.settled[id+1]; n != 1 {
			w.t.Fatalf("request %d was settled %d times", id+1, n)
		}
	}
	for _, n := range w.notices {
		if n != 1 {
			w.t.Fatalf("a notification was settled %d times", n)
		}
	}
	if due := w.core.deadline(); due != 0 && due != w.core.tombstones.sweepAt && due != w.core.closeDue {
		w.t.Fatalf("a closed Conn wants a tick at %v", due)
	}
}

// TestStatsAddUp searches random histories for a call that is settled twice
// or never, for anything left over outside a live incarnation, for credit
// beyond its bound, and for a deadline that does not pass.
//
// Guarantees: G-0001.2, G-0003.1, G-0003.3, G-0004.1, G-0005.4, G-0009.2
func TestStatsAddUp(t *testing.T) {
	for name, r := range map[string]role{"initiator": initiator, "acceptor": acceptor} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				w := newWorld(rt, r)
				rt.Repeat(w.actions())
				w.end()
			})
		})
	}
}

// TestEqualEventsGiveEqualEffects replays random histories on a second core.
//
// Guarantees: G-0001.10
func TestEqualEventsGiveEqualEffects(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, initiator)
		rt.Repeat(w.actions())
		again := drive(rt, initiator, w.options)
		for i, m := range w.history {
			ev := m.event
			effects := cloneEffects(again.core.step(m.at, &ev))
			if !reflect.DeepEqual(effects, m.effects) {
				rt.Fatalf("step %d gave %+v, and then %+v", i, m.effects, effects)
			}
		}
	})
}
