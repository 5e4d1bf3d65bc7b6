package stdio

import (
	"sync"

	"github.com/bowline-mcp/bowline/transport"
)

// A delivery is the way to the receiver: one call at a time, and none after
// the loss. Only the loss can come before Bind; it is kept until then.
type delivery struct {
	mu   sync.Mutex
	to   transport.Receiver
	loss *transport.Loss
}

func (d *delivery) bind(to transport.Receiver) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = to
	if d.loss != nil {
		to.Lost(*d.loss)
	}
}

func (d *delivery) receive(in transport.Inbound) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loss == nil {
		d.to.Receive(in)
	}
}

func (d *delivery) writable() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loss == nil {
		d.to.Writable()
	}
}

func (d *delivery) ended() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loss == nil {
		d.to.Ended()
	}
}

func (d *delivery) lose(loss transport.Loss) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.loss = &loss
	if d.to != nil {
		d.to.Lost(loss)
	}
}
