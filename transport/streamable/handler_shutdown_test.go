package streamable

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A slowAcceptor has no clients, and ends as its function says.
type slowAcceptor struct{ end func(context.Context) error }

func (*slowAcceptor) Accept(link transport.Link) { link.Close(0) }

func (a *slowAcceptor) Close(ctx context.Context) error { return a.end(ctx) }

// A pipeListener accepts what comes on a channel, until it fails.
type pipeListener struct {
	conns chan net.Conn
	fails chan error
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case err := <-l.fails:
		return nil, err
	}
}

func (l pipeListener) Close() error {
	l.fails <- net.ErrClosed
	return nil
}

func (pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// Serve tells that its listener has failed while it shut down.
//
// Guarantees: G-0022.17
func TestServeTellsOfItsListenerWhileItShutsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed, listener := errors.New("failed"), pipeListener{make(chan net.Conn), make(chan error, 2)}
		h := NewHandler(&slowAcceptor{func(context.Context) error {
			listener.fails <- failed
			synctest.Wait()
			return nil
		}}, HandlerOptions{})
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := h.Serve(ctx, &http.Server{Handler: h}, listener); !errors.Is(err, failed) {
			t.Errorf("Serve returned %v, want %v", err, failed)
		}
	})
}

// A connection on which nothing has come does not hold up the end. One with a request is left to finish.
//
// Guarantees: G-0022.17
func TestServeEndsWithUnusedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := pipeListener{make(chan net.Conn), make(chan error, 1)}
		h := NewHandler(&slowAcceptor{func(context.Context) error { return nil }}, HandlerOptions{})
		ctx, stop := context.WithCancel(t.Context())
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			stop()
			pass(time.Second)
			w.WriteHeader(http.StatusTeapot)
		})}
		ended := make(chan error, 1)
		go func() { ended <- h.Serve(ctx, srv, listener) }()
		unused, theirs := net.Pipe()
		listener.conns <- theirs
		used, theirs := net.Pipe()
		listener.conns <- theirs
		synctest.Wait()
		began := time.Now()
		fmt.Fprint(used, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(used), nil)
		if err != nil || response.StatusCode != http.StatusTeapot {
			t.Errorf("the request under way: got %v, %v, want 418", response, err)
		}
		if err := <-ended; err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("Serve returned %v after %v, want nil after about a second", err, time.Since(began))
		}
		if n, err := unused.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes from the unused connection, want its end", n)
		}
	})
}

// A shutdown takes no longer than the grace, even if its context has more time.
//
// Guarantees: G-0022.17
func TestShutdownWithALongDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler(&slowAcceptor{func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}}, HandlerOptions{ShutdownGrace: 10 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		if err := h.Shutdown(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 10*time.Second {
			t.Errorf("Shutdown returned %v after %v, want %v within 10 s", err, time.Since(began), context.DeadlineExceeded)
		}
	})
}
