package sharing

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// hangGuard limits how long a test waits for something that does not come.
const hangGuard = time.Minute

// A world is a server of MCP that clients share.
type world struct {
	t      *testing.T
	shared *Server
	far    transport.Link // the server's end of the link to it
}

func newWorld(t *testing.T, s *server.Server, o Options) *world {
	t.Helper()
	near, far := inmem.Pipe(inmem.Options{})
	s.Accept(far)
	o.Log = slog.New(slog.DiscardHandler)
	w := &world{t, New(&exiting{near}, o), far}
	t.Cleanup(func() {
		if err := w.shared.Close(0); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), hangGuard)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return w
}

// An exiting link is lost as that of a process is, and takes its time to close.
type exiting struct{ transport.Link }

func (e *exiting) Close(grace time.Duration) error {
	taken := time.NewTimer(20 * time.Millisecond)
	<-taken.C
	return e.Link.Close(grace)
}

// LinkTraits implements transport.LinkDescriber.
func (e *exiting) LinkTraits() transport.LinkTraits {
	return transport.LinkTraits{RecordsReads: true, LastRead: time.Unix(1, 0)}
}

func (e *exiting) Bind(to transport.Receiver) { e.Link.Bind(exitReceiver{to}) }

type exitReceiver struct{ transport.Receiver }

func (r exitReceiver) Lost(loss transport.Loss) {
	if loss.Reason == transport.ErrPeerClosed {
		loss.Reason = &transport.ExitError{Command: "shared", Status: 3}
	}
	r.Receiver.Lost(loss)
}

// Open implements transport.Transport: each link is that of another client.
func (w *world) Open(context.Context) (transport.Link, error) {
	near, far := inmem.Pipe(inmem.Options{})
	w.shared.Serve(far)
	return near, nil
}

// A localOf opens the link of the client in the process of the server.
type localOf struct{ *world }

func (l localOf) Open(context.Context) (transport.Link, error) { return l.shared.Local(), nil }

// join returns a new client of the server.
func (w *world) join(o client.Options) *client.Session { return w.joinBy(w, o) }

func (w *world) joinBy(by transport.Transport, o client.Options) *client.Session {
	w.t.Helper()
	o.Conn.Log = slog.New(slog.DiscardHandler)
	c := client.New(protocol.Implementation{Name: "test", Version: "1"}, o)
	session, err := c.Connect(w.t.Context(), by)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		session.Stop()
		<-session.Conn().Done()
	})
	return session
}

func newServer(o server.Options) *server.Server {
	o.Conn.Log = slog.New(slog.DiscardHandler)
	return server.New(protocol.Implementation{Name: "shared", Version: "1"}, o)
}

// eras are the revisions that each test runs with.
var eras = []string{protocol.LatestLegacy, protocol.Latest}

// inEachEra runs a test with clients of each era.
func inEachEra(t *testing.T, f func(t *testing.T, era client.Options)) {
	for _, version := range eras {
		t.Run(version, func(t *testing.T) { f(t, client.Options{ProtocolVersion: version}) })
	}
}

// A gate holds calls of a tool until it opens.
type gate struct {
	entered chan string
	open    chan struct{}
}

func newGate() *gate { return &gate{make(chan string, 1000), make(chan struct{})} }

// pass says who waits, and waits.
func (g *gate) pass(ctx context.Context, who string) error {
	g.entered <- who
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	guard := time.NewTimer(hangGuard)
	defer guard.Stop()
	select {
	case v := <-from:
		return v
	case <-guard.C:
		t.Fatalf("got no %s in time", what)
		panic("unreachable")
	}
}
