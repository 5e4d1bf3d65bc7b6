package fault

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
)

// outbound applies the plan to what is sent. A frame that no fault hits goes to
// the wrapped link on the goroutine of Send, unless frames before it are held
// back.
type outbound struct {
	link *link

	mu        sync.Mutex // held across calls to the wrapped link
	frames    int        // how many frames were accepted so far
	queue     parts.Queue
	held      []heldFrame
	blocked   bool      // the wrapped link is busy, and will call Writable
	stalled   time.Time // nothing is sent before this time
	busyUntil time.Time
	busied    int  // the number of the last frame that Busy has refused
	refused   bool // the sender of that frame waits for Writable
	roomAgain bool // the wrapped link has called Writable
	shut      bool
	over      bool
	flushed   chan struct{} // closed when it is shut and nothing is held back

	// doubled are the frames that were sent twice: whatever becomes of one, the other may have been executed.
	doubled map[transport.Tag]bool
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

// accept applies the plan to the next frame.
func (out *outbound) accept(now time.Time, o transport.Outbound) error {
	l, number := out.link, out.frames+1
	f, chance := l.plan.at(l.number, Outbound, number)
	if f == nil || f.Kind == Busy && out.busied == number {
		return out.pass(o)
	}
	done := entry(l.number, Outbound, number, f.Kind, o.Frame) // made before Send, because the frame belongs to the link afterwards
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
			l.inner.End(o.Stream) // the frame is lost, but not the end of its stream
		}
		return note(nil)
	case Truncate, Corrupt:
		o.Frame = spoiled(f.Kind, o.Frame, chance)
		return note(out.pass(o))
	case Duplicate:
		return note(out.passTwice(o))
	case Flood:
		return note(out.passMore(o, floods(o.Stream, f.Frames)...))
	case Forge:
		return note(out.passMore(o, outboundOf(o.Stream, forged(chance))))
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
	default: // the fault is Die
		l.die(done)
		return nil
	}
}

// pass sends a frame, after what waits already.
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

// passMore sends a frame, and then more frames. It drops those for which the link
// has no room.
func (out *outbound) passMore(o transport.Outbound, more ...transport.Outbound) error {
	err := out.pass(o)
	for i := 0; i < len(more) && err == nil && !o.Last; i++ {
		if out.pass(more[i]) != nil {
			break
		}
	}
	return err
}

// passTwice sends a frame, and a copy of it.
func (out *outbound) passTwice(o transport.Outbound) error {
	out.doubled[o.Tag] = true
	return out.passMore(o, transport.Outbound{Stream: o.Stream, Frame: slices.Clone(o.Frame), Route: o.Route})
}

// outboundOf makes an outbound message of a frame that has no sender to describe
// its route.
func outboundOf(stream transport.Stream, frame []byte) transport.Outbound {
	o := transport.Outbound{Stream: stream, Frame: frame}
	if m, err := jsonrpc.Decode(frame, jsonrpc.Limits{}); err == nil {
		o.Route = transport.Route{Kind: m.Kind, Method: m.Method, ID: m.ID}
	}
	return o
}

func floods(stream transport.Stream, n int) []transport.Outbound {
	frames := make([]transport.Outbound, n)
	for i := range frames {
		frames[i] = outboundOf(stream, noise(i))
	}
	return frames
}

// passLate sends the frames that enough others have overtaken.
func (out *outbound) passLate() {
	out.releaseIf(func(h *heldFrame) bool { return out.frames >= h.after })
}

// releaseIf moves held frames to the queue, as far as they fit.
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

// offer sends the frames that were held back and are due. It returns those that
// can never be sent, whether a sender that was refused may try again, and when
// the next frame is due.
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
	out.signalFlushed()
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
		case errors.Is(err, transport.ErrClosed): // the loss will list it
			return failures
		case err != nil && o.Tag != 0:
			failures = append(failures, transport.Failure{Tag: o.Tag, Err: err, Unsent: !out.doubled[o.Tag]})
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

// next is when the next frame that is held back is due.
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

// unblock notes that the wrapped link has room again.
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

// close accepts no more frames, and ends delays early.
func (out *outbound) close() {
	out.mu.Lock()
	defer out.mu.Unlock()
	out.shut = true
	out.signalFlushed()
}

func (out *outbound) signalFlushed() {
	if !out.shut || out.queue.Len() > 0 || len(out.held) > 0 || out.over {
		return
	}
	select {
	case <-out.flushed:
	default:
		close(out.flushed)
	}
}

// isDoubled reports whether a frame was sent twice.
func (out *outbound) isDoubled(tag transport.Tag) bool {
	out.mu.Lock()
	defer out.mu.Unlock()
	return out.doubled[tag]
}

// unsent returns the tags that the wrapped link reports as unsent, and those of the frames that never reached it, but none of a frame that was
// sent twice.
func (out *outbound) unsent(reported []transport.Tag) []transport.Tag {
	out.mu.Lock()
	defer out.mu.Unlock()
	out.shut, out.over = true, true
	tags := slices.Concat(reported, out.queue.Tags())
	for _, h := range out.held {
		if h.Tag != 0 {
			tags = append(tags, h.Tag)
		}
	}
	return slices.DeleteFunc(tags, func(tag transport.Tag) bool { return out.doubled[tag] })
}
