package parts

import (
	"sync"

	"github.com/bowline-mcp/bowline/transport"
)

// A Receiver calls the receiver of a link, one call at a time and none after the loss. A loss
// that comes before Bind is kept until then; other calls before Bind are dropped.
// The zero value is ready to use.
type Receiver struct {
	mu     sync.Mutex
	to     transport.Receiver
	runner transport.Runner // the receiver, if it is one
	loss   *transport.Loss
}

// Bind sets the receiver.
func (d *Receiver) Bind(to transport.Receiver) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = to
	d.runner, _ = transport.As[transport.Runner](to)
	if d.loss != nil {
		to.Lost(*d.loss)
	}
}

// Bound reports whether Bind was called.
func (d *Receiver) Bound() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.to != nil
}

// Tell calls the receiver. It returns false, without a call, before Bind and after
// the loss.
func (d *Receiver) Tell(call func(transport.Receiver)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loss != nil || d.to == nil {
		return false
	}
	call(d.to)
	return true
}

// Work is Tell, followed by the receiver's Work on this goroutine, if the receiver is a
// Runner. Call passes work on as Inbound.Work. The caller holds no lock that Send
// and Grant of the link need.
func (d *Receiver) Work(call func(to transport.Receiver, work bool)) (told bool) {
	runner, told := d.tell(call)
	if runner != nil {
		runner.Work(1)
	}
	return told
}

func (d *Receiver) tell(call func(transport.Receiver, bool)) (runner transport.Runner, told bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loss != nil || d.to == nil {
		return nil, false
	}
	call(d.to, d.runner != nil)
	return d.runner, true
}

// Receive passes a frame on, as Work does.
func (d *Receiver) Receive(in transport.Inbound) bool {
	return d.Work(func(to transport.Receiver, work bool) {
		in.Work = work
		to.Receive(in)
	})
}

// Begin reports a stream that the peer has begun.
func (d *Receiver) Begin(stream transport.Stream) {
	d.Tell(func(to transport.Receiver) { to.StreamOpened(stream, 0) })
}

// Lends reports whether BeginWith may be called. Call it only after Bind.
func (d *Receiver) Lends() bool { return d.runner != nil }

// BeginWith reports a stream that the peer has begun. Without waiting for credit, it also
// delivers the frame that began the stream, as Work does. If the link is lost, or the
// receiver wants to grant credit first, BeginWith returns false, and does not call first.
func (d *Receiver) BeginWith(stream transport.Stream, first func() transport.Inbound) (taken bool) {
	d.Work(func(to transport.Receiver, _ bool) {
		if taken = d.runner.StreamBegun(stream); taken {
			in := first()
			in.Work = true
			to.Receive(in)
		}
	})
	return taken
}

// Lose reports the loss, as the last call.
func (d *Receiver) Lose(loss transport.Loss) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.loss = &loss
	if d.to != nil {
		d.to.Lost(loss)
	}
}
