package stdio

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
)

// dialled returns a Dial that uses one stream for both directions.
func dialled(s io.ReadWriteCloser) func(context.Context) (io.ReadCloser, io.WriteCloser, error) {
	return func(context.Context) (io.ReadCloser, io.WriteCloser, error) { return s, s, nil }
}

// The suites pass over Streams. Each link is a TCP connection to a server.
func TestSuitesOfStreams(t *testing.T) {
	for name, framing := range map[string]Framing{"Lines": Lines, "ContentLength": ContentLength} {
		t.Run(name, func(t *testing.T) {
			runSuites(t, func(t *testing.T) transport.Transport {
				listener, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { listener.Close() })
				go func() {
					for {
						conn, err := listener.Accept()
						if err != nil {
							return
						}
						link, err := (&Server{In: conn, Out: conn, Framing: framing}).Open(context.Background())
						if err != nil {
							panic(err)
						}
						go proptest.Echo(link)
					}
				}()
				return &Streams{Framing: framing, Dial: func(ctx context.Context) (io.ReadCloser, io.WriteCloser, error) {
					conn, err := new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
					return conn, conn, err
				}}
			})
		})
	}
}

func TestServerContractWithContentLength(t *testing.T) {
	quarterTheCases(t)
	proptest.LinkContract(t, func(t *testing.T) (a, b transport.Link) {
		inA, outB := mustPipe(t)
		inB, outA := mustPipe(t)
		return mustOpen(t, &Server{In: inA, Out: outA, Framing: ContentLength}), mustOpen(t, &Server{In: inB, Out: outB, Framing: ContentLength})
	}, proptest.ContractOptions{})

}

// The end of the stream, and a failed write, lose the link.
func TestTheEndOfAStreamLosesItsLink(t *testing.T) {
	in, theirOut := mustPipe(t)
	theirIn, out := mustPipe(t)
	p := open(t, Pair(in, out))
	theirOut.WriteString("1\n2")
	theirOut.Close()
	p.want("1")
	p.want("2")
	if loss := p.waitLoss(); loss.Reason != transport.ErrPeerClosed {
		t.Errorf("got the reason %v, want %v", loss.Reason, transport.ErrPeerClosed)
	}
	if rest, err := io.ReadAll(theirIn); err != nil || len(rest) > 0 {
		t.Errorf("the peer got %q, %v, want none", rest, err)
	}
	theirIn.Close()
}

// A pair of streams serves one link: a second Open fails.
func TestAPairServesOneLink(t *testing.T) {
	near, far := net.Pipe()
	pair := Pair(near, near)
	open(t, pair).close(hangGuard)
	if _, err := pair.Open(t.Context()); !errors.Is(err, ErrPairUsed) {
		t.Errorf("the second link: got %v, want %v", err, ErrPairUsed)
	}
	far.Close()
}

// If Dial fails or returns no streams, Open returns an error.
func TestDialThatFails(t *testing.T) {
	for want, dial := range map[string]func(context.Context) (io.ReadCloser, io.WriteCloser, error){
		os.ErrPermission.Error(): func(context.Context) (io.ReadCloser, io.WriteCloser, error) { return nil, nil, os.ErrPermission },
		"stdio: Dial returned no streams": func(context.Context) (io.ReadCloser, io.WriteCloser, error) {
			return nil, nil, nil
		},
	} {
		if _, err := (&Streams{Dial: dial}).Open(t.Context()); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	near, far := net.Pipe()
	defer closeBothEnds(near, far)
	for _, pair := range []*Streams{Pair(nil, nil), Pair(near, nil), Pair(nil, near)} {
		if _, err := pair.Open(t.Context()); err == nil || err.Error() != "stdio: Dial returned no streams" {
			t.Errorf("without one of the streams: got %v", err)
		}
	}
	over, cancel := context.WithCancelCause(t.Context())
	cancel(os.ErrProcessDone)
	dialled := &Streams{Dial: func(context.Context) (io.ReadCloser, io.WriteCloser, error) {
		t.Error("Dial was called")
		return near, near, nil
	}}
	for name, from := range map[string]transport.Transport{"Streams": dialled, "Server": &Server{In: near, Out: near}} {
		if _, err := from.Open(over); err != os.ErrProcessDone {
			t.Errorf("%s: after the end of its context, Open returned %v, want the cause", name, err)
		}
	}
}

func closeBothEnds(near, far net.Conn) { near.Close(); far.Close() }
