// Package delivery is the way from a link to its receiver.
package delivery

import (
	"sync"

	"github.com/bowline-mcp/bowline/transport"
)

// A Delivery calls a receiver: one call at a time, and none after the loss.
// Only the loss can come before Bind; it is kept until then. Its zero value is
// ready to use.
type Delivery struct {
	mu   sync.Mutex
	to   transport.Receiver
	loss *transport.Loss
}

// Bind says who receives.
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

// Tell makes a call, and reports whether it did: there is a receiver, and it
// was not told of the loss.
func (d *Delivery) Tell(call func(transport.Receiver)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loss != nil || d.to == nil {
		return false
	}
	call(d.to)
	return true
}

// Lose tells of the loss, as the last call.
func (d *Delivery) Lose(loss transport.Loss) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.loss = &loss
	if d.to != nil {
		d.to.Lost(loss)
	}
}
