package conn

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/transport"
)

// happen steps the core as the shell does: what the link did not take goes
// back at once, in the order it was offered.
func (w *scene) happen(ev event) {
	w.feed(ev)
	for len(w.returned)+len(w.following) > 0 {
		from := &w.returned
		if len(w.returned) == 0 {
			from = &w.following
		}
		ev := (*from)[0]
		*from = (*from)[1:]
		if ev.kind == handled {
			w.questions[w.number(ev.incoming)].running = false
		}
		w.feed(ev)
	}
	w.returned, w.following = nil, nil
}

func (w *scene) feed(ev event) {
	if w.talks {
		w.said = append(w.said, fmt.Sprintf("  step %s", describeEvent(&ev)))
	}
	w.present = ev
	if ev.kind == woken {
		w.delay.earliest = 0
	}
	effects := w.core.step(w.now, &ev)
	for i := range effects {
		w.perform(&effects[i])
	}
	w.checkStep(&ev, effects)
}

// transmit offers a frame to the link, behind what it did not take.
func (w *scene) transmit(fx *effect) {
	out, lane := fx.out, &w.lanes[fx.out.stream]
	switch {
	case len(w.returned) > 0:
		w.returned = append(w.returned, event{kind: busy, epoch: fx.epoch, out: returned(out), random: 0.5})
	case out.stream > ownLanes && (lane.over || lane.ended):
		w.unroutable(out)
		w.returned = append(w.returned, event{kind: failed, epoch: fx.epoch, out: returned(out), err: transport.ErrNoRoute, unsent: true})
	case w.severed:
		w.returned = append(w.returned, event{kind: failed, epoch: fx.epoch, out: returned(out), err: transport.ErrClosed, unsent: true})
	case w.oversize && (!out.reply || out.answers != nil):
		w.oversize = false
		if n := w.questionOf(out); n < questions {
			w.questions[n].large = true
		}
		w.returned = append(w.returned, event{kind: failed, epoch: fx.epoch, out: returned(out), err: errLarge, unsent: true})
	case w.room == full:
		w.returned = append(w.returned, event{kind: busy, epoch: fx.epoch, out: returned(out), tried: true, moved: w.moved, random: 0.5})
		w.moved, w.refused = false, true
	default:
		w.taken(out)
	}
}

var (
	errGone  = errors.New("gone")
	errLarge = errors.New("too large")
)

// taken has the link take a frame over.
func (w *scene) taken(out outboundFrame) {
	w.moved = true
	if w.room == single {
		w.room = full
	}
	switch {
	case out.notification:
		w.settleCall(0)
	case out.reply:
		w.answer(out)
	case out.id >= firstProbe:
	case out.id != 0:
		w.calls[out.id].taken = true
		w.checkAsked(out)
	}
	if out.last {
		w.endLane(out.stream)
	}
}

// checkAsked holds that what a handler asks goes to whom it serves, while it does.
func (w *scene) checkAsked(out outboundFrame) {
	within := w.plan.calls[out.id-1].within
	if within == 0 {
		return
	}
	if of := w.questions[within-1]; out.stream != of.incoming.key.stream || w.bound != of.incoming.Epoch {
		w.wrong("what the handler of question %d asks went out on stream %d of link %d", within-1, out.stream, w.bound)
	}
}

// wrong keeps the first invariant that did not hold.
func (w *scene) wrong(format string, args ...any) {
	if w.fault == nil {
		w.fault = fmt.Errorf(format, args...)
	}
}

// perform does one effect as the shell would, and holds it against the books.
func (w *scene) perform(fx *effect) {
	if w.talks {
		w.said = append(w.said, "    "+describeEffect(fx))
	}
	w.fold(fx)
	w.checkLife(fx)
	w.checkDelay(fx)
	switch fx.kind {
	case askPlace:
		w.askPlace(fx.epoch)
	case leaveGate:
		w.leaveGate(fx.epoch)
	case openLink:
		if v := &w.visits[fx.epoch]; w.plan.gated && (!v.came || v.left) {
			w.wrong("link %d is to open without a place at the gate", fx.epoch)
		}
		w.mayOpen(fx.epoch)
		w.links[fx.epoch].opening = true
	case bind:
		w.bind(fx)
	case handshake:
		w.links[fx.epoch].shaking = true
	case closeLink:
		w.closeLink(fx)
	case offerMore:
		if len(w.returned) == 0 {
			w.returned = append(w.returned, event{kind: writable, epoch: fx.epoch})
		}
	case transmit:
		w.countProbe(fx.out.id)
		w.checkOwner(fx.out)
		w.transmit(fx)
	case grant:
		w.grant(fx)
	case endStream:
		w.endLane(fx.stream)
	case resumeStream:
		w.resume(fx.stream)
	case settle:
		w.settled(fx)
	case progress:
		if c := w.calls[fx.id]; c.settled || !c.accepted || fx.call != w.plan.callers[fx.id] {
			w.wrong("progress for call %d, which is not pending", fx.id)
		}
	case serve:
		w.serve(fx)
	case stuck: // its place is free for others from now on (G-0003.17)
		if n := w.number(fx.incoming); n < questions {
			w.questions[n].stuck = true
		}
	case cancelServing:
		if n := w.number(fx.incoming); n == questions || !w.questions[n].running {
			w.wrong("a handler that does not run is cancelled")
		}
	case transitioned:
		w.transitioned(fx)
	case late, unknown:
		w.classified(fx)
	case endTasks:
		w.excuseAll()
	case terminate:
		if w.terminated || !w.closed {
			w.wrong("terminated twice, or before it was closing")
		}
		w.mayOpen(0)
		w.terminated = true
	}
}

// edges is the life of a Conn once more, as ADR-0001 has it.
var edges = map[[2]State]bool{
	{Starting, Initializing}: true, {Initializing, Ready}: true, {Backoff, Starting}: true,
	{Starting, Backoff}: true, {Initializing, Backoff}: true, {Ready, Backoff}: true,
	{Starting, Closing}: true, {Initializing, Closing}: true, {Ready, Closing}: true, {Backoff, Closing}: true,
}

func (w *scene) transitioned(fx *effect) {
	if fx.from != w.state || !edges[[2]State{fx.from, fx.to}] || w.closed {
		w.wrong("a transition from %s to %s in %s", fx.from, fx.to, w.state)
	}
	if w.plan.role == acceptor && (fx.to == Backoff || fx.to == Starting) {
		w.wrong("an acceptor in %s", fx.to)
	}
	if fx.to == Ready {
		w.heardAt = w.now
	}
	if fx.reason.Kind == LivenessLost && w.now-w.heardAt < 3*w.plan.liveness {
		w.wrong("lost for silence, which was of %v", w.now-w.heardAt)
	}
	w.state, w.closed = fx.to, fx.to == Closing
}

// checkLife holds when an effect may be at all.
func (w *scene) checkLife(fx *effect) {
	attached := w.state == Initializing || w.state == Ready
	switch fx.kind {
	case transmit, grant, endStream, resumeStream, serve, notify, progress, handshake, violation:
		if !attached {
			w.wrong("%s in %s", effectNames[fx.kind], w.state)
		}
		if stamped := fx.kind == transmit || fx.kind == serve || fx.kind == notify; stamped && fx.epoch != w.bound {
			w.wrong("%s for epoch %d on link %d", effectNames[fx.kind], fx.epoch, w.bound)
		}
	}
	if !w.terminated {
		return
	}
	switch fx.kind {
	case settle:
		if fx.cause != ShutDown && fx.cause != LinkLost || fx.delivery != NotSent {
			w.wrong("after the end a call was settled as %v, %v", fx.cause, fx.delivery)
		}
	case late, unknown:
	case closeLink:
		if fx.unboundLink() == nil {
			w.wrong("after the end the link was closed again")
		}
	default:
		w.wrong("%s after the end", effectNames[fx.kind])
	}
}

func (w *scene) askPlace(epoch uint64) {
	for i, v := range w.visits {
		if v.asked && !v.left {
			w.wrong("a place is asked for in epoch %d, and that of epoch %d was not given back", epoch, i)
		}
	}
	if v := &w.visits[epoch]; v.asked || !w.plan.gated || w.state != Starting {
		w.wrong("a place is asked for twice, or in %s", w.state)
	}
	w.visits[epoch].asked = true
}

func (w *scene) leaveGate(epoch uint64) {
	if v := &w.visits[epoch]; !v.asked || v.left {
		w.wrong("a place was given back twice, or never asked for")
	}
	w.visits[epoch].left = true
}

func (w *scene) mayOpen(epoch uint64) {
	for i := range w.links {
		if uint64(i) != epoch && w.isThere(&w.links[i]) {
			w.wrong("link %d is to open while link %d is there", epoch, i)
		}
	}
}

// isThere says whether a link has to be waited for: it is neither gone, nor has
// it overrun the time to close it.
func (w *scene) isThere(l *linkBook) bool {
	return l.open && !l.gone && (l.closing == 0 || w.now < l.closeBy)
}

func (w *scene) bind(fx *effect) {
	w.mayOpen(fx.epoch)
	if w.links[fx.epoch].open {
		w.wrong("link %d was bound twice", fx.epoch)
	}
	w.links[fx.epoch].open = true
	w.bound = fx.epoch
	w.lanes = [lanes]laneBook{{opened: true}}
	w.room, w.refused, w.severed, w.oversize = roomy, false, false, false
}

func (w *scene) closeLink(fx *effect) {
	l := &w.links[fx.epoch]
	if fx.unboundLink() == nil && (!l.open || l.gone) {
		w.wrong("link %d was closed, and was not there", fx.epoch)
	}
	if l.closing++; l.closing > 2 || l.closing == 2 && fx.at >= w.core.options.DrainGrace {
		w.wrong("link %d was closed %d times", fx.epoch, l.closing)
	}
	if fx.unboundLink() == nil {
		l.closeBy = w.now + fx.at
	}
	if w.plan.closesNow {
		l.closing--
		l.gone = true
		w.following = append(w.following, event{kind: linkGone, epoch: fx.epoch})
	}
}

func (w *scene) grant(fx *effect) {
	l := &w.lanes[fx.stream]
	if l.credit += int8(fx.frames); fx.frames <= 0 || int(l.credit) > w.plan.credit {
		w.wrong("credit for %d frames on stream %d: it may deliver %d", fx.frames, fx.stream, l.credit)
	}
	replies := 0
	for i := range w.core.outbound.waiting() {
		if w.core.outbound.waiting()[i].reply {
			replies++
		}
	}
	if replies >= repliesHigh && w.present.kind != streamOpened {
		w.wrong("credit for stream %d, and %d replies wait", fx.stream, replies)
	}
	if !l.opened || l.over || l.ended {
		w.wrong("credit for stream %d, which is over", fx.stream)
	}
}

// endLane is this side's end of a stream, which it says once.
func (w *scene) endLane(number transport.Stream) {
	l := &w.lanes[number]
	if number == transport.Main || !l.opened || l.over || l.ended {
		w.wrong("stream %d was ended, and was not open", number)
	}
	l.ended = true
}

func (w *scene) resume(number transport.Stream) {
	l := &w.lanes[number]
	if !l.cut || l.over || l.ended || w.now < l.floor {
		w.wrong("stream %d was taken up, and was not cut, or not for long enough", number)
	}
	l.cut, l.floor = false, 0
}

// unroutable is a frame on a stream of the peer's that is over. The peer may
// have ended it meanwhile; this side must not have, before its answers.
func (w *scene) unroutable(out outboundFrame) {
	n := w.questionOf(out)
	if out.reply && w.lanes[out.stream].ended && (n == questions || !w.questions[n].excused) {
		w.wrong("%q was sent on stream %d after its end", out.frame, out.stream)
	}
	if n < questions {
		w.questions[n].excused = true
	}
}

// settled is the end of a call, of which there is one.
func (w *scene) settled(fx *effect) {
	c := &w.calls[fx.id]
	sent := c.taken && !c.unsent
	switch {
	case fx.call != w.plan.callers[fx.id]:
		w.wrong("the end of call %d was told to the caller of another", fx.id)
	case fx.id == 0 && (c.taken || fx.delivery != NotSent):
	case fx.delivery == NotSent && sent && !c.failed:
		w.wrong("call %d was settled as not sent, and the link had taken it", fx.id)
	case fx.delivery != NotSent && !sent && fx.cause != Answered && fx.cause != PeerError:
		w.wrong("call %d was settled as %v, and the link had not taken it", fx.id, fx.delivery)
	case (fx.cause == Answered || fx.cause == PeerError) != (fx.delivery == Sent):
		w.wrong("call %d was settled as %v, %v", fx.id, fx.cause, fx.delivery)
	case fx.delivery == Sent && !c.taken:
		w.wrong("call %d was answered before the link had taken it", fx.id)
	}
	c.answered = fx.delivery == Sent
	w.settleCall(fx.id)
}

func (w *scene) settleCall(id int64) {
	c := &w.calls[id]
	if !c.made || c.settled {
		w.wrong("call %d was settled twice", id)
	}
	c.settled = true
}

// classified is an answer to a request that is not pending.
func (w *scene) classified(fx *effect) {
	issued := fx.id < noID && w.calls[fx.id].accepted || fx.id >= firstProbe
	pending := w.core.pending.byID[fx.id] != nil
	if fx.kind == late && (pending || fx.id > w.core.lastID) || fx.kind == unknown && issued && !pending {
		w.wrong("an answer to %d was called %s", fx.id, effectNames[fx.kind])
	}
}

func (w *scene) serve(fx *effect) {
	n := w.number(fx.incoming)
	if n == questions || w.questions[n].served || w.questions[n].excused {
		w.wrong("question %d was served twice, or never asked, or cancelled", n)
		return
	}
	for i, q := range w.questions {
		if q.running && q.epoch == w.core.epoch && w.plan.questions[i].isExclusive() && !q.stuck {
			w.wrong("question %d is served while the exclusive %d is", n, i)
		}
	}
	w.questions[n].served, w.questions[n].running = true, true
	if kind := w.plan.questions[n].kind; kind == immediately || kind == openingASession {
		w.following = append(w.following, event{kind: handled, epoch: fx.epoch, incoming: fx.incoming, payload: []byte{'#', uint8(n)}})
	}
}

// answer is a reply that the link has taken.
func (w *scene) answer(out outboundFrame) {
	n := w.questionOf(out)
	if n == questions {
		return // to what was no message
	}
	q := &w.questions[n]
	lane := transport.Stream(w.plan.questions[n].lane) // what comes on a stream of ours may be answered on Main
	if q.answered || !q.asked || out.stream != lane && (out.stream != transport.Main || lane > ownLanes) {
		w.wrong("question %d was answered twice, or on stream %d", n, out.stream)
	}
	q.answered = true
}

// questionOf says what is answered: handlers and probes name it, and what the
// core has written itself carries the id.
func (w *scene) questionOf(out outboundFrame) int {
	switch {
	case !out.reply:
		return questions
	case out.frame[0] == '#':
		return int(out.frame[1])
	}
	found := questions
	for i := range w.plan.questions {
		if w.isAnswer(out, i) && (found == questions || w.questions[found].answered) {
			found = i
		}
	}
	return found
}

// isAnswer says whether a reply may answer this question, of several that have
// its id. A handler's that cannot be sent is put differently.
func (w *scene) isAnswer(out outboundFrame, number int) bool {
	q, book := w.plan.questions[number], &w.questions[number]
	if out.frame[0] == '#' {
		return int(out.frame[1]) == number
	}
	return out.reply && book.asked && out.stream == transport.Stream(q.lane) &&
		book.large == bytes.Contains(out.frame, []byte("cannot be sent")) && book.large == book.served &&
		bytes.Contains(out.frame, fmt.Appendf(nil, `"id":%d`, q.id))
}

func (w *scene) excuseAll() {
	for i := range w.questions {
		if w.questions[i].asked {
			w.questions[i].excused = true
		}
	}
}

// A scene is a core and everything around it: callers, a link for each
// incarnation, the peer, handlers and the clock. It is what the shell and the
// transports would be, and keeps the books that the invariants are checked by.
type scene struct {
	plan *plan
	core *core
	now  instant

	visits    [epochs]visitBook // by epoch
	links     [epochs]linkBook
	bound     uint64 // whose lanes these are
	lanes     [lanes]laneBook
	calls     [ownLanes + 1]callBook // by id; the first is the notification
	questions [questions]questionBook

	room     uint8 // frames the link has room for: none, one, or any
	moved    bool  // it has taken something since it was last busy
	refused  bool  // it owes a Writable
	oversize bool  // the next frame that can be is too large
	severed  bool  // nothing can be sent any more, and the loss is on its way
	crowded  bool  // many notifications wait for their handler

	delay   delayBook
	probes  uint8   // sent so far; their ids follow firstProbe
	heardAt instant // of the last that came in, or of being ready

	state      State // as told by the transitions
	closed     bool
	terminated bool

	present   event    // being stepped
	returned  []event  // what the link did not take
	following []event  // what else the step has brought about at once
	said      []string // effects in words, when somebody reads them
	digest    uint64   // of the effects since the last choice
	talks     bool
	fault     error // the first invariant that did not hold
}

type visitBook struct {
	asked bool // for a place at the gate
	came  bool // it was told of one
	left  bool
}

type linkBook struct {
	opening bool // Open has not returned
	open    bool // bound
	shaking bool // the handshake has not returned
	over    bool // Lost was said
	ended   bool // Ended was said
	closing uint8
	gone    bool
	closeBy instant // from then on it may be left behind
}

type laneBook struct {
	opened   bool
	complete bool // the peer has said its last
	over     bool // it is gone from the link
	ended    bool // this side has said its last
	cut      bool // lost, to be taken up again
	partial  bool // the rest of a batch is on its way
	answered bool // it has brought what it was for
	credit   int8
	floor    instant // not to be taken up before
}

type callBook struct {
	made, accepted, settled, answered bool
	taken                             bool // by the link
	unsent                            bool // the link has said that it never left
	failed                            bool // the link has said that it failed
	epoch                             uint64
	lane                              uint8 // notification: where it goes
}

type questionBook struct {
	incoming *Incoming
	epoch    uint64
	asked    bool
	running  bool // its handler
	stuck    bool // its handler has given up its place
	served   bool
	answered bool
	large    bool               // its answer was too large for the link
	before   [ownLanes + 1]bool // calls that had been sent on its stream when it was asked
	excused  bool               // it will not be answered: cancelled, or its stream or link is lost
}
