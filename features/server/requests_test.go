package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// Large requests are read when it is the turn of their client. They are checked, decoded and answered as small ones are.
//
// Guarantees: G-0029.2
func TestLargeRequestsAreChecked(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(_ context.Context, in struct {
		Text  string `json:"text"`
		Count int    `json:"count" maximum:"7" default:"3"`
	}) (string, error) {
		return fmt.Sprint(len(in.Text), " ", in.Count), nil
	})
	server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(_ context.Context, in user) (string, error) { return fmt.Sprint(len(in.Name)), nil })
	for name, origin := range map[string]*transport.Origin{
		"nobody": {}, "a user": {Identity: "ada"}, "an address": {RemoteAddr: "192.0.2.7:80"},
	} {
		w := dialFrom(t, s, origin)
		w.initialize(protocol.Version20251125)
		for _, size := range []int{100, 300 << 10} {
			text := strings.Repeat("a", size)
			if got := w.call("t", `{"text":"`+text+`"}`); got.Result.Content.Text() != fmt.Sprint(size, " 3") {
				t.Errorf("%s, %d bytes: got %.200q, %v", name, size, got.Result.Content.Text(), got.Error)
			}
			for _, wrong := range []string{`{"text":"` + text + `","count":8}`, `{"text":"` + text + `","else":1}`, `{"text":["` + text + `"]}`} {
				if got := w.call("t", wrong); !got.Result.IsError {
					t.Errorf("%s, %d bytes: got %.200q, %v, want the error of a tool", name, size, got.Result.Content.Text(), got.Error)
				}
			}
			w.wantFault(jsonrpc.CodeInvalidParams, legacy(`1`, "tools/call", `"name":7,"arguments":{"text":"`+text+`"}`))
			w.wantFault(jsonrpc.CodeInvalidParams, legacy(`1`, "prompts/get", `"name":"p","arguments":{"else":"`+text+`"}`))
			w.send(legacy(`1`, "prompts/get", `"name":"p","arguments":{"name":"`+text+`"}`))
			w.want(fmt.Sprintf(`"text":"%d"`, size))
		}
	}
}

// A state is good for the same routed call alone: not for another name or other arguments.
//
// Guarantees: G-0089.1
func TestStatesOfRoutedCallsAreForTheSameCall(t *testing.T) {
	runs := 0
	handler := func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		if found, _ := server.RequestFrom(ctx).State(new(int)); !found {
			return nil, &server.InputRequired{State: 7}
		}
		runs++
		return json.RawMessage(`{"content":[],"messages":[],"contents":[]}`), nil
	}
	w := dial(t, newServer(server.Options{Capabilities: everyCapability(), Route: map[string]server.RawHandler{
		protocol.MethodCallTool: handler, protocol.MethodGetPrompt: handler, protocol.MethodReadResource: handler,
	}}))
	state := func(method, params string) string {
		return string(mustEncode(*result[protocol.CallToolResult](w, method, params).InputRequired.RequestState))
	}
	const first = `"name":"a","arguments":{"x":1}`
	for _, other := range []string{`"name":"b","arguments":{"x":1}`, `"name":"a","arguments":{"x":2}`, `"name":"a"`} {
		w.wantFault(jsonrpc.CodeInvalidParams, modern(`1`, "tools/call", other+`,"requestState":`+state("tools/call", first)))
	}
	w.wantFault(jsonrpc.CodeInvalidParams, modern(`1`, "prompts/get", first+`,"requestState":`+state("tools/call", first)))
	w.wantFault(jsonrpc.CodeInvalidParams, modern(`1`, "resources/read", `"uri":"x://b","requestState":`+state("resources/read", `"uri":"x://a"`)))
	if runs > 0 {
		t.Fatalf("the handler has run %d times", runs)
	}
	for method, params := range map[string]string{"tools/call": first, "prompts/get": first, "resources/read": `"uri":"x://a"`} {
		if got := w.ask(modern(`1`, method, params+`,"requestState":`+state(method, params))); got.Error != nil {
			t.Errorf("%s: got %+v", method, got.Error)
		}
	}
	if runs != 3 {
		t.Errorf("the handler has run %d times, want 3", runs)
	}
}

// A legacy client gets the _meta of a modern result that a program has passed on, but not who that server was.
//
// Guarantees: G-0089.2
func TestMetaOfRoutedResults(t *testing.T) {
	answer := ""
	w := dial(t, newServer(server.Options{Capabilities: everyCapability(), Route: map[string]server.RawHandler{
		protocol.MethodListTools: func(context.Context, json.RawMessage) (json.RawMessage, error) { return json.RawMessage(answer), nil },
	}}))
	w.initialize(protocol.Version20251125)
	for from, want := range map[string]string{
		`{"resultType":"complete","ttlMs":7,"cacheScope":"public","tools":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x","version":"1"},"own":1}}`: `{"_meta":{"own":1},"tools":[]}`,
		`{"resultType":"complete","tools":[]}`: `{"tools":[]}`,
		`{"tools":[],"_meta":{"own":1}}`:       `{"_meta":{"own":1},"tools":[]}`,
	} {
		answer = from
		got, err := json.Marshal(w.ask(legacy(`1`, "tools/list", ``)).Result)
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, want %s", from, got, want)
		}
	}
}

// A modern client gets each member that a routed result lacks, and those that it has as they are.
//
// Guarantees: G-0089.2
func TestLifetimeOfRoutedResults(t *testing.T) {
	answer := ""
	w := dial(t, newServer(server.Options{Capabilities: everyCapability(), Route: map[string]server.RawHandler{
		protocol.MethodListTools: func(context.Context, json.RawMessage) (json.RawMessage, error) { return json.RawMessage(answer), nil },
	}}))
	for from, want := range map[string]string{``: `0 "private"`, `,"cacheScope":"public"`: `0 "public"`, `,"ttlMs":7`: `7 "private"`, `,"ttlMs":7,"cacheScope":"public"`: `7 "public"`} {
		answer = `{"tools":[]` + from + `}`
		if got := w.ask(modern(`1`, "tools/list", ``)); got.text("ttlMs")+" "+got.text("cacheScope") != want || got.text("resultType") != `"complete"` {
			t.Errorf("%s: got %s, want %s", answer, got.Result, want)
		}
	}
}

// A program that serves the methods of tasks itself has tasks in both eras. A modern client must have declared them.
func TestRoutedTasks(t *testing.T) {
	serve := func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(`{"taskId":"t","status":"working","createdAt":"2026-01-02T03:04:05Z","lastUpdatedAt":"2026-01-02T03:04:05Z",` +
			map[bool]string{true: `"ttlMs":null}`, false: `"ttl":null}`}[server.RequestFrom(ctx).Session == nil]), nil
	}
	route := map[string]server.RawHandler{protocol.MethodCallTool: serve, protocol.MethodGetTask: serve}
	o := server.Options{Capabilities: everyCapability(), Route: route}
	w := dial(t, newServer(o))
	w.wantFault(protocol.CodeMissingCapability, modern(`1`, "tasks/get", `"taskId":"t"`))
	if got := w.ask(withTasks(`1`, "tasks/get", `"taskId":"t"`)); got.text("taskId") != `"t"` {
		t.Errorf("got %s, %v", got.Result, got.Error)
	}
	if got := w.ask(modern(`1`, "server/discover", ``)).text("capabilities"); !strings.Contains(got, protocol.ExtensionTasks) {
		t.Errorf("got the capabilities %s", got)
	}
	w.send(strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1))
	w.want(`"tasks":{`, `"call":{}`)
	if got := w.ask(legacy(`1`, "tasks/get", `"taskId":"t"`)); got.text("taskId") != `"t"` {
		t.Errorf("got %s, %v", got.Result, got.Error)
	}
	delete(route, protocol.MethodGetTask)
	without := dial(t, newServer(o))
	without.wantFault(jsonrpc.CodeMethodNotFound, withTasks(`1`, "tasks/get", `"taskId":"t"`))
	without.send(strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1))
	if frame := without.next(); strings.Contains(frame, `"tasks"`) {
		t.Errorf("got %s, want no tasks", frame)
	}
}

// What the server sends belongs to the trace of whoever made it do so, if there is middleware that may have one.
func TestNotificationsAreTraced(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, traced := range []bool{false, true} {
		var o server.Options
		if traced {
			o.Middleware = []server.Middleware{func(next server.Handler) server.Handler {
				return func(ctx context.Context, r *server.Request) (any, error) {
					return next(telemetry.WithTrace(ctx, telemetry.Trace{Parent: parent}), r)
				}
			}}
		}
		s := newServer(o)
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			server.Progress(ctx, 1, 2, "half")
			return "", server.Confirm(ctx, "Sure?")
		}, server.Asks(server.Waits, forms))
		w := dial(t, s)
		w.initializeWith(protocol.Version20251125, `{"elicitation":{}}`)
		w.send(legacy(`1`, "tools/call", `"name":"t","_meta":{"progressToken":7}`))
		first, second := w.next(), w.next() // the report and the question, in any order
		for _, frame := range []string{first, second} {
			if strings.Contains(frame, `"traceparent":"`+parent) != traced {
				t.Errorf("middleware %t: got %s", traced, frame)
			}
		}
		if !strings.Contains(first+second, "notifications/progress") {
			t.Errorf("middleware %t: got %s and %s, want a report", traced, first, second)
		}
		w.send(`{"jsonrpc":"2.0","id":` + idOf(first) + idOf(second) + `,"result":{"action":"accept"}}`)
		w.want(`"id":1`)
	}
}

// A subscription with an empty URI goes on without that, and one with too long a URI is refused, wherever it stands.
//
// Guarantees: G-0029.12
func TestURIsOfASubscription(t *testing.T) {
	s := newServer(server.Options{OnSubscribe: func(context.Context, string) error { return nil }})
	w := dial(t, s)
	long := `"x://` + strings.Repeat("a", 9000) + `"`
	for _, uris := range []string{long, `"",` + long, `"x://a",` + long} {
		w.wantFault(jsonrpc.CodeInvalidParams, modern(`1`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":[`+uris+`]}`))
	}
	w.send(modern(`2`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["","x://a","x://a"]}`))
	w.want("acknowledged", `"resourceSubscriptions":["x://a"]`)
}

// What the store has refused takes no place in it.
//
// Guarantees: G-0032.5
func TestRefusedTasksTakeNoPlace(t *testing.T) {
	store := &server.MemoryTaskStore{MaxTasks: 3, MaxBytes: 64 << 10}
	for range 10 {
		if err := store.Save(t.Context(), taskOf("ada", "ada", "large", 128<<10)); err == nil {
			t.Fatal("a task that is larger than the store was saved")
		}
	}
	for _, id := range []string{"1", "2", "3"} {
		if err := store.Save(t.Context(), taskOf(id, id, id, 1)); err != nil {
			t.Error(err)
		}
	}
}

// A task that is deleted, and one that has become smaller, gives back all the room that it took.
//
// Guarantees: G-0032.5
func TestTasksGiveTheirRoomBack(t *testing.T) {
	store := &server.MemoryTaskStore{MaxBytes: 64 << 10}
	for range 200 {
		running, small := taskOf("ada", "ada", "a", 8<<10), taskOf("ada", "ada", "a", 1)
		running.Task.Status = protocol.TaskWorking
		for _, r := range []*server.TaskRecord{running, small, running} {
			if err := store.Save(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		if err := store.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
}

// Expired tasks go at their time, also when some of them have been saved in another order, and a store that was empty in between
// forgets nothing of what it gets then.
//
// Guarantees: G-0032.3
func TestTasksExpireInAnyOrder(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		store := &server.MemoryTaskStore{}
		has := func(id string) bool { _, err := store.Load(t.Context(), id); return err == nil }
		for range 2 {
			for id, after := range map[string]time.Duration{"a": time.Minute, "b": time.Second, "c": time.Hour} {
				r := taskOf("ada", "ada", id, 1)
				r.Expires = time.Now().Add(after)
				if err := store.Save(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			for _, step := range []struct {
				pass time.Duration
				left string
			}{{0, "abc"}, {time.Second - 1, "abc"}, {1, "ac"}, {58 * time.Second, "ac"}, {time.Second, "c"}, {59*time.Minute - 1, "c"}, {1, ""}} {
				pass(step.pass)
				var left string
				for _, id := range []string{"a", "b", "c"} {
					if has(id) {
						left += id
					}
				}
				all, err := store.List(t.Context(), "ada", "", 10)
				if left != step.left || err != nil || len(all) != len(left) {
					t.Errorf("got %q and a list of %d, %v, want %q", left, len(all), err, step.left)
				}
			}
		}
	})
}

// The measurements of a server count its connections by their state, in the order of the states' names.
func TestConnectionsAreCountedInOrder(t *testing.T) {
	s := newServer(server.Options{})
	for range 3 {
		dial(t, s).initialize(protocol.Version20251125)
	}
	for range 20 {
		for sample := range s.Samples() {
			if sample.Server == nil {
				continue
			}
			var names []string
			total := 0
			for _, conns := range sample.Server.Conns {
				names, total = append(names, conns.State), total+conns.Count
			}
			if !slices.IsSorted(names) || total != 3 {
				t.Errorf("got %d connections in the states %q, want 3 in order", total, names)
			}
		}
	}
}

// AddTool says what is wrong with an output schema.
func TestOutputSchemasThatCannotBeCompiled(t *testing.T) {
	for _, schema := range []string{`{"type":7}`, `7`, `{"$ref":"#/none"}`} {
		wantPanic(t, schema, "tool", func() {
			server.AddTool(newServer(server.Options{}), protocol.Tool{Name: "t", OutputSchema: json.RawMessage(schema)}, func(context.Context, struct{}) (int, error) { return 0, nil })
		})
	}
}

// A state that a server has sealed means nothing to another one with a secret of its own.
//
// Guarantees: G-0031.4
func TestStatesOfAnotherServerAreRefused(t *testing.T) {
	var runs atomic.Int32
	asking := func() *rawPeer {
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			if found, _ := server.RequestFrom(ctx).State(new(int)); !found {
				return "", &server.InputRequired{State: 7}
			}
			runs.Add(1)
			return "done", nil
		})
		return dial(t, s)
	}
	one, other := asking(), asking()
	state := string(mustEncode(*result[protocol.CallToolResult](one, "tools/call", `"name":"t"`).InputRequired.RequestState))
	other.wantFault(jsonrpc.CodeInvalidParams, modern(`1`, "tools/call", `"name":"t","requestState":`+state))
	if runs.Load() > 0 {
		t.Error("the other server has run the handler")
	}
	one.send(modern(`1`, "tools/call", `"name":"t","requestState":`+state))
	one.want(`"text":"done"`)
}

// A server offers what it has when a client asks, and not what it had when the first one did.
//
// Guarantees: G-0020.5
func TestCapabilitiesFollowTheFeatures(t *testing.T) {
	for name, add := range map[string]func(*server.Server){
		"tools": func(s *server.Server) { addNamed(s, "a") },
		"prompts": func(s *server.Server) {
			server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, struct{}) (string, error) { return "", nil })
		},
		"resources": func(s *server.Server) {
			server.AddResource(s, protocol.Resource{URI: "x://a", Name: "a"}, func(context.Context) (string, error) { return "", nil })
		},
		"resources ": func(s *server.Server) {
			server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "x://{name}", Name: "a"}, func(context.Context, user) (string, error) { return "", nil })
		},
		"completions": func(s *server.Server) {
			server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, struct {
				A string `json:"a" enum:"b"`
			}) (string, error) {
				return "", nil
			})
		},
	} {
		s := newServer(server.Options{})
		w := dial(t, s)
		member := `"` + strings.TrimSpace(name) + `":{`
		for _, want := range []bool{false, true} {
			if got := w.ask(modern(`1`, "server/discover", ``)).text("capabilities"); strings.Contains(got, member) != want {
				t.Errorf("%s: added %t, got the capabilities %s", name, want, got)
			}
			late := dial(t, s)
			late.send(strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1))
			if got := late.next(); strings.Contains(got, member) != want {
				t.Errorf("%s: added %t, got %s", name, want, got)
			}
			add(s)
		}
	}
}

// The record of what an HTTP handler has refused is made with the values of its request.
//
// Guarantees: G-0071.3
func TestRecordsOfRefusalsHaveTheValuesOfTheRequest(t *testing.T) {
	type key struct{}
	values := make(chan any, 1)
	s := newServer(server.Options{Audit: func(ctx context.Context, _ server.Record) { values <- ctx.Value(key{}) }})
	for want, origin := range map[any]*transport.Origin{
		nil: {}, "of the request": {Value: func(of any) any { return map[any]any{key{}: "of the request"}[of] }},
	} {
		if s.Refused(transport.Refusal{Origin: origin, Since: time.Now(), Status: 404}); testenv.Receive(t, values, "a record") != want {
			t.Errorf("the record was not made with the value %v", want)
		}
	}
}
