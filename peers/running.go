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
		return protocol.Versions()[1:] // 2024-11-05 has another over HTTP
	}
	return protocol.Versions()
}

// running is a server's process, whoever has started it.
type running interface {
	// await waits for a line on its standard error.
	await(ctx context.Context, text *regexp.Regexp) ([]string, error)

	// end waits for the server to end, when its session has been closed, and
	// says how it did. Over HTTP the server is interrupted for that.
	end(ctx context.Context) (how string, err error)

	close()
}

// run makes a server ready for a session of the peer's.
func (p Peer) run(ctx context.Context, programs *Programs, command []string) (running, Endpoint, error) {
	if p.Transport == HTTP {
		server, err := p.serve(ctx, command)
		if err != nil {
			return nil, Endpoint{}, err
		}
		return server, Endpoint{URL: server.url}, nil
	}
	server, err := newWatch()
	if err != nil {
		return nil, Endpoint{}, err
	}
	return server, Endpoint{Command: server.command(programs.Peer, command)}, nil
}

// serve runs a server of the peer's over HTTP.
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
