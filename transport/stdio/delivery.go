package stdio

import (
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/delivery"
)

// told is the way to the receiver of a byte stream.
type told struct{ delivery.Delivery }

func (t *told) receive(in transport.Inbound) {
	t.Tell(func(to transport.Receiver) { to.Receive(in) })
}

func (t *told) writable() { t.Tell(transport.Receiver.Writable) }

func (t *told) ended() { t.Tell(transport.Receiver.Ended) }
