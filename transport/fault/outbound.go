package fault

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/queue"
)

// outbound is what is sent. A frame that no fault hits, with nothing held
// back before it, goes straight to the wrapped link in the goroutine of Send.
type outbound struct {
	link *link

	mu        sync.Mutex // held across calls to the wrapped link
	frames    int        // accepted so far
	queue     queue.Queue
	held      []heldFrame
	blocked   bool      // the wrapped link is busy, and will say when it is not
	stalled   time.Time // until when nothing leaves
	busyUntil time.Time
	busied    int  // the frame that the link was last busy for by a fault
	refused   bool // that frame's sender waits for Writable
	roomAgain bool // the wrapped link has said so
	shut      bool
	over      bool
	flushed   chan struct{} // closed once it is shut and nothing is held
}

type heldFrame struct {
	transport.Outbound
	after int
	due   time.Time
}

func (out *outbound) send(o transport.Outbound) error {
	out.mu.Lock()
	defer out.mu.Unlock()
	now := time.Now()
	if out.shut || out.link.death.Load() != nil {
		return transport.ErrClosed
	}
	if now.Before(out.busyUntil) {
		out.refused = true
		return transport.ErrBusy
	}
	if err := out.accept(now, o); err != nil {
		return err
	}
	out.frames++
	if o.Last && o.Stream != transport.Main {
		out.link.in.arrive(arrival{kind: streamEnded, stream: o.Stream})
	}
	out.passLate()
	return nil
}

// accept does to the next frame what the plan says.
func (out *outbound) accept(now time.Time, o transport.Outbound) error {
	l, number := out.link, out.frames+1
	f, chance := l.plan.at(l.number, Outbound, number)
	if f == nil || f.Kind == Busy && out.busied == number {
		return out.pass(o)
	}
	done := entry(l.number, Outbound, number, f.Kind, o.Frame) // before the frame is the link's
	note := func(err error) error {
		if err == nil {
			l.record.add(done)
		}
		return err
	}
	switch f.Kind {
	case Busy:
		out.busied, out.busyUntil, out.refused = number, now.Add(f.For), true
		_ = note(nil)
		l.rouse()
		return transport.ErrBusy
	case Drop:
		if o.Last && o.Stream != transport.Main {
			l.inner.End(o.Stream) // the frame is lost, and not the end of its stream
		}
		return note(nil)
	case Truncate, Corrupt:
		o.Frame = spoiled(f.Kind, o.Frame, chance)
		return note(out.pass(o))
	case Duplicate:
		return note(out.passMore(o, transport.Outbound{Stream: o.Stream, Frame: slices.Clone(o.Frame)}))
	case Flood:
		return note(out.passMore(o, floods(o.Stream, f.Frames)...))
	case Forge:
		return note(out.passMore(o, transport.Outbound{Stream: o.Stream, Frame: forged(chance)}))
	case Delay, Reorder:
		if o.Last || len(out.held) == maxHeld {
			return out.pass(o)
		}
		frames, wait := f.overtaken(chance)
		out.held = append(out.held, heldFrame{o, number + frames, now.Add(wait)})
		l.rouse()
		return note(nil)
	case Stall:
		if !out.queue.Push(o) {
			return transport.ErrBusy
		}
		out.stalled = now.Add(f.For)
		l.rouse()
		return note(nil)
	case HalfOpen:
		l.halfOpen.Store(true)
		return note(nil)
	default: // Die
		l.die(done)
		return nil
	}
}

// pass sends a frame, behind what waits already.
func (out *outbound) pass(o transport.Outbound) error {
	if o.Last {
		out.releaseIf(func(h *heldFrame) bool { return h.Stream == o.Stream })
	}
	switch {
	case out.link.halfOpen.Load():
		return nil
	case out.queue.Len() > 0 || out.blocked || time.Now().Before(out.stalled):
		if !out.queue.Push(o) {
			return transport.ErrBusy
		}
		out.link.rouse()
		return nil
	}
	return out.link.inner.Send(o)
}

// passMore sends a frame, and behind it others that nobody waits for: what the
// link has no room for is lost.
func (out *outbound) passMore(o transport.Outbound, more ...transport.Outbound) error {
	err := out.pass(o)
	for i := 0; i < len(more) && err == nil && !o.Last; i++ {
		if out.pass(more[i]) != nil {
			break
		}
	}
	return err
}

func floods(stream transport.Stream, n int) []transport.Outbound {
	frames := make([]transport.Outbound, n)
	for i := range frames {
		frames[i] = transport.Outbound{Stream: stream, Frame: noise(i)}
	}
	return frames
}

// passLate sends what enough later frames have overtaken.
func (out *outbound) passLate() {
	out.releaseIf(func(h *heldFrame) bool { return out.frames >= h.after })
}

// releaseIf moves held frames to the queue, whatever its bounds: those held
// are bounded themselves.
func (out *outbound) releaseIf(due func(*heldFrame) bool) {
	var kept []heldFrame
	for i := range out.held {
		if h := out.held[i]; !due(&h) || !out.queue.Push(h.Outbound) {
			kept = append(kept, h)
		} else {
			out.link.rouse()
		}
	}
	out.held = kept
}

// offer sends what was held back and is due. It returns what will never be
// sent, whether a sender that was refused may try again, and when to look
// again.
func (out *outbound) offer(now time.Time) (failures []transport.Failure, writable bool, next time.Time) {
	out.mu.Lock()
	defer out.mu.Unlock()
	for more := true; more; {
		before := len(out.held)
		out.releaseIf(func(h *heldFrame) bool { return out.shut || out.frames >= h.after || !now.Before(h.due) })
		if !now.Before(out.stalled) {
			failures = append(failures, out.drain()...)
		}
		more = len(out.held) > 0 && len(out.held) < before && out.queue.Len() == 0
	}
	if out.refused && !now.Before(out.busyUntil) {
		out.refused, writable = false, true
	}
	if out.roomAgain || out.queue.Relieved() {
		out.roomAgain, writable = false, true
	}
	out.tellFlushed()
	return failures, writable, out.next(now)
}

// drain sends the queue in order, until the wrapped link is busy.
func (out *outbound) drain() (failures []transport.Failure) {
	for out.queue.Len() > 0 && !out.blocked {
		o := out.queue.At(0)
		switch err := out.sendInner(o); {
		case errors.Is(err, transport.ErrBusy):
			out.blocked = true
			return failures
		case errors.Is(err, transport.ErrClosed): // the loss will tell of it
			return failures
		case err != nil && o.Tag != 0:
			failures = append(failures, transport.Failure{Tag: o.Tag, Err: err, Unsent: true})
		}
		out.queue.Drop(1)
	}
	return failures
}

func (out *outbound) sendInner(o transport.Outbound) error {
	if out.link.halfOpen.Load() {
		return nil
	}
	return out.link.inner.Send(o)
}

// next is when something held back is due.
func (out *outbound) next(now time.Time) (at time.Time) {
	sooner := func(t time.Time) {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for i := range out.held {
		sooner(out.held[i].due)
	}
	if out.queue.Len() > 0 {
		sooner(out.stalled)
	}
	if out.refused {
		sooner(out.busyUntil)
	}
	return at
}

// unblock hears that the wrapped link has room again.
func (out *outbound) unblock() {
	out.mu.Lock()
	defer out.mu.Unlock()
	out.blocked, out.roomAgain = false, true
}

func (out *outbound) resume(stream transport.Stream) {
	out.mu.Lock()
	defer out.mu.Unlock()
	out.link.inner.Resume(stream)
}

func (out *outbound) end(stream transport.Stream) {
	out.mu.Lock()
	defer out.mu.Unlock()
	out.link.inner.End(stream)
}

func (out *outbound) grant(stream transport.Stream, frames int) {
	out.mu.Lock()
	defer out.mu.Unlock()
	out.link.inner.Grant(stream, frames)
}

// close accepts no more frames, and cuts delays short.
func (out *outbound) close() {
	out.mu.Lock()
	defer out.mu.Unlock()
	out.shut = true
	out.tellFlushed()
}

func (out *outbound) tellFlushed() {
	if !out.shut || out.queue.Len() > 0 || len(out.held) > 0 || out.over {
		return
	}
	select {
	case <-out.flushed:
	default:
		close(out.flushed)
	}
}

// unsent returns the tags of what never went to the wrapped link, at its end.
func (out *outbound) unsent() []transport.Tag {
	out.mu.Lock()
	defer out.mu.Unlock()
	out.shut, out.over = true, true
	tags := out.queue.Tags()
	for _, h := range out.held {
		if h.Tag != 0 {
			tags = append(tags, h.Tag)
		}
	}
	return tags
}
