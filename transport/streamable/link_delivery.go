package streamable

import (
	"sync"

	"github.com/bowline-mcp/bowline/transport"
)

// A linkDelivery is the way to the receiver of a client's link: one call at a
// time, none for a stream that is over, and none after the loss. Only the loss
// can come before Bind; it is kept until then.
type linkDelivery struct {
	telling sync.Mutex
	to      transport.Receiver
	loss    *transport.Loss
}

// Bind implements transport.Link.
func (d *linkDelivery) Bind(to transport.Receiver) {
	d.telling.Lock()
	defer d.telling.Unlock()
	d.to = to
	if d.loss != nil {
		to.Lost(*d.loss)
	}
}

// tell calls the receiver.
func (d *linkDelivery) tell(call func(transport.Receiver)) {
	d.telling.Lock()
	defer d.telling.Unlock()
	if d.loss == nil && d.to != nil {
		call(d.to)
	}
}

// tellOf calls the receiver about a stream, unless that is over. The last call
// makes it so.
func (d *linkDelivery) tellOf(in *lane, last bool, call func(transport.Receiver)) {
	d.tell(func(to transport.Receiver) {
		if !in.over {
			in.over = last
			call(to)
		}
	})
}

// hush tells nothing more of a stream.
func (d *linkDelivery) hush(in *lane) {
	d.telling.Lock()
	defer d.telling.Unlock()
	in.over = true
}

func (d *linkDelivery) lose(loss transport.Loss) {
	d.telling.Lock()
	defer d.telling.Unlock()
	d.loss = &loss
	if d.to != nil {
		d.to.Lost(loss)
	}
}
