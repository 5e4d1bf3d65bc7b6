package server_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A oneLinkTransport is a transport with one link, or with an error.
type oneLinkTransport struct {
	link transport.Link
	err  error
}

func (o oneLinkTransport) Open(context.Context) (transport.Link, error) { return o.link, o.err }

// A runningServer is a server that runs at the other end of a rawPeer.
type runningServer struct {
	*rawPeer
	ended chan error // what Run returned
}

func run(ctx context.Context, t *testing.T, s *server.Server) *runningServer {
	ours, theirs := inmem.Pipe(inmem.Options{})
	r := &runningServer{&rawPeer{t: t, link: ours, frames: make(chan string, 100)}, make(chan error, 1)}
	ours.Bind(r.rawPeer)
	ours.Grant(transport.Main, cap(r.frames))
	go func() { r.ended <- s.Run(ctx, oneLinkTransport{specification.WatchServer(t)(theirs), nil}) }()
	synctest.Wait()
	return r
}

// slowServer returns a server whose tool works for a while, or until its context ends.
func slowServer(takes time.Duration) *server.Server {
	s := newServer(server.Options{Conn: conn.Tuning{DrainGrace: 3 * time.Second}})
	server.AddTool(s, protocol.Tool{Name: "slow"}, func(ctx context.Context, _ struct{}) (string, error) {
		working, stop := context.WithTimeout(ctx, takes)
		defer stop()
		<-working.Done()
		return "done", ctx.Err()
	})
	return s
}

// wantClosedServer checks that the server accepts no more clients.
func wantClosedServer(t *testing.T, s *server.Server) {
	t.Helper()
	accept(t, s).wantClosed()
}

// When its context ends, Run lets calls finish for DrainGrace, and returns an error
// that names the calls that it had to cancel.
//
// Guarantees: G-0062.1, G-0062.2
func TestRunDrainsWhenItsContextEnds(t *testing.T) {
	for name, test := range map[string]struct {
		takes, took time.Duration
		want        error
	}{
		"in time":  {time.Second, time.Second, nil},
		"too long": {time.Hour, 3 * time.Second / 100 * 99, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.Bubble(t, func(t *testing.T) {
				s := slowServer(test.takes)
				ctx, cancel := context.WithCancel(t.Context())
				r := run(ctx, t, s)
				r.send(modern(`1`, "tools/call", `"name":"slow"`))
				synctest.Wait()
				cancel()
				began := time.Now()
				err := <-r.ended
				if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(began); took != test.took {
					t.Errorf("Run took %v, want %v", took, test.took)
				}
				if test.want == nil {
					r.want(`"id":1`, `done`)
				}
				wantClosedServer(t, s)
			})
		})
	}
}

// When the peer leaves, Run closes the server, which ends its tasks.
//
// Guarantees: G-0062.1
func TestRunEndsWithItsPeer(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s, ended := newServer(server.Options{Tasks: &server.TaskOptions{}}), make(chan error, 1)
		server.AddTool(s, protocol.Tool{Name: "task", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(ctx context.Context, _ struct{}) (string, error) {
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return "", ctx.Err()
			})
		r := run(t.Context(), t, s)
		r.beginTask("task")
		r.link.Close(0)
		if err := <-r.ended; err != nil {
			t.Errorf("got %v, want no error", err)
		}
		if len(ended) == 0 {
			t.Error("the task still runs, want it to have ended")
		}
		wantClosedServer(t, s)
	})
}

// If the transport cannot open, Run returns the reason. If its context has ended
// already, Run returns nil. In both cases it closes the server.
//
// Guarantees: G-0062.1
func TestRunThatCannotBegin(t *testing.T) {
	refused := errors.New("refused")
	testenv.Bubble(t, func(t *testing.T) {
		s := slowServer(0)
		err := s.Run(t.Context(), oneLinkTransport{nil, refused})
		if !errors.Is(err, refused) {
			t.Errorf("got %v, want %v", err, refused)
		}
		wantClosedServer(t, s)
	})
	testenv.Bubble(t, func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		s := slowServer(0)
		r := run(ended, t, s)
		if err := <-r.ended; err != nil {
			t.Errorf("with an ended context: got %v, want no error", err)
		}
		r.wantClosed()
		wantClosedServer(t, s)
	})
}

// Run tells both that the transport has failed and what Close could not end in order.
//
// Guarantees: G-0062.2
func TestRunTellsBothErrors(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s, failed := slowServer(time.Hour), errors.New("no link")
		accept(t, s).send(modern(`1`, "tools/call", `"name":"slow"`))
		synctest.Wait()
		if err := s.Run(t.Context(), oneLinkTransport{nil, failed}); !errors.Is(err, failed) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run returned %v, want %v and %v", err, failed, context.DeadlineExceeded)
		}
	})
}

// A negative DrainGrace or StopGrace means the default.
func TestNegativeGracesAreTheDefaults(t *testing.T) {
	var took [2]time.Duration
	for n, tuning := range []conn.Tuning{{}, {DrainGrace: -1, StopGrace: -1}} {
		testenv.Bubble(t, func(t *testing.T) {
			s := newServer(server.Options{Conn: tuning, Tasks: &server.TaskOptions{}})
			server.AddTool(s, protocol.Tool{Name: "ends", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
				func(ctx context.Context, _ struct{}) (string, error) {
					<-ctx.Done()
					ends := time.NewTimer(50 * time.Millisecond)
					defer ends.Stop()
					<-ends.C
					return "", ctx.Err()
				})
			w := dial(t, s)
			w.ask(withTasks(`1`, "tools/call", `"name":"ends"`))
			w.send(modern(`2`, "tools/call", `"name":"ends"`))
			synctest.Wait()
			began := time.Now()
			if err := s.Close(t.Context()); errors.As(err, new(*conn.StuckError)) {
				t.Errorf("%+v: Close returned %v, want it to wait", tuning, err)
			}
			took[n] = time.Since(began)
		})
	}
	if took[0] != took[1] {
		t.Errorf("Close took %v with negative graces, want %v as by default", took[1], took[0])
	}
}
