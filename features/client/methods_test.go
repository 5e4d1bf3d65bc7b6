package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

const allCapabilities = `{"tools":{},"prompts":{},"resources":{"subscribe":true},"completions":{},"logging":{}}`

// allAnswers returns the answers of a server of one revision. It answers each method
// with a result, of two pages if the method has pages.
func allAnswers(version string) func(frame) []string {
	paged := func(f frame, member, item string) []string {
		if cursorOf(f) == "none" {
			return []string{f.result(fmt.Sprintf(`{%q:[%s],"nextCursor":"","resultType":"complete"}`, member, fmt.Sprintf(item, 1)))}
		}
		return []string{f.result(fmt.Sprintf(`{%q:[%s],"resultType":"complete"}`, member, fmt.Sprintf(item, 2)))}
	}
	return func(f frame) []string {
		switch f.Method {
		case protocol.MethodDiscover:
			return []string{f.result(`{"supportedVersions":["` + version + `"],"capabilities":` + allCapabilities + `}`)}
		case protocol.MethodInitialize:
			return f.initialized(version, allCapabilities)
		case protocol.MethodListTools:
			return paged(f, "tools", `{"name":"tool %d","inputSchema":{}}`)
		case protocol.MethodListResources:
			return paged(f, "resources", `{"name":"r","uri":"file:///%d"}`)
		case protocol.MethodListResourceTemplates:
			return paged(f, "resourceTemplates", `{"name":"t","uriTemplate":"file:///%d/{x}"}`)
		case protocol.MethodListPrompts:
			return paged(f, "prompts", `{"name":"prompt %d"}`)
		case protocol.MethodReadResource:
			var params protocol.ReadResourceParams
			if json.Unmarshal(f.Params, &params) == nil && params.URI == "file:///nothing" {
				return []string{f.fault(-32602, `{"uri":"file:///nothing"}`)}
			}
			return []string{f.result(`{"contents":[{"uri":"file:///1","text":"content"}]}`)}
		case protocol.MethodGetPrompt:
			return []string{f.result(`{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"review"}}]}`)}
		case protocol.MethodComplete:
			return []string{f.result(`{"completion":{"values":["short","shorter"],"total":2}}`)}
		case protocol.MethodCallTool:
			return []string{f.result(`{"content":[{"type":"text","text":"{\"result\":[1,2]}"}]}`)}
		case "latin/translate":
			return []string{f.result(`{"text":"salve"}`)}
		case protocol.MethodSetLogLevel, protocol.MethodSubscribe, protocol.MethodUnsubscribe, protocol.MethodPing:
			return []string{f.result(`{}`)}
		case protocol.MethodListen:
			return nil
		}
		if f.ID == nil {
			return nil
		}
		return []string{f.fault(-32601, `null`)}
	}
}

// playScript serves everything on standard input and output.
func playScript(version string) {
	answer := allAnswers(version)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var f frame
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
			panic(err)
		}
		for _, reply := range answer(f) {
			fmt.Println(reply)
		}
	}
}

// scriptedSite serves everything over HTTP, and records the Mcp-Name headers.
func scriptedSite(t *testing.T, version string) (*streamable.Client, *[]string) {
	t.Helper()
	answer, names := allAnswers(version), new([]string)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var f frame
		if err != nil || r.Method != http.MethodPost || json.Unmarshal(body, &f) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if name := r.Header.Get("Mcp-Name"); name != "" {
			*names = append(*names, name)
		}
		replies := answer(f)
		if len(replies) == 0 {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, replies[0])
	}))
	t.Cleanup(site.Close)
	return &streamable.Client{URL: site.URL}, names
}

// overStdioAndHTTP runs a test against a server with all features, in every revision, as a
// child process and over HTTP.
func overStdioAndHTTP(t *testing.T, o client.Options, test func(t *testing.T, session *client.Session)) {
	for _, version := range protocol.Versions() {
		for _, over := range []string{"stdio", "HTTP"} {
			t.Run(version+" over "+over, func(t *testing.T) {
				var to transport.Transport
				if over == "stdio" {
					self, err := os.Executable()
					if err != nil {
						t.Fatal(err)
					}
					to = &stdio.Command{Path: self, Env: append(os.Environ(), roleVariable+"=script", versionVariable+"="+version)}
				} else if to, _ = scriptedSite(t, version); version == protocol.Version20241105 {
					return // over HTTP this revision has another transport
				}
				o := o
				o.ProtocolVersion = version
				session, err := client.New(clientInfo, o).Connect(timeoutContext(t), specification.WatchClient(t, to))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { session.Close(context.Background()) })
				test(t, session)
			})
		}
	}
}

// Each list method returns all pages.
func TestEveryList(t *testing.T) {
	overStdioAndHTTP(t, client.Options{}, func(t *testing.T, s *client.Session) {
		var got []string
		for tool, err := range s.Tools(timeoutContext(t)) {
			got = append(got, fmt.Sprint(tool.Name, err))
		}
		for resource, err := range s.Resources(timeoutContext(t)) {
			got = append(got, fmt.Sprint(resource.URI, err))
		}
		for template, err := range s.ResourceTemplates(timeoutContext(t)) {
			got = append(got, fmt.Sprint(template.URITemplate, err))
		}
		for prompt, err := range s.Prompts(timeoutContext(t)) {
			got = append(got, fmt.Sprint(prompt.Name, err))
		}
		want := []string{"tool 1<nil>", "tool 2<nil>", "file:///1<nil>", "file:///2<nil>",
			"file:///1/{x}<nil>", "file:///2/{x}<nil>", "prompt 1<nil>", "prompt 2<nil>"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %v", got, want)
		}
	})
}

// Each method returns its result, and an error for what does not exist.
func TestEveryMethod(t *testing.T) {
	overStdioAndHTTP(t, client.Options{}, func(t *testing.T, s *client.Session) {
		ctx, version := timeoutContext(t), s.Server().ProtocolVersion
		if read, err := s.ReadResource(ctx, &protocol.ReadResourceParams{URI: "file:///1"}); err != nil || read.Text() != "content" {
			t.Errorf("ReadResource: got %+v, %v, want %q", read, err, "content")
		}
		if _, err := s.ReadResource(ctx, &protocol.ReadResourceParams{URI: "file:///nothing"}); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("ReadResource of nothing: %v, want %v", err, client.ErrNotFound)
		}
		prompt, err := s.GetPrompt(ctx, &protocol.GetPromptParams{Name: "p", Arguments: map[string]string{"a": "b"}})
		if err != nil || len(prompt.Messages) != 1 {
			t.Errorf("GetPrompt: got %+v, %v, want 1 element", prompt, err)
		}
		if got, err := s.Complete(ctx, &protocol.CompleteParams{Ref: protocol.CompleteReference{Name: "p"}}); err != nil || len(got.Completion.Values) != 2 {
			t.Errorf("Complete: got %+v, %v, want 2 elements", got, err)
		}
		if err := s.SetLogLevel(ctx, protocol.LogWarning); err != nil {
			t.Errorf("SetLogLevel: %v", err)
		}
		if err := s.SetLogLevel(ctx, "loud"); !client.NotExecuted(err) {
			t.Errorf("SetLogLevel of an unknown level: %v", err)
		}
		if raw, err := s.Request(ctx, "latin/translate", map[string]string{"text": "hello"}); err != nil || string(raw) != `{"text":"salve"}` {
			t.Errorf("Request: %s, %v, want %q", raw, err, `{"text":"salve"}`)
		}
		if raw, err := s.Request(ctx, "latin/translate", json.RawMessage("\n {\"text\":\"hello\"}")); err != nil || string(raw) != `{"text":"salve"}` {
			t.Errorf("Request with white space: %s, %v, want %q", raw, err, `{"text":"salve"}`)
		}
		if _, err := s.Request(ctx, "no/such", nil); !errors.Is(err, client.ErrUnsupported) {
			t.Errorf("Request of an unknown method: %v, want %v", err, client.ErrUnsupported)
		}
		if _, err := s.Request(ctx, "no/such", []int{1}); !client.NotExecuted(err) {
			t.Errorf("Request with params that are no object: %v", err)
		}
		if numbers, err := client.Call[[]int](ctx, s, "numbers", nil); err != nil || !slices.Equal(numbers, []int{1, 2}) {
			t.Errorf("Call: %v, %v, want %v", numbers, err, []int{1, 2})
		}
		if protocol.IsModern(version) {
			return
		}
		if err := s.Subscribe(ctx, &protocol.SubscribeParams{URI: "file:///1"}); err != nil {
			t.Errorf("Subscribe: %v", err)
		}
		if err := s.Unsubscribe(ctx, &protocol.UnsubscribeParams{URI: "file:///1"}); err != nil {
			t.Errorf("Unsubscribe: %v", err)
		}
	})
}

// Mcp-Name contains what a request is about, even for methods that this package does
// not know.
func TestNamesAreMirrored(t *testing.T) {
	to, names := scriptedSite(t, protocol.Latest)
	s, err := client.New(clientInfo, client.Options{}).Connect(timeoutContext(t), specification.WatchClient(t, to))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	ctx := timeoutContext(t)
	_, _ = s.CallTool(ctx, &protocol.CallToolParams{Name: "tool"})
	_, _ = s.GetPrompt(ctx, &protocol.GetPromptParams{Name: "prompt"})
	_, _ = s.ReadResource(ctx, &protocol.ReadResourceParams{URI: "file:///a%20b"})
	_, _ = s.Request(ctx, protocol.MethodCallTool, &protocol.CallToolParams{Name: "raw"})
	_, _ = s.ListTools(ctx, nil)
	if want := []string{"tool", "prompt", "file:///a%20b", "raw"}; !slices.Equal(*names, want) {
		t.Errorf("got %q, want %v", *names, want)
	}
}

// Each request passes each middleware once, the first listed outermost, and all of its
// attempts are inside.
//
// Guarantees: G-0030.8
func TestMiddleware(t *testing.T) {
	var passed []string
	noting := func(name string) client.Middleware {
		return func(next client.Handler) client.Handler {
			passed = append(passed, "made "+name)
			return func(ctx context.Context, r *client.Request) (any, error) {
				passed = append(passed, fmt.Sprintf("%s %s %T incoming=%t notification=%t", name, r.Method, r.Params, r.Incoming, r.Notification))
				result, err := next(ctx, r)
				passed = append(passed, fmt.Sprintf("%s %T %v", name, result, err))
				return result, err
			}
		}
	}
	answered := make(chan frame, 1)
	s := &fakeServer{answer: func(f frame) []string {
		if f.Method == "" {
			answered <- f
		}
		return allAnswers(protocol.LatestLegacy)(f)
	}}
	reported := make(chan client.Event, 1)
	session := openFake(t, s, client.Options{
		Middleware: []client.Middleware{noting("outer"), noting("inner")},
		Roots:      func(context.Context, *client.Session) ([]protocol.Root, error) { return nil, nil },
		OnEvent:    func(_ context.Context, _ *client.Session, e client.Event) { reported <- e },
	})
	check := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(passed, want) {
			t.Errorf("%s: passed\n%s, want %v", what, strings.Join(passed, "\n"), want)
		}
		passed = nil
	}
	check("New", "made inner", "made outer")
	if _, err := session.ListTools(t.Context(), nil); err != nil {
		t.Error(err)
	}
	check("a call",
		"outer tools/list *protocol.ListToolsParams incoming=false notification=false",
		"inner tools/list *protocol.ListToolsParams incoming=false notification=false",
		"inner *protocol.ListToolsResult <nil>", "outer *protocol.ListToolsResult <nil>")
	if _, err := session.Request(t.Context(), "latin/translate", nil); err != nil {
		t.Error(err)
	}
	check("a raw request",
		"outer latin/translate json.RawMessage incoming=false notification=false",
		"inner latin/translate json.RawMessage incoming=false notification=false",
		"inner json.RawMessage <nil>", "outer json.RawMessage <nil>")
	if err := session.Notify(t.Context(), "notifications/latin", nil); err != nil {
		t.Error(err)
	}
	check("a notification of ours",
		"outer notifications/latin json.RawMessage incoming=false notification=true",
		"inner notifications/latin json.RawMessage incoming=false notification=true",
		"inner <nil> <nil>", "outer <nil> <nil>")
	s.sendFrame(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
	if got := <-answered; string(got.ID) != `"q"` {
		t.Errorf("answered %+v", got)
	}
	check("a question",
		"outer roots/list *protocol.ListRootsParams incoming=true notification=false",
		"inner roots/list *protocol.ListRootsParams incoming=true notification=false",
		"inner *protocol.ListRootsResult <nil>", "outer *protocol.ListRootsResult <nil>")
	s.sendFrame(announcement)
	<-reported
}

// A middleware may call next several times. Each call returns a result of its own. A Request
// that it has made itself is refused, since nobody would learn what became of it.
func TestMiddlewareThatCallsNextAgain(t *testing.T) {
	s := &fakeServer{answer: func(f frame) []string {
		switch f.Method {
		case protocol.MethodInitialize:
			return f.initialized(protocol.LatestLegacy, withTools)
		case protocol.MethodCallTool:
			return []string{f.result(`{"content":[{"type":"text","text":"` + string(f.ID) + `"}]}`)}
		default:
			return nil
		}
	}}
	var texts, kept []string
	again := func(next client.Handler) client.Handler {
		return func(ctx context.Context, r *client.Request) (any, error) {
			copied := *r
			var results []*protocol.CallToolResult
			for _, request := range []*client.Request{r, r, &copied} {
				result, err := next(ctx, request)
				called, ok := result.(*protocol.CallToolResult)
				if !ok {
					return nil, fmt.Errorf("got %T, %w", result, err)
				}
				if results, texts = append(results, called), append(texts, called.Content.Text()); request.ID() == 0 {
					t.Errorf("request %d has no id", len(results))
				}
			}
			for _, result := range results {
				kept = append(kept, result.Content.Text())
			}
			own := &client.Request{Method: r.Method, Params: r.Params, Session: r.Session}
			if result, err := next(ctx, own); result != nil || !client.NotExecuted(err) || !strings.Contains(err.Error(), "copy the one") {
				t.Errorf("a Request of its own: got %v, %v, want an error that says what to do", result, err)
			}
			return results[0], nil
		}
	}
	session := openFake(t, s, client.Options{ProtocolVersion: protocol.LatestLegacy, Middleware: []client.Middleware{again}})
	result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "x"})
	if err != nil || result.Content.Text() != texts[0] {
		t.Errorf("got %+v, %v, want the first of %q", result, err, texts)
	}
	if !slices.Equal(texts, kept) || len(slices.Compact(slices.Sorted(slices.Values(kept)))) != len(kept) {
		t.Errorf("the results are %q at the end, were %q", kept, texts)
	}
}

// A middleware that returns a value of the wrong type causes an error of that call, and
// no panic.
func TestMiddlewareThatReturnsTheWrongType(t *testing.T) {
	for name, result := range map[string]any{"nothing": nil, "another type": 7, "a nil result": (*protocol.CallToolResult)(nil)} {
		session := openFake(t, &fakeServer{answer: allAnswers(protocol.LatestLegacy)}, client.Options{Middleware: []client.Middleware{
			func(client.Handler) client.Handler {
				return func(context.Context, *client.Request) (any, error) { return result, nil }
			},
		}})
		if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "x"}); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
		if _, err := session.Request(t.Context(), "x", nil); err == nil {
			t.Errorf("%s: got no error for a raw request, want one", name)
		}
		asking := openFake(t, askingServer(`{"a":{"method":"roots/list","params":{}}}`, nil), client.Options{
			ProtocolVersion: protocol.Latest, Roots: func(context.Context, *client.Session) ([]protocol.Root, error) { return nil, nil },
			Middleware: []client.Middleware{func(next client.Handler) client.Handler {
				return func(ctx context.Context, r *client.Request) (any, error) {
					if r.Incoming && !r.Notification {
						return result, nil
					}
					return next(ctx, r)
				}
			}},
		})
		if _, err := callTool(t, asking, "x", ""); !errors.As(err, new(*client.InputError)) {
			t.Errorf("%s, for a question: got %v, want a *client.InputError", name, err)
		}
	}
}

// A list can consist of pages that a middleware has returned.
func TestListsOfMiddleware(t *testing.T) {
	session := openFake(t, &fakeServer{answer: allAnswers(protocol.LatestLegacy)}, client.Options{Middleware: []client.Middleware{
		client.On(func(_ context.Context, p *protocol.ListToolsParams, _ func(context.Context, *protocol.ListToolsParams) (*protocol.ListToolsResult, error)) (*protocol.ListToolsResult, error) {
			next := "2"
			if p.Cursor != nil {
				return &protocol.ListToolsResult{Tools: []*protocol.Tool{{Name: "b"}}}, nil
			}
			return &protocol.ListToolsResult{Tools: []*protocol.Tool{{Name: "a"}}, NextCursor: &next}, nil
		}),
	}})
	if names, err := toolNames(t, session); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("got %q, %v, want %v", names, err, []string{"a", "b"})
	}
}

// A request for a feature that the server does not offer fails with ErrUnsupported, and
// is not sent.
func TestRequestNeedsTheCapability(t *testing.T) {
	s := &fakeServer{answer: func(f frame) []string {
		if f.Method == protocol.MethodInitialize {
			return f.initialized(protocol.LatestLegacy, `{}`)
		}
		return nil
	}}
	session := openFake(t, s, client.Options{})
	ctx := t.Context()
	_, resources := session.ListResources(ctx, nil)
	_, templates := session.ListResourceTemplates(ctx, nil)
	_, read := session.ReadResource(ctx, nil)
	_, prompts := session.ListPrompts(ctx, nil)
	_, prompt := session.GetPrompt(ctx, nil)
	_, complete := session.Complete(ctx, nil)
	for capability, err := range map[string]error{
		"resources": errors.Join(resources, templates, read), "prompts": errors.Join(prompts, prompt), "completions": complete,
		"logging":             session.SetLogLevel(ctx, protocol.LogInfo),
		"resources.subscribe": session.Subscribe(ctx, &protocol.SubscribeParams{URI: "file:///1"}),
	} {
		var missing *client.CapabilityError
		if !errors.As(err, &missing) || missing.Capability != capability || !errors.Is(err, client.ErrUnsupported) || !client.NotExecuted(err) {
			t.Errorf("%s: got %v", capability, err)
		}
	}
	for _, sent := range s.methods() {
		if sent != protocol.MethodInitialize && sent != protocol.NotificationInitialized {
			t.Errorf("sent %q", sent)
		}
	}
}

// errors.Is distinguishes the kinds of failure through a CallError.
func TestErrorsMatch(t *testing.T) {
	for name, test := range map[string]struct {
		fault  *jsonrpc.Error
		method string
		want   error
	}{
		"not found, legacy":        {&jsonrpc.Error{Code: -32002, Message: "no"}, protocol.MethodReadResource, client.ErrNotFound},
		"not found, of a tool":     {&jsonrpc.Error{Code: -32002, Message: "no"}, protocol.MethodCallTool, nil},
		"method not found":         {&jsonrpc.Error{Code: -32601, Message: "no"}, protocol.MethodCallTool, client.ErrUnsupported},
		"params without resource":  {&jsonrpc.Error{Code: -32602, Message: "no"}, protocol.MethodReadResource, nil},
		"an error of the server's": {&jsonrpc.Error{Code: -32603, Message: "no"}, protocol.MethodReadResource, nil},
	} {
		s := &fakeServer{answer: func(f frame) []string {
			if f.Method == test.method {
				return []string{f.fault(test.fault.Code, `null`)}
			}
			return allAnswers(protocol.LatestLegacy)(f)
		}}
		session := openFake(t, s, client.Options{})
		_, err := session.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: "a"})
		if test.method == protocol.MethodCallTool {
			_, err = session.CallTool(t.Context(), &protocol.CallToolParams{Name: "a"})
		}
		var failed *client.CallError
		if !errors.As(err, &failed) || !errors.Is(err, test.fault) {
			t.Errorf("%s: got %v, want a *client.CallError and the error %v", name, err, test.fault)
		}
		for _, kind := range []error{client.ErrNotFound, client.ErrUnsupported, client.ErrLost, client.ErrClosed, client.ErrUnavailable, client.ErrTimedOut, client.ErrStale} {
			if errors.Is(err, kind) != (kind == test.want) {
				t.Errorf("%s: matching %v: %t", name, kind, kind != test.want)
			}
		}
	}
}

// Over HTTP the client mirrors arguments as the tool's annotations say, lists the tools
// again if it does not have the annotations, and leaves out tools with invalid
// annotations. Other transports have no headers, so there it keeps all tools.
func TestMirroredArguments(t *testing.T) {
	var headers []string
	answer := func(f frame) []string {
		if f.Method != protocol.MethodListTools {
			return allAnswers(protocol.Latest)(f)
		}
		return []string{f.result(`{"resultType":"complete","tools":[` +
			`{"name":"good","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}},` +
			`{"name":"bad","inputSchema":{"type":"object","properties":{"region":{"type":"number","x-mcp-header":"Region"}}}}]}`)}
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var f frame
		body, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(body, &f) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		region, given := r.Header["Mcp-Param-Region"]
		if f.Method == protocol.MethodCallTool {
			headers = append(headers, fmt.Sprint(region, given))
		}
		if f.Method == protocol.MethodCallTool && !given {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, f.fault(protocol.CodeHeaderMismatch, `null`))
			return
		}
		_, _ = io.WriteString(w, answer(f)[0])
	}))
	defer site.Close()
	session, err := client.New(clientInfo, client.Options{ProtocolVersion: protocol.Latest}).Connect(timeoutContext(t), specification.WatchClient(t, &streamable.Client{URL: site.URL}))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	call := &protocol.CallToolParams{Name: "good", Arguments: json.RawMessage(`{"region":"Oslo "}`)}
	for range 2 {
		if _, err := session.CallTool(timeoutContext(t), call); err != nil {
			t.Error(err)
		}
	}
	if _, err := session.CallTool(timeoutContext(t), &protocol.CallToolParams{Name: "good"}); !errors.Is(err, &jsonrpc.Error{Code: protocol.CodeHeaderMismatch}) {
		t.Errorf("a call that is refused twice: %v", err)
	}
	if want := []string{"[] false", "[=?base64?T3NsbyA=?=] true", "[=?base64?T3NsbyA=?=] true", "[] false", "[] false"}; !slices.Equal(headers, want) {
		t.Errorf("got the headers %q, want %v", headers, want)
	}
	if names, err := toolNames(t, session); err != nil || !slices.Equal(names, []string{"good"}) {
		t.Errorf("over HTTP got the tools %q, %v, want %v", names, err, []string{"good"})
	}
	elsewhere := openFake(t, &fakeServer{answer: answer}, client.Options{ProtocolVersion: protocol.Latest})
	if names, err := toolNames(t, elsewhere); err != nil || !slices.Equal(names, []string{"good", "bad"}) {
		t.Errorf("in memory got the tools %q, %v, want %v", names, err, []string{"good", "bad"})
	}
}

// Where nothing is mirrored, a list of the tools would change nothing for a call that was refused because of its headers.
func TestRefusedHeadersWhereThereAreNone(t *testing.T) {
	s := &fakeServer{answer: allAnswers(protocol.Latest)}
	s.on(protocol.MethodCallTool, func(f frame, _ func(frame) []string) []string {
		return []string{f.fault(protocol.CodeHeaderMismatch, `null`)}
	})
	session := openFake(t, s, client.Options{ProtocolVersion: protocol.Latest})
	if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "x"}); !errors.Is(err, &jsonrpc.Error{Code: protocol.CodeHeaderMismatch}) {
		t.Errorf("got %v, want the error of the server", err)
	}
	if sent, want := s.methods(), []string{protocol.MethodDiscover, protocol.MethodCallTool}; !slices.Equal(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
}
