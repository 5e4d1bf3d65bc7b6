package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// taskServer is a server whose tools become tasks: hold lasts until release, ask asks its user, must can only be a task, and plain cannot.
func taskServer() (s *server.Server, release chan struct{}) {
	s = server.New(protocol.Implementation{Name: "tasks", Version: "1"}, server.Options{
		Tasks: &server.TaskOptions{Legacy: true, PollInterval: 100 * time.Millisecond}, Middleware: []server.Middleware{marksStatus},
	})
	release = make(chan struct{})
	add := func(name string, support protocol.TaskSupport, serve func(context.Context) (string, error), o ...server.FeatureOption) {
		server.AddTool(s, protocol.Tool{Name: name, Execution: &protocol.ToolExecution{TaskSupport: support}}, func(ctx context.Context, _ struct{}) (string, error) {
			return serve(ctx)
		}, o...)
	}
	add("hold", protocol.TaskOptional, func(ctx context.Context) (string, error) {
		select {
		case <-release:
			return "held", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
	type form struct {
		Text string `json:"text"`
	}
	add("ask", protocol.TaskOptional, func(ctx context.Context) (string, error) {
		answer, err := server.Elicit[form](ctx, "who")
		return answer.Text, err
	}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
	add("fail", protocol.TaskOptional, func(context.Context) (string, error) { return "", &jsonrpc.Error{Code: 7, Message: "seven"} })
	add("must", protocol.TaskRequired, func(context.Context) (string, error) { return "done", nil })
	add("plain", protocol.TaskForbidden, func(context.Context) (string, error) { return "plain", nil })
	return s, release
}

// marksStatus says of a status of a task what only who knows the server may know.
func marksStatus(next server.Handler) server.Handler {
	return func(ctx context.Context, r *server.Request) (any, error) {
		if status, ok := r.Params.(*protocol.TaskStatusParams); ok {
			marked, changed := *status, *r
			marked.Meta = protocol.Meta{"own-of-the-server": json.RawMessage(`1`)}
			changed.Params = &marked
			r = &changed
		}
		return next(ctx, r)
	}
}

// taskEras runs a test for both eras of tasks: client and server of the same one.
func taskEras(t *testing.T, test func(t *testing.T, version string)) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		t.Run(version, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, version) }) })
	}
}

func taskUser(called string) client.Options {
	o := user(called)
	o.Tasks = true
	return o
}

func start(t *testing.T, session *client.Session, tool string) *client.Task {
	t.Helper()
	for _, err := range session.Tools(timeout(t)) { // it is known then which tools are tasks
		failOn(t, err)
	}
	task, err := session.StartTool(timeout(t), &protocol.CallToolParams{Name: tool})
	failOn(t, err)
	if task.ID() == "" {
		t.Fatalf("%s has not become a task", tool)
	}
	return task
}

// A call becomes a task of its server, whose result, error and questions reach the client that has started it.
//
// Guarantees: G-0094.1
func TestTasksPassTheGateway(t *testing.T) {
	taskEras(t, func(t *testing.T, version string) {
		s, release := taskServer()
		f := newFleet(t, version, map[string]*server.Server{"a": s, "b": named("b")})
		one, other := f.client(version, taskUser("one")), f.client(version, taskUser("other"))
		held, asks, asksOther := start(t, one, "a__hold"), start(t, one, "a__ask"), start(t, other, "a__ask")
		if status, err := held.Status(timeout(t)); err != nil || status.Status != protocol.TaskWorking || status.TaskID != held.ID() {
			t.Errorf("running: %+v, %v", status, err)
		}
		outcomes := make(chan string, 2)
		for _, task := range []*client.Task{asks, asksOther} {
			go func() {
				result, err := task.Wait(t.Context())
				outcomes <- outcome(result, err)
			}()
		}
		if a, b := <-outcomes, <-outcomes; a == b || a != "one:who" && b != "one:who" || a != "other:who" && b != "other:who" {
			t.Errorf("the users have answered %q and %q", a, b)
		}
		close(release)
		if got, err := held.Wait(t.Context()); outcome(got, err) != "held" {
			t.Errorf("got %s", outcome(got, err))
		}
		if got, err := start(t, one, "a__fail").Wait(t.Context()); outcome(got, err) != "error 7" {
			t.Errorf("got %s", outcome(got, err))
		}
		if got, err := start(t, one, "a__must").Wait(t.Context()); outcome(got, err) != "done" {
			t.Errorf("got %s", outcome(got, err))
		}
		if got, err := client.Call[string](t.Context(), one, "a__plain", nil); err != nil || got != "plain" {
			t.Errorf("no task: %q, %v", got, err)
		}
	})
}

// A question of a task names the task as its client knows it.
//
// Guarantees: G-0094.1
func TestQuestionsOfATaskNameIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := taskServer()
		named := make(chan string, 1)
		o := taskUser("one")
		answer := o.Elicit
		o.Elicit = func(ctx context.Context, s *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			named <- string(p.Meta[protocol.MetaRelatedTask])
			return answer(ctx, s, p)
		}
		task := start(t, newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s}).client(protocol.LatestLegacy, o), "a__ask")
		result, err := task.Wait(t.Context())
		if got := outcome(result, err); got != "one:who" {
			t.Fatalf("got %s", got)
		}
		if got, want := <-named, fmt.Sprintf(`{"taskId":%q}`, task.ID()); got != want {
			t.Errorf("the question names %s, want %s", got, want)
		}
	})
}

// A question that names a task is asked of the client of that, although calls of another one are under way, about a task and about none.
//
// Guarantees: G-0088.5
func TestQuestionsOfATaskAreForItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := taskServer()
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		o, answers := taskUser("other"), make(chan struct{})
		elicit := o.Elicit
		o.Elicit = func(ctx context.Context, s *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			<-answers
			return elicit(ctx, s, p)
		}
		one, other := f.client(protocol.LatestLegacy, taskUser("one")), f.client(protocol.LatestLegacy, o)
		var holding sync.WaitGroup
		asks := start(t, other, "a__ask")
		holding.Go(func() {
			if got := outcome(asks.Wait(t.Context())); got != "other:who" {
				t.Errorf("the task of the other client: %s", got)
			}
		})
		pass(time.Second) // until its user is asked
		holding.Go(func() {
			if got, err := client.Call[string](t.Context(), other, "a__hold", nil); err != nil || got != "held" {
				t.Errorf("the call of the other client: %q, %v", got, err)
			}
		})
		synctest.Wait()
		if got := outcome(start(t, one, "a__ask").Wait(t.Context())); got != "one:who" {
			t.Errorf("got %s", got)
		}
		close(answers)
		close(release)
		holding.Wait()
	})
}

// To cancel a task cancels it at its server.
//
// Guarantees: G-0094.1
func TestCancelledTaskEndsAtItsServer(t *testing.T) {
	taskEras(t, func(t *testing.T, version string) {
		s, _ := taskServer()
		session := newFleet(t, version, map[string]*server.Server{"a": s}).client(version, taskUser("one"))
		task := start(t, session, "a__hold")
		failOn(t, task.Cancel(timeout(t)))
		if _, err := task.Wait(t.Context()); !errors.Is(err, client.ErrTaskCancelled) {
			t.Errorf("got %v", err)
		}
	})
}

// A task is found by who has started it: an identity, or who has its id. A client of the other era has none of it, nor does who knows only the id of the server.
//
// Guarantees: G-0094.2
func TestTasksOfOthersDoNotExist(t *testing.T) {
	taskEras(t, func(t *testing.T, version string) {
		s, release := taskServer()
		defer close(release)
		f := newFleet(t, version, map[string]*server.Server{"a": s})
		f.identity = "one"
		one := f.client(version, taskUser("one"))
		task := start(t, one, "a__hold")
		again := f.client(version, taskUser("one"))
		if status, err := again.Task(task.ID()).Status(timeout(t)); err != nil || status.Status != protocol.TaskWorking {
			t.Errorf("its owner: %+v, %v", status, err)
		}
		for _, who := range []string{"other", ""} {
			f.identity = who
			other := f.client(version, taskUser("other")).Task(task.ID())
			_, err := other.Status(timeout(t))
			_, waited := other.Wait(t.Context())
			for what, err := range map[string]error{"get": err, "wait": waited, "cancel": other.Cancel(timeout(t))} {
				if fault := (*jsonrpc.Error)(nil); !errors.As(err, &fault) || fault.Code != jsonrpc.CodeInvalidParams {
					t.Errorf("%q, %s: %v", who, what, err)
				}
			}
		}
		if protocol.IsModern(version) {
			return // which has no list
		}
		listed := func(session *client.Session) (ids []string) {
			for one, err := range session.Tasks(timeout(t)) {
				failOn(t, err)
				ids = append(ids, one.TaskID)
			}
			return ids
		}
		if got := listed(again); len(got) != 1 || got[0] != task.ID() {
			t.Errorf("its owner has %q", got)
		}
		f.identity = "other"
		if got := listed(f.client(version, taskUser("other"))); len(got) != 0 {
			t.Errorf("another one has %q", got)
		}
		f.identity = ""
		for _, err := range f.client(version, taskUser("")).Tasks(timeout(t)) {
			if !errors.Is(err, client.ErrUnsupported) {
				t.Errorf("without a login: %v", err)
			}
		}
	})
}

// A task of a child ends with that, and whoever asks is told so; the next run of the server does not answer for it.
//
// Guarantees: G-0094.3
func TestTaskIsLostWithItsServer(t *testing.T) {
	taskEras(t, func(t *testing.T, version string) {
		for _, back := range []bool{true, false} {
			s, release := taskServer()
			defer close(release)
			f := newFleet(t, version, map[string]*server.Server{"a": s})
			session := f.client(version, taskUser("one"))
			task := start(t, session, "a__hold")
			f.kill("a", back)
			f.await("a", admin.Backoff)
			if back {
				if _, err := client.Call[string](timeout(t), session, "a__plain", nil); err != nil {
					t.Error(err)
				}
			}
			status, err := task.Status(timeout(t))
			if err != nil || status.Status != protocol.TaskFailed || !strings.Contains(status.StatusMessage, `lost with the server "a"`) {
				t.Errorf("%+v, %v", status, err)
			}
			_, err = task.Wait(t.Context())
			if fault := (*jsonrpc.Error)(nil); !errors.As(err, &fault) || fault.Code != jsonrpc.CodeInternalError || !strings.Contains(string(fault.Data), `"delivery":"unknown"`) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// A server runs for as long as one of its tasks does, however long that is and whoever asks, and ends when nobody uses it after that.
//
// Guarantees: G-0094.4
func TestServerRunsAsLongAsItsTasks(t *testing.T) {
	taskEras(t, func(t *testing.T, version string) {
		s, release := taskServer()
		f := newFleetFor(t, version, map[string]*server.Server{"a": s}, gateway.Options{}, load(t, `{"mcpServers":{"a":{"command":"/bin/a","bowline":{"idleStop":"1m"}}}}`))
		session := f.client(version, taskUser("one"))
		task := start(t, session, "a__hold")
		pass(10 * time.Minute)
		if n := f.starts("a"); n != 1 {
			t.Errorf("the server was started %d times while its task runs", n)
		}
		f.is("a", admin.Ready, false)
		close(release)
		if got, err := task.Wait(t.Context()); outcome(got, err) != "held" {
			t.Errorf("got %s", outcome(got, err))
		}
		pass(10 * time.Minute)
		f.is("a", admin.Stopped, true)
	})
}

// A legacy client that asks for a task of a tool that cannot be one is told so by its error, and the tool does not run.
//
// Guarantees: G-0094.1
func TestToolThatIsNoTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := taskServer()
		session := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s}).client(protocol.LatestLegacy, taskUser("one"))
		for tool, code := range map[string]int64{"a__plain": jsonrpc.CodeMethodNotFound, "a__none": jsonrpc.CodeInvalidParams} {
			_, err := session.Request(timeout(t), protocol.MethodCallTool, map[string]any{"name": tool, "task": map[string]any{}})
			if fault := (*jsonrpc.Error)(nil); !errors.As(err, &fault) || fault.Code != code {
				t.Errorf("%s: %v", tool, err)
			}
		}
	})
}

// The client that has started a task hears of its status under the id that it knows, and no other one does, whoever shares the connection with the server.
//
// Guarantees: G-0094.1
func TestStatusOfATaskIsToldToItsClient(t *testing.T) {
	for _, share := range []string{"all", "user", "client"} {
		synctest.Test(t, func(t *testing.T) {
			s, release := taskServer()
			f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
			f.apply(oneWith(t, `{"share":"`+share+`"}`))
			var mu sync.Mutex
			heard := map[string][]string{}
			clientOf := func(called string) *client.Session {
				o := taskUser(called)
				o.OnEvent = func(_ context.Context, _ *client.Session, e client.Event) {
					if n, ok := e.(*client.Notification); ok && n.Method == protocol.NotificationTaskStatus {
						mu.Lock()
						defer mu.Unlock()
						heard[called] = append(heard[called], string(n.Params))
					}
				}
				f.identity = called
				return f.client(protocol.LatestLegacy, o)
			}
			one := clientOf("one")
			clientOf("other")
			task := start(t, one, "a__hold")
			close(release)
			synctest.Wait()
			pass(time.Second)
			mu.Lock()
			defer mu.Unlock()
			all := strings.Join(heard["one"], " ")
			if !strings.Contains(all, task.ID()) || !strings.Contains(all, string(protocol.TaskCompleted)) || strings.Contains(all, "own-of-the-server") || len(heard["other"]) != 0 {
				t.Errorf("%s: heard %q", share, heard)
			}
		})
	}
}

// A client may have so many tasks, and another one for each that has ended.
//
// Guarantees: G-0094.4
func TestTasksOfAClientThatRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server.New(protocol.Implementation{Name: "tasks", Version: "1"}, server.Options{Tasks: &server.TaskOptions{Legacy: true, MaxRunning: 1 << 14}})
		server.AddTool(s, protocol.Tool{Name: "hold", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}}, func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		f.identity = "one"
		session := f.client(protocol.LatestLegacy, taskUser("one"))
		first := start(t, session, "a__hold")
		running := 1
		more := func() (refused string) {
			for ; running <= 1024; running++ {
				if _, err := session.StartTool(timeout(t), &protocol.CallToolParams{Name: "a__hold"}); err != nil {
					return err.Error()
				}
			}
			return ""
		}
		if refused := more(); !strings.Contains(refused, "too many tasks are running") {
			t.Fatalf("%d run: %s", running, refused)
		}
		most := running
		failOn(t, first.Cancel(timeout(t)))
		synctest.Wait()
		if refused := more(); running != most+1 || refused == "" {
			t.Errorf("when one of %d has ended, %d more run: %s", most, running-most, refused)
		}
	})
}

// A tool that can only be a task is called by a client of another era as well: the gateway waits for the task. If the client leaves, the task is cancelled, and if the server
// is lost, nobody knows how far it came.
//
// Guarantees: G-0094.5
func TestToolThatIsOnlyATaskForOtherClients(t *testing.T) {
	for _, version := range []string{protocol.Version20241105, protocol.Version20250618, protocol.Latest} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := taskServer()
				ended := make(chan error, 2)
				server.AddTool(s, protocol.Tool{Name: "long", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskRequired}}, func(ctx context.Context, _ struct{}) (string, error) {
					<-ctx.Done()
					ended <- context.Cause(ctx)
					return "", context.Cause(ctx)
				})
				f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
				session := f.client(version, user("one"))
				if got, err := client.Call[string](t.Context(), session, "a__must", nil); err != nil || got != "done" {
					t.Errorf("%q, %v", got, err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := client.Call[string](ctx, session, "a__long", nil); err == nil {
					t.Error("a task without an end has ended")
				}
				if synctest.Wait(); len(ended) != 1 {
					t.Error("the task of a client that has left goes on")
				}
				lost := make(chan string, 1)
				go func() {
					result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "a__long"})
					if err != nil {
						t.Error(err)
					}
					lost <- result.Content.Text()
				}()
				synctest.Wait()
				f.kill("a", true)
				if got := <-lost; !strings.Contains(got, "It may have been executed") {
					t.Errorf("after the loss of the server: %s", got)
				}
			})
		})
	}
}
