package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
)

// form has the fields that the answers of these tests fill in.
const form = `{"type":"object","properties":{` +
	`"size":{"type":"string","enum":["small","large"],"default":"small"},` +
	`"count":{"type":"integer","minimum":1,"default":2},` +
	`"ratio":{"type":"number"},` +
	`"extras":{"type":"array","items":{"type":"string","enum":["a","b"]},"minItems":1}},"required":["size"]}`

var elicitForm = `{"message":"Which?","requestedSchema":` + form + `}`

const (
	elicitURL  = `{"mode":"url","message":"Open","url":"https://example.com/x","elicitationId":"1"}`
	sampleText = `{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":5}`
	sampleTool = `{"messages":[],"maxTokens":5,"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`
)

// answers returns handlers that count their calls.
func answers(called *atomic.Int64) client.Options {
	return client.Options{
		Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			called.Add(1)
			return client.Accept(map[string]any{"ratio": 0.5})
		},
		ElicitURL: func(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			called.Add(1)
			if p.URL != "https://example.com/x" {
				return client.Decline()
			}
			return client.Accept(nil)
		},
		Sample: func(_ context.Context, _ *client.Session, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			called.Add(1)
			return &protocol.CreateMessageResult{Role: "assistant", Model: "m", Content: protocol.SamplingContents{protocol.Text("hello")}}, nil
		},
		Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
			called.Add(1)
			return []protocol.Root{{URI: "file:///home"}}, nil
		},
	}
}

// asked sends a question to a legacy client and returns its response: the result, or
// "error" and the code.
func asked(t *testing.T, o client.Options, method, params string) string {
	t.Helper()
	return askedIn(t, protocol.LatestLegacy, o, method, params)
}

// askedIn is asked for a given legacy revision.
func askedIn(t *testing.T, revision string, o client.Options, method, params string) string {
	t.Helper()
	answered := make(chan string, 1)
	s := &fakeServer{answer: func(f frame) []string {
		if f.Method == "" {
			answered <- string(f.Raw)
		}
		return allAnswers(revision)(f)
	}}
	session := openFake(t, s, o)
	s.sendFrame(`{"jsonrpc":"2.0","id":"q","method":"` + method + `","params":` + params + `}`)
	var response struct {
		Result json.RawMessage
		Error  *struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal([]byte(<-answered), &response); err != nil {
		t.Fatal(err)
	}
	session.Close(context.Background())
	if response.Error != nil && response.Error.Message == "" {
		t.Errorf("%s with %s: the error %d says nothing", method, params, response.Error.Code)
	}
	if response.Error != nil {
		return fmt.Sprint("error ", response.Error.Code)
	}
	return string(response.Result)
}

// A question of a legacy server gets the answer of its handler, or an error with the
// right code.
//
// Guarantees: G-0030.6
func TestLegacyQuestions(t *testing.T) {
	elicits := func(result *protocol.ElicitResult, err error) client.Options {
		return client.Options{Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return result, err
		}}
	}
	accepts := func(content any) client.Options { return elicits(client.Accept(content)) }
	all := answers(new(atomic.Int64))
	withTools := all
	withTools.SampleTools = true
	for name, test := range map[string]struct {
		o                    client.Options
		method, params, want string
	}{
		"defaults are filled in": {all, protocol.MethodElicit, elicitForm, `{"action":"accept","content":{"count":2,"ratio":0.5,"size":"small"}}`},
		"an explicit form":       {all, protocol.MethodElicit, strings.Replace(elicitForm, "{", `{"mode":"form",`, 1), `{"action":"accept","content":{"count":2,"ratio":0.5,"size":"small"}}`},
		"a struct": {accepts(struct {
			Size string `json:"size"`
		}{"large"}), protocol.MethodElicit, elicitForm, `{"action":"accept","content":{"count":2,"size":"large"}}`},
		"several choices":              {accepts(map[string]any{"extras": []string{"b"}, "count": 3}), protocol.MethodElicit, elicitForm, `{"action":"accept","content":{"count":3,"extras":["b"],"size":"small"}}`},
		"no content":                   {accepts(nil), protocol.MethodElicit, elicitForm, `{"action":"accept","content":{"count":2,"size":"small"}}`},
		"declined":                     {elicits(client.Decline()), protocol.MethodElicit, elicitForm, `{"action":"decline"}`},
		"dismissed":                    {elicits(client.Dismiss()), protocol.MethodElicit, elicitForm, `{"action":"cancel"}`},
		"declined with content":        {elicits(&protocol.ElicitResult{Action: "decline", Content: []byte(`{"a":1}`)}, nil), protocol.MethodElicit, elicitForm, `{"action":"decline"}`},
		"an error":                     {elicits(nil, errors.New("no terminal")), protocol.MethodElicit, elicitForm, `{"action":"cancel"}`},
		"neither":                      {elicits(nil, nil), protocol.MethodElicit, elicitForm, `{"action":"cancel"}`},
		"an unknown choice":            {accepts(map[string]any{"size": "huge"}), protocol.MethodElicit, elicitForm, `{"action":"cancel"}`},
		"a number below the minimum":   {accepts(map[string]any{"count": 0}), protocol.MethodElicit, elicitForm, `{"action":"cancel"}`},
		"a schema that cannot be read": {all, protocol.MethodElicit, `{"message":"m","requestedSchema":{"type":7}}`, "error -32602"},
		"params that cannot be read":   {all, protocol.MethodElicit, `{"message":7}`, "error -32602"},
		"a URL":                        {all, protocol.MethodElicit, elicitURL, `{"action":"accept"}`},
		"a URL without a handler":      {accepts(nil), protocol.MethodElicit, elicitURL, "error -32602"},
		"a form without a handler":     {client.Options{ElicitURL: all.ElicitURL}, protocol.MethodElicit, elicitForm, "error -32602"},
		"an unknown mode":              {all, protocol.MethodElicit, `{"mode":"voice","message":"m"}`, "error -32602"},
		"elicitation without handlers": {client.Options{}, protocol.MethodElicit, elicitForm, "error -32601"},
		"sampling":                     {all, protocol.MethodCreateMessage, sampleText, `{"role":"assistant","content":{"type":"text","text":"hello"},"model":"m"}`},
		"sampling with tools":          {withTools, protocol.MethodCreateMessage, sampleTool, `{"role":"assistant","content":{"type":"text","text":"hello"},"model":"m"}`},
		"sampling with tools refused":  {all, protocol.MethodCreateMessage, sampleTool, "error -32602"},
		"a choice of tools refused":    {all, protocol.MethodCreateMessage, `{"messages":[],"maxTokens":5,"toolChoice":{"mode":"auto"}}`, "error -32602"},
		"sampling without a handler":   {client.Options{}, protocol.MethodCreateMessage, sampleText, "error -32601"},
		"sampling that fails": {client.Options{Sample: func(context.Context, *client.Session, *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			return nil, nil
		}}, protocol.MethodCreateMessage, sampleText, "error -32603"},
		"roots":                   {all, protocol.MethodListRoots, `{}`, `{"roots":[{"uri":"file:///home"}]}`},
		"roots without a handler": {client.Options{}, protocol.MethodListRoots, `{}`, "error -32601"},
		"roots that are not files": {client.Options{Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
			return []protocol.Root{{URI: "https://example.com"}}, nil
		}}, protocol.MethodListRoots, `{}`, "error -32603"},
		"no roots": {client.Options{Roots: func(context.Context, *client.Session) ([]protocol.Root, error) { return nil, nil }},
			protocol.MethodListRoots, `{}`, `{"roots":[]}`},
		"an unknown method": {all, "no/such", `{}`, "error -32601"},
	} {
		if got := asked(t, test.o, test.method, test.params); got != test.want {
			t.Errorf("%s: got the answer %s, want %s", name, got, test.want)
		}
	}
}

// Answers of 2025-06-18 have no lists, so a default that is a list is not filled in.
//
// Guarantees: G-0030.6
func TestDefaultsAreThoseOfTheRevision(t *testing.T) {
	o := client.Options{Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		return client.Accept(nil)
	}}
	several := strings.Replace(elicitForm, `"minItems":1`, `"default":["a"]`, 1)
	for revision, want := range map[string]string{
		protocol.Version20250618: `{"action":"accept","content":{"count":2,"size":"small"}}`,
		protocol.Version20251125: `{"action":"accept","content":{"count":2,"extras":["a"],"size":"small"}}`,
	} {
		if got := askedIn(t, revision, o, protocol.MethodElicit, several); got != want {
			t.Errorf("%s: got the answer %s, want %s", revision, got, want)
		}
	}
	required := strings.Replace(several, `"required":["size"]`, `"required":["extras"]`, 1)
	if got := askedIn(t, protocol.Version20250618, o, protocol.MethodElicit, required); got != `{"action":"cancel"}` {
		t.Errorf("a form that requires a list: got the answer %s, want %q", got, `{"action":"cancel"}`)
	}
}

// The client declares the capabilities for which it has handlers, in both eras.
//
// Guarantees: G-0030.6
func TestCapabilitiesFollowFromHandlers(t *testing.T) {
	all := answers(new(atomic.Int64))
	for _, test := range []struct {
		o              client.Options
		legacy, modern string
	}{
		{client.Options{}, `{}`, `{}`},
		{client.Options{Elicit: all.Elicit}, `{"elicitation":{"form":{}}}`, `{"elicitation":{"form":{}}}`},
		{client.Options{ElicitURL: all.ElicitURL}, `{"elicitation":{"url":{}}}`, `{"elicitation":{"url":{}}}`},
		{client.Options{Sample: all.Sample}, `{"sampling":{}}`, `{"sampling":{}}`},
		{client.Options{Sample: all.Sample, SampleTools: true}, `{"sampling":{"tools":{}}}`, `{"sampling":{"tools":{}}}`},
		{client.Options{SampleTools: true}, `{}`, `{}`},
		{client.Options{Roots: all.Roots}, `{"roots":{"listChanged":true}}`, `{"roots":{}}`},
		{client.Options{Capabilities: protocol.ClientCapabilities{Extensions: map[string]json.RawMessage{"a/b": []byte(`{}`)}}},
			`{"extensions":{"a/b":{}}}`, `{"extensions":{"a/b":{}}}`},
		{client.Options{Tasks: true, Capabilities: protocol.ClientCapabilities{Extensions: map[string]json.RawMessage{}}}, // which stays empty
			`{"extensions":{}}`, `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`},
	} {
		legacy := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		openFake(t, legacy, test.o)
		var params struct{ Capabilities json.RawMessage }
		if err := json.Unmarshal(legacy.received(protocol.MethodInitialize)[0].Params, &params); err != nil || string(params.Capabilities) != test.legacy {
			t.Errorf("initialize has the capabilities %s, want %s", params.Capabilities, test.legacy)
		}
		modern := grantingServer()
		test.o.ProtocolVersion = protocol.Latest
		session := openFake(t, modern, test.o)
		if _, err := session.ListTools(t.Context(), nil); err != nil {
			t.Error(err)
		}
		for _, method := range []string{protocol.MethodDiscover, protocol.MethodListTools} {
			if got := metaOf(t, modern.received(method)[0])[protocol.MetaClientCapabilities]; string(got) != test.modern {
				t.Errorf("%s has the capabilities %s, want %s", method, got, test.modern)
			}
		}
	}
}

// A handler that ends its goroutine has not answered, and that is reported: the call is not repeated without its answer.
func TestHandlerThatEndsItsGoroutine(t *testing.T) {
	var where atomic.Value
	s := askingServer(`{"r":{"method":"roots/list"}}`, nil)
	session := openFake(t, s, client.Options{
		ProtocolVersion: protocol.Latest,
		Conn:            conn.Tuning{Hooks: telemetry.Hooks{Panic: func(p telemetry.Panic) { where.Store(p.Where) }}},
		Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
			runtime.Goexit()
			return nil, nil
		},
	})
	var unanswered *client.InputError
	if _, err := callTool(t, session, "x", ""); !errors.As(err, &unanswered) || unanswered.Key != "r" || len(s.received(protocol.MethodCallTool)) != 1 {
		t.Errorf("got %v after %d requests, want a *client.InputError after one", err, len(s.received(protocol.MethodCallTool)))
	}
	if where.Load() != protocol.MethodListRoots {
		t.Errorf("reported %v, want %v", where.Load(), protocol.MethodListRoots)
	}
}

// A panic of a handler becomes an error response to its question only, and is reported.
func TestHandlerThatPanics(t *testing.T) {
	for era, version := range map[string]string{"legacy": protocol.LatestLegacy, "modern": protocol.Latest} {
		var where atomic.Value
		o := client.Options{
			ProtocolVersion: version,
			Conn:            conn.Tuning{Hooks: telemetry.Hooks{Panic: func(p telemetry.Panic) { where.Store(p.Where) }}},
			Roots:           func(context.Context, *client.Session) ([]protocol.Root, error) { panic("no") },
		}
		if version == protocol.LatestLegacy {
			if got := asked(t, o, protocol.MethodListRoots, `{}`); got != "error -32603" {
				t.Errorf("%s: got the answer %s, want %q", era, got, "error -32603")
			}
		} else {
			session := openFake(t, askingServer(`{"r":{"method":"roots/list"}}`, nil), o)
			if _, err := callTool(t, session, "x", ""); !errors.As(err, new(*client.InputError)) {
				t.Errorf("%s: got %v, want a *client.InputError", era, err)
			}
		}
		if where.Load() != protocol.MethodListRoots {
			t.Errorf("%s: reported %v, want %v", era, where.Load(), protocol.MethodListRoots)
		}
	}
}

// RootsChanged notifies legacy servers, which then request the roots again.
func TestRootsChanged(t *testing.T) {
	s, modern := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}, grantingServer()
	defer modern.close()
	defer s.close()
	c := client.New(clientInfo, answers(new(atomic.Int64)))
	for _, to := range []*fakeServer{modern, s} { // in this order: one that is not told does not keep it from the next
		session, err := c.Start(t.Context(), "", specification.WatchClient(t, to))
		if err != nil {
			t.Fatal(err)
		}
		if err := session.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.RootsChanged(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	testenv.Within(t, "the servers read everything", func() {
		s.serving.Wait()
		modern.serving.Wait()
	})
	if legacy, modern := s.received(protocol.NotificationRootsListChanged), modern.received(protocol.NotificationRootsListChanged); len(legacy) != 1 || len(modern) != 0 {
		t.Errorf("got the notifications %v and %v, want len(legacy) == 1 and len(modern) == 0", legacy, modern)
	}
}

// askingServer returns a modern server whose tools ask before they answer: the first request
// gets the given questions and the state "s1", the second one gets what more returns.
func askingServer(requests string, more func(frame) []string) *fakeServer {
	s := grantingServer()
	inner := s.answer
	s.answer = func(f frame) []string {
		if f.Method != protocol.MethodCallTool && f.Method != protocol.MethodReadResource && f.Method != protocol.MethodGetPrompt {
			return inner(f)
		}
		var params protocol.CallToolParams
		if err := json.Unmarshal(f.Params, &params); err != nil {
			panic(err)
		}
		switch {
		case params.RequestState == nil:
			return []string{f.result(`{"resultType":"input_required","requestState":"s1","inputRequests":` + requests + `}`)}
		case more != nil:
			return more(f)
		default:
			return inner(f)
		}
	}
	return s
}

// Questions in a result go to the same handlers. The client then repeats the call with
// the answers, the state unchanged, equal params and another id.
//
// Guarantees: G-0030.7
func TestQuestionsInAResultAreAnswered(t *testing.T) {
	var called atomic.Int64
	o := answers(&called)
	o.ProtocolVersion = protocol.Latest
	requests := `{"e":{"method":"elicitation/create","params":` + elicitForm + `},"s":{"method":"sampling/createMessage","params":` + sampleText +
		`},"r":{"method":"roots/list"},"u":{"method":"elicitation/create","params":` + elicitURL + `}}`
	s := askingServer(requests, nil)
	session := openFake(t, s, o)
	params := &protocol.CallToolParams{Name: "ask", Arguments: json.RawMessage(`{"a":1}`)}
	if _, err := session.CallTool(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	if _, err := session.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: "file:///1"}); err != nil {
		t.Error(err)
	}
	if _, err := session.GetPrompt(t.Context(), &protocol.GetPromptParams{Name: "p"}); err != nil {
		t.Error(err)
	}
	if called.Load() != 12 {
		t.Errorf("the handlers were called %d times", called.Load())
	}
	sent := s.received(protocol.MethodCallTool)
	if len(sent) != 2 || string(sent[0].ID) == string(sent[1].ID) || params.RequestState != nil || params.InputResponses != nil {
		t.Fatalf("got the requests %+v and the caller's params %+v", sent, params)
	}
	var first, second struct {
		Name           string
		Arguments      json.RawMessage
		RequestState   *string
		InputResponses map[string]json.RawMessage
	}
	if err := errors.Join(json.Unmarshal(sent[0].Params, &first), json.Unmarshal(sent[1].Params, &second)); err != nil {
		t.Fatal(err)
	}
	if first.RequestState != nil || first.InputResponses != nil {
		t.Errorf("got the first request %s, want first.RequestState == nil and first.InputResponses == nil", sent[0].Params)
	}
	if second.Name != "ask" || string(second.Arguments) != `{"a":1}` || *second.RequestState != "s1" {
		t.Errorf("got the second request %s, want second.Name == %q, string(second.Arguments) == %q and *second.RequestState == %q", sent[1].Params, "ask", `{"a":1}`, "s1")
	}
	for key, want := range map[string]string{
		"e": `{"action":"accept","content":{"count":2,"ratio":0.5,"size":"small"}}`,
		"s": `{"role":"assistant","content":{"type":"text","text":"hello"},"model":"m"}`,
		"r": `{"roots":[{"uri":"file:///home"}]}`,
		"u": `{"action":"accept"}`,
	} {
		if got := string(second.InputResponses[key]); got != want {
			t.Errorf("got the answer %s: %s, want %s", key, got, want)
		}
	}
}

// A call with rounds ends with an error if it has too many rounds or questions, or if a
// question cannot be answered.
//
// Guarantees: G-0030.7
func TestRoundsFailIfTheyCannotEnd(t *testing.T) {
	again := func(result string) func(frame) []string {
		return func(f frame) []string { return []string{f.result(result)} }
	}
	one := `{"r":{"method":"roots/list"}}`
	var many []string
	for n := range 65 {
		many = append(many, fmt.Sprintf(`"%d":{"method":"roots/list"}`, n))
	}
	failing := errors.New("no terminal")
	for name, test := range map[string]struct {
		o     client.Options
		first string
		more  func(frame) []string
		want  any // an error, or a pointer to an error type
		sent  int
	}{
		"too many rounds": {client.Options{MaxRounds: 3}, one, again(`{"resultType":"input_required","requestState":"s2","inputRequests":` + one + `}`), client.ErrTooMany, 4},
		"the default":     {client.Options{}, one, again(`{"resultType":"input_required","requestState":"s2","inputRequests":` + one + `}`), client.ErrTooMany, 11},
		"not declared":    {client.Options{}, `{"e":{"method":"elicitation/create","params":` + elicitForm + `}}`, nil, new(*client.ResultError), 1},
		"unknown method":  {client.Options{}, `{"e":{"method":"tools/list"}}`, nil, new(*client.ResultError), 1},
		"too many":        {client.Options{}, `{` + strings.Join(many, ",") + `}`, nil, new(*client.ResultError), 1},
		"neither":         {client.Options{}, one, again(`{"resultType":"input_required"}`), new(*client.ResultError), 2},
		"a refused state": {client.Options{}, one, withFault(-32602, `null`), nil, 2},
		"no answer": {client.Options{Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return nil, failing
		}}, `{"e":{"method":"elicitation/create","params":` + elicitForm + `}}`, nil, failing, 1},
		"one of two has no answer": {client.Options{
			Roots: func(context.Context, *client.Session) ([]protocol.Root, error) { return nil, failing },
			Elicit: func(ctx context.Context, _ *client.Session, _ *protocol.ElicitParams) (*protocol.ElicitResult, error) {
				<-ctx.Done() // for what the others say does not matter any more
				return nil, context.Cause(ctx)
			},
		}, `{"e":{"method":"elicitation/create","params":` + elicitForm + `},"r":{"method":"roots/list"}}`, nil, failing, 1},
	} {
		s := askingServer(test.first, test.more)
		test.o.ProtocolVersion = protocol.Latest
		if test.o.Roots == nil {
			test.o.Roots = answers(new(atomic.Int64)).Roots
		}
		_, err := callTool(t, openFake(t, s, test.o), "x", "")
		var failed *client.CallError
		if !errors.As(err, &failed) || failed.Delivery != conn.Sent {
			t.Errorf("%s: got %v, want a *client.CallError and failed.Delivery == %v", name, err, conn.Sent)
		}
		switch want := test.want.(type) {
		case nil:
		case error:
			if !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", name, err, want)
			}
		default:
			if !errors.As(err, want) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		if sent := len(s.received(protocol.MethodCallTool)); sent != test.sent {
			t.Errorf("%s: got %d requests, want %d", name, sent, test.sent)
		}
	}
}

// A result may have 64 questions.
func TestTheMostQuestionsOfAResult(t *testing.T) {
	var many []string
	for n := range 64 {
		many = append(many, fmt.Sprintf(`"%d":{"method":"roots/list"}`, n))
	}
	called := new(atomic.Int64)
	o := answers(called)
	o.ProtocolVersion = protocol.Latest
	session := openFake(t, askingServer(`{`+strings.Join(many, ",")+`}`, nil), o)
	if _, err := callTool(t, session, "x", ""); err != nil || called.Load() != 64 {
		t.Errorf("%d questions were answered, and the call failed with %v, want 64 and a result", called.Load(), err)
	}
}

// A server that returns a state but no question gets the next request after a growing
// delay.
func TestRoundsWithoutQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s := grantingServer()
		inner := s.answer
		s.answer = func(f frame) []string {
			if n++; f.Method == protocol.MethodCallTool && n < 8 {
				return []string{f.result(fmt.Sprintf(`{"resultType":"input_required","requestState":"%d"}`, n))}
			}
			return inner(f)
		}
		session := openFake(t, s, client.Options{ProtocolVersion: protocol.Latest})
		began := time.Now()
		if _, err := callTool(t, session, "x", ""); err != nil {
			t.Error(err)
		}
		calls := s.received(protocol.MethodCallTool)
		last := calls[len(calls)-1]
		if took := time.Since(began); took < 4*time.Second || took > 8*time.Second || !strings.Contains(string(last.Params), `"requestState":"7"`) {
			t.Errorf("got %d rounds in %v, the last with %s, want took >= %v, took <= %v and %q in it", len(calls), took, last.Params, 4*time.Second, 8*time.Second, `"requestState":"7"`)
		}
	})
}

// A call that waits for its next round ends with the session, and its error names the call and its last request.
func TestARoundThatWaitsEndsWithItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := grantingServer()
		s.on(protocol.MethodCallTool, func(f frame, _ func(frame) []string) []string {
			return []string{f.result(`{"resultType":"input_required","requestState":"s"}`)}
		})
		session := openFake(t, s, client.Options{ProtocolVersion: protocol.Latest})
		ended := make(chan error, 1)
		go func() {
			_, err := session.CallTool(context.Background(), &protocol.CallToolParams{Name: "x"})
			ended <- err
		}()
		synctest.Wait()
		last := s.received(protocol.MethodCallTool)
		if err := session.Close(t.Context()); err != nil || len(last) != 1 {
			t.Fatalf("Close: %v, after %d requests, want one", err, len(last))
		}
		err := <-ended
		var failed *client.CallError
		if !errors.As(err, &failed) || failed.Method != protocol.MethodCallTool || fmt.Sprint(failed.ID) != string(last[0].ID) || failed.Cause != conn.ShutDown || failed.Delivery != conn.Sent {
			t.Errorf("got %#v, want a *client.CallError of %s with the ID %s, the cause %v and the delivery %v", err, protocol.MethodCallTool, last[0].ID, conn.ShutDown, conn.Sent)
		}
	})
}

// The time that a user takes to answer does not count for any timeout. The end of the
// caller's context ends the question.
func TestQuestionsAreBoundedByTheContextAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := client.Options{
			ProtocolVersion: protocol.Latest,
			Roots: func(ctx context.Context, _ *client.Session) ([]protocol.Root, error) {
				select {
				case <-time.NewTimer(time.Hour).C:
					return nil, nil
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
			},
		}
		session := openFake(t, askingServer(`{"r":{"method":"roots/list"}}`, nil), o)
		if _, err := callTool(t, session, "x", ""); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "x"})
		var failed *client.CallError
		if !errors.As(err, &failed) || failed.Cause != conn.TimedOut || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want a *client.CallError, failed.Cause == %v and the error %v", err, conn.TimedOut, context.DeadlineExceeded)
		}
	})
}

// With manual input, the program gets the questions from CallTool and passes the
// answers to the next call.
func TestManualInput(t *testing.T) {
	s := askingServer(`{"r":{"method":"roots/list"}}`, nil)
	session := openFake(t, s, client.Options{ProtocolVersion: protocol.Latest, Calls: client.CallOptions{ManualInput: true}})
	result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "x"})
	if err != nil || result.InputRequired == nil || len(result.InputRequired.InputRequests) != 1 {
		t.Fatalf("got %+v, %v, want result.InputRequired != nil and len(result.InputRequired.InputRequests) == 1", result, err)
	}
	again := &protocol.CallToolParams{Name: "x"}
	again.RequestState = result.InputRequired.RequestState
	again.InputResponses = protocol.InputResponses{"r": &protocol.ListRootsResult{Roots: []protocol.Root{}}}
	if result, err = session.CallTool(t.Context(), again); err != nil || result.InputRequired != nil {
		t.Errorf("got %+v, %v, want result.InputRequired == nil", result, err)
	}
}

// Concurrent calls with rounds share no state.
//
// Guarantees: G-0030.7
func TestRoundsOfParallelCalls(t *testing.T) {
	s := askingServer(`{"r":{"method":"roots/list"}}`, nil)
	begun, proceed := make(chan struct{}), make(chan struct{})
	session := openFake(t, s, client.Options{ProtocolVersion: protocol.Latest, Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
		close(begun)
		<-proceed
		return nil, nil
	}})
	done := make(chan error, 1)
	params := &protocol.CallToolParams{Name: "x"}
	go func() { _, err := session.CallTool(context.Background(), params); done <- err }()
	testenv.Within(t, "the first call asks", func() { <-begun })
	plain, err := session.With(client.CallOptions{ManualInput: true}).CallTool(t.Context(), params)
	if err != nil || plain.InputRequired == nil {
		t.Errorf("got %+v, %v, want plain.InputRequired != nil", plain, err)
	}
	close(proceed)
	if err := <-done; err != nil {
		t.Error(err)
	}
	for i, f := range s.received(protocol.MethodCallTool) {
		if has := strings.Contains(string(f.Params), "requestState"); has != (i == 2) {
			t.Errorf("got request %d: %s", i, f.Params)
		}
	}
}

// A question with a token gets progress, before its answer, and through the middleware. Without a token, or with one that is no token, it gets its answer only.
//
// Guarantees: G-0031.20
func TestProgressNeedsATokenOfTheServer(t *testing.T) {
	for token, want := range map[string][]string{
		`"t"`: {`"progressToken":"t","progress":1,"total":2,"message":"half"`, `"progressToken":"t","progress":2`, `"id":"q"`},
		`7`:   {`"progressToken":7,"progress":1`, `"progressToken":7,"progress":2`, `"id":"q"`},
		`1.5`: {`"id":"q"`}, `null`: {`"id":"q"`}, `{}`: {`"id":"q"`}, ``: {`"id":"q"`},
	} {
		sent := make(chan string, 9)
		s := &fakeServer{answer: func(f frame) []string {
			if f.Method == "" || f.Method == protocol.NotificationProgress {
				sent <- string(f.Raw)
			}
			return allAnswers(protocol.LatestLegacy)(f)
		}}
		var panics, seen atomic.Int64
		o := answers(new(atomic.Int64))
		o.Sample = func(ctx context.Context, _ *client.Session, _ *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			client.Progress(ctx, 1, 2, "half")
			client.Progress(ctx, 1.5, 2, "panics")
			client.Progress(ctx, 2, 2, "")
			return &protocol.CreateMessageResult{Role: "assistant", Model: "m", Content: protocol.SamplingContents{protocol.Text("hello")}}, nil
		}
		o.Middleware = []client.Middleware{func(next client.Handler) client.Handler {
			return func(ctx context.Context, r *client.Request) (any, error) {
				if p, ok := r.Params.(*protocol.ProgressParams); ok {
					if !r.Notification || r.Incoming || r.QuestionID() != jsonrpc.StringID("q") {
						t.Errorf("the middleware sees %+v of %v, want an outgoing notification of the question", r, r.QuestionID())
					}
					if seen.Add(1); p.Message == "panics" {
						panic("on purpose")
					}
				}
				return next(ctx, r)
			}
		}}
		o.Conn.Hooks.Panic = func(telemetry.Panic) { panics.Add(1) }
		session := openFake(t, s, o)
		meta := `"_meta":{},`
		if token != "" {
			meta = `"_meta":{"progressToken":` + token + `},`
		}
		s.sendFrame(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":` + strings.Replace(sampleText, "{", "{"+meta, 1) + `}`)
		for _, fragment := range want {
			if got := <-sent; !strings.Contains(got, fragment) {
				t.Errorf("token %s: got %s, want %s", token, got, fragment)
			}
		}
		if err := session.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if wants := int64(len(want) - 1); seen.Load() != wants+wants/2 || panics.Load() != wants/2 {
			t.Errorf("token %s: the middleware saw %d reports, and %d panics were told", token, seen.Load(), panics.Load())
		}
	}
}
