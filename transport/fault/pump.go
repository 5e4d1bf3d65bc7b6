package fault

import (
	"maps"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A pump moves what arrives to the receiver, and what was held back to the
// wrapped link. It runs from Bind until it has told the loss.
type pump struct {
	*link
	lanes   map[transport.Stream]*lane
	held    []late
	frames  int       // received so far
	stalled time.Time // until when nothing is delivered
	loss    *transport.Loss
	linger  time.Time // how long credit is waited for after the loss
	next    time.Time // when to look again; zero for never
}

// lingers is how long frames that came before a loss wait for credit.
const lingers = 100 * time.Millisecond

func newPump(l *link) *pump {
	return &pump{link: l, lanes: map[transport.Stream]*lane{transport.Main: {}}}
}

func (p *pump) run() {
	defer close(p.over)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		if p.next = (time.Time{}); p.turn(now) {
			return
		}
		timer.Stop()
		if !p.next.IsZero() {
			timer.Reset(p.next.Sub(now))
		}
		select {
		case <-p.wake:
		case <-timer.C:
		}
	}
}

// turn does what there is to do, and reports that the link is over.
func (p *pump) turn(now time.Time) (over bool) {
	p.finishDying()
	arrivals, credit := p.in.take()
	for stream, frames := range credit {
		if lane := p.lanes[stream]; lane != nil {
			lane.credit += frames
		}
	}
	for _, a := range arrivals {
		p.arrive(now, a)
	}
	p.release(now)
	p.deliver(now)
	p.tellSent(now)
	if p.loss != nil {
		return p.tellLoss(now)
	}
	p.ask()
	return false
}

// finishDying closes the wrapped link of one that dies. Its loss is noted
// before Close returns.
func (p *pump) finishDying() {
	if p.death.Load() != nil && p.loss == nil {
		p.out.close()
		p.inner.Close(0) // what it leaves behind is said by our own Close
	}
}

func (p *pump) wakeAt(at time.Time) {
	if p.next.IsZero() || at.Before(p.next) {
		p.next = at
	}
}

func (p *pump) arrive(now time.Time, a arrival) {
	if p.halfOpen.Load() && a.kind != lost {
		return
	}
	switch a.kind {
	case received:
		p.receive(now, a)
	case streamOpened:
		p.lanes[a.stream] = &lane{tag: a.tag}
		p.to.StreamOpened(a.stream, a.tag)
	case streamEnded:
		p.forget(a.stream)
	case streamResumed:
		p.resume(a.stream)
	case streamLost, ended:
		p.overtakeNothing(a.stream)
		p.ready(a)
	case writable:
		p.out.unblock()
	case failed:
		p.fail(a)
	case lost:
		p.loss = &a.loss
	}
}

// receive does to a frame what the plan says.
func (p *pump) receive(now time.Time, a arrival) {
	p.frames++
	lane := p.lanes[a.stream]
	if lane == nil || lane.muted || p.death.Load() != nil {
		return
	}
	lane.asked = max(lane.asked-1, 0)
	if a.in.Last {
		p.overtakeNothing(a.stream)
	}
	f, chance := p.plan.at(p.number, Inbound, p.frames)
	if f == nil || a.in.Err != nil || f.Kind == LoseStream && a.stream == transport.Main {
		p.ready(a)
		return
	}
	done := entry(p.number, Inbound, p.frames, f.Kind, a.in.Frame)
	if f.Kind != Die {
		p.record.add(done)
	}
	switch f.Kind {
	case Drop:
		if a.in.Last && a.stream != transport.Main { // the frame is lost, and not the end of its stream
			p.ready(lossOf(a.stream, transport.StreamLoss{Reason: transport.ErrPeerClosed}))
		}
	case LoseStream:
		p.loseStream(lane, a, injected(done))
	case CutStream:
		p.cutStream(a, injected(done), f.For)
	case MuteStream:
		lane.muted = true
	case Truncate, Corrupt:
		a.in.Frame = spoiled(f.Kind, a.in.Frame, chance)
		p.ready(a)
	case Duplicate:
		copied := a
		copied.in.Frame, copied.in.Last = slices.Clone(a.in.Frame), false
		p.ready(copied)
		p.ready(a)
	case Delay, Reorder:
		frames, wait := f.overtaken(chance)
		p.held = append(p.held, late{a, p.frames + frames, now.Add(wait)})
	case Stall:
		p.stalled = now.Add(f.For)
		p.ready(a)
	case Flood:
		p.inject(a, f.Frames, noise)
	case Forge:
		p.inject(a, 1, func(int) []byte { return forged(chance) })
	case HalfOpen:
		p.halfOpen.Store(true)
	case Die:
		p.die(done)
		p.rouse()
	}
}

// inject puts frames that nobody has sent behind one that somebody has; before
// it when it is the last of its stream.
func (p *pump) inject(a arrival, frames int, frame func(n int) []byte) {
	if !a.in.Last {
		p.ready(a)
	}
	for n := range frames {
		p.ready(arrival{kind: received, stream: a.stream, in: transport.Inbound{Stream: a.stream, Frame: frame(n)}})
	}
	if a.in.Last {
		p.ready(a)
	}
}

func (p *pump) ready(a arrival) {
	if lane := p.lanes[a.stream]; lane != nil && !lane.muted {
		lane.ready = append(lane.ready, a)
	}
}

// overtakeNothing lets held frames of a stream through ahead of its end.
func (p *pump) overtakeNothing(stream transport.Stream) {
	p.releaseIf(func(l *late) bool { return l.stream == stream })
}

// release lets through what was held back long enough, and everything at the
// end.
func (p *pump) release(now time.Time) {
	p.releaseIf(func(l *late) bool { return p.loss != nil || p.frames >= l.after || !now.Before(l.due) })
	for i := range p.held {
		p.wakeAt(p.held[i].due)
	}
}

func (p *pump) releaseIf(due func(*late) bool) {
	var kept []late
	for i := range p.held {
		if due(&p.held[i]) {
			p.ready(p.held[i].arrival)
		} else {
			kept = append(kept, p.held[i])
		}
	}
	p.held = kept
}

// deliver tells the receiver what is ready, against its credit.
func (p *pump) deliver(now time.Time) {
	if p.halfOpen.Load() || p.death.Load() != nil {
		return
	}
	if now.Before(p.stalled) && p.loss == nil {
		p.wakeAt(p.stalled)
		return
	}
	for _, stream := range slices.Sorted(maps.Keys(p.lanes)) {
		p.deliverLane(p.lanes[stream])
	}
}

func (p *pump) deliverLane(l *lane) {
	for len(l.ready) > 0 && !l.cut {
		a := l.ready[0]
		if a.kind == received {
			if l.credit == 0 {
				return
			}
			l.credit--
		}
		l.ready = l.ready[1:]
		l.cut = a.cut
		p.tell(a)
	}
}

func (p *pump) tell(a arrival) {
	switch a.kind {
	case ended:
		p.to.Ended()
	case streamLost:
		if a.stream != transport.Main && !a.streamLoss.Resumable {
			delete(p.lanes, a.stream)
		}
		p.to.StreamLost(a.streamLoss)
	case failed:
		delete(p.lanes, a.stream)
		p.to.Failed(a.failure)
	default:
		if a.in.Last && a.stream != transport.Main {
			delete(p.lanes, a.stream)
		}
		p.to.Receive(a.in)
	}
}

// tellSent offers what was held back outbound, and tells what came of it.
func (p *pump) tellSent(now time.Time) {
	failures, writable, next := p.out.offer(now)
	for _, f := range failures {
		p.to.Failed(f)
	}
	if writable && p.death.Load() == nil {
		p.to.Writable()
	}
	if !next.IsZero() {
		p.wakeAt(next)
	}
}

// ask gives the wrapped link the credit that the receiver has and nothing
// ready will use. A link that is half open, or a stream that is mute, reads
// nothing.
func (p *pump) ask() {
	if p.halfOpen.Load() || p.death.Load() != nil || len(p.held) >= maxHeld {
		return
	}
	for _, stream := range slices.Sorted(maps.Keys(p.lanes)) {
		lane := p.lanes[stream]
		if more := lane.credit - len(lane.ready) - lane.asked; more > 0 && !lane.muted {
			lane.asked += more
			p.out.grant(stream, more)
		}
	}
}

// tellLoss ends the link, once what came before its loss has been delivered,
// or credit for it was waited for in vain. A half-open link is not lost before
// it is closed.
func (p *pump) tellLoss(now time.Time) (over bool) {
	closing, died := p.closing.Load(), p.death.Load()
	switch {
	case p.halfOpen.Load() && !closing && died == nil:
		return false
	case !closing && died == nil && p.waiting():
		if p.linger.IsZero() {
			p.linger = now.Add(lingers)
		}
		if now.Before(p.linger) {
			p.wakeAt(p.linger)
			return false
		}
	}
	loss := transport.Loss{Reason: p.loss.Reason, Unsent: append(p.loss.Unsent, p.out.unsent()...)}
	if died != nil {
		loss.Reason = died
	} else if closing && p.halfOpen.Load() {
		loss.Reason = transport.ErrClosed
	}
	p.to.Lost(loss)
	return true
}

// waiting reports whether something that came is not told yet.
func (p *pump) waiting() bool {
	for _, lane := range p.lanes {
		if len(lane.ready) > 0 {
			return true
		}
	}
	return false
}
