package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// withTasks returns a modern request of a client that supports tasks and forms.
func withTasks(id, method, params string) string {
	return strings.Replace(modern(id, method, params), `clientCapabilities":{}`,
		`clientCapabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`, 1)
}

// beginTask calls a tool and returns the id of the task that the call becomes.
func (w *rawPeer) beginTask(tool string) string {
	w.t.Helper()
	got := w.ask(withTasks(`1`, "tools/call", `"name":"`+tool+`"`))
	var id string
	if err := json.Unmarshal(got.Result["taskId"], &id); err != nil || string(got.Result["resultType"]) != `"task"` || string(got.Result["status"]) != `"working"` {
		w.t.Fatalf("%s: got %s, %v", tool, got.Result, got.Error)
	}
	for _, member := range []string{"task", "result", "error", "inputRequests", "requestState", "ttl", "content"} {
		if got.Result[member] != nil {
			w.t.Errorf("%s: got %s, want got.Result[member] == nil", tool, got.Result)
		}
	}
	return id
}

// getTask reads a task.
func (w *rawPeer) getTask(id string) (r struct {
	protocol.GetTaskResult
	Fault *fault
}) {
	w.t.Helper()
	w.send(withTasks(`2`, "tasks/get", `"taskId":"`+id+`"`))
	var answer struct {
		Result json.RawMessage `json:"result"`
		Error  *fault          `json:"error"`
	}
	w.read(&answer)
	if r.Fault = answer.Error; r.Fault == nil {
		if err := protocol.Unmarshal(answer.Result, &r.GetTaskResult); err != nil || r.ResultType != protocol.ResultComplete {
			w.t.Fatalf("%s: %v, want %v", answer.Result, err, protocol.ResultComplete)
		}
	}
	return r
}

// A taskServer is a server with tools that become tasks.
type taskServer struct {
	*server.Server
	goOn   chan struct{} // lets the handler of work continue
	runs   atomic.Int64
	causes chan error // why cancelled handlers have ended
	deaf   chan struct{}
	panics chan telemetry.Panic
}

func newTaskServer(o server.TaskOptions) *taskServer { return newTaskNode("", o) }

// newTaskNode returns the server of one of several nodes.
func newTaskNode(node string, o server.TaskOptions) *taskServer {
	s := &taskServer{goOn: make(chan struct{}), causes: make(chan error, 100), panics: make(chan telemetry.Panic, 1), deaf: make(chan struct{})}
	s.Server = newServer(server.Options{Node: node, Tasks: &o, Conn: conn.Tuning{Hooks: telemetry.Hooks{Panic: func(p telemetry.Panic) { s.panics <- p }}}})
	add := func(name string, support protocol.TaskSupport, f func(context.Context, struct{}) (string, error), o ...server.FeatureOption) {
		server.AddTool(s.Server, protocol.Tool{Name: name, Execution: &protocol.ToolExecution{TaskSupport: support}}, f, o...)
	}
	add("work", protocol.TaskOptional, s.work)
	add("must", protocol.TaskRequired, s.work)
	add("plain", protocol.TaskForbidden, s.work)
	add("fails", protocol.TaskOptional, func(context.Context, struct{}) (string, error) { return "", errors.New("it broke") })
	add("refuses", protocol.TaskOptional, func(context.Context, struct{}) (string, error) {
		return "", &jsonrpc.Error{Code: 7, Message: "no", Data: json.RawMessage(`{"a":1}`)}
	})
	add("panics", protocol.TaskOptional, func(context.Context, struct{}) (string, error) { panic("at the disco") })
	add("deaf", protocol.TaskOptional, func(context.Context, struct{}) (string, error) { <-s.deaf; return "late", nil })
	add("asks-late", protocol.TaskOptional, func(ctx context.Context, _ struct{}) (string, error) {
		<-s.deaf
		_, err := server.Ask(context.WithoutCancel(ctx), question("a"))
		s.causes <- err
		return "", err
	}, server.Asks(server.Waits, forms))
	add("tells", protocol.TaskOptional, func(ctx context.Context, in struct{}) (string, error) {
		server.Progress(ctx, 1, 4, "a quarter")
		server.Logger(ctx).Error("reaches no client")
		if _, err := s.work(ctx, in); err != nil {
			return "", err
		}
		server.Progress(ctx, 2, 4, "half")
		return s.work(ctx, in)
	})
	ask := func(ctx context.Context, _ struct{}) (string, error) {
		s.runs.Add(1)
		answers, err := server.Ask(ctx, protocol.InputRequests{"a": question("a")["a"], "b": question("b")["b"]})
		if err != nil {
			s.causes <- err
			return "", err
		}
		return textOf(answers, "a") + textOf(answers, "b"), nil
	}
	add("waits", protocol.TaskOptional, ask, server.Asks(server.Waits, forms))
	add("reruns", protocol.TaskOptional, func(ctx context.Context, in struct{}) (string, error) {
		s.runs.Add(1)
		answers, err := server.Ask(ctx, question("a"))
		if err != nil {
			return "", err
		}
		done, err := s.work(ctx, in)
		return textOf(answers, "a") + done, err
	}, server.Asks(server.Reruns, forms))
	add("explicit", protocol.TaskOptional, func(ctx context.Context, _ struct{}) (string, error) {
		r := server.RequestFrom(ctx)
		var said []string
		if _, err := r.State(&said); err != nil {
			return "", err
		}
		if text := textOf(r.Answers, "a"); text != "" {
			said = append(said, text)
		}
		if len(said) < 2 {
			return "", fmt.Errorf("not yet: %w", &server.InputRequired{Requests: question("a"), State: said})
		}
		return strings.Join(said, "+"), nil
	})
	return s
}

func (s *taskServer) work(ctx context.Context, _ struct{}) (string, error) {
	select {
	case <-s.goOn:
		return "done", nil
	case <-ctx.Done():
		s.causes <- context.Cause(ctx)
		return "", context.Cause(ctx)
	}
}

// bubble runs a test with its own clock, and closes the server at the end.
func bubble(t *testing.T, o server.TaskOptions, f func(*testing.T, *taskServer)) {
	t.Helper()
	testenv.Bubble(t, func(t *testing.T) {
		s := newTaskServer(o)
		f(t, s)
		close(s.deaf)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A task has one outcome: the result of its handler or its error. A later cancellation
// does not change it.
//
// Guarantees: G-0032.1
func TestATaskHasOneOutcome(t *testing.T) {
	bubble(t, server.TaskOptions{}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		for tool, want := range map[string]string{
			"work":    `completed "done" `,
			"must":    `completed "done" `,
			"fails":   `completed error "it broke" `,
			"refuses": `failed 7 no {"a":1}`,
			"panics":  `failed -32603 internal error `,
		} {
			id := w.beginTask(tool)
			if got := w.getTask(id); tool == "work" && got.Status != protocol.TaskWorking {
				t.Errorf("%s: got %+v", tool, got)
			}
			if tool == "work" || tool == "must" {
				s.goOn <- struct{}{}
			}
			synctest.Wait()
			for range 2 {
				got := w.getTask(id)
				text := string(got.Status)
				if got.FinalResult != nil {
					var result protocol.CallToolResult
					if err := protocol.Unmarshal(got.FinalResult, &result); err != nil {
						t.Fatal(err)
					}
					if result.IsError {
						text += " error"
					}
					text += fmt.Sprintf(" %q ", result.Content.Text())
				}
				if got.Error != nil {
					text += fmt.Sprintf(" %d %s %s", got.Error.Code, got.Error.Message, got.Error.Data)
				}
				if text != want {
					t.Errorf("%s: got %s, want %s", tool, text, want)
				}
				w.ask(withTasks(`3`, "tasks/cancel", `"taskId":"`+id+`"`)) // has no effect
			}
		}
		if p := <-s.panics; p.Value != "at the disco" || p.Where != "task of panics" {
			t.Errorf("got %+v, want p.Value == %q and p.Where == %q", p, "at the disco", "task of panics")
		}
	})
}

// A cancelled task stays cancelled, whatever its handler returns later.
//
// Guarantees: G-0032.1
func TestACancelledTaskStaysCancelled(t *testing.T) {
	bubble(t, server.TaskOptions{}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		for _, tool := range []string{"work", "deaf", "waits"} {
			id := w.beginTask(tool)
			synctest.Wait()
			for range 2 {
				if got := w.ask(withTasks(`3`, "tasks/cancel", `"taskId":"`+id+`"`)); string(got.Result["resultType"]) != `"complete"` || len(got.Result) != 2 {
					t.Errorf("%s: got %s, %v", tool, got.Result, got.Error)
				}
			}
			if tool == "deaf" {
				s.deaf <- struct{}{} // the handler returns later
			} else if cause := <-s.causes; !errors.Is(cause, server.ErrTaskCancelled) {
				t.Errorf("%s: got %v, want %v", tool, cause, server.ErrTaskCancelled)
			}
			synctest.Wait()
			if got := w.getTask(id); got.Status != protocol.TaskCancelled || got.FinalResult != nil || got.Error != nil || got.InputRequests != nil {
				t.Errorf("%s: got %+v, want got.Status == %v, got.FinalResult == nil and got.InputRequests == nil", tool, got, protocol.TaskCancelled)
			}
		}
		id := w.beginTask("asks-late")
		w.ask(withTasks(`3`, "tasks/cancel", `"taskId":"`+id+`"`))
		s.deaf <- struct{}{}
		if cause := <-s.causes; !errors.Is(cause, server.ErrTaskCancelled) || !errors.Is(cause, server.ErrUnanswered) {
			t.Errorf("a question of the handler after the end: got %v, want both %v and %v", cause, server.ErrTaskCancelled, server.ErrUnanswered)
		}
	})
}

// A slowStore takes its time to save a task.
type slowStore struct{ server.MemoryTaskStore }

func (s *slowStore) Save(ctx context.Context, r *server.TaskRecord) error {
	return errors.Join(wait.Sleep(ctx, 10*time.Millisecond), s.MemoryTaskStore.Save(ctx, r))
}

// The answer to a call that becomes a task shows the task at its creation, although its handler may have asked since.
//
// Guarantees: G-0032.1
func TestTheAnswerOfANewTaskIsOfItsCreation(t *testing.T) {
	bubble(t, server.TaskOptions{Store: new(slowStore), After: time.Minute}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		for range 20 {
			got := w.ask(withTasks(`1`, "tools/call", `"name":"waits"`))
			if created, last := got.text("createdAt"), got.text("lastUpdatedAt"); created == "" || created != last {
				t.Fatalf("got a task of %s that was updated at %s, want both at once", created, last)
			}
		}
	})
}

// A task continues after its connection has ended, and another connection can read,
// answer and cancel it.
//
// Guarantees: G-0032.2
func TestATaskOutlivesTheConnectionItCameInOn(t *testing.T) {
	bubble(t, server.TaskOptions{}, func(t *testing.T, s *taskServer) {
		first := dial(t, s.Server)
		id, asking := first.beginTask("work"), first.beginTask("waits")
		first.link.Close(0)
		synctest.Wait()
		w := dial(t, s.Server)
		if got := w.getTask(id); got.Status != protocol.TaskWorking {
			t.Errorf("got %+v, want %v", got, protocol.TaskWorking)
		}
		if got := w.getTask(asking); got.Status != protocol.TaskInputRequired || len(got.InputRequests) != 2 {
			t.Errorf("got %+v, want got.Status == %v and len(got.InputRequests) == 2", got, protocol.TaskInputRequired)
		}
		s.goOn <- struct{}{}
		w.ask(withTasks(`3`, "tasks/update", `"taskId":"`+asking+`","inputResponses":{`+
			`"a":{"action":"accept","content":{"a":"x"}},"b":{"action":"accept","content":{"b":"y"}}}`))
		synctest.Wait()
		for id, want := range map[string]string{id: "done", asking: "xy"} {
			if got := w.getTask(id); got.Status != protocol.TaskCompleted || !strings.Contains(string(got.FinalResult), `"text":"`+want+`"`) {
				t.Errorf("got %+v, want got.Status == %v and %q in it", got, protocol.TaskCompleted, `"text":"`+want+`"`)
			}
		}
	})
}

// Answers in the request of the call are for the first questions of its task only,
// because the client has not seen the later questions.
//
// Guarantees: G-0032.7
func TestAnswersOfACallAreForTheFirstQuestionsOfItsTask(t *testing.T) {
	bubble(t, server.TaskOptions{}, func(t *testing.T, s *taskServer) {
		server.AddTool(s.Server, protocol.Tool{Name: "twice", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(ctx context.Context, _ struct{}) (string, error) {
				first, err := server.Ask(ctx, question("a"))
				if err != nil {
					return "", err
				}
				second, err := server.Ask(ctx, question("b"))
				return textOf(first, "a") + textOf(second, "b"), err
			}, server.Asks(server.Waits, forms))
		w := dial(t, s.Server)
		answer := func(key, text string) string {
			return `"` + key + `":{"action":"accept","content":{"` + key + `":"` + text + `"}}`
		}
		got := w.ask(withTasks(`1`, "tools/call", `"name":"twice","inputResponses":{`+answer("a", "early ")+`,`+answer("b", "too early")+`}`))
		var id string
		if err := json.Unmarshal(got.Result["taskId"], &id); err != nil {
			t.Fatalf("got %s, %v, want no error", got.Result, got.Error)
		}
		synctest.Wait()
		if got := w.getTask(id); got.Status != protocol.TaskInputRequired || len(got.InputRequests) != 1 || got.InputRequests["b"] == nil {
			t.Errorf("got %+v", got)
		}
		w.ask(withTasks(`3`, "tasks/update", `"taskId":"`+id+`","inputResponses":{`+answer("b", "in time")+`}`))
		synctest.Wait()
		if got := w.getTask(id); got.Status != protocol.TaskCompleted || !strings.Contains(string(got.FinalResult), `"text":"early in time"`) {
			t.Errorf("got %+v, want got.Status == %v and %q in it", got, protocol.TaskCompleted, `"text":"early in time"`)
		}
	})
}

// A task and its handler end with the TTL, and the task is then unknown.
//
// Guarantees: G-0032.3
func TestNothingIsKeptBeyondItsTTL(t *testing.T) {
	bubble(t, server.TaskOptions{TTL: time.Hour}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		running, ended, deaf := w.beginTask("work"), w.beginTask("fails"), w.beginTask("deaf")
		pass(time.Hour - time.Second)
		for _, id := range []string{running, ended, deaf} {
			if got := w.getTask(id); got.Fault != nil || *got.TTLMs != time.Hour.Milliseconds() {
				t.Errorf("got %+v", got)
			}
		}
		pass(time.Second)
		synctest.Wait()
		if cause := <-s.causes; !errors.Is(cause, server.ErrTaskExpired) {
			t.Errorf("got %v, want %v", cause, server.ErrTaskExpired)
		}
		for _, id := range []string{running, ended, deaf} {
			if got := w.getTask(id); !got.Fault.is(jsonrpc.CodeInvalidParams, "unknown task") {
				t.Errorf("got %+v, want the error %d with %q", got, jsonrpc.CodeInvalidParams, "unknown task")
			}
		}
	})
}

// When the TTL of a task has passed, nobody finds it, even if the store keeps it for longer, or the process that ran it has ended.
//
// Guarantees: G-0032.3
func TestAStoreThatKeepsExpiredTasks(t *testing.T) {
	store := &hoardingStore{all: make(map[string]server.TaskRecord)}
	bubble(t, server.TaskOptions{TTL: time.Hour, Legacy: true, Store: store}, func(t *testing.T, s *taskServer) {
		w, old := dialAs(t, s.Server, "ada"), dialAs(t, s.Server, "ada")
		old.session()
		ended, running, cancelled := w.beginTask("fails"), w.beginTask("work"), w.beginTask("work")
		w.ask(withTasks(`3`, "tasks/cancel", `"taskId":"`+cancelled+`"`))
		<-s.causes
		legacyTask := old.beginLegacy("fails", "")
		old.want(`"status":"failed"`)
		other := newTaskServer(server.TaskOptions{TTL: time.Hour, Legacy: true, Store: store}) // a later process
		third, thirdOld := dialAs(t, other.Server, "ada"), dialAs(t, other.Server, "ada")
		thirdOld.session()
		pass(time.Hour - time.Second)
		for _, w := range []*rawPeer{w, third} {
			for _, id := range []string{ended, running, cancelled} {
				if got := w.getTask(id); got.Fault != nil {
					t.Errorf("shortly before the end: got %+v, want the task", got.Fault)
				}
			}
		}
		for _, w := range []*rawPeer{old, thirdOld} {
			if got := string(w.ask(legacy(`1`, "tasks/list", ``)).Result["tasks"]); strings.Count(got, `"taskId"`) != 4 {
				t.Errorf("shortly before the end: got the list %s, want 4 tasks", got)
			}
		}
		pass(2 * time.Second)
		<-s.causes
		if synctest.Wait(); !slices.Contains(store.told, running) {
			t.Errorf("the store was told to forget %q, want the task that still ran among them", store.told)
		}
		for _, w := range []*rawPeer{w, third} {
			for _, id := range []string{ended, running, cancelled, legacyTask} {
				for method, more := range map[string]string{"tasks/get": "", "tasks/update": `,"inputResponses":{}`, "tasks/cancel": ""} {
					w.wantFault(jsonrpc.CodeInvalidParams, withTasks(`3`, method, `"taskId":"`+id+`"`+more))
				}
				w.send(withTasks(`"l"`, "subscriptions/listen", `"notifications":{"taskIds":["`+id+`"]}`))
				w.want(`"notifications":{}`)
				w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l"}}`)
				synctest.Wait()
			}
		}
		for _, w := range []*rawPeer{old, thirdOld} {
			for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
				w.wantFault(jsonrpc.CodeInvalidParams, legacy(`3`, method, `"taskId":"`+legacyTask+`"`))
			}
			if got := string(w.ask(legacy(`1`, "tasks/list", ``)).Result["tasks"]); got != `[]` {
				t.Errorf("got the list %s, want no task", got)
			}
		}
		other.Close(t.Context())
	})
}

// A hoardingStore never forgets a task.
type hoardingStore struct {
	mu   sync.Mutex
	all  map[string]server.TaskRecord
	told []string // the tasks that it should forget, if there was time for it
}

func (h *hoardingStore) Save(_ context.Context, r *server.TaskRecord) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[r.Task.TaskID] = *r
	return nil
}

func (h *hoardingStore) Load(_ context.Context, id string) (*server.TaskRecord, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r, ok := h.all[id]; ok {
		return &r, nil
	}
	return nil, server.ErrNotFound
}

func (h *hoardingStore) List(_ context.Context, owner, _ string, _ int) (all []*server.TaskRecord, _ error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.all {
		if r.Owner == owner {
			all = append(all, &r)
		}
	}
	return all, nil
}

func (h *hoardingStore) Delete(ctx context.Context, id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() == nil {
		h.told = append(h.told, id)
	}
	return nil
}

// Only the owner of a task can read, answer, cancel or watch it. For others it is
// unknown.
//
// Guarantees: G-0032.4
func TestATaskIsSeenByItsOwnerAlone(t *testing.T) {
	bubble(t, server.TaskOptions{}, func(t *testing.T, s *taskServer) {
		wires := map[string]*rawPeer{}
		for _, who := range []string{"ada", "bob", ""} {
			wires[who] = dialAs(t, s.Server, who)
		}
		for owner, w := range wires {
			id := w.beginTask("work")
			for other, w := range wires {
				for method, more := range map[string]string{"tasks/get": "", "tasks/update": `,"inputResponses":{}`, "tasks/cancel": ""} {
					got := w.ask(withTasks(`3`, method, `"taskId":"`+id+`"`+more))
					if refused := got.Error.is(jsonrpc.CodeInvalidParams, "unknown task"); refused != (owner != other) {
						t.Errorf("%s of %q for %q: got %s, %v", method, owner, other, got.Result, got.Error)
					}
				}
				w.send(withTasks(`"l"`, "subscriptions/listen", `"notifications":{"taskIds":["`+id+`"]}`))
				if owner == other {
					w.want(`"notifications":{"taskIds":["` + id + `"]}`)
				} else {
					w.want(`"notifications":{}`)
				}
				w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l"}}`)
				synctest.Wait()
			}
		}
	})
}

// dialAs is dial for a peer with an authenticated identity.
func dialAs(t *testing.T, s *server.Server, identity string) *rawPeer {
	t.Helper()
	return dialFrom(t, s, &transport.Origin{Identity: identity, RemoteAddr: "192.0.2.1:7"})
}

func dialFrom(t *testing.T, s *server.Server, origin *transport.Origin) *rawPeer {
	t.Helper()
	ours, theirs := inmem.Pipe(inmem.Options{})
	w := dialOn(t, s, ours, peertest.From(origin, theirs))
	ours.Grant(transport.Main, cap(w.frames))
	return w
}
