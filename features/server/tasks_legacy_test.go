package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// legacy returns the frame of a request of 2025-11-25.
func legacy(id, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s}}`, id, method, params)
}

// session begins a session of a client that can fill in forms.
func (w *rawPeer) session() string {
	w.t.Helper()
	w.send(legacy(`"i"`, "initialize", `"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"tasks":{}},"clientInfo":{"name":"c","version":"1"}`))
	offered := w.next()
	w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return offered
}

// beginLegacy calls a tool as a task and returns its id.
func (w *rawPeer) beginLegacy(tool, task string) string {
	w.t.Helper()
	got := w.ask(legacy(`1`, "tools/call", `"name":"`+tool+`","task":{`+task+`}`))
	var created protocol.LegacyTask
	if err := protocol.Unmarshal(got.Result["task"], &created); err != nil || created.Status != protocol.TaskWorking || len(got.Result) != 1 {
		w.t.Fatalf("%s: got %s, %v, want created.Status == %v and len(got.Result) == 1", tool, got.Result, got.Error, protocol.TaskWorking)
	}
	return created.TaskID
}

// With Legacy, a client of 2025-11-25 can make a tool call a task, read and cancel it,
// and wait for its result.
//
// Guarantees: G-0032.12
func TestLegacyTasksAreServedOnRequest(t *testing.T) {
	bubble(t, server.TaskOptions{Legacy: true}, func(t *testing.T, s *taskServer) {
		w := dialAs(t, s.Server, "ada")
		if offered := w.session(); !strings.Contains(offered, `"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`) || strings.Contains(offered, "extensions") {
			t.Errorf("got %s", offered)
		}
		if got := w.ask(legacy(`1`, "tools/list", ``)); !strings.Contains(string(got.Result["tools"]), `"execution":{"taskSupport":"required"}`) {
			t.Errorf("got %s, want %q in it", got.Result, `"execution":{"taskSupport":"required"}`)
		}
		id := w.beginLegacy("must", `"ttl":60000`)
		w.send(legacy(`"result"`, "tasks/result", `"taskId":"`+id+`"`))
		w.wantNothing()
		got := w.ask(legacy(`2`, "tasks/get", `"taskId":"`+id+`"`)).Result
		if string(got["status"]) != `"working"` || string(got["ttl"]) != `60000` || string(got["pollInterval"]) != `1000` || got["resultType"] != nil || got["ttlMs"] != nil {
			t.Errorf("got %s", got)
		}
		s.goOn <- struct{}{}
		both := w.next() + w.next()
		for _, want := range []string{
			`"id":"result","result":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"` + id + `"}},"content":[{"type":"text","text":"done"}]}`,
			`"method":"notifications/tasks/status"`, `"status":"completed"`,
		} {
			if !strings.Contains(both, want) {
				t.Errorf("%s\nhas no %s", both, want)
			}
		}
		w.wantFault(jsonrpc.CodeInvalidParams, legacy(`3`, "tasks/cancel", `"taskId":"`+id+`"`))
		broken := w.beginLegacy("fails", "")
		w.want(`"status":"failed"`) // in this revision a tool error is a failed task
		if got := w.ask(legacy(`4`, "tasks/result", `"taskId":"`+broken+`"`)); string(got.Result["isError"]) != `true` {
			t.Errorf("got %s, %v, want %q", got.Result, got.Error, `true`)
		}
		refused := w.beginLegacy("refuses", "")
		w.want(`"status":"failed"`)
		if got := w.ask(legacy(`5`, "tasks/result", `"taskId":"`+refused+`"`)); !got.Error.is(7, "no") {
			t.Errorf("got %s, %v, want the error 7 with %q", got.Result, got.Error, "no")
		}
		cancelled := w.beginLegacy("work", "")
		if got := w.ask(legacy(`6`, "tasks/cancel", `"taskId":"`+cancelled+`"`)); string(got.Result["status"]) != `"cancelled"` || string(got.Result["statusMessage"]) != `"cancelled by the client"` {
			t.Errorf("got %s, %v, want %q", got.Result, got.Error, `"cancelled"`)
		}
		w.want(`"status":"cancelled"`)
		<-s.causes
		w.wantFault(jsonrpc.CodeInternalError, legacy(`7`, "tasks/result", `"taskId":"`+cancelled+`"`))
		w.wantFault(jsonrpc.CodeMethodNotFound, legacy(`8`, "tools/call", `"name":"plain","task":{}`))
		w.wantFault(jsonrpc.CodeMethodNotFound, legacy(`9`, "tools/call", `"name":"must"`))
		other := dialAs(t, s.Server, "bob")
		other.session()
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
			other.wantFault(jsonrpc.CodeInvalidParams, legacy(`1`, method, `"taskId":"`+id+`"`))
		}
		if got := other.ask(legacy(`1`, "tasks/list", ``)); string(got.Result["tasks"]) != `[]` {
			t.Errorf("got %s, want %q", got.Result, `[]`)
		}
		pass(time.Minute)
		w.wantFault(jsonrpc.CodeInvalidParams, legacy(`10`, "tasks/get", `"taskId":"`+id+`"`)) // the client has given this task no lifetime
	})
}

// An authenticated client can list its tasks. An anonymous client cannot.
//
// Guarantees: G-0032.12
func TestLegacyTasksAreListedForAuthenticatedClients(t *testing.T) {
	bubble(t, server.TaskOptions{Legacy: true}, func(t *testing.T, s *taskServer) {
		w := dialAs(t, s.Server, "ada")
		w.session()
		var begun, listed []string
		for range 250 {
			w.link.Grant(transport.Main, 2)
			begun = append(begun, w.beginLegacy("fails", ""))
			w.want(`"notifications/tasks/status"`)
		}
		for cursor := ``; ; {
			got := w.ask(legacy(`1`, "tasks/list", cursor))
			var page []*protocol.LegacyTask
			if err := protocol.Unmarshal(got.Result["tasks"], &page); err != nil {
				t.Fatal(err)
			}
			for _, one := range page {
				listed = append(listed, one.TaskID)
			}
			if got.Result["nextCursor"] == nil {
				break
			}
			cursor = `"cursor":` + string(got.Result["nextCursor"])
		}
		if slices.Sort(begun); len(listed) != len(begun) {
			t.Errorf("%d are listed", len(listed))
		}
		if slices.Sort(listed); !slices.Equal(begun, listed) {
			t.Errorf("listed %q\nbegun %q", listed, begun)
		}
		w.wantFault(jsonrpc.CodeInvalidParams, legacy(`1`, "tasks/list", `"cursor":"strange"`))
		unknown := dial(t, s.Server)
		if offered := unknown.session(); strings.Contains(offered, `"list":{}`) {
			t.Errorf("got %s, want no %q in it", offered, `"list":{}`)
		}
		unknown.wantFault(jsonrpc.CodeMethodNotFound, legacy(`1`, "tasks/list", ``))
	})
}

// The questions of a legacy task go to the client that waits with tasks/result, once.
// If that client leaves, the next one that waits gets them.
//
// Guarantees: G-0032.12
func TestQuestionsOfALegacyTaskGoToTheWaitingClient(t *testing.T) {
	bubble(t, server.TaskOptions{Legacy: true}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		w.session()
		id := w.beginLegacy("waits", "")
		w.want(`"notifications/tasks/status"`, `"input_required"`)
		w.send(legacy(`"one"`, "tasks/result", `"taskId":"`+id+`"`))
		questions := []string{w.next(), w.next()}
		w.send(legacy(`"two"`, "tasks/result", `"taskId":"`+id+`"`)) // does not send the questions again
		w.wantNothing()
		for _, question := range questions {
			if !strings.Contains(question, `"method":"elicitation/create"`) || !strings.Contains(question, `"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}`) {
				t.Errorf("got %s", question)
			}
			var asked struct {
				ID     jsonrpc.ID            `json:"id"`
				Params protocol.ElicitParams `json:"params"`
			}
			if err := protocol.Unmarshal([]byte(question), &asked); err != nil {
				t.Fatal(err)
			}
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{%q:%q}}}`, asked.ID.Append(nil), asked.Params.Message, asked.Params.Message))
		}
		synctest.Wait()
		ends := w.next() + w.next() + w.next()
		for _, want := range []string{`"id":"one"`, `"id":"two"`, `"status":"completed"`, `"text":"ab"`} {
			if !strings.Contains(ends, want) {
				t.Errorf("%s\nhas no %s", ends, want)
			}
		}
		id = w.beginLegacy("waits", "") // if the client that was asked leaves, the next one that waits is asked
		w.want(`"input_required"`)
		leaver := dial(t, s.Server)
		leaver.session()
		leaver.send(legacy(`"r"`, "tasks/result", `"taskId":"`+id+`"`))
		leaver.next()
		leaver.link.Close(0)
		synctest.Wait()
		w.send(legacy(`"r"`, "tasks/result", `"taskId":"`+id+`"`))
		refused := w.next()
		w.next()
		var asked struct {
			ID jsonrpc.ID `json:"id"`
		}
		if err := protocol.Unmarshal([]byte(refused), &asked); err != nil {
			t.Fatal(err)
		}
		w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"no"}}`, asked.ID.Append(nil)))
		if cause := <-s.causes; !strings.Contains(cause.Error(), "declined") {
			t.Errorf("got %v, want %q in it", cause, "declined")
		}
	})
}

// A client that cancels its tasks/result takes back only that: the questions that it was asked are withdrawn, the task
// goes on, and the next tasks/result gets the questions.
//
// Guarantees: G-0032.12
func TestACancelledWaitForALegacyTaskIsOver(t *testing.T) {
	bubble(t, server.TaskOptions{Legacy: true}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		w.session()
		id := w.beginLegacy("waits", "")
		w.want(`"input_required"`)
		for _, wait := range []string{`"one"`, `"two"`} {
			w.send(legacy(wait, "tasks/result", `"taskId":"`+id+`"`))
			w.want(`"method":"elicitation/create"`)
			w.want(`"method":"elicitation/create"`)
			w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + wait + `}}`)
			w.want(`"method":"notifications/cancelled"`)
			w.want(`"method":"notifications/cancelled"`)
			w.wantNothing()
		}
		if got := w.ask(legacy(`2`, "tasks/get", `"taskId":"`+id+`"`)).Result; string(got["status"]) != `"input_required"` {
			t.Errorf("got %s, want that the task still waits", got)
		}
	})
}

// Without Legacy, a server offers no tasks to clients of 2025-11-25.
func TestLegacyTasksAreOffUnlessAskedFor(t *testing.T) {
	bubble(t, server.TaskOptions{}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		if offered := w.session(); strings.Contains(offered, "tasks") {
			t.Errorf("got %s, want no %q in it", offered, "tasks")
		}
		if got := w.ask(legacy(`1`, "tools/list", ``)); strings.Contains(string(got.Result["tools"]), "taskSupport") {
			t.Errorf("got %s, want no %q in it", got.Result, "taskSupport")
		}
		if got := w.ask(legacy(`1`, "tools/call", `"name":"fails","task":{}`)); got.Result["task"] != nil || got.Result["content"] == nil {
			t.Errorf("got %s", got.Result)
		}
		w.wantFault(jsonrpc.CodeMethodNotFound, legacy(`1`, "tasks/get", `"taskId":"a"`))
	})
}

// A tool that has to be called as a task is not called otherwise, whatever the client has
// declared: its capability for tasks is about those that it keeps itself.
//
// Guarantees: G-0032.12
func TestToolThatRequiresATaskIsNotCalledWithout(t *testing.T) {
	bubble(t, server.TaskOptions{Legacy: true}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		w.initialize(protocol.Version20251125)
		w.wantFault(jsonrpc.CodeMethodNotFound, legacy(`1`, "tools/call", `"name":"must"`))
		w.beginLegacy("must", "")
		s.goOn <- struct{}{}
		w.want(`"status":"completed"`)
	})
}

// A client of 2025-11-25 that asks for a task gets one immediately, whatever After says, with the _meta of a middleware.
//
// Guarantees: G-0032.12
func TestALegacyTaskBeginsImmediately(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		type params = protocol.CallToolParams
		type result = protocol.CallToolResult
		s := newServer(server.Options{Tasks: &server.TaskOptions{Legacy: true, After: time.Minute}, Middleware: []server.Middleware{
			server.On(func(ctx context.Context, p *params, next func(context.Context, *params) (*result, error)) (*result, error) {
				r, err := next(ctx, p)
				if err == nil {
					r.Meta = protocol.Meta{"own": json.RawMessage(`1`)}
				}
				return r, err
			}),
		}})
		server.AddTool(s, protocol.Tool{Name: "t", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(ctx context.Context, _ struct{}) (string, error) {
				<-ctx.Done()
				return "", context.Cause(ctx)
			})
		w := dial(t, s)
		w.session()
		began := time.Now()
		w.send(legacy(`1`, "tools/call", `"name":"t","task":{}`))
		w.want(`"_meta":{"own":1}`, `"task":{`, `"status":"working"`)
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v, want no time", took)
		}
		s.Close(t.Context())
	})
}

// A revision before 2025-11-25 has no tasks: its clients call every tool, and what they say of a task is ignored.
//
// Guarantees: G-0032.12
func TestCallsOfRevisionsWithoutTasks(t *testing.T) {
	bubble(t, server.TaskOptions{Legacy: true}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		w.initialize(protocol.Version20250618)
		for _, tool := range []string{"must", "plain"} {
			for _, task := range []string{``, `,"task":{}`} {
				w.send(legacy(`1`, "tools/call", `"name":"`+tool+`"`+task))
				s.goOn <- struct{}{}
				w.want(`"content":[{"type":"text","text":"done"}]`)
			}
		}
	})
}

// A wrappingStore says more of its errors than they are.
type wrappingStore struct{ server.MemoryTaskStore }

func (s *wrappingStore) Load(ctx context.Context, id string) (*server.TaskRecord, error) {
	r, err := s.MemoryTaskStore.Load(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("wrapping: load: %w", err)
	}
	return r, nil
}

func (s *wrappingStore) List(ctx context.Context, owner, after string, limit int) ([]*server.TaskRecord, error) {
	all, err := s.MemoryTaskStore.List(ctx, owner, after, limit)
	if err != nil {
		return nil, fmt.Errorf("wrapping: list: %w", err)
	}
	return all, nil
}

// A task that is over is refused as such, also if the store wraps what it says of it.
//
// Guarantees: G-0032.12
func TestErrorsOfAStoreMayBeWrapped(t *testing.T) {
	bubble(t, server.TaskOptions{Legacy: true, Store: new(wrappingStore)}, func(t *testing.T, s *taskServer) {
		w := dialAs(t, s.Server, "ada")
		w.session()
		var id string
		for range 101 { // a page has a hundred
			w.link.Grant(transport.Main, 2)
			id = w.beginLegacy("fails", "")
			w.want(`"notifications/tasks/status"`)
		}
		next := string(w.ask(legacy(`1`, "tasks/list", ``)).Result["nextCursor"])
		pass(48 * time.Hour)
		if got := w.wantFault(jsonrpc.CodeInvalidParams, legacy(`2`, "tasks/list", `"cursor":`+next)); !strings.Contains(got.Message, "is over") {
			t.Errorf("got %q of a cursor whose task is over", got.Message)
		}
		w.wantFault(jsonrpc.CodeInvalidParams, legacy(`3`, "tasks/get", `"taskId":"`+id+`"`))
		w.wantFault(jsonrpc.CodeInvalidParams, legacy(`4`, "tasks/result", `"taskId":"`+id+`"`))
	})
}

// A list has every task that the store lists, also one that the store cannot load just now: that is shown as it was saved.
//
// Guarantees: G-0032.12
func TestAListHasTasksThatCannotBeLoaded(t *testing.T) {
	store := new(faultyStore)
	bubble(t, server.TaskOptions{Legacy: true, Store: store}, func(t *testing.T, s *taskServer) {
		w := dialAs(t, s.Server, "ada")
		w.session()
		id := w.beginLegacy("fails", "")
		w.want(`"notifications/tasks/status"`)
		for range 2 {
			store.loads.Store(1)
			if got := w.ask(legacy(`1`, "tasks/list", ``)); !strings.Contains(got.text("tasks"), id) {
				t.Errorf("got %s, %v, want the task %s in it", got.Result, got.Error, id)
			}
		}
	})
}

// A lateStore lists its oldest task also when the time of that has passed.
type lateStore struct{ server.MemoryTaskStore }

func (s *lateStore) List(ctx context.Context, owner, after string, limit int) ([]*server.TaskRecord, error) {
	all, err := s.MemoryTaskStore.List(ctx, owner, after, limit)
	if after == "" && len(all) > 0 {
		all[0].Expires = time.Now()
	}
	return all, err
}

// A task whose time has passed is not listed, even if the store lists it, and the list goes on behind its page.
//
// Guarantees: G-0032.12
func TestAStoreThatListsWhatIsOver(t *testing.T) {
	bubble(t, server.TaskOptions{Legacy: true, Store: new(lateStore)}, func(t *testing.T, s *taskServer) {
		w := dialAs(t, s.Server, "ada")
		w.session()
		ids := make([]string, 101) // a page has a hundred
		for i := range ids {
			w.link.Grant(transport.Main, 2)
			ids[i] = w.beginLegacy("fails", "")
			w.want(`"notifications/tasks/status"`)
			pass(time.Millisecond) // so that the store knows which one is the oldest
		}
		first := w.ask(legacy(`1`, "tasks/list", ``))
		if strings.Contains(first.text("tasks"), ids[0]) || !strings.Contains(first.text("tasks"), ids[99]) || first.Result["nextCursor"] == nil {
			t.Fatalf("got %s, %v, want all but the first and the last, and a cursor", first.Result, first.Error)
		}
		second := w.ask(legacy(`2`, "tasks/list", `"cursor":`+string(first.Result["nextCursor"])))
		if !strings.Contains(second.text("tasks"), ids[100]) || second.Result["nextCursor"] != nil {
			t.Errorf("got %s, %v, want the last", second.Result, second.Error)
		}
	})
}

// Tasks that a program declares and serves by its Fallback are declared as it says: the server adds no list to them.
func TestDeclaredTasksStayAsTheyAre(t *testing.T) {
	own := protocol.ServerCapabilities{Extensions: map[string]json.RawMessage{protocol.ExtensionTasks: json.RawMessage(`{"own":1}`)}}
	with := newServer(server.Options{Capabilities: own, Tasks: &server.TaskOptions{}})
	if got := dial(t, with).ask(modern(`1`, "server/discover", ``)).text("capabilities"); !strings.Contains(got, `"`+protocol.ExtensionTasks+`":{"own":1}`) {
		t.Errorf("got the capabilities %s, want the settings of the program", got)
	}
	with.Close(t.Context())
	s := newServer(server.Options{Capabilities: protocol.ServerCapabilities{Tasks: &protocol.TasksCapability{Cancel: &protocol.Capability{}}}})
	w := dialAs(t, s, "ada")
	if got := w.ask(strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1)).text("capabilities"); !strings.Contains(got, `"tasks":{"cancel":{}}`) {
		t.Errorf("got the capabilities %s", got)
	}
}

// A client that asks to keep a task for ever gets the most that the server gives.
//
// Guarantees: G-0032.12
func TestTheLongestTimeOfALegacyTask(t *testing.T) {
	bubble(t, server.TaskOptions{Legacy: true, TTL: time.Hour}, func(t *testing.T, s *taskServer) {
		w := dialAs(t, s.Server, "ada")
		w.session()
		id := w.beginLegacy("must", `"ttl":18446744078710`) // as nanoseconds, five seconds in 64 bits
		if got := w.ask(legacy(`2`, "tasks/get", `"taskId":"`+id+`"`)); got.text("ttl") != `3600000` {
			t.Errorf("got %s, %v, want the time of an hour", got.Result, got.Error)
		}
		s.goOn <- struct{}{}
		synctest.Wait()
	})
}
