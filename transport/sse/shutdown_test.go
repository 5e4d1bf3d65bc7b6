package sse_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/sse"
)

// Shutdown lets a call finish, ends the stream of its session, and closes the server.
//
// Guarantees: G-0034.10
func TestShutdownFinishesItsCalls(t *testing.T) {
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	entered, release := make(chan struct{}), make(chan struct{})
	server.AddTool(s, protocol.Tool{Name: "wait"}, func(context.Context, struct{}) (string, error) {
		close(entered)
		<-release
		return "done", nil
	})
	h := sse.NewHandler(s, sse.HandlerOptions{})
	srv, url, served := listen(t, h)
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{})
	session, err := c.Connect(t.Context(), &sse.Client{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan error, 1)
	go func() {
		result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "wait"})
		if err == nil && result.IsError {
			err = errors.New("the tool has failed")
		}
		called <- err
	}()
	testenv.Receive(t, entered, "the call of the tool")
	ended := make(chan error, 1)
	go func() { ended <- h.Shutdown(t.Context(), srv) }()
	close(release)
	if err := testenv.Receive(t, called, "the answer of the tool"); err != nil {
		t.Errorf("the running call: got %v, want no error", err)
	}
	if err := testenv.Receive(t, ended, "Shutdown returns"); err != nil {
		t.Errorf("Shutdown returned %v", err)
	}
	if err := testenv.Receive(t, served, "Serve returns"); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve returned %v, want %v", err, http.ErrServerClosed)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Shutdown ends at its deadline, even if the acceptor does not close and a session has
// an open stream.
//
// Guarantees: G-0034.10
func TestShutdownCutsOffWhatDoesNotFinish(t *testing.T) {
	stuck := &stuck{released: make(chan struct{})}
	t.Cleanup(func() { close(stuck.released) })
	h := sse.NewHandler(stuck, sse.HandlerOptions{})
	srv, url, served := listen(t, h)
	link, err := (&sse.Client{URL: url}).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err = h.Shutdown(ctx, srv)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "sse: shut down: close an Acceptor") {
		t.Errorf("Shutdown returned %v, want the error %v and the prefix %q", err, context.DeadlineExceeded, "sse: shut down: close an Acceptor")
	}
	if err := testenv.Receive(t, served, "Serve returns"); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve returned %v, want %v", err, http.ErrServerClosed)
	}
	if err := link.Close(0); err != nil {
		t.Error(err)
	}
}

// Without an acceptor, Shutdown closes the handler and the server. A nil pointer counts
// as no acceptor, because the panic of its Close would end the process.
//
// Guarantees: G-0034.10
func TestShutdownWithoutAnAcceptor(t *testing.T) {
	for name, none := range map[string]transport.Acceptor{"nil": nil, "nil pointer": (*server.Server)(nil)} {
		srv, _, served := listen(t, http.NotFoundHandler())
		if err := sse.NewHandler(none, sse.HandlerOptions{}).Shutdown(t.Context(), srv); err != nil {
			t.Errorf("%s: Shutdown returned %v", name, err)
		}
		if err := testenv.Receive(t, served, "Serve returns"); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("%s: Serve returned %v, want %v", name, err, http.ErrServerClosed)
		}
	}
}

// stuck is an acceptor whose Close does not return before the test ends.
type stuck struct{ released chan struct{} }

func (s *stuck) Accept(link transport.Link) { link.Bind(nobody{}) }

func (s *stuck) Close(context.Context) error {
	<-s.released
	return nil
}

// nobody is a receiver that ignores everything.
type nobody struct{ transport.Receiver }

func (nobody) Lost(transport.Loss) {}

// listen serves a handler at a port. The result of Serve comes from served.
func listen(t *testing.T, h http.Handler) (srv *http.Server, url string, served chan error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv, served = &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}, make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	return srv, "http://" + listener.Addr().String() + "/sse", served
}
