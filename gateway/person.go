package gateway

import "github.com/bowline-mcp/bowline/transport"

// atPage is the principal of whoever acts at the page. No client can have it, whatever it says it is.
type atPage struct{}

// A personalLink says that all its messages are of a person at the page.
type personalLink struct{ transport.Link }

// Unwrap keeps the other interfaces of the link.
func (l *personalLink) Unwrap() transport.Link { return l.Link }

// Bind implements transport.Link.
func (l *personalLink) Bind(to transport.Receiver) { l.Link.Bind(&personalReceiver{to}) }

type personalReceiver struct{ transport.Receiver }

// Unwrap keeps the other interfaces of the receiver.
func (r *personalReceiver) Unwrap() transport.Receiver { return r.Receiver }

// Receive implements transport.Receiver.
func (r *personalReceiver) Receive(in transport.Inbound) {
	in.Origin = &transport.Origin{Principal: atPage{}}
	r.Receiver.Receive(in)
}
