// Package delivery calls the receiver of a link.
package delivery

import (
	"sync"

	"github.com/bowline-mcp/bowline/transport"
)

// A Delivery calls a receiver, one call at a time and none after the loss. A loss
// that comes before Bind is kept until then; other calls before Bind are dropped.
// The zero value is ready to use.
type Delivery struct {
	mu   sync.Mutex
	to   transport.Receiver
	loss *transport.Loss
}

// Bind sets the receiver.
func (d *Delivery) Bind(to transport.Receiver) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = to
	if d.loss != nil {
		to.Lost(*d.loss)
	}
}

// Bound reports whether Bind was called.
func (d *Delivery) Bound() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.to != nil
}

// Tell calls the receiver. It returns false, without a call, before Bind and after
// the loss.
func (d *Delivery) Tell(call func(transport.Receiver)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loss != nil || d.to == nil {
		return false
	}
	call(d.to)
	return true
}

// Lose reports the loss, as the last call.
func (d *Delivery) Lose(loss transport.Loss) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.loss = &loss
	if d.to != nil {
		d.to.Lost(loss)
	}
}
