package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

func addPromptOut[Out any](s *server.Server, name string, out Out) {
	server.AddPrompt(s, protocol.Prompt{Name: name, Description: "of the prompt"}, func(context.Context, struct{}) (Out, error) { return out, nil })
}

// A prompt's function can return any of several types. What the program has said of the result stays, and what it returns to many is
// never changed for one of them.
//
// Guarantees: G-0029.1
func TestResultTypesOfAPrompt(t *testing.T) {
	link := &protocol.ResourceLink{URI: "x://a", Name: "a"}
	shared := []protocol.PromptMessage{{Role: protocol.RoleAssistant, Content: link}, {Role: protocol.RoleUser, Content: protocol.Text("b")}}
	s := newServer(server.Options{})
	addPromptOut(s, "text", "hi")
	addPromptOut(s, "block", link)
	addPromptOut(s, "blocks", protocol.Contents{protocol.Text("a"), link})
	addPromptOut(s, "no_blocks", protocol.Contents{})
	addPromptOut(s, "messages", shared)
	addPromptOut(s, "whole", &protocol.GetPromptResult{Messages: shared})
	addPromptOut(s, "described", &protocol.GetPromptResult{Description: "of the result", Messages: shared})
	addPromptOut(s, "none", (*protocol.GetPromptResult)(nil))
	older, newer := dial(t, s), dial(t, s)
	older.initialize(protocol.Version20250326)
	newer.initialize(protocol.Version20250618)
	for _, w := range []*rawPeer{older, newer} {
		a, kind := "[user a: x://a]", "text"
		if w == newer {
			a, kind = "[user link]", "link"
		}
		of := strings.NewReplacer("[user ", "[assistant ").Replace(a)
		for name, want := range map[string]string{
			"text": "of the prompt [user hi]", "block": "of the prompt " + a, "blocks": "of the prompt [user a] " + a, "no_blocks": "of the prompt ",
			"messages": "of the prompt " + of + " [user b]", "whole": "of the prompt " + of + " [user b]", "described": "of the result " + of + " [user b]",
		} {
			r := w.ask(legacy(`1`, "prompts/get", `"name":"`+name+`"`))
			var messages []struct {
				Role    string
				Content struct{ Type, Text string }
			}
			var description string
			if err := json.Unmarshal(r.Result["messages"], &messages); err != nil {
				t.Fatalf("%s: %s: %v", name, r.Result, err)
			}
			_ = json.Unmarshal(r.Result["description"], &description)
			var said []string
			for _, m := range messages {
				said = append(said, fmt.Sprintf("[%s %s]", m.Role, strings.TrimSpace(m.Content.Text+strings.TrimPrefix(strings.TrimPrefix(m.Content.Type, "text"), "resource_"))))
			}
			if got := description + " " + strings.Join(said, " "); got != want {
				t.Errorf("%s, with %s: got %q, want %q", name, kind, got, want)
			}
		}
		if fault := w.wantFault(jsonrpc.CodeInternalError, legacy(`1`, "prompts/get", `"name":"none"`)); !strings.Contains(fault.Message, `prompt "none" has returned no result`) {
			t.Errorf("got %q", fault.Message)
		}
	}
}

// AddPrompt panics if the program's arguments are wrong. Arguments that the program declares count, whatever the type has.
func TestAddPromptRefusesTheProgramsOwnMistakes(t *testing.T) {
	type one struct {
		A string `json:"a"`
	}
	ok := func(context.Context, one) (string, error) { return "", nil }
	values := func(context.Context, string, map[string]string) ([]string, error) { return nil, nil }
	for name, add := range map[string]func(*server.Server){
		"no name":     func(s *server.Server) { server.AddPrompt(s, protocol.Prompt{}, ok) },
		"no function": func(s *server.Server) { server.AddPrompt[one, string](s, protocol.Prompt{Name: "p"}, nil) },
		"completion of no argument": func(s *server.Server) {
			server.AddPrompt(s, protocol.Prompt{Name: "p"}, ok, server.Completion{Argument: "b", Values: values})
		},
		"completion by no function": func(s *server.Server) {
			server.AddPrompt(s, protocol.Prompt{Name: "p"}, ok, server.Completion{Argument: "a"})
		},
		"what becomes no message": func(s *server.Server) { addPromptOut(s, "p", 7) },
		"arguments of no known type": func(s *server.Server) {
			server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, int) (string, error) { return "", nil })
		},
	} {
		wantPanic(t, name, "server: prompt", func() { add(newServer(server.Options{})) })
	}
	s := newServer(server.Options{})
	declared := []protocol.PromptArgument{{Name: "a"}, {Name: "b", Required: true}}
	server.AddPrompt(s, protocol.Prompt{Name: "typed", Arguments: declared}, func(_ context.Context, in map[string]string) (string, error) { return in["a"] + in["b"], nil },
		server.Completion{Argument: "b", Values: values})
	server.AddPrompt(s, protocol.Prompt{Name: "raw", Arguments: declared}, func(_ context.Context, p *protocol.GetPromptParams) (string, error) { return p.Arguments["b"], nil })
	w := dial(t, s)
	for _, name := range []string{"typed", "raw"} {
		if fault := w.wantFault(jsonrpc.CodeInvalidParams, modern(`1`, "prompts/get", `"name":"`+name+`","arguments":{"a":"1"}`)); !strings.Contains(fault.Message, `"b" is missing`) {
			t.Errorf("%s: got %q", name, fault.Message)
		}
		w.send(modern(`1`, "prompts/get", `"name":"`+name+`","arguments":{"b":"it"}`))
		w.want(`"text":"it"`)
	}
}

// A resource's function can return any of several types. The MIME type says how bytes are sent, and is that of JSON for values.
//
// Guarantees: G-0029.1
func TestResultTypesOfAResource(t *testing.T) {
	s := newServer(server.Options{})
	add := func(name, mimeType string) protocol.Resource {
		return protocol.Resource{URI: "x://" + name, Name: name, MIMEType: mimeType}
	}
	addBytes := func(name, mimeType string, raw []byte) {
		server.AddResource(s, add(name, mimeType), func(context.Context) ([]byte, error) { return raw, nil })
	}
	server.AddResource(s, add("text", ""), func(context.Context) (string, error) { return "a\xff", nil })
	server.AddResource(s, add("list", ""), func(context.Context) ([]int, error) { return []int{1}, nil })
	server.AddResource(s, add("yaml", "text/yaml"), func(context.Context) (user, error) { return user{"Ada"}, nil })
	server.AddResource(s, add("whole", ""), func(context.Context) (*protocol.ReadResourceResult, error) {
		return &protocol.ReadResourceResult{Contents: []protocol.ResourceContents{{URI: "x://other", Blob: []byte{1}}}}, nil
	})
	server.AddResource(s, add("gone", ""), func(context.Context) (*protocol.ReadResourceResult, error) { return nil, nil })
	server.AddResource(s, add("broken", ""), func(context.Context) (broken, error) { return broken{}, nil })
	addBytes("nil", "", nil)
	addBytes("no_text", "image/png", nil)
	addBytes("png", "image/png", []byte("a"))
	addBytes("latin", "text/plain", []byte{0xff})
	addBytes("unreadable", "a b", []byte("a"))
	for i, mimeType := range textualTypes {
		addBytes(fmt.Sprint("textual", i), mimeType, []byte("a"))
	}
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "y://{n}", Name: "y"}, func(_ context.Context, in struct {
		N int `json:"n"`
	}) (int, error) {
		return in.N, nil
	})
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "z://{+rest}", Name: "z", MIMEType: "text/plain"}, func(_ context.Context, p *protocol.ReadResourceParams) (string, error) {
		return "raw " + p.URI, nil
	})
	w := dial(t, s)
	want := map[string]string{
		"x://text": `{"text":"a` + "\uFFFD" + `","uri":"x://text"}`, "x://list": `{"mimeType":"application/json","text":"[1]","uri":"x://list"}`,
		"x://yaml": `{"mimeType":"text/yaml","text":"{\"name\":\"Ada\"}","uri":"x://yaml"}`, "x://whole": `{"blob":"AQ==","uri":"x://other"}`,
		"x://nil": `{"text":"","uri":"x://nil"}`, "x://no_text": `{"blob":"","mimeType":"image/png","uri":"x://no_text"}`,
		"x://png": `{"blob":"YQ==","mimeType":"image/png","uri":"x://png"}`, "x://latin": `{"blob":"/w==","mimeType":"text/plain","uri":"x://latin"}`,
		"x://unreadable": `{"blob":"YQ==","mimeType":"a b","uri":"x://unreadable"}`,
		"y://7":          `{"mimeType":"application/json","text":"7","uri":"y://7"}`, "z://a/b": `{"mimeType":"text/plain","text":"raw z://a/b","uri":"z://a/b"}`,
	}
	for i, mimeType := range textualTypes {
		want[fmt.Sprint("x://textual", i)] = fmt.Sprintf(`{"mimeType":%q,"text":"a","uri":"x://textual%d"}`, mimeType, i)
	}
	for uri, want := range want {
		r := w.ask(modern(`1`, "resources/read", `"uri":"`+uri+`"`))
		var all []map[string]any
		if err := json.Unmarshal(r.Result["contents"], &all); err != nil || len(all) != 1 {
			t.Errorf("%s: got %s, %v", uri, r.Result, r.Error)
		} else if got, _ := json.Marshal(all[0]); string(got) != want {
			t.Errorf("%s: got %s, want %s", uri, got, want)
		}
	}
	for uri, want := range map[string]string{"x://gone": "not found: x://gone", "y://seven": "invalid URI", "x://broken": "the contents cannot be encoded"} {
		if got := w.ask(modern(`1`, "resources/read", `"uri":"`+uri+`"`)).Error; got == nil || !strings.Contains(got.Message, want) {
			t.Errorf("%s: got %v, want %q in it", uri, got, want)
		}
	}
	w.send(modern(`1`, "resources/list", ``))
	w.want(`"uri":"x://list","name":"list","mimeType":"application/json"`)
	wantPanic(t, "a type that cannot be encoded", "resource", func() {
		server.AddResource(s, add("chan", ""), func(context.Context) (chan int, error) { return nil, nil })
	})
}

// broken is a value that cannot be encoded.
type broken struct{}

func (broken) MarshalJSON() ([]byte, error) { return nil, fmt.Errorf("out of ink") }

var textualTypes = []string{
	"text/css", "application/json", "application/ld+json", "image/svg+xml", "application/xml", "text/x; charset=utf-8", "application/yaml",
	"application/javascript", "application/toml", "application/x-sh", "application/sql", "application/graphql", "application/x-yaml",
}

// A Result may have a _meta, which is sent.
func TestMetaOfAResult(t *testing.T) {
	s := newServer(server.Options{})
	addOut(s, "t", server.Result[int]{Value: 7, Meta: protocol.Meta{"own/key": json.RawMessage(`"value"`)}})
	addOut(s, "empty", server.Result[int]{Value: 7, Content: protocol.Contents{}})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	w.send(legacy(`1`, "tools/call", `"name":"t"`))
	w.want(`"own/key":"value"`, `"text":"7"`, `"structuredContent":{"result":7}`)
	w.send(legacy(`1`, "tools/call", `"name":"empty"`))
	w.want(`"content":[]`, `"structuredContent":{"result":7}`)
	for _, output := range []func(){
		func() { addOut(s, "x", []byte("a")) },
		func() { addOut(s, "x", protocol.CallToolResult{}) },
		add[struct{}, string](protocol.Tool{Name: "x", OutputSchema: anyObject}),
		add[struct{}, protocol.Contents](protocol.Tool{Name: "x", OutputSchema: anyObject}),
	} {
		wantPanic(t, "output", "tool", output)
	}
}

// A form begins with what the program suggests, where that says anything.
//
// Guarantees: G-0031.11
func TestSuggestionsOfAForm(t *testing.T) {
	type trip struct {
		City  string `json:"city"`
		Note  string `json:"note"`
		Days  *int   `json:"days"`
		Seats int    `json:"seats"`
	}
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
		_, err := server.Elicit(ctx, "Where to?", trip{City: "Oslo"})
		return "", err
	}, server.Asks(server.Reruns, forms))
	w := dial(t, s)
	r := w.ask(strings.Replace(modern(`1`, "tools/call", `"name":"t"`), `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{"form":{}}}`, 1))
	var asked map[string]struct {
		Params struct {
			RequestedSchema struct {
				Properties map[string]struct {
					Type    string
					Default json.RawMessage
				}
			}
		}
	}
	if err := json.Unmarshal(r.Result["inputRequests"], &asked); err != nil || len(asked) != 1 {
		t.Fatalf("got %s, %v: %v", r.Result, r.Error, err)
	}
	for _, q := range asked {
		var got []string
		for name, field := range q.Params.RequestedSchema.Properties {
			got = append(got, fmt.Sprintf("%s %s %s", name, field.Type, field.Default))
		}
		if slices.Sort(got); !slices.Equal(got, []string{`city string "Oslo"`, "days integer ", "note string ", "seats integer 0"}) {
			t.Errorf("got the fields %q", got)
		}
	}
}

// How long a list may be cached is nothing that a legacy client understands.
func TestLegacyListsHaveNoLifetime(t *testing.T) {
	s := newServer(server.Options{ListTTL: 1500_000_000})
	addNamed(s, "a")
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	if got := w.ask(legacy(`1`, "tools/list", ``)); got.text("ttlMs")+got.text("cacheScope") != "" || got.text("tools") == "" {
		t.Errorf("got %s", got.Result)
	}
}

// A client that must not be asked is refused also when what it lacks comes behind what its revision does not have, and one that is asked
// for no context needs no capability for that.
//
// Guarantees: G-0031.3
func TestNeedsBehindTheContext(t *testing.T) {
	here := &protocol.Capability{}
	s := newServer(server.Options{})
	ran := false
	server.AddTool(s, protocol.Tool{Name: "t"}, func(context.Context, struct{}) (string, error) { ran = true; return "", nil },
		server.Asks(server.Waits, protocol.ClientCapabilities{Sampling: &protocol.SamplingCapability{Context: here}, Roots: &protocol.RootsCapability{}}))
	server.AddTool(s, protocol.Tool{Name: "none"}, func(ctx context.Context, _ struct{}) (string, error) {
		_, err := server.Sample(ctx, &protocol.CreateMessageParams{MaxTokens: 1, IncludeContext: "none",
			Messages: []protocol.SamplingMessage{{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text("hi")}}}})
		return "", err
	}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
	w := dial(t, s)
	w.initializeWith(protocol.Version20250618, `{"sampling":{}}`)
	w.send(legacy(`1`, "tools/call", `"name":"t"`))
	if w.want("roots"); ran {
		t.Error("the handler has run for a client without roots")
	}
	latest := dial(t, s)
	latest.initializeWith(protocol.Version20251125, `{"sampling":{}}`)
	latest.send(legacy(`1`, "tools/call", `"name":"none"`))
	latest.want(`"sampling/createMessage"`, `"includeContext":"none"`)
}

// A form that cannot be read fails the question of an older client, and says why.
func TestFormsThatCannotBeRead(t *testing.T) {
	for form, want := range map[string]string{
		`{"type":"object","properties":[]}`:                "no object",
		`{"type":"object","properties":{"a":7}}`:           `its field \"a\"`,
		`{"type":"object","properties":{"a":{"type":7}}}`:  `its field \"a\"`,
		`{"type":"object","properties":{},"required":"a"}`: "its form cannot be read",
	} {
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			_, err := server.Ask(ctx, protocol.InputRequests{"q": &protocol.ElicitParams{Message: "m", RequestedSchema: json.RawMessage(form)}})
			return "", err
		}, server.Asks(server.Waits, forms))
		w := dial(t, s)
		w.initializeWith(protocol.Version20250618, `{"elicitation":{}}`)
		w.send(legacy(`1`, "tools/call", `"name":"t"`))
		w.want(want)
	}
}

// Middleware may pass on another context. The features work with it, too.
func TestMiddlewareWithAnotherContext(t *testing.T) {
	s := newServer(server.Options{Middleware: []server.Middleware{func(next server.Handler) server.Handler {
		return func(_ context.Context, r *server.Request) (any, error) { return next(context.Background(), r) }
	}}})
	server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(_ context.Context, in user) (string, error) { return "for " + in.Name, nil })
	server.AddTool(s, protocol.Tool{Name: "t"}, func(_ context.Context, in user) (string, error) { return "for " + in.Name, nil })
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	for method, params := range map[string]string{"prompts/get": `"name":"p","arguments":{"name":"Ada"}`, "tools/call": `"name":"t","arguments":{"name":"Ada"}`} {
		w.send(legacy(`1`, method, params))
		w.want(`for Ada`)
	}
}

// What a store does not have can be deleted as often as one likes: no room becomes free.
//
// Guarantees: G-0032.5
func TestDeletingWhatIsNotThere(t *testing.T) {
	if err := new(server.MemoryTaskStore).Delete(t.Context(), "none"); err != nil {
		t.Errorf("nothing was ever saved: %v", err)
	}
	store := &server.MemoryTaskStore{MaxTasks: 2}
	save := func(id string) error { return store.Save(t.Context(), taskOf(id, id, id, 1)) }
	if err := save("1"); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := store.Delete(t.Context(), "none"); err != nil {
			t.Error(err)
		}
	}
	if err := save("2"); err != nil {
		t.Error(err)
	}
	if save("3") == nil {
		t.Error("a store of two has taken a third task")
	}
}

// The error for a client that has not declared an extension names it.
func TestErrorNamesTheExtension(t *testing.T) {
	s := newTaskServer(server.TaskOptions{})
	w := dial(t, s.Server)
	for _, method := range []string{"tasks/get", "tasks/cancel"} {
		if fault := w.wantFault(protocol.CodeMissingCapability, modern(`1`, method, `"taskId":"x"`)); !strings.Contains(fault.Message, "extensions."+protocol.ExtensionTasks) {
			t.Errorf("%s: got %q", method, fault.Message)
		}
	}
}
