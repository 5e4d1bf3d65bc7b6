package stdio

import (
	"context"
	"flag"
	"io"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
)

// The suites pass over a Command. Each link is a child process.
func TestSuitesOfACommand(t *testing.T) {
	runSuites(t, func(t *testing.T) transport.Transport { return roleCommand(t, "echo server") })
}

// The suites pass if the server calls, and the process that started it answers, over a
// socket.
func TestSuitesOfAServer(t *testing.T) {
	runSuites(t, func(*testing.T) transport.Transport { return serverTransport{} })
}

func runSuites(t *testing.T, from func(*testing.T) transport.Transport) {
	o := proptest.Options{
		RealTime: true, Iterations: 1, Concurrent: 10, Window: 5 * time.Millisecond,
		Conn: conn.Options{Tuning: conn.Tuning{RequestTimeout: 100 * time.Millisecond}},
	}
	for name, suite := range map[string]func(*testing.T, transport.Transport, proptest.Options){
		"Correlation":      proptest.Correlation,
		"NoLeaks":          proptest.NoLeaks,
		"CancelIdempotent": proptest.CancelIdempotent,
		"StopAnywhere":     proptest.StopAnywhere,
		"Restart":          proptest.Restart,
	} {
		t.Run(name, func(t *testing.T) { suite(t, from(t), o) })
	}
}

// The soak test passes over pipes that break in the middle of a frame.
func TestSoakOverPipesThatBreak(t *testing.T) {
	proptest.Soak(t, func(_ *testing.T, h conn.Handler) transport.Transport { return &breakingTransport{handler: h} }, proptest.Options{Calls: 10_000})
}

// breakingTransport is a transport over pipes that break after a number of bytes in each
// direction.
type breakingTransport struct {
	handler conn.Handler
	opens   int64
}

func (b *breakingTransport) Open(ctx context.Context) (transport.Link, error) {
	b.opens++
	near, far := net.Pipe()
	ours, theirs := &breakingWriter{Conn: near}, &breakingWriter{Conn: far}
	ours.left.Store(4001 + 97*(b.opens%50))
	theirs.left.Store(6007 + 89*(b.opens%50))
	peer, err := (&Server{In: theirs, Out: theirs}).Open(ctx)
	if err != nil {
		return nil, err
	}
	go conn.Accept(peer, conn.Options{Handler: b.handler}).Run(context.Background())
	return (&Server{In: ours, Out: ours}).Open(ctx)
}

// A breakingWriter breaks after its remaining bytes have been written.
type breakingWriter struct {
	net.Conn
	left atomic.Int64
}

func (b *breakingWriter) Write(p []byte) (int, error) {
	over := -int(b.left.Add(-int64(len(p))))
	if over <= 0 {
		return b.Conn.Write(p)
	}
	n, _ := b.Conn.Write(p[:max(len(p)-over, 0)])
	b.Conn.Close()
	return n, io.ErrClosedPipe
}

// serverTransport is a transport with the links of a server, whose peers echo.
type serverTransport struct{}

func (serverTransport) Open(ctx context.Context) (transport.Link, error) {
	ours, theirs := net.Pipe()
	client, err := (&Server{In: theirs, Out: theirs}).Open(ctx)
	if err != nil {
		return nil, err
	}
	go proptest.Echo(client)
	return (&Server{In: ours, Out: ours}).Open(ctx)
}

// echoServer answers requests until its input ends.
func echoServer() {
	link, err := new(Server).Open(context.Background())
	if err != nil {
		panic(err)
	}
	proptest.Echo(link)
}

func TestServerContractOverNetPipe(t *testing.T) {
	proptest.LinkContract(t, func(t *testing.T) (a, b transport.Link) {
		x, y := net.Pipe()
		return mustOpen(t, &Server{In: x, Out: x}), mustOpen(t, &Server{In: y, Out: y})
	}, proptest.ContractOptions{})

}

func TestServerContractOverPipes(t *testing.T) {
	proptest.LinkContract(t, func(t *testing.T) (a, b transport.Link) {
		inA, outB := mustPipe(t)
		inB, outA := mustPipe(t)
		return mustOpen(t, &Server{In: inA, Out: outA}), mustOpen(t, &Server{In: inB, Out: outB})
	}, proptest.ContractOptions{})

}

// A Command keeps the contract of transport.Link with a real child that relays to a
// socket. Each case starts a child, so there are a quarter as many.
func TestCommandContractWithRealChild(t *testing.T) {
	quarterTheCases(t)
	proptest.LinkContract(t, func(t *testing.T) (a, b transport.Link) {
		socket := listen(t)
		a = mustOpen(t, roleCommand(t, "relay", socket.variable()))
		conn := socket.accept(t)
		return a, mustOpen(t, &Server{In: conn, Out: conn})
	}, proptest.ContractOptions{})

}

// quarterTheCases reduces the number of cases to a quarter until the end of the test.
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
