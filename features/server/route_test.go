package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// routable are the methods that a Route may have, with params for richServer.
var routable = map[string]string{
	protocol.MethodListTools:             ``,
	protocol.MethodCallTool:              `"name":"shout","arguments":{"text":"a"}`,
	protocol.MethodListResources:         ``,
	protocol.MethodListResourceTemplates: ``,
	protocol.MethodReadResource:          `"uri":"test:/one"`,
	protocol.MethodListPrompts:           ``,
	protocol.MethodGetPrompt:             `"name":"greet","arguments":{"Name":"you"}`,
	protocol.MethodComplete:              `"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"Name","value":"y"}`,
}

// richServer has one feature of each kind.
func richServer() *server.Server {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "shout"}, func(_ context.Context, in struct {
		Text string `json:"text"`
	}) (string, error) {
		return strings.ToUpper(in.Text), nil
	})
	server.AddResource(s, protocol.Resource{URI: "test:/one", Name: "one"}, func(context.Context) (string, error) { return "1", nil })
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "test:/all/{N}", Name: "all"}, func(_ context.Context, in struct{ N string }) (string, error) {
		return in.N, nil
	})
	server.AddPrompt(s, protocol.Prompt{Name: "greet"}, func(_ context.Context, in struct{ Name string }) (string, error) {
		return "Hello " + in.Name, nil
	}, server.Completion{Argument: "Name", Values: func(context.Context, string, map[string]string) ([]string, error) { return []string{"you"}, nil }})
	return s
}

// everyCapability are those that the methods of routable need.
func everyCapability() protocol.ServerCapabilities {
	list := &protocol.ListCapability{ListChanged: true}
	return protocol.ServerCapabilities{Tools: list, Prompts: list, Resources: &protocol.ResourcesCapability{ListChanged: true}, Completions: &protocol.Capability{}}
}

// routedTo returns a server that passes all that is routable on to another one, in one revision.
func routedTo(t *testing.T, to *server.Server, version string) *server.Server {
	t.Helper()
	session := open(t, inmem.New(to.Accept, inmem.Options{}), client.Options{ProtocolVersion: version})
	route := make(map[string]server.RawHandler)
	for method := range routable {
		route[method] = func(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
			return session.Request(ctx, method, params)
		}
	}
	return newServer(server.Options{Route: route, Capabilities: everyCapability()})
}

// A routed method is the same on the wire as that of the typed server that it leads to, whatever revisions the two links have.
//
// Guarantees: G-0089.1, G-0089.2
func TestRoutedMethodsAnswerAsTypedOnes(t *testing.T) {
	for _, version := range protocol.Versions() {
		for _, between := range []string{protocol.Latest, protocol.LatestLegacy} {
			t.Run(version+" over "+between, func(t *testing.T) {
				typed, routed := dial(t, richServer()), dial(t, routedTo(t, richServer(), between))
				if protocol.IsLegacy(version) {
					typed.initialize(version)
					routed.initialize(version)
				}
				for method, params := range routable {
					frame := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `}}`
					if protocol.IsModern(version) {
						frame = modern(`1`, method, params)
					}
					want, got := typed.ask(frame), routed.ask(frame)
					if !reflect.DeepEqual(plain(t, want), plain(t, got)) {
						t.Errorf("%s\ngot  %s %v\nwant %s %v", method, got.Result, got.Error, want.Result, want.Error)
					}
				}
			})
		}
	}
}

// plain decodes a response wholly, without the revision's own address of the server.
func plain(t *testing.T, r response) (value any) {
	t.Helper()
	if r.Error == nil && string(r.Result["_meta"]) == "{}" {
		delete(r.Result, "_meta")
	}
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// What a server refuses never comes to a Route.
//
// Guarantees: G-0089.1
func TestChecksComeBeforeTheRoute(t *testing.T) {
	var served atomic.Int32
	route := make(map[string]server.RawHandler)
	for method := range routable {
		route[method] = func(context.Context, json.RawMessage) (json.RawMessage, error) {
			served.Add(1)
			return json.RawMessage(`{"tools":[]}`), nil
		}
	}
	without := newServer(server.Options{Route: route})
	full := newServer(server.Options{Route: route, Capabilities: everyCapability(), ProtocolVersions: []string{protocol.Version20241105, protocol.Latest}})
	w := dial(t, without)
	for method, params := range routable {
		w.wantFault(jsonrpc.CodeMethodNotFound, modern(`1`, method, params)) // no such capability
	}
	w = dial(t, full)
	w.wantFault(jsonrpc.CodeInvalidRequest, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`) // before initialize
	w.wantFault(protocol.CodeUnsupportedVersion, strings.Replace(modern(`1`, "tools/list", ``), "2026-07-28", "2030-01-01", 1))
	w.wantFault(jsonrpc.CodeInvalidParams, modern(`1`, "tools/call", `"name":"a","name":"b"`))
	w.wantFault(jsonrpc.CodeInvalidParams, modern(`1`, "tools/call", `"name":"a","requestState":"forged"`))
	if served.Load() > 0 {
		t.Errorf("%d requests came to the route", served.Load())
	}
	if w.ask(modern(`1`, "tools/list", ``)).Error != nil || served.Load() != 1 {
		t.Error("a good request did not come to the route")
	}
}

// askingRoute serves tools/call with a handler that asks, and returns what the user said.
func askingRoute() server.Options {
	return server.Options{Capabilities: everyCapability(), Route: map[string]server.RawHandler{
		protocol.MethodCallTool: func(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
			server.Progress(ctx, 1, 2, "asking")
			server.Logger(ctx).Warn("asking")
			if err := server.Confirm(ctx, "really?"); err != nil {
				return nil, err
			}
			return json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, params)), nil
		},
	}}
}

// A RawHandler asks, reports and logs as any other handler does, in every revision that can be asked.
//
// Guarantees: G-0089.3
func TestARouteAsksItsClient(t *testing.T) {
	asked, reported := 0, 0
	o := client.Options{LogLevel: protocol.LogDebug, Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		asked++
		return client.Accept(struct{}{})
	}}
	everywhereSince(t, protocol.Version20250618, func() *server.Server { return newServer(askingRoute()) }, o, func(t *testing.T, _ *server.Server, session *client.Session) {
		asked, reported = 0, 0
		session = session.With(client.CallOptions{OnProgress: func(*protocol.ProgressParams) { reported++ }})
		result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "any", Arguments: json.RawMessage(`{"a":1}`)})
		switch {
		case err != nil:
			t.Fatal(err)
		case asked != 1 || reported != 1:
			t.Errorf("it asked %d times and reported %d times, want once each", asked, reported)
		case !strings.Contains(result.Content.Text(), `"arguments":{"a":1}`) || strings.Contains(result.Content.Text(), "requestState"):
			t.Errorf("the handler got %s", result.Content.Text())
		}
	})
}

// A RawHandler may return its questions, with a state that comes back with the answers.
//
// Guarantees: G-0089.3
func TestARouteReturnsQuestions(t *testing.T) {
	o := askingRoute()
	o.Route[protocol.MethodCallTool] = func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		r := server.RequestFrom(ctx)
		var round int
		if _, err := r.State(&round); err != nil {
			return nil, err
		}
		if round < 2 {
			return nil, &server.InputRequired{State: round + 1, Requests: protocol.InputRequests{"q": &protocol.ElicitParams{Message: "really?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)}}}
		}
		return json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":"%d %d"}]}`, round, len(r.Answers))), nil
	}
	answer := client.Options{Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		return client.Accept(struct{}{})
	}}
	everywhereSince(t, protocol.Version20250618, func() *server.Server { return newServer(o) }, answer, func(t *testing.T, _ *server.Server, session *client.Session) {
		result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "any"})
		if err != nil || result.Content.Text() != "2 1" {
			t.Errorf("got %v, %v", result, err)
		}
	})
}

// A round that its handler wants here comes here, and nowhere else: the state names the node, another process refuses it without running the handler, and here it is
// good for one run. That holds for a route and for a tool.
//
// Guarantees: G-0031.21
func TestARoundThatIsForOneProcess(t *testing.T) {
	var runs atomic.Int64
	again := func(ctx context.Context) (string, error) {
		runs.Add(1)
		var round int
		if _, err := server.RequestFrom(ctx).State(&round); err != nil || round == 2 {
			return "done", err
		}
		return "", &server.InputRequired{State: round + 1, Requests: question("q"), Here: true}
	}
	for _, isRoute := range []bool{false, true} {
		for _, name := range []string{"one", ""} {
			process := func() *rawPeer {
				o := server.Options{Node: name, Asking: server.AskingOptions{Fleet: name != "", Secrets: fixed(make([]byte, 32))}}
				if isRoute {
					o.Capabilities = protocol.ServerCapabilities{Tools: &protocol.ListCapability{}}
					o.Route = map[string]server.RawHandler{protocol.MethodCallTool: func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
						text, err := again(ctx)
						return json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, text)), err
					}}
				}
				s := newServer(o)
				t.Cleanup(func() { s.Close(context.Background()) })
				if !isRoute {
					server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) { return again(ctx) })
				}
				return dial(t, s)
			}
			here, other := process(), process()
			runs.Store(0)
			last := here.round("t", "")
			for round := range int64(2) {
				if node := nodename.OfState(last.State); node != name {
					t.Errorf("route %t: the state names %q, want %q", isRoute, node, name)
				}
				answers := retryParams(last.State, `"q":{"action":"accept","content":{"a":"x"}}`)
				want := "because its node has ended"
				if name == "" {
					want = "the call waits on another node"
				}
				if got := other.round("t", answers); !got.Error.is(jsonrpc.CodeInvalidParams, want) || runs.Load() != round+1 {
					t.Errorf("route %t, at another process: %+v after %d runs, want %q", isRoute, got, runs.Load(), want)
				}
				last = here.round("t", answers)
				if got := here.round("t", answers); !got.Error.is(jsonrpc.CodeInvalidParams, "was used") || runs.Load() != round+2 {
					t.Errorf("route %t, the same again: %+v after %d runs", isRoute, got, runs.Load())
				}
			}
			if !strings.Contains(last.Text, "done") {
				t.Errorf("route %t: it ends with %+v", isRoute, last)
			}
		}
	}
}

// A call of which the program says that it does not ask cannot ask, and needs no place among those that wait. It may return questions.
//
// Guarantees: G-0089.6
func TestARouteThatDoesNotAsk(t *testing.T) {
	full := askingRoute()
	full.Asking.MaxWaitingBytes = 1 // no place for any call
	full.RouteAsks = func(ctx context.Context, method string, params json.RawMessage) bool {
		if method != protocol.MethodCallTool || server.RequestFrom(ctx) == nil {
			t.Errorf("RouteAsks was called for %s, or in no request", method)
		}
		return strings.Contains(string(params), `"asks"`)
	}
	full.Route[protocol.MethodCallTool] = func(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
		err := server.Confirm(ctx, "really?")
		switch {
		case len(server.RequestFrom(ctx).Answers) > 0:
			return json.RawMessage(`{"content":[{"type":"text","text":"answered"}]}`), nil
		case !errors.Is(err, server.ErrNotAsking):
			return nil, fmt.Errorf("it may ask: %w", err)
		}
		return nil, &server.InputRequired{Requests: protocol.InputRequests{"q": &protocol.ElicitParams{Message: "really?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)}}}
	}
	answer := client.Options{Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		return client.Accept(struct{}{})
	}}
	everywhereSince(t, protocol.Version20250618, func() *server.Server { return newServer(full) }, answer, func(t *testing.T, _ *server.Server, session *client.Session) {
		result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "any"})
		if err != nil || result.Content.Text() != "answered" {
			t.Errorf("got %v, %v", result, err)
		}
		if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "asks"}); err == nil {
			t.Error("a call that asks has succeeded, without a place or with ErrNotAsking")
		}
	})
}

// A call that waits for an answer goes on with it, whatever the program says of calls by then.
//
// Guarantees: G-0089.3
func TestARouteThatAskedGoesOn(t *testing.T) {
	answer := client.Options{Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		return client.Accept(struct{}{})
	}}
	asking := func() *server.Server {
		o, first := askingRoute(), new(atomic.Bool)
		o.RouteAsks = func(context.Context, string, json.RawMessage) bool { return first.CompareAndSwap(false, true) }
		return newServer(o)
	}
	everywhereSince(t, protocol.Version20250618, asking, answer, func(t *testing.T, _ *server.Server, session *client.Session) {
		if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "any"}); err != nil {
			t.Error(err)
		}
	})
}

// Guarantees: G-0089.2
func TestARouteThatReturnsNoObjectFails(t *testing.T) {
	for _, result := range []json.RawMessage{nil, json.RawMessage(`[]`), json.RawMessage(`{`)} {
		o := askingRoute()
		o.Route[protocol.MethodListTools] = func(context.Context, json.RawMessage) (json.RawMessage, error) { return result, nil }
		dial(t, newServer(o)).wantFault(jsonrpc.CodeInternalError, modern(`1`, "tools/list", ``))
	}
}

// New panics for methods that a Route cannot have.
func TestARouteHasOnlyMethodsOfFeatures(t *testing.T) {
	serve := func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil }
	for name, handler := range map[string]server.RawHandler{
		protocol.MethodInitialize: serve, protocol.MethodDiscover: serve, protocol.MethodSetLogLevel: serve, protocol.MethodSubscribe: serve,
		protocol.MethodUnsubscribe: serve, protocol.MethodListen: serve, "own/method": serve, protocol.MethodListTools: nil,
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is accepted", name)
				}
			}()
			newServer(server.Options{Route: map[string]server.RawHandler{name: handler}})
		}()
	}
}

// In a fleet a routed call that may ask needs the name of its node, as a feature that waits does. One that cannot ask needs none.
func TestRoutesOfAFleetHaveANode(t *testing.T) {
	serve := func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil }
	in := func(method string) server.Options {
		secret := func() [][]byte { return [][]byte{[]byte(strings.Repeat("s", 32))} }
		return server.Options{Asking: server.AskingOptions{Fleet: true, Secrets: secret}, Route: map[string]server.RawHandler{method: serve}}
	}
	for _, method := range []string{protocol.MethodCallTool, protocol.MethodGetPrompt, protocol.MethodReadResource, protocol.MethodGetTaskResult} {
		wantPanic(t, method, `Route "`+method+`": in a Fleet`, func() { newServer(in(method)) })
	}
	newServer(in(protocol.MethodListTools))
}
