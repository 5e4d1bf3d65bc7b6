package fault

import (
	"maps"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A pump delivers arrivals to the receiver, and frames that were held back to the
// wrapped link. It runs from Bind until it has reported the loss.
type pump struct {
	*link
	streams map[transport.Stream]*inboundStream
	held    []late
	frames  int       // how many frames were received so far
	stalled time.Time // nothing is delivered before this time
	loss    *transport.Loss
	linger  time.Time // the loss does not wait for credit after this time
	next    time.Time // when the next turn is due; zero: only when something happens
}

// lingerTime is how long a loss waits for credit for the frames before it.
const lingerTime = 100 * time.Millisecond

func newPump(l *link) *pump {
	return &pump{link: l, streams: map[transport.Stream]*inboundStream{transport.Main: {}}}
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

// turn does everything that is due. It returns true when the link is over.
func (p *pump) turn(now time.Time) (over bool) {
	p.finishDying()
	arrivals, credit := p.in.take()
	for stream, frames := range credit {
		if state := p.streams[stream]; state != nil {
			state.credit += frames
		}
	}
	for _, a := range arrivals {
		p.arrive(now, a)
	}
	p.release(now)
	p.deliver(now)
	p.offerOutbound(now)
	if p.loss != nil {
		return p.reportLoss(now)
	}
	p.ask()
	return false
}

// finishDying closes the wrapped link after a fault has ended this one. The loss
// arrives before Close returns.
func (p *pump) finishDying() {
	if p.death.Load() != nil && p.loss == nil {
		p.out.close()
		p.inner.Close(0) // the error is ignored, because the program's own Close returns it
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
		p.streams[a.stream] = &inboundStream{tag: a.tag}
		p.to.StreamOpened(a.stream, a.tag)
	case streamEnded:
		p.forget(a.stream)
	case streamResumed:
		p.resume(a.stream)
	case streamLost, ended:
		p.releaseStream(a.stream)
		p.ready(a)
	case writable:
		p.out.unblock()
	case failed:
		p.fail(a)
	case doubted:
		if doubter, ok := transport.As[transport.Doubter](p.to); ok {
			doubter.Doubt(a.tag, a.why)
		}
	case lost:
		p.loss = &a.loss
	}
}

// receive applies the plan to a frame.
func (p *pump) receive(now time.Time, a arrival) {
	p.frames++
	state := p.streams[a.stream]
	if state == nil || state.muted || p.death.Load() != nil {
		return
	}
	state.asked = max(state.asked-1, 0)
	if a.in.Last {
		p.releaseStream(a.stream)
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
		if a.in.Last && a.stream != transport.Main { // the frame is lost, but not the end of its stream
			p.ready(lossOf(a.stream, transport.StreamLoss{Reason: transport.ErrPeerClosed}))
		}
	case LoseStream:
		p.loseStream(state, a, injected(done))
	case CutStream:
		p.cutStream(a, injected(done), f.For)
	case MuteStream:
		state.muted = true
	case Truncate, Corrupt:
		a.in.Frame, a.in.Message = spoiled(f.Kind, a.in.Frame, chance), nil // Message is removed, because it would still be intact
		p.ready(a)
	case Duplicate:
		copied := a
		copied.in.Frame, copied.in.Message, copied.in.Last = slices.Clone(a.in.Frame), nil, false
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

// inject adds frames after a, or before it when a is the last of its stream.
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
	if state := p.streams[a.stream]; state != nil && !state.muted {
		state.ready = append(state.ready, a)
	}
}

// releaseStream releases the held frames of a stream, so that its end does not
// overtake them.
func (p *pump) releaseStream(stream transport.Stream) {
	p.releaseIf(func(l *late) bool { return l.stream == stream })
}

// release releases the frames that were held long enough, and all of them when the
// link is lost.
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

// deliver delivers what is ready, against credit.
func (p *pump) deliver(now time.Time) {
	if p.halfOpen.Load() || p.death.Load() != nil {
		return
	}
	if now.Before(p.stalled) && p.loss == nil {
		p.wakeAt(p.stalled)
		return
	}
	for _, stream := range slices.Sorted(maps.Keys(p.streams)) {
		p.deliverStream(p.streams[stream])
	}
}

func (p *pump) deliverStream(l *inboundStream) {
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
		p.report(a)
	}
}

func (p *pump) report(a arrival) {
	switch a.kind {
	case ended:
		p.to.Ended()
	case streamLost:
		if a.stream != transport.Main && !a.streamLoss.Resumable {
			delete(p.streams, a.stream)
		}
		p.to.StreamLost(a.streamLoss)
	case failed:
		delete(p.streams, a.stream)
		p.to.Failed(a.failure)
	default:
		if a.in.Last && a.stream != transport.Main {
			delete(p.streams, a.stream)
		}
		p.to.Receive(a.in)
	}
}

// offerOutbound sends outbound frames that were held back, and reports the results.
func (p *pump) offerOutbound(now time.Time) {
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

// ask passes credit to the wrapped link, less what the frames that are ready will
// use. A half-open link and a muted stream get none.
func (p *pump) ask() {
	if p.halfOpen.Load() || p.death.Load() != nil || len(p.held) >= maxHeld {
		return
	}
	for _, stream := range slices.Sorted(maps.Keys(p.streams)) {
		state := p.streams[stream]
		if more := state.credit - len(state.ready) - state.asked; more > 0 && !state.muted {
			state.asked += more
			p.out.grant(stream, more)
		}
	}
}

// reportLoss ends the link after everything that came before the loss has been
// delivered, or has waited for credit long enough. A half-open link is not lost
// before it is closed.
func (p *pump) reportLoss(now time.Time) (over bool) {
	closing, died := p.closing.Load(), p.death.Load()
	switch {
	case p.halfOpen.Load() && !closing && died == nil:
		return false
	case !closing && died == nil && p.waiting():
		if p.linger.IsZero() {
			p.linger = now.Add(lingerTime)
		}
		if now.Before(p.linger) {
			p.wakeAt(p.linger)
			return false
		}
	}
	loss := transport.Loss{Reason: p.loss.Reason, Unsent: p.out.unsent(p.loss.Unsent)}
	if died != nil {
		loss.Reason = died
	} else if closing && p.halfOpen.Load() {
		loss.Reason = transport.ErrClosed
	}
	p.to.Lost(loss)
	return true
}

// waiting reports whether something has not been delivered.
func (p *pump) waiting() bool {
	for _, state := range p.streams {
		if len(state.ready) > 0 {
			return true
		}
	}
	return false
}

// forget ends a stream of which nothing more may be reported.
func (p *pump) forget(stream transport.Stream) {
	delete(p.streams, stream)
	p.held = slices.DeleteFunc(p.held, func(l late) bool { return l.stream == stream })
}

// resume resumes a stream that a fault has cut, or asks the wrapped link to.
func (p *pump) resume(stream transport.Stream) {
	switch state := p.streams[stream]; {
	case state == nil:
	case state.cut:
		state.cut = false
	default:
		p.out.resume(stream)
	}
}

// fail reports a failed message, after what has arrived on the stream that the
// message opened.
func (p *pump) fail(a arrival) {
	a.failure.Unsent = a.failure.Unsent && !p.out.isDoubled(a.failure.Tag)
	for stream, state := range p.streams {
		if state.tag != 0 && state.tag == a.failure.Tag {
			p.releaseStream(stream)
			a.stream = stream
			p.ready(a)
			return
		}
	}
	p.to.Failed(a.failure)
}

// loseStream ends a stream for the receiver and for the wrapped link.
func (p *pump) loseStream(l *inboundStream, a arrival, why error) {
	p.out.end(a.stream)
	p.releaseStream(a.stream)
	p.ready(lossOf(a.stream, transport.StreamLoss{Reason: why}))
	l.muted = true
}

// cutStream loses a stream before a frame. The frame waits until it is resumed.
func (p *pump) cutStream(a arrival, why error, delay time.Duration) {
	p.releaseStream(a.stream)
	loss := lossOf(a.stream, transport.StreamLoss{Reason: why, Resumable: true, Delay: delay})
	loss.cut = true
	p.ready(loss)
	p.ready(a)
}

func lossOf(stream transport.Stream, loss transport.StreamLoss) arrival {
	loss.Stream = stream
	return arrival{kind: streamLost, stream: stream, streamLoss: loss}
}
