package supervisor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A dialer is a transport whose links are opened by a function.
type dialer func(ctx context.Context) (transport.Link, error)

func (d dialer) Open(ctx context.Context) (transport.Link, error) { return d(ctx) }

// A peer is the other end of every link it was asked for: an acceptor per
// link, run by the same supervisor.
type peer struct {
	serve func(context.Context) // what is done for a request; nil: it is refused
	mu    sync.Mutex
	conns []*conn.Conn
}

func (p *peer) transport(t *testing.T, s *supervisor.Supervisor) transport.Transport {
	return inmem.New(func(link transport.Link) {
		var o conn.Options
		if p.serve != nil {
			o.Handler = handler(func(ctx context.Context, _ *conn.Incoming) { p.serve(ctx) })
		}
		c := conn.Accept(link, o)
		p.mu.Lock()
		p.conns = append(p.conns, c)
		p.mu.Unlock()
		if _, err := s.Connect(context.Background(), c); err != nil {
			t.Error(err)
		}
	}, inmem.Options{})
}

// drop ends the present link from the peer's side, abruptly.
func (p *peer) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[len(p.conns)-1].Stop()
}

func connect(t testing.TB, s *supervisor.Supervisor, c *conn.Conn) *supervisor.Child {
	t.Helper()
	child, err := s.Connect(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return child
}

func await(t *testing.T, c *conn.Conn) {
	t.Helper()
	if err := c.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A handler serves requests with a function.
type handler func(ctx context.Context, in *conn.Incoming)

func (h handler) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	h(ctx, in)
	return nil, nil
}

func (handler) ServeNotification(context.Context, *conn.Incoming) {}

// TestIncarnationIsRestForOne writes down what happens in two incarnations of
// a supervised Conn, the first of which loses its link while a handshake waits
// and a request of the peer's is served: the link comes first, what came after
// it ends with it, and only then the next link is opened.
//
// Guarantees: G-0002.8
func TestIncarnationIsRestForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var log []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, fmt.Sprintf(format, args...))
		}
		s, p := supervisor.New(supervisor.Options{}), &peer{}
		links := p.transport(t, s)
		c := conn.New(dialer(func(ctx context.Context) (transport.Link, error) {
			note("open")
			return links.Open(ctx)
		}), conn.Options{
			Name: "weather",
			Handler: handler(func(ctx context.Context, in *conn.Incoming) {
				note("serve %d", in.Epoch)
				<-ctx.Done()
				note("task %d ended", in.Epoch)
			}),
			Handshake: func(ctx context.Context, in *conn.Incarnation) error {
				note("handshake %d", in.Epoch())
				if in.Epoch() > 1 {
					return nil
				}
				go p.call(ctx)
				<-ctx.Done()
				note("task %d ended", in.Epoch())
				return ctx.Err()
			},
		})
		connect(t, s, c)
		synctest.Wait()
		p.drop()
		await(t, c)
		stop(t, s)
		want := []string{"open", "handshake 1", "serve 1", "task 1 ended", "task 1 ended", "open", "handshake 2"}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

// call makes a request from the peer's side, and does not care for its end.
func (p *peer) call(ctx context.Context) {
	p.mu.Lock()
	c := p.conns[len(p.conns)-1]
	p.mu.Unlock()
	c.Call(ctx, conn.Request{Method: "sampling", Timeout: -1, WaitForReady: true})
}

// TestHandlerDiesAlone: its panic is an answer to the peer. The link lives, and
// nothing is restarted.
//
// Guarantees: G-0002.8, G-0002.9
func TestHandlerDiesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := supervisor.New(supervisor.Options{Intensity: -1}), &peer{}
		c := conn.New(p.transport(t, s), conn.Options{
			Name:    "weather",
			Handler: handler(func(context.Context, *conn.Incoming) { panic("boom") }),
		})
		connect(t, s, c)
		await(t, c)
		for range 5 {
			p.call(t.Context())
		}
		if got := s.Report().Children[0]; got.Restarts != 0 || c.Status().Epoch != 1 || c.State() != conn.Ready {
			t.Errorf("got %v", got)
		}
		stop(t, s)
	})
}

// TestStopNamesTheHandlersOfAConn: what a Conn had to leave behind is not
// hidden by its supervisor.
//
// Guarantees: G-0002.6
func TestStopNamesTheHandlersOfAConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s, p := supervisor.New(supervisor.Options{}), &peer{}
		c := conn.New(p.transport(t, s), conn.Options{
			Name:    "weather",
			Handler: handler(func(context.Context, *conn.Incoming) { <-release }),
		})
		connect(t, s, c)
		await(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		go p.call(ctx)
		synctest.Wait()
		var stuck *conn.StuckError
		if err := s.Stop(t.Context()); !errors.As(err, &stuck) || !slices.Equal(stuck.Tasks, []string{"sampling"}) {
			t.Errorf("Stop returned %v, want the handler named", err)
		}
		cancel()
		close(release)
		synctest.Wait()
	})
}
