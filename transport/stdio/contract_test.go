package stdio

import (
	"context"
	"flag"
	"net"
	"os"
	"strconv"
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

// The child relays between its standard streams and the server's socket. Each
// case starts one, so there are a quarter as many.
func TestCommandContractWithRealChild(t *testing.T) {
	quarterTheCases(t)
	proptest.LinkContract(t, func(t *testing.T) (a, b transport.Link) {
		socket := listen(t)
		a = mustOpen(t, roleCommand(t, "relay", socket.variable()))
		conn := socket.accept(t)
		return a, mustOpen(t, &Server{In: conn, Out: conn})
	})
}

// quarterTheCases holds until the end of the test.
func quarterTheCases(t *testing.T) {
	t.Helper()
	checks := flag.Lookup("rapid.checks").Value
	all := checks.String()
	n, err := strconv.Atoi(all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checks.Set(all) })
	checks.Set(strconv.Itoa(max(n/4, 1)))
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
