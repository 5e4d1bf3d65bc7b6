package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// everywhere runs a test with a client of each revision, over stdio and over HTTP. Each
// run gets its own server.
func everywhere(t *testing.T, make func() *server.Server, o client.Options, test func(*testing.T, *server.Server, *client.Session)) {
	t.Helper()
	everywhereSince(t, protocol.Version20241105, make, o, test)
}

// everywhereSince is everywhere for the revision first and all later ones.
func everywhereSince(t *testing.T, first string, make func() *server.Server, o client.Options, test func(*testing.T, *server.Server, *client.Session)) {
	t.Helper()
	for over, connect := range map[string]func(*testing.T, *server.Server) transport.Transport{"stdio": overPipes, "http": overHTTP} {
		for _, version := range protocol.Versions() {
			if version < first {
				continue
			}
			t.Run(over+" "+version, func(t *testing.T) {
				s := make()
				o := o
				o.ProtocolVersion = version
				test(t, s, open(t, connect(t, s), o))
			})
		}
	}
}

// open connects a client for the length of a test.
func open(t *testing.T, to transport.Transport, o client.Options) *client.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o.FailFast = true
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, o).Connect(ctx, specification.WatchClient(t, to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close(context.Background()) })
	return session
}

// overPipes serves one client on the transport of a child process.
func overPipes(t *testing.T, s *server.Server) transport.Transport {
	t.Helper()
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	watched := specification.Watch(t, &stdio.Server{In: theirIn, Out: theirOut}, &specification.Checker{Server: true, ThisSide: true})
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), watched) }()
	t.Cleanup(func() {
		// A client that leaves closes both pipes, possibly while the server writes.
		if err := <-served; err != nil && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("the server ended with %v", err)
		}
	})
	return &stdio.Server{In: ourIn, Out: ourOut} // frames are the same in both directions
}

// overHTTP serves clients at an address.
func overHTTP(t *testing.T, s *server.Server) transport.Transport {
	t.Helper()
	return &streamable.Client{URL: site(t, s, func(h http.Handler) http.Handler { return h })}
}

// site serves a server over HTTP, behind a middleware of net/http.
func site(t *testing.T, s *server.Server, wrap func(http.Handler) http.Handler) (url string) {
	t.Helper()
	h := streamable.NewHandler(&schemaCheckedServer{s, specification.WatchServer(t)}, streamable.HandlerOptions{})
	web := httptest.NewServer(wrap(h))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond) // its clients have left: there is nobody to refuse for a while
		defer cancel()
		s.Close(ctx)
		h.Close(0)
		web.Close()
	})
	return web.URL
}

// A schemaCheckedServer fails the test if a frame that it sends breaks the published
// schemas.
type schemaCheckedServer struct {
	*server.Server
	watch func(transport.Link) transport.Link
}

func (w *schemaCheckedServer) Accept(link transport.Link) { w.Server.Accept(w.watch(link)) }

// within returns the next value of c, and fails the test if none comes in time.
func within[T any](t *testing.T, c <-chan T) (value T) {
	t.Helper()
	guard, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case value = <-c:
	case <-guard.Done():
		t.Fatal("got no value in time, want one")
	}
	return value
}
