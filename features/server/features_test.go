package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/google/jsonschema-go/jsonschema"
)

// outcome returns a short form of a result: the types of its blocks, its text, and its
// structured content.
func outcome(r *protocol.CallToolResult) string {
	var blocks []string
	for _, block := range r.Content {
		blocks = append(blocks, strings.TrimPrefix(fmt.Sprintf("%T", block), "*protocol."))
	}
	return fmt.Sprintf("%v %s %s", blocks, r.Content.Text(), r.StructuredContent)
}

func addOut[Out any](s *server.Server, name string, out Out) {
	server.AddTool(s, protocol.Tool{Name: name}, func(context.Context, struct{}) (Out, error) { return out, nil })
}

// A tool's function can return any of several types. Each becomes the same content for
// clients of every revision.
//
// Guarantees: G-0029.1
func TestResultTypesOfATool(t *testing.T) {
	type celsius float64
	make := func() *server.Server {
		s := newServer(server.Options{})
		addOut(s, "text", "hi")
		addOut(s, "struct", user{"Ada"})
		addOut(s, "map", map[string]int{"a": 1})
		addOut(s, "list", []string{"a", "b"})
		addOut(s, "number", celsius(1.5))
		addOut(s, "bool", true)
		addOut(s, "time", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		addOut(s, "block", protocol.Image([]byte{1}, "image/png"))
		addOut(s, "blocks", protocol.Contents{protocol.Text("a"), protocol.Text("b")})
		addOut(s, "nothing", struct{}{})
		addOut(s, "both", server.Result[user]{Value: user{"Ada"}, Content: protocol.Texts("it is Ada")})
		addOut(s, "whole", &protocol.CallToolResult{Content: protocol.Texts("whole"), IsError: true})
		return s
	}
	everywhere(t, make, client.Options{}, func(t *testing.T, _ *server.Server, session *client.Session) {
		for name, want := range map[string]string{
			"text":    `[TextContent] hi `,
			"struct":  `[TextContent] {"name":"Ada"} {"name":"Ada"}`,
			"map":     `[TextContent] {"a":1} {"a":1}`,
			"list":    `[TextContent] ["a","b"] {"result":["a","b"]}`,
			"number":  `[TextContent] 1.5 {"result":1.5}`,
			"bool":    `[TextContent] true {"result":true}`,
			"time":    `[TextContent] "2026-01-02T03:04:05Z" {"result":"2026-01-02T03:04:05Z"}`,
			"block":   `[ImageContent]  `,
			"blocks":  "[TextContent TextContent] a\nb ",
			"nothing": `[]  `,
			"both":    `[TextContent] it is Ada {"name":"Ada"}`,
			"whole":   `[TextContent] whole `,
		} {
			result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else if got := outcome(result); got != want || result.IsError != (name == "whole") {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
		if n, err := client.Call[[]string](t.Context(), session, "list", nil); err != nil || !slices.Equal(n, []string{"a", "b"}) {
			t.Errorf("a typed call: got %v, %v, want %v", n, err, []string{"a", "b"})
		}
	})
}

type style string

func (style) EnumValues() []string { return []string{"short", "long"} }

// Struct tags describe the arguments of a tool and fill in their defaults. AddTool
// panics for tags that are wrong.
//
// Guarantees: G-0029.2, G-0029.15
func TestTagsDescribeAndFillIn(t *testing.T) {
	type query struct {
		City  string   `json:"city" jsonschema:"the city" minLength:"2" pattern:"^[A-Z]" title:"City"`
		Unit  string   `json:"unit" enum:"celsius,fahrenheit" default:"celsius"`
		Days  int      `json:"days" minimum:"1" maximum:"7" default:"3"`
		Tags  []string `json:"tags,omitzero" enum:"a,b"`
		Style style    `json:"style,omitempty"`
		Where struct {
			Zone string `json:"zone" default:"UTC"`
		} `json:"where,omitzero"`
		Mail *string `json:"mail" format:"email"`
	}
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(_ context.Context, in query) (string, error) {
		return fmt.Sprint(in.City, " ", in.Unit, " ", in.Days, " ", in.Tags, " ", in.Style, " ", in.Where.Zone), nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	w.want(`"required":["city"]`, `"enum":["celsius","fahrenheit"]`, `"default":"celsius"`, `"minimum":1,`, `"maximum":7`, `"minLength":2`,
		`"title":"City"`, `"pattern":"^[A-Z]"`, `"items":{"type":"string","enum":["a","b"]}`, `"enum":["short","long"]`, `"format":"email"`, `"description":"the city"`)
	for arguments, want := range map[string]string{
		`{"city":"Oslo"}`: "Oslo celsius 3 []  UTC", `{"city":"O\ud800","days":1.0}`: "O\ufffd celsius 1 []  UTC", // half a character hides no integer
		`{"city":"Oslo","unit":"fahrenheit","days":1.0,"tags":["b"],"style":"long","where":{"zone":"CET"}}`: "Oslo fahrenheit 1 [b] long CET",
		`{"city":"oslo"}`: "", `{"city":"O"}`: "", `{"city":"Oslo","unit":"kelvin"}`: "", `{"city":"Oslo","days":8}`: "",
		`{"city":"Oslo","tags":["c"]}`: "", `{"city":"Oslo","style":"none"}`: "", `{}`: "",
	} {
		got := w.call("t", arguments)
		if got.Result.IsError != (want == "") || want != "" && got.Result.Content.Text() != want {
			t.Errorf("%s: got %q, want %q", arguments, got.Result.Content.Text(), want)
		}
	}
	for name, add := range map[string]func(){
		"default of another type": add[struct {
			N int `json:"n" default:"many"`
		}, string](protocol.Tool{Name: "x"}),
		"default outside of the enum": add[struct {
			Unit string `json:"unit" enum:"celsius,fahrenheit" default:"kelvin"`
		}, string](protocol.Tool{Name: "x"}),
		"default of a list outside of the enum": add[struct {
			Units []string `json:"units" enum:"celsius,fahrenheit" default:"[\"kelvin\"]"`
		}, string](protocol.Tool{Name: "x"}),
		"default below the minimum": add[struct {
			N int `json:"n" minimum:"1" default:"0"`
		}, string](protocol.Tool{Name: "x"}),
		"default that does not match": add[struct {
			S string `json:"s" pattern:"^a" default:"b"`
		}, string](protocol.Tool{Name: "x"}),
		"default of another format": add[struct {
			S string `json:"s" format:"email" default:"b"`
		}, string](protocol.Tool{Name: "x"}),
		"default in a struct": add[struct {
			In struct {
				Unit string `json:"unit" enum:"celsius" default:"kelvin"`
			}
		}, string](protocol.Tool{Name: "x"}),
		"minimum that is not a number": add[struct {
			N int `json:"n" minimum:"few"`
		}, string](protocol.Tool{Name: "x"}),
		"header of a list": add[struct {
			N []int `json:"n" header:"N"`
		}, string](protocol.Tool{Name: "x"}),
		"invalid header": add[struct {
			N int `json:"n" header:"a b"`
		}, string](protocol.Tool{Name: "x"}),
	} {
		wantPanic(t, name, "tool", add)
	}
}

type review struct {
	File  string `json:"file" jsonschema:"what to read"`
	Style string `json:"style,omitzero" enum:"short,thorough"`
	Lines int    `json:"lines,omitzero"`
}

func reviewServer() *server.Server {
	s := newServer(server.Options{})
	server.AddPrompt(s, protocol.Prompt{Name: "review", Description: "a review"}, func(_ context.Context, r review) (string, error) {
		return fmt.Sprintf("a %s review of %s, %d lines", r.Style, r.File, r.Lines), nil
	}, server.Completion{Argument: "file", Values: func(_ context.Context, typed string, known map[string]string) (all []string, _ error) {
		for i := range 150 {
			all = append(all, fmt.Sprint(typed, i, known["style"]))
		}
		return all, nil
	}})
	server.AddPrompt(s, protocol.Prompt{Name: "picture"}, func(context.Context, struct{}) (*protocol.ImageContent, error) {
		return protocol.Image([]byte{1}, "image/png"), nil
	})
	server.AddPrompt(s, protocol.Prompt{Name: "fails"}, func(context.Context, map[string]string) ([]protocol.PromptMessage, error) {
		return nil, errors.New("out of ink")
	})
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "x://{style}", Name: "x"}, func(_ context.Context, in struct {
		Style string `json:"style" enum:"short,thorough"`
	}) (string, error) {
		return in.Style, nil
	})
	return s
}

// Prompts are listed with their arguments. A prompt with missing, unknown or invalid
// arguments is refused.
//
// Guarantees: G-0029.1
func TestPromptsAreListedAndMade(t *testing.T) {
	everywhere(t, reviewServer, client.Options{}, func(t *testing.T, _ *server.Server, session *client.Session) {
		page, err := session.ListPrompts(t.Context(), nil)
		if err != nil || len(page.Prompts) != 3 {
			t.Fatalf("got %+v, %v, want 3 elements", page, err)
		}
		if got := fmt.Sprint(page.Prompts[2].Arguments); got != "[{file  what to read true} {style   false} {lines   false}]" {
			t.Errorf("the arguments are %s, want %q", got, "[{file  what to read true} {style   false} {lines   false}]")
		}
		got, err := session.GetPrompt(t.Context(), &protocol.GetPromptParams{Name: "review", Arguments: map[string]string{"file": "a.go", "style": "short", "lines": "12"}})
		if err != nil || got.Description != "a review" || len(got.Messages) != 1 || got.Messages[0].Role != protocol.RoleUser ||
			got.Messages[0].Content.(*protocol.TextContent).Text != "a short review of a.go, 12 lines" {
			t.Errorf("got %+v, %v", got, err)
		}
		picture, err := session.GetPrompt(t.Context(), &protocol.GetPromptParams{Name: "picture"})
		if err != nil || len(picture.Messages) != 1 {
			t.Errorf("got %+v, %v, want 1 element", picture, err)
		}
		for _, bad := range []struct {
			name      string
			arguments map[string]string
			code      int64
		}{
			{"none", nil, jsonrpc.CodeInvalidParams},
			{"review", nil, jsonrpc.CodeInvalidParams},
			{"review", map[string]string{"file": "a", "style": "rude"}, jsonrpc.CodeInvalidParams},
			{"review", map[string]string{"file": "a", "lines": "many"}, jsonrpc.CodeInvalidParams},
			{"review", map[string]string{"file": "a", "other": "b"}, jsonrpc.CodeInvalidParams},
			{"fails", nil, jsonrpc.CodeInternalError},
		} {
			_, err := session.GetPrompt(t.Context(), &protocol.GetPromptParams{Name: bad.name, Arguments: bad.arguments})
			var fault *jsonrpc.Error
			if !errors.As(err, &fault) || fault.Code != bad.code {
				t.Errorf("%s %v: got %v, want a *jsonrpc.Error and fault.Code == %v", bad.name, bad.arguments, err, bad.code)
			}
		}
	})
}

// Enums complete automatically, and other arguments by the function that was given for
// them. Completion of anything unknown is refused.
//
// Guarantees: G-0029.6
func TestArgumentsComplete(t *testing.T) {
	everywhere(t, reviewServer, client.Options{}, func(t *testing.T, _ *server.Server, session *client.Session) {
		prompt := protocol.CompleteReference{Type: protocol.ReferencePrompt, Name: "review"}
		complete := func(ref protocol.CompleteReference, argument, typed string, known map[string]string) (protocol.Completion, error) {
			result, err := session.Complete(t.Context(), &protocol.CompleteParams{
				Ref: ref, Argument: protocol.CompleteArgument{Name: argument, Value: typed}, Context: &protocol.CompleteContext{Arguments: known},
			})
			if err != nil {
				return protocol.Completion{}, err
			}
			return result.Completion, nil
		}
		if got, err := complete(prompt, "style", "th", nil); err != nil || !slices.Equal(got.Values, []string{"thorough"}) {
			t.Errorf("an enum: got %+v, %v, want %v", got, err, []string{"thorough"})
		}
		if got, err := complete(protocol.CompleteReference{Type: protocol.ReferenceResource, URI: "x://{style}"}, "style", "", nil); err != nil || len(got.Values) != 2 {
			t.Errorf("a template: got %+v, %v, want 2 elements", got, err)
		}
		got, err := complete(prompt, "file", "f", map[string]string{"style": "!"})
		if err != nil || len(got.Values) != 100 || got.Values[7] != "f7!" || !got.HasMore || got.Total == nil || *got.Total != 150 {
			t.Errorf("a function: got %+v, %v", got, err)
		}
		if got, err := complete(prompt, "lines", "", nil); err != nil || len(got.Values) != 0 {
			t.Errorf("an argument without a function: got %+v, %v, want none", got, err)
		}
		for _, ref := range []protocol.CompleteReference{{Type: protocol.ReferencePrompt, Name: "none"}, {Type: protocol.ReferenceResource, URI: "none"}} {
			if _, err := complete(ref, "a", "", nil); err == nil {
				t.Errorf("%+v was completed, want an error", ref)
			}
		}
	})
}

func loggingServer() *server.Server {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "logs"}, func(ctx context.Context, _ struct{}) (string, error) {
		log := server.Logger(ctx).With("a", 1).WithGroup("g")
		log.Debug("quiet")
		log.Warn("loud", "b", errors.New("oh"), "d", time.Second)
		slog.New(server.LogHandler(slog.DiscardHandler)).With("c", 2).ErrorContext(ctx, "both")
		server.Logger(ctx).Log(ctx, slog.LevelError+12, "bare")
		return "done", nil
	})
	return s
}

// A log message goes to the client whose request is being handled, if the client has
// asked for its level.
//
// Guarantees: G-0029.7
func TestLogsGoToClientsThatWantThem(t *testing.T) {
	messages := make(chan *client.LogMessage, 10)
	o := client.Options{LogLevel: protocol.LogWarning, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
		if m, ok := e.(*client.LogMessage); ok {
			messages <- m
		}
	}}
	everywhere(t, loggingServer, o, func(t *testing.T, _ *server.Server, session *client.Session) {
		if session.Server().ProtocolVersion != protocol.Latest { // in that revision each request has a level
			if err := session.SetLogLevel(t.Context(), protocol.LogWarning); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "logs"}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`warning {"a":1,"g":{"b":"oh","d":"1s"},"msg":"loud"}`,
			`error {"c":2,"msg":"both"}`,
			`emergency "bare"`,
		} {
			m := within(t, messages)
			var data any
			if err := json.Unmarshal(m.Data, &data); err != nil {
				t.Fatal(err)
			}
			sorted, err := json.Marshal(data)
			if got := string(m.Level) + " " + string(sorted); err != nil || got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	})
	w := dial(t, loggingServer())
	w.initialize(protocol.Version20251125)
	w.call("logs", `{}`) // call fails unless the next frame is the answer: this client has not asked for log messages
	w.wantFault(jsonrpc.CodeInvalidParams, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"loud"}}`)
	w.wantFault(jsonrpc.CodeInvalidParams, strings.Replace(modern(`1`, "tools/list", ``), `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"loud",`, 1))
	server.Logger(context.Background()).Error("reaches no client")
	server.Progress(context.Background(), 1, 2, "")
	if err := server.Confirm(context.Background(), "Sure?"); !errors.Is(err, server.ErrNoRequest) {
		t.Errorf("got %v, want %v", err, server.ErrNoRequest)
	}
}

// Middleware sees requests, notifications and questions in both directions. The first
// middleware is the outermost, and each is applied once.
//
// Guarantees: G-0029.8
func TestMiddlewareWrapsBothDirections(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	var applied atomic.Int64
	initialized := make(chan struct{}, 16) // of each middleware and client; a notification may arrive behind the calls
	watch := func(name string) server.Middleware {
		return func(next server.Handler) server.Handler {
			applied.Add(1)
			return func(ctx context.Context, r *server.Request) (any, error) {
				mu.Lock()
				seen = append(seen, fmt.Sprintf("%s %s %t %t", name, r.Method, r.Outgoing, r.Notification))
				mu.Unlock()
				if r.Method == protocol.NotificationInitialized {
					initialized <- struct{}{}
				}
				if r.Client == nil || r.Origin == nil {
					t.Errorf("the request %s has no client or no origin, want both", r.Method)
				}
				return next(ctx, r)
			}
		}
	}
	newWatched := func() *server.Server {
		applied.Store(0)
		seen = nil
		s := newServer(server.Options{Middleware: []server.Middleware{watch("outer"), watch("inner")}})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			return "yes", server.Confirm(ctx, "Sure?")
		}, server.Asks(server.Waits, forms))
		return s
	}
	everywhereSince(t, protocol.Version20250618, newWatched, client.Options{Elicit: fillIn}, func(t *testing.T, _ *server.Server, session *client.Session) {
		for range 2 {
			if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "t"}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := session.Request(t.Context(), "no/such", nil); err == nil {
			t.Error("an unknown method was served, want an error")
		}
		if session.Server().ProtocolVersion != protocol.Latest {
			for range 2 {
				testenv.Receive(t, initialized, "notifications/initialized at each middleware")
			}
		}
		mu.Lock()
		defer mu.Unlock()
		all := strings.Join(seen, "\n")
		want := []string{"outer tools/call false false\ninner tools/call false false", "outer no/such false false"}
		if session.Server().ProtocolVersion != protocol.Latest {
			want = append(want, "outer elicitation/create true false\ninner elicitation/create true false", "notifications/initialized false true")
		}
		for _, one := range want {
			if !strings.Contains(all, one) {
				t.Errorf("got\n%s\nwant %s in it", all, one)
			}
		}
		if applied.Load() != 2 {
			t.Errorf("the middleware was applied %d times, want 1", applied.Load())
		}
	})
}

// If a middleware changes the result of initialize for one client, the next client
// still gets the unchanged result.
func TestMiddlewareMayChangeTheResultOfInitialize(t *testing.T) {
	s := newServer(server.Options{Instructions: "read me", Middleware: []server.Middleware{
		server.On(func(ctx context.Context, p *protocol.InitializeParams, next func(context.Context, *protocol.InitializeParams) (*protocol.InitializeResult, error)) (*protocol.InitializeResult, error) {
			result, err := next(ctx, p)
			if err == nil {
				result.Instructions += ", please"
			}
			return result, err
		}),
	}})
	for range 2 {
		w := dial(t, s)
		got := w.ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"0"}}}`)
		if instructions := string(got.Result["instructions"]); instructions != `"read me, please"` {
			t.Errorf("got %s, want %q", instructions, `"read me, please"`)
		}
	}
}

// What a middleware passes on is not what the ones around it have passed on.
//
// Guarantees: G-0029.8
func TestParamsOfAMiddlewareAreItsOwn(t *testing.T) {
	around := func(next server.Handler) server.Handler {
		return func(ctx context.Context, r *server.Request) (any, error) {
			before := r.Params
			result, err := next(ctx, r)
			if r.Params != before {
				t.Errorf("%s: the params are %+v, and were %+v", r.Method, r.Params, before)
			}
			return result, err
		}
	}
	s := newServer(server.Options{Middleware: []server.Middleware{
		around,
		server.On(func(ctx context.Context, p *protocol.CallToolParams, next func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error)) (*protocol.CallToolResult, error) {
			changed := *p
			changed.Name = "first"
			return next(ctx, &changed)
		}),
	}})
	addNamed(s, "first")
	w := dial(t, s)
	if got := w.ask(modern("1", "tools/call", `"name":"alias"`)); got.Error != nil {
		t.Errorf("%+v", got.Error)
	}
}

// On applies to one method. It can answer itself, or change the request that it passes
// on.
//
// Guarantees: G-0029.8
func TestOnWrapsOneMethod(t *testing.T) {
	s := newServer(server.Options{Middleware: []server.Middleware{
		server.On(func(ctx context.Context, p *protocol.CallToolParams, next func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error)) (*protocol.CallToolResult, error) {
			switch p.Name {
			case "shell":
				return nil, &jsonrpc.Error{Code: 403, Message: "not here"}
			case "alias":
				changed := *p
				changed.Name = "a"
				p = &changed
			}
			result, err := next(ctx, p)
			if err == nil {
				copied := *result
				copied.Content = append(protocol.Texts("before"), result.Content...)
				result = &copied
			}
			return result, err
		}),
		func(next server.Handler) server.Handler {
			return func(ctx context.Context, r *server.Request) (any, error) {
				switch p, _ := r.Params.(*protocol.CallToolParams); {
				case p != nil && p.Name == "odd":
					return "no result", nil
				case p != nil && p.Name == "none":
					return nil, nil
				case p != nil && p.Name == "params":
					changed := *r
					changed.Params = "no params"
					return next(ctx, &changed)
				}
				return next(ctx, r)
			}
		},
		server.On(func(context.Context, *protocol.ProgressParams, func(context.Context, *protocol.ProgressParams) (*protocol.EmptyResult, error)) (*protocol.EmptyResult, error) {
			return nil, errors.New("a notification is no request")
		}),
	}})
	server.AddTool(s, protocol.Tool{Name: "a"}, func(ctx context.Context, _ struct{}) (string, error) {
		server.Progress(ctx, 1, 2, "")
		return "a", nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	if got := w.call("alias", `{}`).Result.Content.Text(); got != "before\na" {
		t.Errorf("got %q, want %q", got, "before\na")
	}
	if got := w.call("shell", `{}`); got.Error.Code != 403 {
		t.Errorf("got %+v, want 403", got)
	}
	for name, kind := range map[string]string{"odd": "string", "none": "<nil>"} {
		want := "tools/call has a result of type " + kind + ", want *protocol.CallToolResult"
		if got := w.call(name, `{}`); got.Error.Code != jsonrpc.CodeInternalError || !strings.Contains(got.Error.Message, want) {
			t.Errorf("%s: got %+v, want an internal error that says %q", name, got, want)
		}
	}
	if got := w.call("params", `{}`); !strings.Contains(got.Error.Message, "tools/call: params of type string, want *protocol.CallToolParams") {
		t.Errorf("params of another type: got %+v, want an error that names both types", got)
	}
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	w.want(`"name":"a"`)
	w.send(legacy(`1`, "tools/call", `"name":"a","_meta":{"progressToken":1}`))
	w.want(protocol.NotificationProgress)
	w.want(`"id":1`, `before`)
}

type phrase struct {
	Text string `json:"text"`
}

// A program can add its own methods. Fallback gets every other unknown request and
// notification.
//
// Guarantees: G-0029.9
func TestOwnMethodsAndTheFallback(t *testing.T) {
	guard, cancel := context.WithTimeout(t.Context(), 20*time.Second) // for all revisions together
	defer cancel()
	notified := make(chan string, 10)
	make := func() *server.Server {
		s := newServer(server.Options{Fallback: func(_ context.Context, r *server.Request) (any, error) {
			raw, _ := r.Params.(json.RawMessage)
			if r.Notification {
				notified <- r.Method
				return nil, nil
			}
			return map[string]any{"fallback": r.Method, "params": strings.Contains(string(raw), "hi")}, nil
		}})
		server.AddMethod(s, "latin/translate", func(_ context.Context, in phrase) (phrase, error) { return phrase{"LATIN " + in.Text}, nil })
		return s
	}
	everywhere(t, make, client.Options{}, func(t *testing.T, _ *server.Server, session *client.Session) {
		raw, err := session.Request(guard, "latin/translate", phrase{"hi"})
		if err != nil || !strings.Contains(string(raw), `"text":"LATIN hi"`) {
			t.Errorf("got %s, %v, want %q in it", raw, err, `"text":"LATIN hi"`)
		}
		raw, err = session.Request(guard, "no/such", phrase{"hi"})
		if err != nil || !strings.Contains(string(raw), `"fallback":"no/such"`) || !strings.Contains(string(raw), `"params":true`) {
			t.Errorf("got %s, %v, want %q in it and %q in it", raw, err, `"fallback":"no/such"`, `"params":true`)
		}
		if session.Server().ProtocolVersion == protocol.Latest {
			return // in that revision, clients send no notifications over HTTP
		}
		if err := session.Notify(guard, "notifications/odd", nil); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-notified:
			if got != "notifications/odd" {
				t.Errorf("the fallback got %s, want notifications/odd", got)
			}
		case <-guard.Done():
			t.Error("the fallback got no notification in 20 s, want notifications/odd")
		}
	})
	for _, name := range []string{"", "tools/call", "notifications/cancelled"} {
		wantPanic(t, name, "method", func() {
			server.AddMethod(newServer(server.Options{}), name, func(context.Context, phrase) (phrase, error) { return phrase{}, nil })
		})
	}
}

type userKey struct{}

// authenticate stands for any middleware of net/http.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

// A bearer adds the user to each request. The user can change between requests.
type bearer struct {
	user *atomic.Value
	next http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.user.Load().(string))
	r.Header.Set("X-Region", "eu")
	return b.next.RoundTrip(r)
}

// The context values that middleware of net/http adds to a request are in the context
// of the handler of that call, and of no other.
//
// Guarantees: G-0028.2
func TestHandlersKnowWhoCallsThem(t *testing.T) {
	s := newServer(server.Options{SessionContext: func(ctx context.Context, session *server.Session) context.Context {
		ctx = context.WithValue(ctx, userKey{}, "the user of the session") // which those of a request hide
		return context.WithValue(ctx, "session", session.ID())             //nolint:staticcheck // any key will do
	}})
	server.AddTool(s, protocol.Tool{Name: "whoami"}, func(ctx context.Context, _ struct{}) (string, error) {
		r := server.RequestFrom(ctx)
		id, _ := ctx.Value("session").(string)
		if (r.Session != nil) != (id != "") || r.Session != nil && r.Session.ID() != id {
			t.Errorf("the session is %v, and its context has %q", r.Session, id)
		}
		return ctx.Value(userKey{}).(string) + " " + r.Origin.Header("x-region") + " " + r.Client.Info.Name, nil
	})
	url := site(t, s, authenticate)
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		var name atomic.Value
		name.Store("ada")
		pool := &http.Transport{}
		defer pool.CloseIdleConnections()
		session := open(t, &streamable.Client{URL: url, HTTP: &http.Client{Transport: bearer{&name, pool}}}, client.Options{ProtocolVersion: version})
		for _, user := range []string{"ada", "grace"} { // in one session
			name.Store(user)
			got, err := client.Call[string](t.Context(), session, "whoami", nil)
			if err != nil || got != user+" eu c" {
				t.Errorf("%s: got %q, %v, want %q", version, got, err, user+" eu c")
			}
		}
	}
	if n := len(slices.Collect(s.Sessions())); n != 1 {
		t.Errorf("there are %d legacy sessions, want 1", n)
	}
}

// The context that SessionContext returns ends with the session.
func TestSessionContextEndsWithItsSession(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		ended := make(chan struct{})
		s := newServer(server.Options{SessionContext: func(ctx context.Context, session *server.Session) context.Context {
			context.AfterFunc(ctx, func() { close(ended) })
			if session.Client().ProtocolVersion != protocol.Version20250618 {
				t.Errorf("the client is %+v", session.Client())
			}
			return ctx
		}})
		w := dial(t, s)
		w.initialize(protocol.Version20250618)
		w.send(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`)
		w.want(`"result":{}`)
		for session := range s.Sessions() {
			session.Logger().Info("by itself")
			w.want(`"method":"notifications/message"`, `"data":"by itself"`)
			session.Close(t.Context())
		}
		<-ended
	})
}

// So does the one that SessionContext was given, if the client leaves before it has returned.
func TestSessionContextOfAClientThatLeaves(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		begun, ended := make(chan struct{}), make(chan struct{})
		s := newServer(server.Options{SessionContext: func(ctx context.Context, _ *server.Session) context.Context {
			close(begun)
			<-ctx.Done()
			close(ended)
			return ctx
		}})
		w := accept(t, s)
		w.send(strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1))
		<-begun
		w.link.Close(0)
		<-ended
	})
}

// So it does if the client has left before SessionContext is called.
func TestSessionContextOfAClientThatHasLeft(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		left, ended := make(chan struct{}), make(chan struct{})
		s := newServer(server.Options{
			SessionContext: func(ctx context.Context, _ *server.Session) context.Context {
				<-ctx.Done()
				close(ended)
				return ctx
			},
			Middleware: []server.Middleware{func(next server.Handler) server.Handler {
				return func(ctx context.Context, r *server.Request) (any, error) {
					<-left
					return next(ctx, r)
				}
			}},
		})
		w := accept(t, s)
		w.send(strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1))
		synctest.Wait()
		w.link.Close(0)
		pass(time.Minute) // nobody waits for a handler for so long
		close(left)
		<-ended
	})
}

// The server calls OnRootsChanged when the client says that its roots have changed.
func TestRootsThatChangedAreReported(t *testing.T) {
	changed := make(chan *server.Session, 1)
	s := newServer(server.Options{OnRootsChanged: func(_ context.Context, session *server.Session) { changed <- session }})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	w.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	if within(t, changed) == nil {
		t.Error("the context has no session, want one")
	}
}

// A block type that an old revision lacks is sent to its clients as text.
func TestOldClientsGetNoBlocksThatTheyDoNotKnow(t *testing.T) {
	s := newServer(server.Options{})
	addOut(s, "t", protocol.Contents{protocol.Audio([]byte{1}, "audio/wav"), &protocol.ResourceLink{URI: "x://a", Name: "a"}})
	server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, struct{}) (protocol.Contents, error) {
		return protocol.Contents{&protocol.ResourceLink{URI: "x://a", Name: "a"}}, nil
	})
	for version, want := range map[string]string{
		protocol.Version20241105: "[TextContent TextContent] (audio/wav, 1 bytes)\na: x://a ",
		protocol.Version20250326: "[AudioContent TextContent] a: x://a ",
		protocol.Version20250618: "[AudioContent ResourceLink]  ",
	} {
		w := dial(t, s)
		w.initialize(version)
		got := w.call("t", `{}`).Result
		if text := outcome(&got); text != want {
			t.Errorf("%s: got %q, want %v", version, text, want)
		}
		w.send(`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p"}}`)
		if frame := w.next(); strings.Contains(frame, "resource_link") != (version == protocol.Version20250618) {
			t.Errorf("%s: got %s", version, frame)
		}
	}
}

// AddTool panics for each kind of mistake that its comment names.
//
// Guarantees: G-0029.1
func TestAddToolPanicsForMistakesOfTheProgram(t *testing.T) {
	type loop struct{ Next []loop }
	nothing := func(context.Context, struct{}) (string, error) { return "", nil }
	s := newServer(server.Options{})
	for name, add := range map[string]func(){
		"no function": func() { server.AddTool[struct{}, string](s, protocol.Tool{Name: "t"}, nil) },
		"no name":     func() { server.AddTool(s, protocol.Tool{}, nothing) },
		"an invalid schema": func() {
			server.AddTool(s, protocol.Tool{Name: "t", InputSchema: json.RawMessage(`{"type":7}`)}, nothing)
		},
		"no schema": func() {
			server.AddTool(s, protocol.Tool{Name: "t"}, func(context.Context, loop) (string, error) { return "", nil })
		},
		"an interface as result": func() {
			server.AddTool(s, protocol.Tool{Name: "t"}, func(context.Context, struct{}) (any, error) { return nil, nil })
		},
		"unknown task support": func() {
			server.AddTool(s, protocol.Tool{Name: "t", Execution: &protocol.ToolExecution{TaskSupport: "sometimes"}}, nothing)
		},
		"an option of prompts": func() {
			server.AddTool(s, protocol.Tool{Name: "t"}, nothing, server.Completion{Argument: "a"})
		},
	} {
		wantPanic(t, name, "tool", add)
	}
	with := server.InputSchema
	for want, add := range map[string]func(){
		"two input schemas": func() {
			server.AddTool(s, protocol.Tool{Name: "t", InputSchema: json.RawMessage(`{"type":"object"}`)}, nothing, with(&jsonschema.Schema{Type: "object"}))
		},
		`its type is not "object"`: func() { server.AddTool(s, protocol.Tool{Name: "t"}, nothing, with(&jsonschema.Schema{Type: "array"})) },
		`$dynamicRef "#a": use $ref`: func() {
			server.AddTool(s, protocol.Tool{Name: "t"}, nothing, with(&jsonschema.Schema{Type: "object", DynamicRef: "#a"}))
		},
		`$ref "https://example.com/a" is in another document`: func() {
			server.AddTool(s, protocol.Tool{Name: "t", OutputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"$ref":"https://example.com/a"}}}`)},
				func(context.Context, struct{}) (map[string]string, error) { return nil, nil })
		},
		"InputSchema takes a schema": func() { with(nil) },
		"InputSchema: ":              func() { with(&jsonschema.Schema{Type: "object", Types: []string{"object"}}) },
		"only tools have an input schema": func() {
			server.AddPrompt(s, protocol.Prompt{Name: "p"}, nothing, with(&jsonschema.Schema{Type: "object"}))
		},
		`resource "x://a": only tools`: func() {
			server.AddResource(s, protocol.Resource{URI: "x://a", Name: "a"}, func(context.Context) (string, error) { return "", nil }, with(&jsonschema.Schema{Type: "object"}))
		},
		`template "x://a": only tools`: func() {
			server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "x://a", Name: "a"}, nothing, with(&jsonschema.Schema{Type: "object"}))
		},
	} {
		wantPanic(t, want, want, add)
	}
}

// The schema of the option is what clients see, as it was when the option was made, and what arguments have to fit.
//
// Guarantees: G-0106.8
func TestInputSchemaOfAnOption(t *testing.T) {
	own := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{"n": {Type: "integer", Default: json.RawMessage("7")}}}
	option := server.InputSchema(own)
	own.Type = "array"
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(_ context.Context, in struct {
		N int `json:"n"`
	}) (int, error) {
		return in.N, nil
	}, option)
	if got, want := string(inputSchema(t, s, "t")), `{"type":"object","properties":{"n":{"type":"integer","default":7}}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	for arguments, want := range map[string]string{`{}`: "7", `{"n":8}`: "8", `{"n":"8"}`: "invalid arguments: /n is a string"} {
		if got := w.call("t", arguments); !strings.Contains(outcome(&got.Result), want) {
			t.Errorf("%s: got %s, want %s", arguments, outcome(&got.Result), want)
		}
	}
}
