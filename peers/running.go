package peers

import (
	"context"
	"regexp"

	"github.com/bowline-mcp/bowline/protocol"
)

// A Transport is what a peer is checked over.
type Transport string

const (
	Stdio Transport = "stdio"
	HTTP  Transport = "streamable HTTP"
)

// Revisions are those that have the transport, oldest first.
func (t Transport) Revisions() []string {
	if t == HTTP {
		return protocol.Versions()[1:] // 2024-11-05 has a different transport over HTTP
	}
	return protocol.Versions()
}

// running is the process of a server, started by the test or by a client.
type running interface {
	// await waits for a line on its standard error.
	await(ctx context.Context, text *regexp.Regexp) ([]string, error)

	// end waits until the server has ended after its session was closed, and
	// returns how it ended. A server over HTTP is interrupted first.
	end(ctx context.Context) (how string, err error)

	close()
}

// run starts a server, or prepares its start, for a session of the peer.
func (p Peer) run(ctx context.Context, programs *Programs, command []string) (running, Endpoint, error) {
	if p.Transport == HTTP {
		server, err := p.serve(ctx, command)
		if err != nil {
			return nil, Endpoint{}, err
		}
		return server, Endpoint{URL: server.url}, nil
	}
	server, err := newWitnessListener()
	if err != nil {
		return nil, Endpoint{}, err
	}
	return server, Endpoint{Command: server.command(programs.Peer, command)}, nil
}

// serve runs a server of the peer over HTTP.
func (p Peer) serve(ctx context.Context, command []string) (*served, error) {
	port := "0"
	if p.ChosenPort {
		var err error
		if port, err = freePort(); err != nil {
			return nil, err
		}
	}
	return serve(ctx, command, port)
}
