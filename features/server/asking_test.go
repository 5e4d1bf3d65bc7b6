package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

var forms = protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}

// A shop counts the effects of its tools.
type shop struct {
	runs, charges, refunds, shipments atomic.Int64
}

type size struct {
	Size string `json:"size" enum:"small,large"`
}

// question returns a question under an explicit key: a form with one text field.
func question(key string) protocol.InputRequests {
	return protocol.InputRequests{key: &protocol.ElicitParams{
		Message: key, RequestedSchema: json.RawMessage(`{"type":"object","properties":{"` + key + `":{"type":"string"}},"required":["` + key + `"]}`),
	}}
}

func textOf(answers protocol.InputResponses, key string) string {
	result, ok := answers[key].(*protocol.ElicitResult)
	if !ok {
		return ""
	}
	var members map[string]string
	if json.Unmarshal(result.Content, &members) != nil {
		return ""
	}
	return members[key]
}

// one asks a single question. two asks a second one that depends on the first answer.
func (s *shop) one(ctx context.Context, _ struct{}) (string, error) {
	s.runs.Add(1)
	if err := server.Confirm(ctx, "Sure?"); err != nil {
		return "", err
	}
	return "confirmed", nil
}

func (s *shop) two(ctx context.Context, _ struct{}) (string, error) {
	s.runs.Add(1)
	first, err := server.Elicit[size](ctx, "Which size?")
	if err != nil {
		return "", err
	}
	second, err := server.Ask(ctx, question(first.Size))
	if err != nil {
		return "", err
	}
	return first.Size + " " + textOf(second, first.Size), nil
}

// three charges before its last question, and refunds if that question fails.
func (s *shop) three(ctx context.Context, _ struct{}) (string, error) {
	s.runs.Add(1)
	s.charges.Add(1)
	if err := server.Confirm(ctx, "Ship it?"); err != nil {
		s.refunds.Add(1)
		return "", err
	}
	s.shipments.Add(1)
	return "shipped", nil
}

// explicit does what two does, by returning InputRequired.
func (s *shop) explicit(ctx context.Context, _ struct{}) (string, error) {
	s.runs.Add(1)
	r := server.RequestFrom(ctx)
	var first string
	if later, err := r.State(&first); err != nil {
		return "", err
	} else if later && textOf(r.Answers, first) != "" {
		return first + " " + textOf(r.Answers, first), nil
	}
	if first = textOf(r.Answers, "size"); first != "" {
		return "", &server.InputRequired{Requests: question(first), State: first}
	}
	return "", &server.InputRequired{Requests: question("size")}
}

func (s *shop) server(o server.Options) *server.Server {
	srv := newServer(o)
	mayWait := !o.Asking.Fleet || o.Node != ""
	for name, how := range map[string]server.Asking{"waits": server.Waits, "reruns": server.Reruns} {
		if !mayWait && how == server.Waits {
			continue
		}
		server.AddTool(srv, protocol.Tool{Name: "one_" + name}, s.one, server.Asks(how, forms))
		server.AddTool(srv, protocol.Tool{Name: "two_" + name}, s.two, server.Asks(how, forms))
	}
	if mayWait {
		server.AddTool(srv, protocol.Tool{Name: "three"}, s.three, server.Asks(server.Waits, forms))
	}
	server.AddTool(srv, protocol.Tool{Name: "explicit"}, s.explicit)
	server.AddTool(srv, protocol.Tool{Name: "undecided"}, s.one)
	return srv
}

// fillIn answers every form: with a text for each property, or the first value of an
// enum.
func fillIn(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	var form struct {
		Properties map[string]struct {
			Enum []string `json:"enum"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(p.RequestedSchema, &form); err != nil {
		return nil, err
	}
	values := make(map[string]string)
	for name, property := range form.Properties {
		values[name] = "my " + name
		if len(property.Enum) > 0 {
			values[name] = property.Enum[0]
		}
	}
	return client.Accept(values)
}

// The same tool gives the same result to clients of both eras. A handler that Waits
// runs once, and one that Reruns runs once more for each question.
//
// Guarantees: G-0031.1
func TestToolsThatAskDoTheSameInBothEras(t *testing.T) {
	var s *shop
	make := func() *server.Server { s = new(shop); return s.server(server.Options{}) }
	everywhereSince(t, protocol.Version20250618, make, client.Options{Elicit: fillIn}, func(t *testing.T, _ *server.Server, session *client.Session) {
		for _, tool := range []struct {
			name, want string
			runs       int64
		}{
			{"one_waits", "confirmed", 1}, {"one_reruns", "confirmed", 2},
			{"two_waits", "small my small", 1}, {"two_reruns", "small my small", 3},
			{"three", "shipped", 1},
			{"explicit", "my size my my size", 3},
		} {
			s.runs.Store(0)
			result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: tool.name})
			if err != nil || result.IsError || result.Content.Text() != tool.want {
				t.Errorf("%s: got %+v, %v, want %v", tool.name, result, err, tool.want)
			}
			if runs := s.runs.Load(); runs != tool.runs {
				t.Errorf("%s ran %d times, want %d", tool.name, runs, tool.runs)
			}
		}
		result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "undecided"})
		if err != nil || !result.IsError || !strings.Contains(result.Content.Text(), "Waits") {
			t.Errorf("undecided: got %+v, %v, want a tool error and %q in it", result, err, "Waits")
		}
		if n := s.charges.Load(); n != 1 || s.refunds.Load() != 0 || s.shipments.Load() != 1 {
			t.Errorf("got %d charges, %d refunds, %d shipments, want n == 1, s.refunds.Load() == 0 and s.shipments.Load() == 1", n, s.refunds.Load(), s.shipments.Load())
		}
	})
}

// Confirm returns nil only if the user accepted. After any other answer the tool ships
// nothing.
//
// Guarantees: G-0031.2
func TestOnlyYesIsConsent(t *testing.T) {
	for want, answer := range map[string]func() (*protocol.ElicitResult, error){
		server.ErrDeclined.Error():  client.Decline,
		server.ErrDismissed.Error(): client.Dismiss,
	} {
		s := new(shop)
		o := client.Options{Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return answer()
		}}
		everywhereSince(t, protocol.Version20250618, func() *server.Server { return s.server(server.Options{}) }, o, func(t *testing.T, _ *server.Server, session *client.Session) {
			for _, name := range []string{"one_waits", "one_reruns", "three"} {
				result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name})
				if err != nil || !result.IsError || result.Content.Text() != want {
					t.Errorf("%s: got %+v, %v, want a tool error and result.Content.Text() == %v", name, result, err, want)
				}
			}
		})
		if s.shipments.Load() != 0 || s.refunds.Load() != s.charges.Load() {
			t.Errorf("got %d charges, %d refunds, %d shipments", s.charges.Load(), s.refunds.Load(), s.shipments.Load())
		}
	}
}

// If the client lacks a capability that the feature needs, the call fails before the
// handler runs.
//
// Guarantees: G-0031.3
func TestMissingCapabilitiesFailBeforeTheHandlerRuns(t *testing.T) {
	s := new(shop)
	everywhere(t, func() *server.Server { return s.server(server.Options{}) }, client.Options{}, func(t *testing.T, _ *server.Server, session *client.Session) {
		s.runs.Store(0)
		for _, name := range []string{"one_waits", "one_reruns", "explicit"} {
			result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name})
			var fault *jsonrpc.Error
			if session.Server().ProtocolVersion == protocol.Latest {
				if !errors.As(err, &fault) || fault.Code != protocol.CodeMissingCapability || !strings.Contains(string(fault.Data), `{"requiredCapabilities":{"elicitation":{"form":{}}}}`) {
					t.Errorf("%s: got %v", name, err)
				}
			} else if err != nil || !result.IsError || !strings.Contains(result.Content.Text(), "elicitation.form") {
				t.Errorf("%s: got %+v, %v, want a tool error and %q in it", name, result, err, "elicitation.form")
			}
		}
		if runs := s.runs.Load(); runs > 1 { // explicit runs once, because it names its needs only in the question
			t.Errorf("%d handlers ran, want 1 at most", runs)
		}
	})
}

// Each capability that a feature needs is checked on its own: a client that has all but one is refused before the handler runs. If
// the feature does not say what it needs, the question that needs it fails, and no other.
//
// Guarantees: G-0031.3
func TestEachCapabilityIsNeeded(t *testing.T) {
	here := &protocol.Capability{}
	message := func(change func(*protocol.CreateMessageParams)) *protocol.CreateMessageParams {
		q := &protocol.CreateMessageParams{MaxTokens: 1, Messages: []protocol.SamplingMessage{{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text("hi")}}}}
		change(q)
		return q
	}
	tools := []*protocol.Tool{{Name: "t", InputSchema: json.RawMessage(`{"type":"object"}`)}}
	const all = `"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{},"extensions":{"x/y":{}}`
	for name, test := range map[string]struct {
		needs    protocol.ClientCapabilities
		question protocol.InputRequest
		lacking  string // all capabilities but this one
		required string
	}{
		"form": {protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{Form: here}}, &protocol.ElicitParams{Message: "m", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)},
			strings.Replace(all, `"form":{},`, ``, 1), `{"elicitation":{"form":{}}}`},
		"url": {protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{URL: here}}, &protocol.ElicitParams{Mode: protocol.ElicitURL, Message: "m", URL: "https://example.com"},
			strings.Replace(all, `,"url":{}`, ``, 1), `{"elicitation":{"url":{}}}`},
		"sampling": {protocol.ClientCapabilities{Sampling: &protocol.SamplingCapability{}}, message(func(*protocol.CreateMessageParams) {}),
			strings.Replace(all, `"sampling":{"tools":{},"context":{}},`, ``, 1), `{"sampling":{}}`},
		"tools": {protocol.ClientCapabilities{Sampling: &protocol.SamplingCapability{Tools: here}}, message(func(q *protocol.CreateMessageParams) { q.Tools = tools }),
			strings.Replace(all, `"tools":{},`, ``, 1), `{"sampling":{"tools":{}}}`},
		"tool choice": {protocol.ClientCapabilities{Sampling: &protocol.SamplingCapability{Tools: here}}, message(func(q *protocol.CreateMessageParams) { q.ToolChoice = &protocol.ToolChoice{} }),
			strings.Replace(all, `"tools":{},`, ``, 1), `{"sampling":{"tools":{}}}`},
		"context": {protocol.ClientCapabilities{Sampling: &protocol.SamplingCapability{Context: here}}, message(func(q *protocol.CreateMessageParams) { q.IncludeContext = "allServers" }),
			strings.Replace(all, `,"context":{}`, ``, 1), `{"sampling":{"context":{}}}`},
		"roots": {protocol.ClientCapabilities{Roots: &protocol.RootsCapability{}}, &protocol.ListRootsParams{},
			strings.Replace(all, `"roots":{},`, ``, 1), `{"roots":{}}`},
		"extension": {protocol.ClientCapabilities{Extensions: map[string]json.RawMessage{"x/y": json.RawMessage(`{}`)}}, nil,
			strings.Replace(all, `,"extensions":{"x/y":{}}`, ``, 1), `{"extensions":{"x/y":{}}}`},
	} {
		if test.lacking == all {
			t.Fatalf("%s: nothing is lacking", name)
		}
		testenv.Bubble(t, func(t *testing.T) {
			s := newServer(server.Options{})
			var runs atomic.Int64
			handler := func(ctx context.Context, _ struct{}) (string, error) {
				if runs.Add(1); test.question == nil {
					return "", &server.InputRequired{Requests: question("a")}
				}
				_, err := server.Ask(ctx, protocol.InputRequests{"q": test.question})
				return "", err
			}
			explicit := func(context.Context, struct{}) (string, error) {
				runs.Add(1)
				return "", &server.InputRequired{Requests: protocol.InputRequests{"q": test.question}}
			}
			two := func(ctx context.Context, _ struct{}) (string, error) { // one of them can be asked
				other := question("a")["a"]
				if name == "form" {
					other = &protocol.ListRootsParams{}
				}
				_, err := server.Ask(ctx, protocol.InputRequests{"other": other, "q": test.question})
				return "", err
			}
			for how, name := range map[server.Asking]string{server.Waits: "waits", server.Reruns: "reruns"} {
				server.AddTool(s, protocol.Tool{Name: name}, handler, server.Asks(how, test.needs))
				if test.question != nil {
					server.AddTool(s, protocol.Tool{Name: name + "_unsaid"}, handler, server.Asks(how, protocol.ClientCapabilities{}))
					server.AddTool(s, protocol.Tool{Name: "explicit_" + name}, explicit)
					server.AddTool(s, protocol.Tool{Name: "two_" + name}, two, server.Asks(how, protocol.ClientCapabilities{}))
				}
			}
			tools := []string{"waits", "reruns"}
			if test.question != nil {
				tools = append(tools, "waits_unsaid", "reruns_unsaid", "explicit_waits", "two_waits", "two_reruns")
			}
			w := dial(t, s)
			call := func(tool, capabilities string) response {
				return w.ask(strings.Replace(modern(`1`, "tools/call", `"name":"`+tool+`"`), `clientCapabilities":{}`, `clientCapabilities":{`+capabilities+`}`, 1))
			}
			for _, tool := range tools {
				runs.Store(0)
				if got := call(tool, test.lacking); !got.Error.is(protocol.CodeMissingCapability, `{"requiredCapabilities":`+test.required+`}`) {
					t.Errorf("%s, %s: without the capability: got %s, %v, want the error %d", name, tool, got.Result, got.Error, protocol.CodeMissingCapability)
				}
				if n := runs.Load(); n != 0 && len(tool) <= len("reruns") {
					t.Errorf("%s, %s: the handler ran, want that it does not", name, tool)
				}
				if got := call(tool, all); string(got.Result["resultType"]) != `"input_required"` {
					t.Errorf("%s, %s: with all capabilities: got %s, %v, want the question", name, tool, got.Result, got.Error)
				}
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// If a handler with Reruns continues without an answer, its result is dropped. If it
// asks different questions when it runs again, the call fails.
//
// Guarantees: G-0031.1
func TestResultOfARerunWithoutAnswersIsDropped(t *testing.T) {
	s := newServer(server.Options{})
	var ended atomic.Int64
	server.AddTool(s, protocol.Tool{Name: "swallows"}, func(ctx context.Context, _ struct{}) (string, error) {
		if err := server.Confirm(ctx, "Sure?"); errors.Is(context.Cause(ctx), server.ErrInputRequired) && errors.Is(err, server.ErrInputRequired) {
			ended.Add(1)
		}
		_, err := server.Elicit[size](ctx, "And then?")
		return fmt.Sprint(err), nil
	}, server.Asks(server.Reruns, forms))
	var asked atomic.Int64
	var runs []context.Context // of the runs of changes, one after the other
	var whys [3]error          // why its last run has ended: what both questions say, and the context
	server.AddTool(s, protocol.Tool{Name: "changes"}, func(ctx context.Context, _ struct{}) (string, error) {
		first := server.Confirm(ctx, fmt.Sprint("It is number ", asked.Add(1)))
		_, second := server.Elicit[size](ctx, "And then?")
		runs, whys = append(runs, ctx), [...]error{first, second, context.Cause(ctx)}
		return "went on", nil
	}, server.Asks(server.Reruns, forms))
	for name, how := range map[string]server.Asking{"keys": server.Waits, "keys_reruns": server.Reruns} {
		server.AddTool(s, protocol.Tool{Name: name}, func(ctx context.Context, _ struct{}) (string, error) {
			runs = append(runs, ctx)
			if _, err := server.Ask(ctx, question("a")); err != nil {
				return "", err
			}
			_, err := server.Ask(ctx, protocol.InputRequests{"a": &protocol.ElicitParams{Message: "another"}})
			return fmt.Sprint(errors.Is(err, server.ErrKeyUsed)), nil
		}, server.Asks(how, forms))
	}
	w := dial(t, s)
	if got := w.round("swallows", ""); len(got.Keys) != 1 || got.Keys[0] != "1" || ended.Load() != 1 {
		t.Errorf("got %+v, want len(got.Keys) == 1, got.Keys[0] == %q and ended.Load() == 1", got, "1")
	}
	const differently = `the handler asks differently when it runs again: server: the key belongs to another question of this call: "1"`
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		session := open(t, overPipes(t, s), client.Options{Elicit: fillIn, ProtocolVersion: version})
		_, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "changes"})
		for _, err := range append(whys[:], err) {
			if err == nil || !strings.Contains(err.Error(), differently) {
				t.Errorf("%s: got %v, want %q in it", version, err, differently)
			}
		}
	}
	// That a key is used twice in one run is an error for the handler alone.
	for _, name := range []string{"keys", "keys_reruns"} {
		if got := w.round(name, `,"inputResponses":{"a":{"action":"accept","content":{"a":"x"}}}`); !strings.Contains(got.Text, "true") {
			t.Errorf("%s: got %+v, want %q in it", name, got, "true")
		}
	}
	for i, run := range runs {
		if run.Err() == nil {
			t.Errorf("the context of run %d has not ended with it", i)
		}
	}
}

// Handlers of prompts and resources can ask questions as tools do.
func TestPromptsAndResourcesAsk(t *testing.T) {
	make := func() *server.Server {
		s := newServer(server.Options{})
		server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(ctx context.Context, _ struct{}) (string, error) {
			return "asked", server.Confirm(ctx, "Sure?")
		}, server.Asks(server.Reruns, forms))
		server.AddResource(s, protocol.Resource{URI: "x://a", Name: "a"}, func(ctx context.Context) (string, error) {
			return "asked", server.Confirm(ctx, "Sure?")
		}, server.Asks(server.Waits, forms))
		return s
	}
	everywhereSince(t, protocol.Version20250618, make, client.Options{Elicit: fillIn}, func(t *testing.T, _ *server.Server, session *client.Session) {
		prompt, err := session.GetPrompt(t.Context(), &protocol.GetPromptParams{Name: "p"})
		if err != nil || len(prompt.Messages) != 1 {
			t.Errorf("got %+v, %v, want 1 element", prompt, err)
		}
		resource, err := session.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: "x://a"})
		if err != nil || resource.Text() != "asked" {
			t.Errorf("got %+v, %v, want %q", resource, err, "asked")
		}
	})
}

// A handler can ask the client's model, ask for its roots, ask the user to open a page,
// and ask several questions at once.
func TestEveryKindOfQuestionIsAsked(t *testing.T) {
	needs := protocol.ClientCapabilities{
		Elicitation: &protocol.ElicitationCapability{Form: &protocol.Capability{}, URL: &protocol.Capability{}},
		Sampling:    &protocol.SamplingCapability{}, Roots: &protocol.RootsCapability{},
	}
	sample := &protocol.CreateMessageParams{MaxTokens: 10, Messages: []protocol.SamplingMessage{{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text("hi")}}}}
	all := func(ctx context.Context, _ struct{}) (string, error) {
		if err := server.ElicitURL(ctx, "Sign in", "https://example.com/in"); err != nil {
			return "", err
		}
		said, err := server.Sample(ctx, sample)
		if err != nil {
			return "", err
		}
		roots, err := server.Roots(ctx)
		if err != nil {
			return "", err
		}
		both, err := server.Ask(ctx, protocol.InputRequests{"model": sample, "roots": &protocol.ListRootsParams{}})
		return fmt.Sprint(said.Content.Text(), " ", roots[0].URI, " ", len(both)), err
	}
	make := func() *server.Server {
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "waits"}, all, server.Asks(server.Waits, needs))
		server.AddTool(s, protocol.Tool{Name: "reruns"}, all, server.Asks(server.Reruns, needs))
		return s
	}
	o := client.Options{
		Elicit: fillIn,
		ElicitURL: func(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			if p.URL != "https://example.com/in" {
				return client.Decline()
			}
			return client.Accept(nil)
		},
		Sample: func(context.Context, *client.Session, *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			return &protocol.CreateMessageResult{Role: protocol.RoleAssistant, Model: "m", Content: protocol.SamplingContents{protocol.Text("hello")}}, nil
		},
		Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
			return []protocol.Root{{URI: "file:///home"}}, nil
		},
	}
	everywhereSince(t, protocol.Version20251125, make, o, func(t *testing.T, _ *server.Server, session *client.Session) {
		for _, name := range []string{"waits", "reruns"} {
			result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name})
			if err != nil || result.Content.Text() != "hello file:///home 2" {
				t.Errorf("%s: got %+v, %v, want %q", name, result, err, "hello file:///home 2")
			}
		}
	})
}

// CallID is the same in all rounds of one call, and differs between calls.
func TestCallIDIsTheSameInAllRounds(t *testing.T) {
	for _, how := range []server.Asking{0, server.Waits, server.Reruns} {
		var mu sync.Mutex
		ids := map[string]bool{}
		make := func() *server.Server {
			clear(ids)
			s := newServer(server.Options{})
			tool := func(ctx context.Context, _ struct{}) (string, error) {
				r := server.RequestFrom(ctx)
				mu.Lock()
				ids[r.CallID()] = true
				mu.Unlock()
				if how != 0 {
					err := server.Confirm(ctx, "Sure?")
					mu.Lock()
					ids[server.RequestFrom(ctx).CallID()] = true
					mu.Unlock()
					return "", err
				}
				if r.Answers == nil {
					return "", &server.InputRequired{Requests: question("a")}
				}
				return "", nil
			}
			if how == 0 {
				server.AddTool(s, protocol.Tool{Name: "t"}, tool)
			} else {
				server.AddTool(s, protocol.Tool{Name: "t"}, tool, server.Asks(how, forms))
			}
			return s
		}
		everywhereSince(t, protocol.Version20250618, make, client.Options{Elicit: fillIn}, func(t *testing.T, _ *server.Server, session *client.Session) {
			for calls := 1; calls <= 2; calls++ {
				if result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "t"}); err != nil || result.IsError {
					t.Fatalf("got %+v, %v, want no error", result, err)
				}
				mu.Lock()
				if len(ids) != calls || ids[""] {
					t.Errorf("%d calls had the ids %v, want one id for each", calls, ids)
				}
				mu.Unlock()
			}
		})
	}
}

// A tool with an output schema may ask, in each way: its questions need not fit the schema, and its result must.
//
// Guarantees: G-0031.1
func TestToolsWithAnOutputSchemaAsk(t *testing.T) {
	type sum struct {
		Sum int `json:"sum"`
	}
	newTyped := func() *server.Server {
		s := newServer(server.Options{})
		for name, how := range map[string]server.Asking{"waits": server.Waits, "reruns": server.Reruns} {
			server.AddTool(s, protocol.Tool{Name: name}, func(ctx context.Context, _ struct{}) (sum, error) {
				return sum{7}, server.Confirm(ctx, "Sure?")
			}, server.Asks(how, forms))
		}
		explicit := func(good bool) func(ctx context.Context, _ struct{}) (*protocol.CallToolResult, error) {
			return func(ctx context.Context, _ struct{}) (*protocol.CallToolResult, error) {
				if len(server.RequestFrom(ctx).Answers) == 0 {
					return nil, &server.InputRequired{Requests: question("a")}
				}
				if !good {
					return &protocol.CallToolResult{Content: protocol.Contents{}}, nil
				}
				return &protocol.CallToolResult{Content: protocol.Contents{}, StructuredContent: json.RawMessage(`{"sum":7}`)}, nil
			}
		}
		schema := json.RawMessage(`{"type":"object","properties":{"sum":{"type":"integer"}},"required":["sum"]}`)
		server.AddTool(s, protocol.Tool{Name: "explicit", OutputSchema: schema}, explicit(true))
		server.AddTool(s, protocol.Tool{Name: "breaks", OutputSchema: schema}, explicit(false))
		return s
	}
	everywhereSince(t, protocol.Version20250618, newTyped, client.Options{Elicit: fillIn}, func(t *testing.T, _ *server.Server, session *client.Session) {
		for _, name := range []string{"waits", "reruns", "explicit"} {
			got, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name})
			if err != nil || string(got.StructuredContent) != `{"sum":7}` {
				t.Errorf("%s: got %+v, %v, want its sum", name, got, err)
			}
		}
		if got, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "breaks"}); err == nil || !strings.Contains(err.Error(), "broken its output schema") {
			t.Errorf("a result without content: got %+v, %v, want an error", got, err)
		}
	})
}

// A middleware that answers a question with something else fails the question, and no other code of the program sees what it is.
func TestMiddlewareThatAnswersWithSomethingElse(t *testing.T) {
	o := server.Options{Middleware: []server.Middleware{func(next server.Handler) server.Handler {
		return func(ctx context.Context, r *server.Request) (any, error) {
			if r.Outgoing && !r.Notification {
				return "yes", nil
			}
			return next(ctx, r)
		}
	}}}
	s := newServer(o)
	server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
		return "agreed", server.Confirm(ctx, "Sure?")
	}, server.Asks(server.Waits, forms))
	w := dial(t, s)
	w.initializeWith(protocol.Version20251125, `{"elicitation":{}}`)
	if got := w.call("t", `{}`); !got.Result.IsError || got.Result.Content.Text() != `the answer to "1" is not valid: it is a string` {
		t.Errorf("got %+v", got)
	}
}

// A call that asks one question holds one stack while the person thinks: that of its handler, which asks it.
func TestAQuestionTakesNoGoroutineOfItsOwn(t *testing.T) {
	stacks := make(chan string, 1)
	o := server.Options{Middleware: []server.Middleware{func(next server.Handler) server.Handler {
		return func(ctx context.Context, r *server.Request) (any, error) {
			if r.Outgoing && !r.Notification {
				stacks <- string(debug.Stack())
			}
			return next(ctx, r)
		}
	}}}
	session := open(t, overPipes(t, new(shop).server(o)), client.Options{ProtocolVersion: protocol.Version20251125, Elicit: fillIn})
	if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "one_waits"}); err != nil {
		t.Fatal(err)
	}
	if stack := <-stacks; !strings.Contains(stack, "(*shop).one") {
		t.Errorf("the question was asked at\n%s\nwant the goroutine of the tool's handler", stack)
	}
}
