package streamable

import (
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/delivery"
)

// A linkDelivery is the way to the receiver of a client's link. Nothing is told
// of a stream that is over.
type linkDelivery struct{ delivery.Delivery }

// tellOf calls the receiver about a stream, unless that is over. The last call
// makes it so.
func (d *linkDelivery) tellOf(in *lane, last bool, call func(transport.Receiver)) {
	d.Tell(func(to transport.Receiver) {
		if !in.over {
			in.over = last
			call(to)
		}
	})
}

// hush tells nothing more of a stream.
func (d *linkDelivery) hush(in *lane) {
	d.Tell(func(transport.Receiver) { in.over = true })
}
