package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// The number of running tasks is limited, for one client and for all clients together.
//
// Guarantees: G-0032.5
func TestTasksAreBounded(t *testing.T) {
	store := &server.MemoryTaskStore{MaxTasks: 5}
	bubble(t, server.TaskOptions{TTL: time.Hour, MaxRunning: 3, Store: store}, func(t *testing.T, s *taskServer) {
		w, other, third := dialAs(t, s.Server, "ada"), dialAs(t, s.Server, "bob"), dialAs(t, s.Server, "eve")
		overloaded := func(w *rawPeer, tool, why string) {
			t.Helper()
			if got := w.ask(withTasks(`1`, "tools/call", `"name":"`+tool+`"`)); !got.Error.is(jsonrpc.CodeOverloaded, why) {
				t.Errorf("got %s, %v, want the error %d with %v", got.Result, got.Error, jsonrpc.CodeOverloaded, why)
			}
		}
		deaf := w.beginTask("deaf")
		other.beginTask("work")
		third.beginTask("work")
		overloaded(third, "work", "3 handlers are running") // three tasks run in all
		w.ask(withTasks(`3`, "tasks/cancel", `"taskId":"`+deaf+`"`))
		overloaded(w, "work", "overloaded") // its handler still runs
		s.deaf <- struct{}{}
		s.goOn <- struct{}{}
		s.goOn <- struct{}{}
		synctest.Wait()
		for range 2 {
			w.beginTask("fails")
			synctest.Wait()
		}
		overloaded(w, "fails", "it has 5 tasks, and there is no room for more")
		pass(time.Hour)
		w.beginTask("fails") // and so has this client after its tasks have ended
	})
}

// A later round that is refused because all places of tasks are taken has not used up its state:
// the same request succeeds when there is a place, also with a store of all nodes.
//
// Guarantees: G-0031.18
func TestARoundRefusedForOverloadKeepsItsState(t *testing.T) {
	bubble(t, server.TaskOptions{MaxRunning: 1}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		var asks struct {
			RequestState string `json:"requestState"`
		}
		raw, err := json.Marshal(w.ask(withTasks(`1`, "tools/call", `"name":"reruns"`)).Result)
		if err != nil || json.Unmarshal(raw, &asks) != nil || asks.RequestState == "" {
			t.Fatalf("got %s, want a requestState", raw)
		}
		w.beginTask("work")
		again := withTasks(`2`, "tools/call", `"name":"reruns"`+retryParams(asks.RequestState, `"a":{"action":"accept","content":{"a":"yes "}}`))
		for range 2 {
			if got := w.ask(again); !got.Error.is(jsonrpc.CodeOverloaded, "1 handlers are running") {
				t.Errorf("without a place: got %s, %v, want the error %d", got.Result, got.Error, jsonrpc.CodeOverloaded)
			}
		}
		s.goOn <- struct{}{}
		synctest.Wait()
		w.send(again)
		synctest.Wait()
		if runs := s.runs.Load(); runs != 2 {
			t.Fatalf("with a place: the handler ran %d times in all, want 2", runs)
		}
		s.goOn <- struct{}{}
		w.want("yes done")
		synctest.Wait() // the place is free once the handler has returned, which is after the answer
		if got := w.ask(again); !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
			t.Errorf("afterwards: got %s, %v, want the error %d", got.Result, got.Error, jsonrpc.CodeInvalidParams)
		}
		w.beginTask("work") // the refused round has left its place
		s.goOn <- struct{}{}
	})
}

// All addresses of one network count as one client, and the networks of one /48 as four.
//
// Guarantees: G-0032.5, G-0086.1
func TestANetworkIsOneClient(t *testing.T) {
	bubble(t, server.TaskOptions{MaxRunning: 64}, func(t *testing.T, s *taskServer) {
		first, second := dialFrom(t, s.Server, &transport.Origin{RemoteAddr: "[2001:db8::1]:1"}), dialFrom(t, s.Server, &transport.Origin{RemoteAddr: "[2001:db8::ffff:2]:2"})
		for range 10 {
			first.beginTask("work")
		}
		proxied := dialFrom(t, s.Server, &transport.Origin{RemoteAddr: "192.0.2.2:1", Client: "2001:db8::2"})
		for _, same := range []*rawPeer{second, proxied} {
			if got := same.ask(withTasks(`1`, "tools/call", `"name":"work"`)); !got.Error.is(jsonrpc.CodeOverloaded, "this client has its share") {
				t.Errorf("another address of the network: got %s, %v, want the error %d with %q", got.Result, got.Error, jsonrpc.CodeOverloaded, "this client has its share")
			}
		}
		for _, origin := range []*transport.Origin{
			{RemoteAddr: "[2001:db8:0:1::1]:1"}, {RemoteAddr: "192.0.2.1:7"},
			{Identity: "2001:db8::/64"}, {Identity: "address 192.0.2.1"}, {Identity: "192.0.2.1"},
		} {
			dialFrom(t, s.Server, origin).beginTask("work")
		}
		for range 10 + 5 {
			s.goOn <- struct{}{}
		}
	})
}

// The size of the requests of running tasks is limited, for one client and for all
// clients together.
//
// Guarantees: G-0032.5
func TestTheRequestsOfTasksAreBounded(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newServer(server.Options{Tasks: &server.TaskOptions{MaxRunningBytes: 16 << 20}})
		goOn := make(chan struct{})
		server.AddTool(s, protocol.Tool{Name: "work", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(context.Context, struct{ Text string }) (string, error) { <-goOn; return "done", nil })
		request := func(size int) string {
			return withTasks(`1`, "tools/call", `"name":"work","arguments":{"Text":"`+strings.Repeat("a", size)+`"}`)
		}
		overloaded := func(w *rawPeer, size int, why string) {
			t.Helper()
			if got := w.ask(request(size)); !got.Error.is(jsonrpc.CodeOverloaded, why) {
				t.Errorf("got %s, %v, want the error %d with %v", got.Result, got.Error, jsonrpc.CodeOverloaded, why)
			}
		}
		begins := func(w *rawPeer, size int) {
			t.Helper()
			if got := w.ask(request(size)); got.Result["taskId"] == nil {
				t.Errorf("got %s, %v", got.Result, got.Error)
			}
		}
		ada, bob := dialAs(t, s, "ada"), dialAs(t, s, "bob")
		for range 3 {
			begins(ada, 2<<20)
		}
		overloaded(ada, 2<<20, "this client has its share")
		begins(ada, 100)
		begins(bob, 1<<20)
		begins(dialAs(t, s, "eve"), 1<<20)
		for range 6 {
			goOn <- struct{}{}
		}
		synctest.Wait()
		s.Close(t.Context())
	})
}

// A faulty store fails as often as the test says.
type faultyStore struct {
	server.MemoryTaskStore
	saves, loads atomic.Int64 // how many of the next calls fail
	full         atomic.Bool  // all saves fail
}

var errStore = errors.New("the disk is full")

func (f *faultyStore) Save(ctx context.Context, r *server.TaskRecord) error {
	if f.saves.Add(-1) >= 0 {
		return errStore
	}
	if f.full.Load() {
		return server.ErrTaskStoreFull
	}
	return f.MemoryTaskStore.Save(ctx, r)
}

func (f *faultyStore) Load(ctx context.Context, id string) (*server.TaskRecord, error) {
	if f.loads.Add(-1) >= 0 {
		return nil, errStore
	}
	return f.MemoryTaskStore.Load(ctx, id)
}

// If the store cannot save a new task, the call fails. If it cannot save an outcome,
// the server keeps the outcome and saves it later.
//
// Guarantees: G-0032.6
func TestAFaultyStoreLosesNoOutcome(t *testing.T) {
	store := new(faultyStore)
	bubble(t, server.TaskOptions{Store: store}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		store.saves.Store(1)
		if got := w.ask(withTasks(`1`, "tools/call", `"name":"work"`)); !got.Error.is(jsonrpc.CodeInternalError, "disk is full") {
			t.Errorf("a task that cannot be saved: got %s, %v, want the error %d with %q", got.Result, got.Error, jsonrpc.CodeInternalError, "disk is full")
		}
		id := w.beginTask("work") // the failed call has given back its place, and its handler has not run
		store.saves.Store(2)      // the server keeps the outcome
		s.goOn <- struct{}{}
		synctest.Wait()
		for range 3 {
			if got := w.getTask(id); got.Status != protocol.TaskCompleted {
				t.Errorf("got %+v, want %v", got, protocol.TaskCompleted)
			}
		}
		if r, err := store.MemoryTaskStore.Load(t.Context(), id); err != nil || r.Task.Status != protocol.TaskCompleted {
			t.Errorf("the store has %+v, %v, want %v", r, err, protocol.TaskCompleted)
		}
		store.loads.Store(1)
		if got := w.getTask(id); !got.Fault.is(jsonrpc.CodeInternalError, "disk is full") {
			t.Errorf("got %+v, want the error %d with %q", got, jsonrpc.CodeInternalError, "disk is full")
		}
		if got := w.getTask(id); got.Status != protocol.TaskCompleted {
			t.Errorf("got %+v, want %v", got, protocol.TaskCompleted)
		}
	})
}

// An outcome that a client has seen does not change, even if the store had no room for
// it.
//
// Guarantees: G-0032.6
func TestAnOutcomeThatWasSeenStays(t *testing.T) {
	store := new(faultyStore)
	bubble(t, server.TaskOptions{Store: store}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		id := w.beginTask("work")
		store.saves.Store(2)
		s.goOn <- struct{}{}
		synctest.Wait()
		for range 2 {
			if got := w.getTask(id); got.Status != protocol.TaskCompleted {
				t.Errorf("got %+v, want %v", got, protocol.TaskCompleted)
			}
			store.full.Store(true)
		}
		store.full.Store(false)
		if got := w.getTask(id); got.Status != protocol.TaskCompleted || !strings.Contains(string(got.FinalResult), "done") {
			t.Errorf("got %+v, want got.Status == %v and %q in it", got, protocol.TaskCompleted, "done")
		}
	})
}

// If the store cannot hold a result or an error because of its size, the task fails, and says that the tool was executed. The store
// has room for that.
//
// Guarantees: G-0032.5
func TestAResultThatIsTooLargeForTheStoreFailsItsTask(t *testing.T) {
	large := strings.Repeat("a", 6000)
	for name, fault := range map[string]error{
		"a result":                nil,
		"the message of an error": &jsonrpc.Error{Code: 7, Message: large},
		"the data of an error":    &jsonrpc.Error{Code: 7, Message: "no", Data: json.RawMessage(`"` + large + `"`)},
	} {
		testenv.Bubble(t, func(t *testing.T) {
			store, goOn := &server.MemoryTaskStore{MaxBytes: 6000}, make(chan struct{})
			s := newServer(server.Options{Tasks: &server.TaskOptions{Store: store}})
			server.AddTool(s, protocol.Tool{Name: "work", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
				func(context.Context, struct{}) (string, error) { <-goOn; return large, fault })
			w := dial(t, s)
			id := w.beginTask("work")
			for i := range 6 { // others fill the store
				for size := 0; store.Save(t.Context(), taskOf("", fmt.Sprint(i), fmt.Sprint(i), size)) == nil; size += 10 {
				}
			}
			close(goOn)
			synctest.Wait()
			if r, err := store.Load(t.Context(), id); err != nil || r.Task.Status != protocol.TaskFailed {
				t.Errorf("%s: the store has %+v, %v, want %v", name, r, err, protocol.TaskFailed)
			}
			const want = "executed, and its result was dropped"
			if got := w.getTask(id); got.Status != protocol.TaskFailed || got.Error == nil || got.Error.Code != jsonrpc.CodeAnswerDropped || !strings.Contains(got.Error.Message, want) {
				t.Errorf("%s: got %+v, want got.Status == %v, an error and %q in it", name, got, protocol.TaskFailed, want)
			}
			s.Close(t.Context())
		})
	}
}

// A task that has ended can be read through another server with the same store. A task
// that was running when the server closed has ended there, too.
//
// Guarantees: G-0032.2
func TestAStoreOutlivesTheServer(t *testing.T) {
	store := new(server.MemoryTaskStore)
	bubble(t, server.TaskOptions{Store: store}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		ended, running := w.beginTask("fails"), w.beginTask("work")
		synctest.Wait()
		w.link.Close(0)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		<-s.causes
		next := newTaskServer(server.TaskOptions{Store: store})
		w = dial(t, next.Server)
		if got := w.getTask(ended); got.Status != protocol.TaskCompleted {
			t.Errorf("got %+v, want %v", got, protocol.TaskCompleted)
		}
		if got := w.getTask(running); got.Status != protocol.TaskFailed && got.Status != protocol.TaskCompleted {
			t.Errorf("got %+v", got)
		}
		next.Close(t.Context())
	})
}

// A task asks questions in its state, and tasks/update answers them. Answers that do
// not fit are refused.
//
// Guarantees: G-0032.7
func TestQuestionsOfATaskAreAnsweredWithUpdate(t *testing.T) {
	bubble(t, server.TaskOptions{}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		update := func(id, answers string) *fault {
			t.Helper()
			got := w.ask(withTasks(`3`, "tasks/update", `"taskId":"`+id+`","inputResponses":{`+answers+`}`))
			if got.Error == nil && (string(got.Result["resultType"]) != `"complete"` || len(got.Result) != 2) {
				t.Errorf("got %s", got.Result)
			}
			return got.Error
		}
		open := func(id string) string {
			t.Helper()
			synctest.Wait()
			got := w.getTask(id)
			raw, _ := json.Marshal(keysOf(got.InputRequests))
			return string(got.Status) + string(raw)
		}
		id := w.beginTask("waits")
		steps := []struct{ answers, refused, want string }{
			{``, "", `input_required["a","b"]`},
			{`"unknown":{"action":"accept"}`, "", `input_required["a","b"]`},
			{`"a":{"action":"accept","content":{"a":7}},"b":{"action":"accept","content":{"b":"y"}}`, `"a"`, `input_required["a","b"]`},
			{`"a":7`, `"a"`, `input_required["a","b"]`},
			{`"a":{"action":"accept","content":{"a":"x"}}`, "", `input_required["b"]`},
			{`"a":{"action":"accept","content":{"a":"z"}},"b":{"action":"accept","content":{"b":"y"}}`, "", `completed[]`},
			{`"a":{"action":"accept","content":{"a":"z"}}`, "", `completed[]`},
		}
		for _, step := range steps {
			if got := update(id, step.answers); (got != nil) != (step.refused != "") || got != nil && !got.is(jsonrpc.CodeInvalidParams, step.refused) {
				t.Errorf("%s: got %v", step.answers, got)
			}
			if got := open(id); got != step.want {
				t.Errorf("%s: got %s, want %s", step.answers, got, step.want)
			}
		}
		if got := w.getTask(id); !strings.Contains(string(got.FinalResult), `"text":"xy"`) || s.runs.Load() != 1 {
			t.Errorf("got %s after %d runs", got.FinalResult, s.runs.Load())
		}
		id = w.beginTask("explicit") // the handler uses a key twice, so the client gets a different key
		if got := open(id); got != `input_required["a"]` {
			t.Errorf("got %s, want %q", got, `input_required["a"]`)
		}
		update(id, `"a":{"action":"accept","content":{"a":"x"}}`)
		if got := open(id); got != `input_required["a-2"]` {
			t.Errorf("got %s, want %q", got, `input_required["a-2"]`)
		}
		update(id, `"a":{"action":"accept","content":{"a":"stale"}}`)
		update(id, `"a-2":{"action":"accept","content":{"a":"y"}}`)
		if got := open(id); got != `completed[]` || !strings.Contains(string(w.getTask(id).FinalResult), "x+y") {
			t.Errorf("got %s: %s, want got == %q and %q in it", got, w.getTask(id).FinalResult, `completed[]`, "x+y")
		}
	})
}

func keysOf(all protocol.InputRequests) []string {
	keys := []string{}
	for _, key := range []string{"a", "a-2", "b"} {
		if all[key] != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// While its call is not a task, a handler with Reruns asks its questions in rounds.
//
// Guarantees: G-0032.7
func TestRoundsComeBeforeTheTask(t *testing.T) {
	bubble(t, server.TaskOptions{}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		got := w.ask(withTasks(`1`, "tools/call", `"name":"reruns"`))
		if string(got.Result["resultType"]) != `"input_required"` || got.Result["taskId"] != nil {
			t.Fatalf("got %s, %v", got.Result, got.Error)
		}
		var state string
		if err := json.Unmarshal(got.Result["requestState"], &state); err != nil {
			t.Fatal(err)
		}
		w.send(withTasks(`1`, "tools/call", `"name":"reruns"`+retryParams(state, `"a":{"action":"accept","content":{"a":"x"}}`)))
		var second response
		w.read(&second) // the call becomes a task when After has passed
		var id string
		if err := json.Unmarshal(second.Result["taskId"], &id); err != nil || second.Result["requestState"] != nil {
			t.Fatalf("got %s, %v", second.Result, second.Error)
		}
		s.goOn <- struct{}{}
		synctest.Wait()
		if got := w.getTask(id); !strings.Contains(string(got.FinalResult), `"text":"xdone"`) || s.runs.Load() != 2 {
			t.Errorf("got %+v after %d runs", got, s.runs.Load())
		}
	})
}

// A call that ends before After has passed does not become a task, and its result is checked as any other. A question makes it
// a task immediately.
//
// Guarantees: G-0032.8
func TestCallsThatAreOverSoonBecomeNoTask(t *testing.T) {
	bubble(t, server.TaskOptions{After: time.Minute}, func(t *testing.T, s *taskServer) {
		server.AddTool(s.Server, protocol.Tool{Name: "breaks", OutputSchema: anyObject, Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(context.Context, struct{}) (*protocol.CallToolResult, error) {
				return new(protocol.CallToolResult), nil
			})
		w := dial(t, s.Server)
		for tool, want := range map[string]string{
			"fails": "it broke", "refuses": "no", "panics": "internal error", "breaks": `tool "breaks" has broken its output schema: no structured content`,
		} {
			got := w.ask(withTasks(`1`, "tools/call", `"name":"`+tool+`"`))
			if got.Result["taskId"] != nil || !strings.Contains(string(got.Result["content"]), want) && (got.Error == nil || got.Error.Message != want) {
				t.Errorf("%s: got %s, %v", tool, got.Result, got.Error)
			}
		}
		w.send(withTasks(`"gone"`, "tools/call", `"name":"work"`))
		pass(time.Second)
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"gone"}}`)
		<-s.causes // ends as any cancelled call does
		w.send(withTasks(`1`, "tools/call", `"name":"work"`))
		pass(time.Minute - time.Millisecond)
		w.wantNothing()
		pass(time.Millisecond)
		w.want(`"resultType":"task"`)
		w.beginTask("waits") // becomes a task immediately, because it asks a question
		server.AddTool(s.Server, protocol.Tool{Name: "calm", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}}, s.work, server.Asks(server.Reruns, forms))
		w.send(withTasks(`2`, "tools/call", `"name":"calm"`)) // which may ask, and does not
		pass(time.Minute - time.Millisecond)
		w.wantNothing()
		pass(time.Millisecond)
		w.want(`"id":2`, `"resultType":"task"`)
	})
}

// A client without the tasks extension gets ordinary results, and is refused by the
// methods of tasks and by tools that need a task.
//
// Guarantees: G-0032.8
func TestClientsThatTakeNoTasksAreServedAsUsual(t *testing.T) {
	bubble(t, server.TaskOptions{}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		for _, request := range []string{
			modern(`1`, "tools/call", `"name":"fails"`),
			modern(`1`, "tools/call", `"name":"fails","task":{"ttl":1}`),
			withTasks(`1`, "tools/call", `"name":"unknown"`),
		} {
			if got := w.ask(request); got.Result["taskId"] != nil {
				t.Errorf("%s: got %s", request, got.Result)
			}
		}
		for _, request := range []string{
			modern(`1`, "tools/call", `"name":"must"`),
			modern(`1`, "tasks/get", `"taskId":"a"`),
			modern(`1`, "tasks/update", `"taskId":"a","inputResponses":{}`),
			modern(`1`, "tasks/cancel", `"taskId":"a"`),
			modern(`1`, "subscriptions/listen", `"notifications":{"taskIds":["a"]}`),
		} {
			if got := w.wantFault(protocol.CodeMissingCapability, request); !strings.Contains(string(got.Data), `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`) {
				t.Errorf("%s: got %s, want %q in it", request, got.Data, `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`)
			}
		}
		if got := w.ask(modern(`1`, "tools/call", `"name":"must","arguments":{"x":1}`)); !strings.Contains(got.text("content"), "invalid arguments") {
			t.Errorf("got %s, %v, want what is wrong with the arguments, in every revision and whatever the tool", got.Result, got.Error)
		}
		w.wantFault(protocol.CodeMissingCapability, strings.Replace(withTasks(`1`, "tools/call", `"name":"waits"`), `"elicitation":{},`, ``, 1))
		for _, method := range []string{"tasks/result", "tasks/list"} {
			w.wantFault(jsonrpc.CodeMethodNotFound, withTasks(`1`, method, `"taskId":"a"`))
		}
		if got := w.ask(modern(`1`, "tools/list", ``)); strings.Contains(string(got.Result["tools"]), "taskSupport") {
			t.Errorf("got %s, want no %q in it", got.Result, "taskSupport")
		}
		legacy := dial(t, s.Server)
		legacy.initialize(protocol.Version20251125)
		go func() { s.goOn <- struct{}{} }()
		if got := legacy.call("must", `{}`); got.Result.Content.Text() != "done" {
			t.Errorf("got %+v, want %q", got, "done")
		}
	})
}

// A listener of a task gets each change of its state, and nothing else of it.
//
// Guarantees: G-0032.9
func TestListenersGetTaskChanges(t *testing.T) {
	bubble(t, server.TaskOptions{}, func(t *testing.T, s *taskServer) {
		w, listener := dial(t, s.Server), dial(t, s.Server)
		got := w.ask(strings.Replace(withTasks(`1`, "tools/call", `"name":"tells"`), `"_meta":{`, `"_meta":{"progressToken":1,"io.modelcontextprotocol/logLevel":"debug",`, 1))
		id := strings.Trim(got.text("taskId"), `"`)
		synctest.Wait()
		if got := w.getTask(id); got.StatusMessage != "a quarter (1 of 4)" {
			t.Errorf("got %+v, want %q", got, "a quarter (1 of 4)")
		}
		w.wantNothing() // no progress and no log messages
		listener.send(withTasks(`"l"`, "subscriptions/listen", `"notifications":{"taskIds":["`+id+`","unknown"]}`))
		listener.want(`"notifications":{"taskIds":["` + id + `"]}`)
		s.goOn <- struct{}{}
		listener.want(`"method":"notifications/tasks"`, `"status":"working"`, `"half (2 of 4)"`)
		s.goOn <- struct{}{}
		listener.want(`"method":"notifications/tasks"`, subscriptionID(`"l"`), `"taskId":"`+id+`"`, `"status":"completed"`, `"text":"done"`)
		listener.wantNothing()
	})
}

// If the store fails to load a task at its end, the listeners of the task still get its
// end: the server asks again after a second.
//
// Guarantees: G-0032.9
func TestAFaultyStoreLosesNoListener(t *testing.T) {
	store := new(faultyStore)
	bubble(t, server.TaskOptions{Store: store, Legacy: true, MaxRunning: 3}, func(t *testing.T, s *taskServer) {
		w, listener, old := dial(t, s.Server), dial(t, s.Server), dial(t, s.Server)
		id := w.beginTask("work")
		listener.send(withTasks(`"l"`, "subscriptions/listen", `"notifications":{"taskIds":["a","b","`+id+`","`+id+`"]}`))
		listener.want(`"notifications":{"taskIds":["` + id + `"]}`)
		store.loads.Store(3)
		ended := time.Now()
		again := func() { // after three seconds, one for each failure
			t.Helper()
			if waited := time.Since(ended); waited < 3*time.Second || waited > 4*time.Second {
				t.Errorf("the store was asked again for %v", waited)
			}
		}
		s.goOn <- struct{}{}
		listener.want(`"method":"notifications/tasks"`, `"status":"completed"`)
		again()
		listener.send(withTasks(`"m"`, "subscriptions/listen", `"notifications":{"taskIds":["a","b","c","`+id+`"]}`))
		listener.want(`"notifications":{}`) // the limit is three
		old.initialize(protocol.Version20251125)
		old.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"work","task":{}}}`)
		old.want(`"taskId"`)
		store.loads.Store(3)
		ended = time.Now()
		s.goOn <- struct{}{}
		old.want(`"method":"notifications/tasks/status"`, `"status":"completed"`)
		again()
	})
}

// Close cancels the handlers of tasks with the cause ErrClosed.
//
// Guarantees: G-0032.1
func TestCloseEndsTasks(t *testing.T) {
	bubble(t, server.TaskOptions{}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		w.beginTask("work")
		w.beginTask("waits")
		synctest.Wait()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		unanswered := 0
		for range 2 {
			cause := <-s.causes
			if !errors.Is(cause, server.ErrClosed) {
				t.Errorf("got %v, want %v", cause, server.ErrClosed)
			}
			if errors.Is(cause, server.ErrUnanswered) {
				unanswered++
			}
		}
		if unanswered != 1 {
			t.Errorf("%d handlers hear of a question without an answer, want only the one that has asked", unanswered)
		}
	})
}
