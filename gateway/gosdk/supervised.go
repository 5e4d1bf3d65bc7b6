// Package gosdk joins Bowline with programs that use the official Go SDK, github.com/modelcontextprotocol/go-sdk.
//
// A client of that SDK keeps its session while its server dies and is started again, with one changed line:
//
//	session, err := c.Connect(ctx, &gosdk.Supervised{Transport: &stdio.Command{Path: "weather"}}, nil)
//
// [Over] is the other direction: a client of Bowline over a transport of that SDK. ADR-0107 says why it is built this way.
//
// # Goroutines
//
// A session of Supervised has one that serves it, and those of a gateway with one server; Close of the session waits for them. A link of Over has two that pass
// messages on, beside those of stdio.Streams; Close of the link waits for them.
package gosdk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// Supervised is a transport of the SDK to a server that Bowline keeps running: a gateway of one server, in this process. The
// session of the SDK outlives each connection with the server. While the server is away, lists are as it has given them last, and a call
// starts it, or says within ten seconds that it was not executed. If the server dies during a call, the result of a tool is an error that says
// whether it may have been executed (Outcome, in package gateway). Names of tools, the name of the server, its version and its instructions are
// those of the server.
//
// It serves one Connect, as transports of the SDK do. Close of the session ends the server.
type Supervised struct {
	// Transport reaches the server, as often as it has to be reached: a *stdio.Command, for example.
	Transport transport.Transport

	// Name is the name of the server in logs and errors. Default: "server".
	Name string

	// Options are those of the gateway. Each must not set the transport. If MaxName is zero, no name is changed; Server.Instructions take the place of those of
	// the server.
	Options gateway.Options

	// Grace is how long the gateway may take to end when the session is closed, or Connect fails: its calls, and its server. Default: 5 s. (Close of the SDK's
	// session waits for its own calls first.)
	Grace time.Duration
}

// Connect implements mcp.Transport. It waits until the server is ready and has said which tools it has. It fails when client.Client.Connect would, with the same
// *client.ConnectError: at once if waiting would not help, as for a missing executable, and otherwise when ctx ends, or after 5 to 60 s if it has no deadline.
func (s *Supervised) Connect(ctx context.Context) (mcp.Connection, error) {
	g, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	end := &ending{gateway: g, grace: s.grace(), PipeReader: toClient, from: fromClient, served: make(chan struct{})}
	go func() {
		defer close(end.served)
		_ = g.Server().Serve(context.WithoutCancel(ctx), &stdio.Server{In: toServer, Out: fromServer}) // how it ends is seen at the pipes
	}()
	return (&mcp.IOTransport{Reader: end, Writer: fromClient, MaxLineLength: -1}).Connect(ctx)
}

func (s *Supervised) grace() time.Duration { return cmp.Or(s.Grace, 5*time.Second) }

// start starts the gateway, and waits for its server.
func (s *Supervised) start(ctx context.Context) (*gateway.Gateway, error) {
	if s.Transport == nil {
		return nil, errors.New("gosdk: Supervised has no Transport")
	}
	name := cmp.Or(s.Name, "server")
	file, err := mcpjson.Parse("supervised", fileOf(name))
	if err != nil {
		return nil, err
	}
	// The gateway is made before its server has said anything of itself, and serves nobody before it has: Connect gives the client its connection only then.
	// So the introduction is not read while it is written.
	said := new(introduction)
	g := gateway.New(s.options(said))
	if _, err = g.Apply(ctx, file); err == nil {
		said.Server, err = g.Await(ctx, name)
	}
	if err != nil {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace())
		defer cancel()
		return nil, errors.Join(err, g.Close(grace))
	}
	return g, nil
}

// options are those of a gateway that introduces itself as its server does, which has said that before the first client asks.
func (s *Supervised) options(said *introduction) gateway.Options {
	o := s.Options
	o.Server.Middleware = append(slices.Clone(o.Server.Middleware), server.On(said.initialize), server.On(said.discover))
	o.MaxName = cmp.Or(o.MaxName, -1) // the client accepts what the server calls its tools
	o.Each = func(one *mcpjson.Server, c *client.Options) {
		one.Transport = s.Transport
		if s.Options.Each != nil {
			s.Options.Each(one, c)
		}
	}
	return o
}

// An introduction is what a server says of itself, in place of the gateway. A client reads it once, when it connects: a server that is another one after it was
// started again does not introduce itself again, as that of a session without Supervised cannot either.
type introduction struct{ client.Server }

// initialize introduces the server to a client of the revisions before 2026-07-28.
func (i *introduction) initialize(ctx context.Context, params *protocol.InitializeParams, next func(context.Context, *protocol.InitializeParams) (*protocol.InitializeResult, error)) (*protocol.InitializeResult, error) {
	result, err := next(ctx, params)
	if err != nil {
		return nil, err
	}
	own := *result
	own.ServerInfo, own.Instructions = i.Info, cmp.Or(own.Instructions, i.Instructions)
	return &own, nil
}

// discover introduces the server to a client of 2026-07-28.
func (i *introduction) discover(ctx context.Context, params *protocol.DiscoverParams, next func(context.Context, *protocol.DiscoverParams) (*protocol.DiscoverResult, error)) (*protocol.DiscoverResult, error) {
	info, err := protocol.Marshal(i.Info)
	if err != nil {
		return nil, err
	}
	result, err := next(ctx, params)
	if err != nil {
		return nil, err
	}
	own := *result
	own.Meta, own.Instructions = maps.Clone(own.Meta), cmp.Or(own.Instructions, i.Instructions)
	if own.Meta == nil {
		own.Meta = make(protocol.Meta)
	}
	own.Meta[protocol.MetaServerInfo] = info
	return &own, nil
}

// fileOf is an mcp.json with one server. The command is never run: Supervised has its transport.
func fileOf(name string) []byte {
	key, _ := json.Marshal(name) // a string can be encoded
	return fmt.Appendf(nil, `{"mcpServers": {%s: {"command": "supervised", "bowline": {"prefix": ""}}}}`, key)
}

// An ending is what a session reads. Its Close ends the gateway and waits until nothing of it is left.
type ending struct {
	*io.PipeReader
	from    *io.PipeWriter
	gateway *gateway.Gateway
	grace   time.Duration
	served  chan struct{} // closed when the gateway does not serve the session any more
}

// Close implements io.Closer.
func (e *ending) Close() error {
	_, _ = e.PipeReader.Close(), e.from.Close() // they return nil
	ctx, cancel := context.WithTimeout(context.Background(), e.grace)
	defer cancel()
	err := e.gateway.Close(ctx)
	<-e.served
	return err
}
