package main

import (
	"context"
	"net"

	"github.com/bowline-mcp/bowline/transport"
)

// A Dialer is a transport over TCP. Each link is one connection, which carries
// newline-delimited JSON.
type Dialer struct {
	Address string // host and port
}

// Open implements transport.Transport.
func (d *Dialer) Open(ctx context.Context) (transport.Link, error) {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", d.Address)
	if err != nil {
		return nil, err
	}
	return NewLink(connection.(*net.TCPConn)), nil
}

// Accept calls accept with a link for each connection of the listener. The function
// accept then owns the link, and must not block. Accept returns when the listener is
// closed.
func Accept(from net.Listener, accept func(transport.Link)) error {
	for {
		connection, err := from.Accept()
		if err != nil {
			return err
		}
		accept(NewLink(connection.(*net.TCPConn)))
	}
}
