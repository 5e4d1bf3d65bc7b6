package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
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

// A watchedStore counts what it is asked, and lets a test act in between.
type watchedStore struct {
	server.MemoryTaskStore
	saves, loads atomic.Int64
	takes        time.Duration            // how long a Load takes
	saved        func(*server.TaskRecord) // called when a task is stored, before Save returns; may be nil
}

func (s *watchedStore) Save(ctx context.Context, r *server.TaskRecord) error {
	s.saves.Add(1)
	err := s.MemoryTaskStore.Save(ctx, r)
	if s.saved != nil {
		s.saved(r)
	}
	return err
}

func (s *watchedStore) Load(ctx context.Context, id string) (*server.TaskRecord, error) {
	s.loads.Add(1)
	r, err := s.MemoryTaskStore.Load(ctx, id)
	pass(s.takes) // for the way back
	return r, err
}

// addTask adds a task that has asked, as another process may have saved it.
func addTask(t *testing.T, to *server.MemoryTaskStore, id, node string) {
	t.Helper()
	ttl, interval, stamp := time.Hour.Milliseconds(), int64(1000), time.Now().UTC().Format(time.RFC3339)
	err := to.Save(t.Context(), &server.TaskRecord{
		Task: protocol.DetailedTask{
			Task: protocol.Task{
				TaskID: id, Status: protocol.TaskInputRequired, CreatedAt: stamp, LastUpdatedAt: stamp, TTLMs: &ttl, PollIntervalMs: &interval,
			},
			InputRequests: question("a"),
		},
		Tool: "work", Node: node, Created: time.Now(), Expires: time.Now().Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
}

const lost = "the node of the task has ended; its outcome is unknown"

// checkLost checks that a task has failed because its node has ended.
func checkLost(t *testing.T, got protocol.DetailedTask) {
	t.Helper()
	if got.Status != protocol.TaskFailed || got.StatusMessage != lost || got.Error == nil || got.Error.Message != lost || got.Error.Code != jsonrpc.CodeInternalError || got.InputRequests != nil {
		t.Errorf("got %+v with the error %+v, want a failure that says %q", got, got.Error, lost)
	}
}

// Ids of tasks begin with the name of their node, and the store learns the node.
//
// Guarantees: G-0075.1
func TestIDsOfTasksNameTheirNode(t *testing.T) {
	for _, node := range []string{"", "a", strings.Repeat("n", 64)} {
		testenv.Bubble(t, func(t *testing.T) {
			store := new(watchedStore)
			s := newTaskNode(node, server.TaskOptions{Store: store})
			w := dial(t, s.Server)
			id := w.beginTask("work")
			before, random, named := strings.Cut(id, ".")
			if !named {
				before, random = "", id
			}
			if before != node || len(random) != 26 {
				t.Errorf("got the id %q, want %q before 26 characters", id, node)
			}
			if r, err := store.MemoryTaskStore.Load(t.Context(), id); err != nil || r.Node != node {
				t.Errorf("the store has %+v, %v, want the node %q", r, err, node)
			}
			for want, origin := range map[string]*transport.Origin{
				" 192.0.2.1": {RemoteAddr: "192.0.2.1:7"}, "ada ada": {Identity: "ada", RemoteAddr: "192.0.2.1:7"},
			} {
				r, err := store.MemoryTaskStore.Load(t.Context(), dialFrom(t, s.Server, origin).beginTask("work"))
				if err != nil || r.Owner+" "+r.Client != want {
					t.Errorf("the store has %+v, %v, want the owner and the client %q", r, err, want)
				}
			}
			if got := w.getTask(id); got.Status != protocol.TaskWorking {
				t.Errorf("got %+v, want %v", got, protocol.TaskWorking)
			}
			s.Close(t.Context())
		})
	}
}

// A task whose node was started again fails, whatever the program says of the node, and that is saved once, however many ask for it
// at the same time. Its listeners are told.
//
// Guarantees: G-0075.5
func TestATaskOfAnEarlierProcessFails(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		store := &watchedStore{takes: 100 * time.Millisecond}
		s := newTaskNode("a", server.TaskOptions{Store: store, Gone: func(string) bool { return false }})
		addTask(t, &store.MemoryTaskStore, "a.1", "a")
		var asking sync.WaitGroup
		for range 20 {
			w := dial(t, s.Server)
			asking.Go(func() { checkLost(t, w.getTask("a.1").DetailedTask) })
		}
		asking.Wait()
		if n := store.saves.Load(); n != 1 {
			t.Errorf("the failure was saved %d times, want once", n)
		}
		r, err := store.MemoryTaskStore.Load(t.Context(), "a.1")
		if err != nil || r.Node != "a" || r.Tool != "work" {
			t.Fatalf("the store has %+v, %v", r, err)
		}
		checkLost(t, r.Task)
		w := dial(t, s.Server)
		for _, method := range []string{"tasks/cancel", "tasks/update"} {
			if got := w.ask(withTasks(`1`, method, `"taskId":"a.1","inputResponses":{}`)); got.Error != nil {
				t.Errorf("%s after the end: got %+v, want no error", method, got.Error)
			}
		}
		checkLost(t, w.getTask("a.1").DetailedTask)
		s.Close(t.Context())
	})
}

// A task of another node is seen as it was saved last. It cannot be cancelled or answered
// without its node, and the client is told so. When the node has ended, the task fails.
//
// Guarantees: G-0075.5, G-0075.6
func TestATaskOfAnotherNode(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		store, gone := new(watchedStore), atomic.Bool{}
		s := newTaskNode("b", server.TaskOptions{Store: store, Gone: func(node string) bool { return gone.Load() && node == "a" }})
		w, listener := dial(t, s.Server), dial(t, s.Server)
		addTask(t, &store.MemoryTaskStore, "a.1", "a")
		addTask(t, &store.MemoryTaskStore, "c.1", "c")
		addTask(t, &store.MemoryTaskStore, "1", "")
		listener.send(withTasks(`"l"`, "subscriptions/listen", `"notifications":{"taskIds":["a.1"]}`))
		listener.want(`"notifications":{"taskIds":["a.1"]}`)
		for _, id := range []string{"a.1", "c.1", "1"} {
			if got := w.getTask(id); got.Status != protocol.TaskInputRequired || len(got.InputRequests) != 1 {
				t.Errorf("%s: got %+v, want what was saved", id, got)
			}
			for _, method := range []string{"tasks/cancel", "tasks/update"} {
				if got := w.ask(withTasks(`1`, method, `"taskId":"`+id+`","inputResponses":{}`)); !got.Error.is(jsonrpc.CodeInternalError, "another node") {
					t.Errorf("%s %s: got %+v, want the error %d with %q", method, id, got, jsonrpc.CodeInternalError, "another node")
				}
			}
		}
		gone.Store(true)
		if store.saves.Load() != 0 {
			t.Errorf("%d tasks were saved, want none while their nodes run", store.saves.Load())
		}
		checkLost(t, w.getTask("a.1").DetailedTask)
		listener.want(`"method":"notifications/tasks"`, `"status":"failed"`, lost)
		gone.Store(false) // another node of this name
		checkLost(t, w.getTask("a.1").DetailedTask)
		for _, id := range []string{"c.1", "1"} {
			if got := w.getTask(id); got.Status != protocol.TaskInputRequired {
				t.Errorf("%s: got %+v, want %v", id, got, protocol.TaskInputRequired)
			}
		}
		if n := store.saves.Load(); n != 1 {
			t.Errorf("%d tasks were saved, want one", n)
		}
		s.Close(t.Context())
	})
}

// Clients of all nodes are told that a task has failed whose node has ended, and not only those of the node that finds out.
//
// Guarantees: G-0075.5
func TestTheEndOfALostTaskIsToldOnAllNodes(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		all, store, gone := new(relay), new(server.MemoryTaskStore), atomic.Bool{}
		var peers []*rawPeer
		for _, node := range []string{"b", "c"} {
			s := all.join(t, server.Options{Node: node, Tasks: &server.TaskOptions{Store: store, Gone: func(string) bool { return gone.Load() }}})
			peers = append(peers, dial(t, s.Server))
		}
		addTask(t, store, "a.1", "a")
		peers[1].send(withTasks(`"l"`, "subscriptions/listen", `"notifications":{"taskIds":["a.1"]}`))
		peers[1].want(`"notifications":{"taskIds":["a.1"]}`)
		gone.Store(true)
		checkLost(t, peers[0].getTask("a.1").DetailedTask)
		peers[1].want(`"method":"notifications/tasks"`, `"status":"failed"`, lost)
	})
}

// A task whose handler no longer waits for an answer works again: its listeners are told, and every node that shares the store learns of it.
//
// Guarantees: G-0032.9
func TestAWithdrawnQuestionIsToldAndSaved(t *testing.T) {
	store := new(watchedStore)
	bubble(t, server.TaskOptions{Store: store}, func(t *testing.T, s *taskServer) {
		server.AddTool(s.Server, protocol.Tool{Name: "gives_up", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(ctx context.Context, in struct{}) (string, error) {
				briefly, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				_, _ = server.Ask(briefly, question("a"))
				return s.work(ctx, in)
			}, server.Asks(server.Waits, forms))
		w, listener := dial(t, s.Server), dial(t, s.Server)
		id := w.beginTask("gives_up")
		pass(time.Second)
		listener.send(withTasks(`"l"`, "subscriptions/listen", `"notifications":{"taskIds":["`+id+`"]}`))
		listener.want(`"notifications":{"taskIds":["` + id + `"]}`)
		pass(2 * time.Minute)
		synctest.Wait()
		if len(listener.frames) != 1 {
			t.Fatalf("the listener got %d notifications, want one", len(listener.frames))
		}
		listener.want(`"method":"notifications/tasks"`, `"status":"working"`)
		if r, err := store.MemoryTaskStore.Load(t.Context(), id); err != nil || r.Task.Status != protocol.TaskWorking || r.Task.InputRequests != nil {
			t.Errorf("the store has %+v, %v, want %v and no question", r, err, protocol.TaskWorking)
		}
		s.goOn <- struct{}{}
		synctest.Wait()
	})
}

// What a node saves before it ends is the outcome, also if this node has loaded the task
// before that.
//
// Guarantees: G-0075.5
func TestTheLastThingThatANodeSavesCounts(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		store := new(watchedStore)
		s := newTaskNode("b", server.TaskOptions{Store: store, Gone: func(string) bool {
			r, err := store.MemoryTaskStore.Load(t.Context(), "a.1")
			if err != nil {
				t.Fatal(err)
			}
			r.Task.Status, r.Task.InputRequests = protocol.TaskCancelled, nil
			if err := store.MemoryTaskStore.Save(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			return true
		}})
		addTask(t, &store.MemoryTaskStore, "a.1", "a")
		w := dial(t, s.Server)
		for range 2 {
			if got := w.getTask("a.1"); got.Status != protocol.TaskCancelled {
				t.Errorf("got %+v, want %v", got, protocol.TaskCancelled)
			}
		}
		s.Close(t.Context())
	})
}

// If the failure cannot be saved, the client learns of it nevertheless, and it is saved
// later. A panic of Gone fails one request.
//
// Guarantees: G-0075.5
func TestALostTaskWithAFaultyProgram(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		store, panics := new(faultyStore), true
		s := newTaskNode("b", server.TaskOptions{Store: store, Gone: func(string) bool {
			if panics {
				panic("at the disco")
			}
			return true
		}})
		w := dial(t, s.Server)
		addTask(t, &store.MemoryTaskStore, "a.1", "a")
		if got := w.getTask("a.1"); !got.Fault.is(jsonrpc.CodeInternalError, "") {
			t.Errorf("got %+v, want the error %d", got, jsonrpc.CodeInternalError)
		}
		if p := <-s.panics; p.Where != "TaskOptions.Gone" {
			t.Errorf("got the panic %+v, want it in TaskOptions.Gone", p)
		}
		panics = false
		store.saves.Store(1)
		checkLost(t, w.getTask("a.1").DetailedTask)
		if r, err := store.MemoryTaskStore.Load(t.Context(), "a.1"); err != nil || r.Task.Status != protocol.TaskInputRequired {
			t.Errorf("the store has %+v, %v, want it unchanged", r, err)
		}
		checkLost(t, w.getTask("a.1").DetailedTask)
		if r, err := store.MemoryTaskStore.Load(t.Context(), "a.1"); err != nil || r.Task.Status != protocol.TaskFailed {
			t.Errorf("the store has %+v, %v, want the failure", r, err)
		}
		s.Close(t.Context())
	})
}

// A client that finds a task in the store before Save has returned finds a running task. If it
// cancels the task, that is saved after the beginning.
//
// Guarantees: G-0075.5
func TestATaskThatIsBeingSavedIsNotLost(t *testing.T) {
	for _, cancels := range []bool{false, true} {
		store := new(watchedStore)
		s := newTaskNode("a", server.TaskOptions{Store: store, After: time.Millisecond})
		w, other := dial(t, s.Server), dial(t, s.Server)
		var cancelling sync.WaitGroup
		var once sync.Once
		store.saved = func(r *server.TaskRecord) {
			once.Do(func() {
				id := r.Task.TaskID
				if got := other.getTask(id); got.Status != protocol.TaskWorking {
					t.Errorf("while it is being saved: got %+v, want %v", got, protocol.TaskWorking)
				}
				if cancels {
					cancelling.Go(func() { other.ask(withTasks(`3`, "tasks/cancel", `"taskId":"`+id+`"`)) })
					<-s.causes // the handler has ended; what the client has done is saved next
				}
				if err := store.MemoryTaskStore.Save(t.Context(), r); err != nil { // as if it took so long
					t.Error(err)
				}
			})
		}
		id := w.beginTask("work")
		cancelling.Wait()
		want := map[bool]protocol.TaskStatus{false: protocol.TaskWorking, true: protocol.TaskCancelled}[cancels]
		if r, err := store.MemoryTaskStore.Load(t.Context(), id); err != nil || r.Task.Status != want {
			t.Errorf("the store has %+v, %v, want %v", r, err, want)
		}
		if got := w.getTask(id); got.Status != want {
			t.Errorf("got %+v, want %v", got, want)
		}
		s.Close(t.Context())
	}
}

// An id that no server can have made does not reach the store.
//
// Guarantees: G-0075.7
func TestHostileIDsOfTasks(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		store := new(watchedStore)
		s := newTaskNode("a", server.TaskOptions{Store: store, Legacy: true})
		w, old := dial(t, s.Server), dialAs(t, s.Server, "ada")
		old.session()
		long := strings.Repeat("x", 92)
		for _, id := range []string{long, strings.Repeat("x", 1<<20), "a." + long, strings.Repeat(".", 100)} {
			if got := w.getTask(id); !got.Fault.is(jsonrpc.CodeInvalidParams, "unknown task") || len(got.Fault.Message) > 400 {
				t.Errorf("%.80q: got %+v, want the error %d with %q", id, got, jsonrpc.CodeInvalidParams, "unknown task")
			}
			old.wantFault(jsonrpc.CodeInvalidParams, legacy(`1`, "tasks/get", fmt.Sprintf(`"taskId":%q`, id)))
		}
		if n := store.loads.Load(); n != 0 {
			t.Errorf("the store was asked %d times, want 0", n)
		}
		for _, id := range []string{"b.x", "..", "'; drop table tasks", "\x00", "é", "\xff"} { // these may be in a store
			raw, err := json.Marshal(id)
			if err != nil {
				t.Fatal(err)
			}
			if got := w.ask(withTasks(`1`, "tasks/get", `"taskId":`+string(raw))); !got.Error.is(jsonrpc.CodeInvalidParams, "unknown task") {
				t.Errorf("%q: got %+v, want the error %d with %q", id, got, jsonrpc.CodeInvalidParams, "unknown task")
			}
		}
		s.Close(t.Context())
	})
}

// Whether a node has ended is asked only about a task of another node that has not ended. The store is asked once for each look.
//
// Guarantees: G-0075.5
func TestGoneIsAskedOnlyAboutWhatRuns(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		store, asked := new(server.MemoryTaskStore), []string{}
		s := newTaskNode("b", server.TaskOptions{Store: store, Gone: func(node string) bool {
			asked = append(asked, node)
			return false
		}})
		w := dial(t, s.Server)
		for id, task := range map[string]struct {
			node   string
			status protocol.TaskStatus
			asked  bool
		}{
			"works": {"a", protocol.TaskWorking, true}, "asks": {"a", protocol.TaskInputRequired, true}, "of nobody": {"", protocol.TaskWorking, false},
			"completed": {"a", protocol.TaskCompleted, false}, "failed": {"a", protocol.TaskFailed, false}, "cancelled": {"a", protocol.TaskCancelled, false},
		} {
			addTask(t, store, id, task.node)
			r, err := store.Load(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			r.Task.Status = task.status
			if task.status != protocol.TaskInputRequired {
				r.Task.InputRequests = nil
			}
			switch task.status {
			case protocol.TaskCompleted:
				r.Task.FinalResult = []byte(`{"resultType":"complete","content":[]}`)
			case protocol.TaskFailed:
				r.Task.Error = &protocol.TaskError{Code: 7, Message: "no"}
			}
			if err := store.Save(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			asked = nil
			if got := w.getTask(id); got.Status != task.status {
				t.Errorf("%s: got %+v, want %s", id, got, task.status)
			}
			if len(asked) == 1 != task.asked || len(asked) > 1 {
				t.Errorf("%s: it was asked about %q, want it asked: %t", id, asked, task.asked)
			}
		}
		s.Close(t.Context())
	})
}
