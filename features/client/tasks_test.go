package client_test

import (
	"context"
	"errors"
	"flag"
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

// seeds is how many random sequences of faults a test tries. make soak tries more.
var seeds = flag.Uint64("seeds", 20, "histories of each test with faults")

// A taskServer is a server whose tools work for a while, as tasks if that is possible.
type taskServer struct {
	*server.Server
	mu     sync.Mutex
	runs   map[string]int // how often each job ran
	causes []error        // why cancelled jobs have ended
}

type job struct {
	Name    string `json:"name"`
	Seconds int    `json:"seconds"`
}

func newTaskServer(o server.TaskOptions) *taskServer {
	return newTaskServerWith(server.Options{Tasks: &o})
}

func newTaskServerWith(o server.Options) *taskServer {
	f := &taskServer{runs: make(map[string]int)}
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

func (f *taskServer) make(ctx context.Context, in job) (string, error) {
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

// withClient connects a client for the length of a bubble, over a link with faults.
func (f *taskServer) withClient(t *testing.T, o client.Options, plan fault.Plan, test func(*client.Session)) {
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

func acceptAll(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	return client.Accept(nil)
}

// CallTool waits for the result of a call that becomes a task.
//
// Guarantees: G-0032.10
func TestACallThatBecomesATaskIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTaskServer(server.TaskOptions{PollInterval: 7 * time.Second})
		var seen int
		o := client.Options{Elicit: acceptAll, Middleware: []client.Middleware{client.On(
			func(ctx context.Context, p *protocol.CallToolParams, next func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error)) (*protocol.CallToolResult, error) {
				r, err := next(ctx, p)
				if err == nil && r.Content.Text() != "" && r.Task == nil {
					seen++ // middleware gets the result, not the task
				}
				return r, err
			})}}
		f.withClient(t, o, fault.Plan{}, func(s *client.Session) {
			began := time.Now()
			got, err := client.Call[string](t.Context(), s, "make", job{"a", 3600})
			if took := time.Since(began); got != "made a" || err != nil || took < time.Hour || took > time.Hour+7*time.Second {
				t.Errorf("got %q, %v after %v", got, err, took)
			}
			if got, err := client.Call[string](t.Context(), s, "ask", job{"b", 60}); got != "made b" || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, "made b")
			}
			var fault *jsonrpc.Error
			if _, err := client.Call[string](t.Context(), s, "break", nil); !errors.As(err, &fault) || fault.Code != 7 || !errors.As(err, new(*client.CallError)) {
				t.Errorf("got %v, want a *jsonrpc.Error, fault.Code == 7 and a *client.CallError", err)
			}
		})
		if seen != 2 {
			t.Errorf("middleware got %d results, want 2", seen)
		}
	})
}

// If a call ends before its task, because its context ends or a question gets no
// answer, the task is cancelled.
//
// Guarantees: G-0032.11
func TestTheEndOfACallCancelsItsTask(t *testing.T) {
	for name, o := range map[string]client.Options{
		"the context ends": {Elicit: acceptAll},
		"nobody answers": {Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return nil, errors.New("not now")
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newTaskServer(server.TaskOptions{})
			f.withClient(t, o, fault.Plan{}, func(s *client.Session) {
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
					t.Errorf("%s: the handler ended with %v, want len(f.causes) == 1 and the error %v", name, f.causes, server.ErrTaskCancelled)
				}
			})
		})
	}
}

// StartTool returns a task that the program can wait for, cancel and answer.
//
// Guarantees: G-0032.11
func TestStartToolReturnsATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTaskServer(server.TaskOptions{After: time.Second})
		f.withClient(t, client.Options{Elicit: acceptAll}, fault.Plan{}, func(s *client.Session) {
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
				t.Errorf("got %v, %v, want quick.ID() == %q and r.Content.Text() == %q", r, err, "", "made a")
			}
			if state, err := quick.Status(t.Context()); err != nil || state.Status != protocol.TaskCompleted || quick.Cancel(t.Context()) != nil {
				t.Errorf("got %+v, %v, want state.Status == %v and quick.Cancel(t.Context()) == nil", state, err, protocol.TaskCompleted)
			}
			slow := start("make", job{"b", 120})
			if state, err := slow.Status(t.Context()); err != nil || state.Status != protocol.TaskWorking {
				t.Errorf("got %+v, %v, want %v", state, err, protocol.TaskWorking)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := slow.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
			}
			var waiting sync.WaitGroup // only the wait has ended: other callers still wait for the task
			for range 2 {
				waiting.Go(func() {
					if r, err := s.Task(slow.ID()).Wait(t.Context()); err != nil || r.Content.Text() != "made b" {
						t.Errorf("got %v, %v, want %q", r, err, "made b")
					}
				})
			}
			waiting.Wait()
			cancelled := start("make", job{"c", 3600})
			if err := cancelled.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := cancelled.Wait(t.Context()); !errors.Is(err, client.ErrTaskCancelled) {
				t.Errorf("got %v, want %v", err, client.ErrTaskCancelled)
			}
			if _, err := s.Task("unknown").Wait(t.Context()); !errors.Is(err, client.ErrNoTask) {
				t.Errorf("got %v, want %v", err, client.ErrNoTask)
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
				t.Errorf("got %v, %v, want %q", r, err, "made d")
			}
			for _, err := range s.Tasks(t.Context()) {
				if !errors.Is(err, client.ErrUnsupported) {
					t.Errorf("got %v, want %v", err, client.ErrUnsupported)
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
// outcome is the tool's result. No job runs twice.
//
// Guarantees: G-0032.10
func TestTasksSurviveABadConnection(t *testing.T) {
	const jobs = 20
	for seed := range *seeds {
		synctest.Test(t, func(t *testing.T) {
			f := newTaskServer(server.TaskOptions{})
			plan := fault.Plan{Seed: seed, Faults: []fault.Fault{
				{Kind: fault.Die, Direction: fault.Inbound, Probability: 0.03, After: 2},
				{Kind: fault.Die, Direction: fault.Outbound, Probability: 0.03, After: 2},
				{Kind: fault.Drop, Direction: fault.Inbound, Probability: 0.02, After: 2},
				{Kind: fault.Drop, Direction: fault.Outbound, Probability: 0.02, After: 2},
			}}
			o := client.Options{Elicit: acceptAll, Calls: client.CallOptions{WaitForReady: true, Timeout: 2 * time.Second}, Conn: conn.Tuning{}}
			f.withClient(t, o, plan, func(s *client.Session) {
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
							t.Errorf("seed %d: %s: got %v, %v, want %q", seed, name, r, err, "made "+name)
						}
						made[i] = true
					})
				}
				calling.Wait()
				f.mu.Lock()
				defer f.mu.Unlock()
				for i, ok := range made {
					if n := f.runs[fmt.Sprint(i)]; n > 1 || ok && n != 1 {
						t.Errorf("seed %d: job %d ran %d times, want 1 at most", seed, i, n)
					}
				}
				if seed == 0 && !strings.Contains(fmt.Sprint(made), "true") {
					t.Errorf("no job ran, want some")
				}
			})
		})
	}
}

// CallTool and StartTool also work with the legacy tasks of 2025-11-25.
//
// Guarantees: G-0032.12
func TestLegacyTasksAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var as []bool // whether each call was made as a task
		o := client.Options{Elicit: acceptAll, ProtocolVersion: protocol.Version20251125}
		count := server.On(func(ctx context.Context, p *protocol.CallToolParams, next func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error)) (*protocol.CallToolResult, error) {
			as = append(as, p.Task != nil)
			return next(ctx, p)
		})
		f := newTaskServerWith(server.Options{Tasks: &server.TaskOptions{Legacy: true}, Middleware: []server.Middleware{count}})
		f.withClient(t, o, fault.Plan{Faults: []fault.Fault{{Kind: fault.Die, Direction: fault.Inbound, At: []int{7}, Link: 1}}}, func(s *client.Session) {
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
				t.Errorf("got %v, want a *jsonrpc.Error and fault.Code == 7", err)
			}
			if task, err := s.StartTool(t.Context(), &protocol.CallToolParams{Name: "none"}); err == nil || task != nil {
				t.Errorf("a tool that is not there: got %v, %v, want an error alone", task, err)
			}
			cancelled, err := s.StartTool(t.Context(), &protocol.CallToolParams{Name: "make", Arguments: mustMarshal(job{"c", 60})})
			if err != nil {
				t.Fatal(err)
			}
			if err := cancelled.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := cancelled.Wait(t.Context()); !errors.Is(err, client.ErrTaskCancelled) {
				t.Errorf("got %v, want %v", err, client.ErrTaskCancelled)
			}
			for _, tool := range []string{"make", "must"} { // the second one requires a task
				if got, err := client.Call[string](t.Context(), s, tool, job{tool, 1}); err != nil || got != "made "+tool {
					t.Errorf("%s: got %q, %v, want %q", tool, got, err, "made "+tool)
				}
			}
		})
		if fmt.Sprint(as) != "[true true true true true true false true]" {
			t.Errorf("got the calls as tasks: %v, want %q", as, "[true true true true true true false true]")
		}
	})
}

// If a server cannot report the state of a task for a while, the client keeps waiting
// for it.
//
// Guarantees: G-0032.10
func TestWaitContinuesWhilePollsFail(t *testing.T) {
	for _, test := range []struct {
		code  int64
		fails int // how many polls fail in a row
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
			f := newTaskServerWith(server.Options{Tasks: &server.TaskOptions{}, Middleware: []server.Middleware{func(next server.Handler) server.Handler {
				return func(ctx context.Context, r *server.Request) (any, error) {
					if r.Method == protocol.MethodGetTask {
						if polls++; polls%(test.fails+1) != 0 {
							return nil, &jsonrpc.Error{Code: test.code, Message: "not now"}
						}
					}
					return next(ctx, r)
				}
			}}})
			f.withClient(t, client.Options{}, fault.Plan{}, func(s *client.Session) {
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

// Wait ends with an error if the answer is too large to receive. After a lost
// connection it continues, however often that happens.
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
			newTaskServer(server.TaskOptions{}).withClient(t, client.Options{Middleware: []client.Middleware{lost}}, fault.Plan{}, func(s *client.Session) {
				got, err := client.Call[string](t.Context(), s, "make", job{"a", 1})
				if (err != nil) != ends || ends && (polls != 10 || !errors.As(err, new(*transport.OversizedError))) {
					t.Errorf("%v: got %q, %v after %d polls", why, got, err, polls)
				}
			})
		})
	}
}

// If a program closes its session right after a call, the task of the call is still
// cancelled.
//
// Guarantees: G-0032.11
func TestCloseRightAfterACallCancelsItsTask(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			f := newTaskServer(server.TaskOptions{})
			f.withClient(t, client.Options{}, fault.Plan{}, func(s *client.Session) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := client.Call[string](ctx, s, "make", job{"a", 3600}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				f.mu.Lock()
				defer f.mu.Unlock()
				if len(f.causes) != 1 || !errors.Is(f.causes[0], server.ErrTaskCancelled) {
					t.Fatalf("the handler ended with %v, want len(f.causes) == 1 and the error %v", f.causes, server.ErrTaskCancelled)
				}
			})
		})
	}
}

// If a call that became a task ends while the server is away, the task is cancelled when the server is back. If the server does
// not confirm a cancellation, the call waits for that no longer than a second, and the server gets it again. So it does if it was overloaded.
//
// Guarantees: G-0032.11
func TestTaskIsCancelledWhenTheServerIsBack(t *testing.T) {
	for _, name := range []string{"away", "silent", "overloaded"} {
		for _, version := range []string{protocol.Latest, protocol.Version20251125} {
			synctest.Test(t, func(t *testing.T) {
				const created = `"taskId":"job","status":"working","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"`
				p := newFlakyEndpoint("", errors.New("nobody is there"))
				away, refuses := name == "away", name != "away"
				p.answer = func(f frame) []string {
					switch {
					case f.Method == protocol.MethodDiscover:
						return []string{f.result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}},"ttlMs":0,"cacheScope":"private"}`)}
					case f.Method == protocol.MethodInitialize:
						return f.initialized(version, `{"tools":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}`)
					case f.Method == protocol.MethodListTools:
						return []string{f.result(`{"tools":[{"name":"make","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}`)}
					case f.Method == protocol.MethodCallTool && protocol.IsModern(version):
						return []string{f.result(`{"resultType":"task",` + created + `,"ttlMs":null}`)}
					case f.Method == protocol.MethodCallTool:
						return []string{f.result(`{"task":{` + created + `,"ttl":null}}`)}
					case f.Method == protocol.MethodCancelTask && refuses:
						if refuses = false; name == "overloaded" {
							return []string{f.fault(jsonrpc.CodeOverloaded, `null`)}
						}
						return nil
					case f.Method == protocol.MethodGetTask && protocol.IsModern(version):
						return []string{f.result(`{"resultType":"complete",` + created + `,"ttlMs":null}`)}
					case f.Method == protocol.MethodGetTask:
						return []string{f.result(`{` + created + `,"ttl":null}`)}
					case f.Method == protocol.MethodCancelTask && protocol.IsModern(version):
						return []string{f.result(`{"resultType":"complete"}`)}
					case f.Method == protocol.MethodCancelTask:
						return []string{f.result(`{` + strings.Replace(created, "working", "cancelled", 1) + `,"ttl":null}`)}
					default:
						return nil
					}
				}
				t.Cleanup(p.close)
				session, err := connect(t, p, client.Options{
					ProtocolVersion: version, Tasks: true, Conn: conn.Tuning{BackoffMax: 5 * time.Second}, Calls: client.CallOptions{WaitForReady: true},
				}, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := toolNames(t, session); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "make"})
					ended <- err
				}()
				pass(1500 * time.Millisecond)
				if away {
					p.out.Store(true)
					p.cut()
					pass(10 * time.Second)
				}
				began := time.Now()
				cancel()
				wait := map[string]time.Duration{"silent": time.Second}[name]
				if err := <-ended; !errors.Is(err, context.Canceled) || time.Since(began) != wait {
					t.Errorf("%s, %s: the call ended with %v after %v, want %v after %v", name, version, err, time.Since(began), context.Canceled, wait)
				}
				if n := len(p.received(protocol.MethodCancelTask)); away && n != 0 {
					t.Errorf("%s, %s: the server got %d cancellations while it was away", name, version, n)
				}
				pass(10 * time.Second)
				p.out.Store(false)
				pass(time.Minute)
				cancelled := p.received(protocol.MethodCancelTask)
				if want := map[bool]int{true: 1, false: 2}[away]; len(cancelled) != want || !strings.Contains(string(cancelled[want-1].Params), `"taskId":"job"`) {
					t.Errorf("%s, %s: the server got %d cancellations, want %d of the task", name, version, len(cancelled), want)
				}
			})
		}
	}
}
