package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A factory is a server whose tools work for a while, as tasks if they may.
type factory struct {
	*server.Server
	mu     sync.Mutex
	runs   map[string]int // by job
	causes []error        // why jobs ended that were cancelled
}

type job struct {
	Name    string `json:"name"`
	Seconds int    `json:"seconds"`
}

func newFactory(o server.TaskOptions) *factory { return newFactoryWith(server.Options{Tasks: &o}) }

func newFactoryWith(o server.Options) *factory {
	f := &factory{runs: make(map[string]int)}
	f.Server = server.New(protocol.Implementation{Name: "factory", Version: "1"}, o)
	execution := &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}
	server.AddTool(f.Server, protocol.Tool{Name: "make", Execution: execution}, f.make)
	must := &protocol.ToolExecution{TaskSupport: protocol.TaskRequired}
	server.AddTool(f.Server, protocol.Tool{Name: "must", Execution: must}, f.make)
	server.AddTool(f.Server, protocol.Tool{Name: "break", Execution: execution}, func(context.Context, struct{}) (string, error) {
		return "", &jsonrpc.Error{Code: 7, Message: "broken"}
	})
	server.AddTool(f.Server, protocol.Tool{Name: "ask", Execution: execution}, func(ctx context.Context, in job) (string, error) {
		if err := server.Confirm(ctx, "Make "+in.Name+"?"); err != nil {
			f.mu.Lock()
			f.causes = append(f.causes, err)
			f.mu.Unlock()
			return "", err
		}
		return f.make(ctx, in)
	}, server.Asks(server.Waits, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}))
	return f
}

func (f *factory) make(ctx context.Context, in job) (string, error) {
	f.mu.Lock()
	f.runs[in.Name]++
	f.mu.Unlock()
	timer := time.NewTimer(time.Duration(in.Seconds) * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
		return "made " + in.Name, nil
	case <-ctx.Done():
		f.mu.Lock()
		f.causes = append(f.causes, context.Cause(ctx))
		f.mu.Unlock()
		return "", context.Cause(ctx)
	}
}

// visit connects a client for the length of a bubble, over a link with faults.
func (f *factory) visit(t *testing.T, o client.Options, plan fault.Plan, test func(*client.Session)) {
	t.Helper()
	o.Tasks = true
	o.Conn.BackoffMin, o.Conn.BackoffMax = 10*time.Millisecond, 50*time.Millisecond
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, o)
	watch := specification.WatchServer(t)
	served := inmem.New(func(link transport.Link) { f.Accept(watch(link)) }, inmem.Options{})
	session, err := c.Connect(t.Context(), specification.WatchClient(t, fault.New(served, plan)))
	if err != nil {
		t.Fatal(err)
	}
	test(session)
	synctest.Wait()
	c.Close(context.Background())
	f.Close(context.Background())
}

func agree(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	return client.Accept(nil)
}

// Guarantees: G-0032.10
func TestACallThatBecomesATaskIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory(server.TaskOptions{PollInterval: 7 * time.Second})
		var seen int
		o := client.Options{Elicit: agree, Middleware: []client.Middleware{client.On(
			func(ctx context.Context, p *protocol.CallToolParams, next func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error)) (*protocol.CallToolResult, error) {
				r, err := next(ctx, p)
				if err == nil && r.Content.Text() != "" && r.Task == nil {
					seen++ // middleware sees the result, not the task
				}
				return r, err
			})}}
		f.visit(t, o, fault.Plan{}, func(s *client.Session) {
			began := time.Now()
			got, err := client.Call[string](t.Context(), s, "make", job{"a", 3600})
			if took := time.Since(began); got != "made a" || err != nil || took < time.Hour || took > time.Hour+7*time.Second {
				t.Errorf("got %q, %v after %v", got, err, took)
			}
			if got, err := client.Call[string](t.Context(), s, "ask", job{"b", 60}); got != "made b" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
			var fault *jsonrpc.Error
			if _, err := client.Call[string](t.Context(), s, "break", nil); !errors.As(err, &fault) || fault.Code != 7 || !errors.As(err, new(*client.CallError)) {
				t.Errorf("got %v", err)
			}
		})
		if seen != 2 {
			t.Errorf("middleware has seen %d results", seen)
		}
	})
}

// Guarantees: G-0032.11
func TestTheEndOfACallCancelsItsTask(t *testing.T) {
	for name, o := range map[string]client.Options{
		"the context ends": {Elicit: agree},
		"nobody answers": {Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return nil, errors.New("not now")
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFactory(server.TaskOptions{})
			f.visit(t, o, fault.Plan{}, func(s *client.Session) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := client.Call[string](ctx, s, "ask", job{"a", 3600})
				if name == "the context ends" && !errors.Is(err, context.DeadlineExceeded) || name != "the context ends" && !errors.As(err, new(*client.InputError)) {
					t.Errorf("%s: got %v", name, err)
				}
				synctest.Wait()
				f.mu.Lock()
				defer f.mu.Unlock()
				if len(f.causes) != 1 || !errors.Is(f.causes[0], server.ErrTaskCancelled) {
					t.Errorf("%s: the handler has seen %v", name, f.causes)
				}
			})
		})
	}
}

// Guarantees: G-0032.11
func TestATaskIsHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory(server.TaskOptions{After: time.Second})
		f.visit(t, client.Options{Elicit: agree}, fault.Plan{}, func(s *client.Session) {
			start := func(tool string, in job) *client.Task {
				t.Helper()
				task, err := s.StartTool(t.Context(), &protocol.CallToolParams{Name: tool, Arguments: mustMarshal(in)})
				if err != nil {
					t.Fatal(err)
				}
				return task
			}
			quick := start("make", job{"a", 0})
			if r, err := quick.Wait(t.Context()); quick.ID() != "" || err != nil || r.Content.Text() != "made a" {
				t.Errorf("got %v, %v", r, err)
			}
			if state, err := quick.Status(t.Context()); err != nil || state.Status != protocol.TaskCompleted || quick.Cancel(t.Context()) != nil {
				t.Errorf("got %+v, %v", state, err)
			}
			slow := start("make", job{"b", 120})
			if state, err := slow.Status(t.Context()); err != nil || state.Status != protocol.TaskWorking {
				t.Errorf("got %+v, %v", state, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := slow.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			var waiting sync.WaitGroup // the wait has ended, not the task: others wait on
			for range 2 {
				waiting.Go(func() {
					if r, err := s.Task(slow.ID()).Wait(t.Context()); err != nil || r.Content.Text() != "made b" {
						t.Errorf("got %v, %v", r, err)
					}
				})
			}
			waiting.Wait()
			cancelled := start("make", job{"c", 3600})
			if err := cancelled.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := cancelled.Wait(t.Context()); !errors.Is(err, client.ErrTaskCancelled) {
				t.Errorf("got %v", err)
			}
			if _, err := s.Task("unknown").Wait(t.Context()); !errors.Is(err, client.ErrNoTask) {
				t.Errorf("got %v", err)
			}
			manual := s.With(client.CallOptions{ManualInput: true})
			asking := start("ask", job{"d", 0})
			for state := new(protocol.DetailedTask); state.Status != protocol.TaskInputRequired; {
				var err error
				if state, err = manual.Task(asking.ID()).Status(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := asking.Answer(t.Context(), protocol.InputResponses{"1": &protocol.ElicitResult{Action: protocol.ElicitAccept}}); err != nil {
				t.Error(err)
			}
			if r, err := manual.Task(asking.ID()).Wait(t.Context()); err != nil || r.Content.Text() != "made d" {
				t.Errorf("got %v, %v", r, err)
			}
			for _, err := range s.Tasks(t.Context()) {
				if !errors.Is(err, client.ErrUnsupported) {
					t.Errorf("got %v", err)
				}
			}
		})
	})
}

func mustMarshal(value any) []byte {
	raw, err := protocol.Marshal(value)
	if err != nil {
		panic(err)
	}
	return raw
}

// A call has one outcome, whatever the connection does. Once its task has begun, that
// is what the tool has made. No job runs twice.
//
// Guarantees: G-0032.10
func TestTasksSurviveABadConnection(t *testing.T) {
	const jobs = 20
	for seed := range *seeds {
		synctest.Test(t, func(t *testing.T) {
			f := newFactory(server.TaskOptions{})
			plan := fault.Plan{Seed: seed, Faults: []fault.Fault{
				{Kind: fault.Die, Direction: fault.Inbound, Probability: 0.03, After: 2},
				{Kind: fault.Die, Direction: fault.Outbound, Probability: 0.03, After: 2},
				{Kind: fault.Drop, Direction: fault.Inbound, Probability: 0.02, After: 2},
				{Kind: fault.Drop, Direction: fault.Outbound, Probability: 0.02, After: 2},
			}}
			o := client.Options{Elicit: agree, Calls: client.CallOptions{WaitForReady: true, Timeout: 2 * time.Second}, Conn: conn.Options{}}
			f.visit(t, o, plan, func(s *client.Session) {
				var calling sync.WaitGroup
				made := make([]bool, jobs)
				for i := range jobs {
					calling.Go(func() {
						tool := []string{"make", "ask"}[i%2]
						name := fmt.Sprint(i)
						task, err := s.StartTool(t.Context(), &protocol.CallToolParams{Name: tool, Arguments: mustMarshal(job{name, 10})})
						if err != nil {
							if !errors.Is(err, client.ErrLost) && !errors.Is(err, client.ErrTimedOut) {
								t.Errorf("seed %d: %s: got %v", seed, name, err)
							}
							return
						}
						r, err := task.Wait(t.Context())
						if err != nil || r.Content.Text() != "made "+name {
							t.Errorf("seed %d: %s: got %v, %v", seed, name, r, err)
						}
						made[i] = true
					})
				}
				calling.Wait()
				f.mu.Lock()
				defer f.mu.Unlock()
				for i, ok := range made {
					if n := f.runs[fmt.Sprint(i)]; n > 1 || ok && n != 1 {
						t.Errorf("seed %d: job %d ran %d times", seed, i, n)
					}
				}
				if seed == 0 && !strings.Contains(fmt.Sprint(made), "true") {
					t.Errorf("no job was made")
				}
			})
		})
	}
}

// Guarantees: G-0032.12
func TestLegacyTasksAreWaitedForToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var as []bool // whether a call was made as a task
		o := client.Options{Elicit: agree, ProtocolVersion: protocol.Version20251125}
		count := server.On(func(ctx context.Context, p *protocol.CallToolParams, next func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error)) (*protocol.CallToolResult, error) {
			as = append(as, p.Task != nil)
			return next(ctx, p)
		})
		f := newFactoryWith(server.Options{Tasks: &server.TaskOptions{Legacy: true}, Middleware: []server.Middleware{count}})
		f.visit(t, o, fault.Plan{Faults: []fault.Fault{{Kind: fault.Die, Direction: fault.Inbound, At: []int{7}, Link: 1}}}, func(s *client.Session) {
			for _, err := range s.Tools(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, tool := range []string{"make", "ask", "must"} {
				task, err := s.StartTool(t.Context(), &protocol.CallToolParams{Name: tool, Arguments: mustMarshal(job{tool, 60})})
				if err != nil {
					t.Fatal(err)
				}
				if r, err := task.Wait(t.Context()); err != nil || r.Content.Text() != "made "+tool || task.ID() == "" {
					t.Errorf("%s: got %v, %v", tool, r, err)
				}
			}
			broken, err := s.StartTool(t.Context(), &protocol.CallToolParams{Name: "break"})
			if err != nil {
				t.Fatal(err)
			}
			var fault *jsonrpc.Error
			if _, err := broken.Wait(t.Context()); !errors.As(err, &fault) || fault.Code != 7 {
				t.Errorf("got %v", err)
			}
			cancelled, err := s.StartTool(t.Context(), &protocol.CallToolParams{Name: "make", Arguments: mustMarshal(job{"c", 60})})
			if err != nil {
				t.Fatal(err)
			}
			if err := cancelled.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := cancelled.Wait(t.Context()); !errors.Is(err, client.ErrTaskCancelled) {
				t.Errorf("got %v", err)
			}
			for _, tool := range []string{"make", "must"} { // the latter demands it
				if got, err := client.Call[string](t.Context(), s, tool, job{tool, 1}); err != nil || got != "made "+tool {
					t.Errorf("%s: got %q, %v", tool, got, err)
				}
			}
		})
		if fmt.Sprint(as) != "[true true true true true false true]" {
			t.Errorf("as tasks: %v", as)
		}
	})
}

// A server that cannot say for now how a task stands has not lost it.
//
// Guarantees: G-0032.10
func TestAWaitGoesOnWhileTheServerCannotSay(t *testing.T) {
	for _, test := range []struct {
		code  int64
		fails int // so many polls in a row
		ends  bool
	}{
		{jsonrpc.CodeOverloaded, 9, false},
		{jsonrpc.CodeInternalError, 9, false},
		{jsonrpc.CodeOverloaded, 10, true},
		{jsonrpc.CodeInternalError, 10, true},
		{7, 1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			polls := 0
			f := newFactoryWith(server.Options{Tasks: &server.TaskOptions{}, Middleware: []server.Middleware{func(next server.Handler) server.Handler {
				return func(ctx context.Context, r *server.Request) (any, error) {
					if r.Method == protocol.MethodGetTask {
						if polls++; polls%(test.fails+1) != 0 {
							return nil, &jsonrpc.Error{Code: test.code, Message: "not now"}
						}
					}
					return next(ctx, r)
				}
			}}})
			f.visit(t, client.Options{}, fault.Plan{}, func(s *client.Session) {
				got, err := client.Call[string](t.Context(), s, "make", job{"a", 30})
				switch {
				case test.ends && (err == nil || polls != test.fails):
					t.Errorf("%+v: got %q, %v after %d polls", test, got, err, polls)
				case !test.ends && (got != "made a" || err != nil || polls <= test.fails+1):
					t.Errorf("%+v: got %q, %v after %d polls", test, got, err, polls)
				}
			})
		})
	}
}

// Wait does not ask for ever for an answer that is too large to be received. A lost
// connection is no such thing, however often it is lost.
//
// Guarantees: G-0032.10
func TestAWaitEndsIfTheAnswerIsTooLarge(t *testing.T) {
	for why, ends := range map[error]bool{&transport.OversizedError{Limit: 1}: true, errors.New("the link broke"): false} {
		synctest.Test(t, func(t *testing.T) {
			polls := 0
			lost := func(next client.Handler) client.Handler {
				return func(ctx context.Context, r *client.Request) (any, error) {
					if r.Method == protocol.MethodGetTask {
						if polls++; polls <= 100 {
							return nil, errors.Join(client.ErrLost, why)
						}
					}
					return next(ctx, r)
				}
			}
			newFactory(server.TaskOptions{}).visit(t, client.Options{Middleware: []client.Middleware{lost}}, fault.Plan{}, func(s *client.Session) {
				got, err := client.Call[string](t.Context(), s, "make", job{"a", 1})
				if (err != nil) != ends || ends && (polls != 10 || !errors.As(err, new(*transport.OversizedError))) {
					t.Errorf("%v: got %q, %v after %d polls", why, got, err, polls)
				}
			})
		})
	}
}

// A program that is interrupted closes its session at once: its task is cancelled all
// the same.
//
// Guarantees: G-0032.11
func TestCloseRightBehindACallCancelsItsTask(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			f := newFactory(server.TaskOptions{})
			f.visit(t, client.Options{}, fault.Plan{}, func(s *client.Session) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := client.Call[string](ctx, s, "make", job{"a", 3600}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				f.mu.Lock()
				defer f.mu.Unlock()
				if len(f.causes) != 1 || !errors.Is(f.causes[0], server.ErrTaskCancelled) {
					t.Fatalf("the handler has seen %v", f.causes)
				}
			})
		})
	}
}
