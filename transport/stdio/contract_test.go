package stdio

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
)

func TestServerContractOverNetPipe(t *testing.T) {
	proptest.LinkContract(t, func(t *testing.T) (a, b transport.Link) {
		x, y := net.Pipe()
		return mustOpen(t, &Server{In: x, Out: x}), mustOpen(t, &Server{In: y, Out: y})
	})
}

func TestServerContractOverPipes(t *testing.T) {
	proptest.LinkContract(t, func(t *testing.T) (a, b transport.Link) {
		inA, outB := mustPipe(t)
		inB, outA := mustPipe(t)
		return mustOpen(t, &Server{In: inA, Out: outA}), mustOpen(t, &Server{In: inB, Out: outB})
	})
}

// The child relays between its standard streams and the server's socket.
func TestCommandContractWithRealChild(t *testing.T) {
	proptest.LinkContract(t, func(t *testing.T) (a, b transport.Link) {
		socket := listen(t)
		a = mustOpen(t, roleCommand(t, "relay", socket.variable()))
		conn := socket.accept(t)
		return a, mustOpen(t, &Server{In: conn, Out: conn})
	})
}

func mustOpen(t testing.TB, from transport.Transport) transport.Link {
	t.Helper()
	link, err := from.Open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func mustPipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}
