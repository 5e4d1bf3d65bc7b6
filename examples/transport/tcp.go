package main

import (
	"context"
	"net"

	"github.com/bowline-mcp/bowline/transport"
)

// A Dialer is a transport over TCP: newline-delimited JSON, one connection for
// each link.
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

// Accept hands a link for each connection of the listener to accept, which
// takes it over and does not block. It returns when the listener is closed.
func Accept(from net.Listener, accept func(transport.Link)) error {
	for {
		connection, err := from.Accept()
		if err != nil {
			return err
		}
		accept(NewLink(connection.(*net.TCPConn)))
	}
}
