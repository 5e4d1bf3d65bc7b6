package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A site is a server that can be away, with a worker of its jobs.
type site struct {
	transport.Transport
	away     atomic.Bool
	links    chan transport.Link // those of the server
	executed atomic.Int32        // how many calls it has begun
	worker   worker
	mu       sync.Mutex
	outcomes []string
}

func (s *site) Open(ctx context.Context) (transport.Link, error) {
	if s.away.Load() {
		return nil, errors.New("away")
	}
	return s.Transport.Open(ctx)
}

// virtually runs a test in virtual time. The tool "work" takes a second.
func virtually(t *testing.T, test func(t *testing.T, s *site)) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{links: make(chan transport.Link, 100)}
		tools := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{Middleware: []server.Middleware{refuse}})
		server.AddTool(tools, protocol.Tool{Name: "work"}, func(ctx context.Context, _ struct{}) (string, error) {
			s.executed.Add(1)
			select {
			case <-time.NewTimer(time.Second).C:
				return "done", nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		})
		s.Transport = inmem.New(func(link transport.Link) { s.links <- link; tools.Accept(link) }, inmem.Options{})
		c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{Conn: conn.Tuning{BackoffMax: time.Second}})
		session, err := c.Start(t.Context(), "s", s)
		if err != nil {
			t.Fatal(err)
		}
		s.worker = worker{queue: newQueue(4), session: session, attempts: 2, patience: time.Minute, grace: 5 * time.Second, report: s.note}
		test(t, s)
		if err := errors.Join(c.Close(context.Background()), tools.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
}

// refuse refuses the tool "busy", as a server does that has too much to do.
func refuse(next server.Handler) server.Handler {
	return func(ctx context.Context, r *server.Request) (any, error) {
		if call, ok := r.Params.(*protocol.CallToolParams); ok && call.Name == "busy" {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: "not now"}
		}
		return next(ctx, r)
	}
}

func (s *site) note(o Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := "done"
	switch {
	case o.Doubtful:
		what = "doubtful"
	case o.Err != nil:
		what = "not done"
	}
	s.outcomes = append(s.outcomes, o.ID+" "+what)
}

// works adds jobs and works on them for a while, then tells the worker to end. It returns how long that took, and which jobs are left.
func (s *site) works(t *testing.T, until time.Duration, meanwhile func(), jobs ...string) (ending time.Duration, left []string) {
	for _, id := range jobs {
		if err := s.worker.queue.add(Job{ID: id, Tool: id[:len(id)-1], Arguments: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), until)
	defer cancel()
	begun := time.Now()
	var beside sync.WaitGroup
	beside.Go(meanwhile)
	s.worker.run(ctx, 1)
	ending = time.Since(begun) - until
	beside.Wait()
	for _, job := range s.worker.queue.rest() {
		left = append(left, job.ID)
	}
	return ending, left
}

func (s *site) want(t *testing.T, executed int32, outcomes ...string) {
	t.Helper()
	if !slices.Equal(s.outcomes, outcomes) || s.executed.Load() != executed {
		t.Errorf("the outcomes are %q after %d executions, want %q after %d", s.outcomes, s.executed.Load(), outcomes, executed)
	}
}

// TestEachJobIsDoneOnce checks jobs that are done, one that cannot be, and the limit of the queue.
func TestEachJobIsDoneOnce(t *testing.T) {
	virtually(t, func(t *testing.T, s *site) {
		_, left := s.works(t, time.Minute, func() {}, "work1", "none2", "work3")
		s.want(t, 2, "work1 done", "none2 not done", "work3 done")
		for n := range 4 {
			if err := s.worker.queue.add(Job{ID: fmt.Sprint(n)}); err != nil {
				t.Error(err)
			}
		}
		if err := s.worker.queue.add(Job{}); !errors.Is(err, errFull) || left != nil {
			t.Errorf("a job too many: %v; left are %v", err, left)
		}
	})
}

// TestAServerThatIsAway checks that jobs wait for a server that comes back, and are given up if it does not.
func TestAServerThatIsAway(t *testing.T) {
	for back, want := range map[time.Duration][]string{
		50 * time.Second: {"work1 done", "work2 done"}, // within the patience of one attempt
		90 * time.Second: {"work2 done", "work1 done"},
		time.Hour:        {"work1 not done", "work2 not done"},
	} {
		virtually(t, func(t *testing.T, s *site) {
			synctest.Wait()
			s.away.Store(true)
			(<-s.links).Close(0)
			_, left := s.works(t, 2*time.Hour, func() {
				<-time.NewTimer(back).C
				s.away.Store(false)
			}, "work1", "work2")
			done := int32(2)
			if back == time.Hour {
				done = 0
			}
			if s.want(t, done, want...); left != nil {
				t.Errorf("left are %v", left)
			}
		})
	}
}

// TestAJobThatMayHaveBeenDone checks that a job whose server was lost meanwhile is not done again.
func TestAJobThatMayHaveBeenDone(t *testing.T) {
	virtually(t, func(t *testing.T, s *site) {
		s.works(t, time.Minute, func() {
			<-time.NewTimer(500 * time.Millisecond).C
			(<-s.links).Close(0)
		}, "work1", "work2")
		s.want(t, 2, "work1 doubtful", "work2 done")
	})
}

// TestARefusedJobIsTriedAfterAPause checks that a server that refuses is not asked without end, and that the pause does not keep the worker from ending.
func TestARefusedJobIsTriedAfterAPause(t *testing.T) {
	virtually(t, func(t *testing.T, s *site) {
		s.worker.attempts, s.worker.pause = 3, 10*time.Second
		begun := time.Now()
		s.worker.report = func(o Outcome) {
			if s.note(o); time.Since(begun) != 20*time.Second {
				t.Errorf("three attempts have taken %v", time.Since(begun))
			}
		}
		s.works(t, time.Minute, func() {}, "busy1")
		s.want(t, 0, "busy1 not done")
		if ending, left := s.works(t, 15*time.Second, func() {}, "busy2"); ending != 0 || !slices.Equal(left, []string{"busy2"}) {
			t.Errorf("left are %v after %v", left, ending)
		}
	})
}

// TestShutdown checks that a call that runs is finished, and that what has not begun is left in the queue.
func TestShutdown(t *testing.T) {
	virtually(t, func(t *testing.T, s *site) {
		ending, left := s.works(t, 1500*time.Millisecond, func() {}, "work1", "work2", "work3")
		if s.want(t, 2, "work1 done", "work2 done"); ending != 500*time.Millisecond || !slices.Equal(left, []string{"work3"}) {
			t.Errorf("left are %v after %v", left, ending)
		}
	})
	virtually(t, func(t *testing.T, s *site) {
		synctest.Wait()
		s.away.Store(true)
		(<-s.links).Close(0)
		s.worker.attempts = 1 // the end of the worker is no fault of the job
		ending, left := s.works(t, time.Second, func() {}, "work1", "work2")
		if s.want(t, 0); ending != s.worker.grace || !slices.Equal(left, []string{"work2", "work1"}) {
			t.Errorf("left are %v after %v", left, ending)
		}
	})
}
