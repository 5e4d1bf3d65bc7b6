package sharing

import (
	"context"
	"os"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// BenchmarkCall is a call of a server in this process over pipes: by its only client, and by one
// that shares it.
func BenchmarkCall(b *testing.B) {
	for name, wrap := range map[string]func(transport.Link) transport.Link{
		"alone":  func(link transport.Link) transport.Link { return link },
		"shared": func(link transport.Link) transport.Link { return New(link, Options{}).Local() },
	} {
		b.Run(name, func(b *testing.B) {
			s := newServer(server.Options{})
			server.AddTool(s, protocol.Tool{Name: "echo"}, func(_ context.Context, in text) (string, error) { return in.Text, nil })
			open := func(context.Context) (transport.Link, error) {
				near, far, err := pipes()
				if err != nil {
					return nil, err
				}
				s.Accept(far)
				return wrap(near), nil
			}
			session, err := client.New(protocol.Implementation{Name: "bench", Version: "1"}, client.Options{}).Connect(b.Context(), opener(open))
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := client.Call[string](b.Context(), session, "echo", text{"hello"}); err != nil {
					b.Fatal(err)
				}
			}
			session.Stop()
			<-session.Conn().Done()
			if err := s.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

type opener func(context.Context) (transport.Link, error)

func (o opener) Open(ctx context.Context) (transport.Link, error) { return o(ctx) }

// pipes returns two links that are connected by pipes of the system.
func pipes() (near, far transport.Link, err error) {
	inA, outB, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	inB, outA, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	if near, err = stdio.Pair(inA, outA).Open(context.Background()); err != nil {
		return nil, nil, err
	}
	far, err = (&stdio.Server{In: inB, Out: outB}).Open(context.Background())
	return near, far, err
}
