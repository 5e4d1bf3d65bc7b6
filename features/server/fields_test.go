package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A form with every kind of field that the specification has, each with a default
// (2025-11-25 client/elicitation).
const everyField = `{"type":"object","required":["text"],"properties":{
	"text":{"type":"string","minLength":1,"maxLength":9,"default":"a"},
	"mail":{"type":"string","format":"email","default":"a@example.com"},
	"uri":{"type":"string","format":"uri","default":"https://example.com/"},
	"day":{"type":"string","format":"date","default":"2026-07-28"},
	"when":{"type":"string","format":"date-time","default":"2026-07-28T12:00:00Z"},
	"ratio":{"type":"number","minimum":0,"maximum":1,"default":0.5},
	"count":{"type":"integer","minimum":1,"maximum":9,"default":2},
	"yes":{"type":"boolean","default":false},
	"one":{"type":"string","enum":["r","g"],"default":"g"},
	"titled":{"type":"string","oneOf":[{"const":"r","title":"Red"},{"const":"g","title":"Green"}],"default":"g"},
	"named":{"type":"string","enum":["r","g"],"enumNames":["Red","Green"],"default":"g"},
	"many":{"type":"array","items":{"type":"string","enum":["r","g","b"]},"minItems":1,"maxItems":2,"default":["r","g"]},
	"titles":{"type":"array","items":{"anyOf":[{"const":"r","title":"Red"},{"const":"g","title":"Green"}]},"maxItems":1,"default":[]}}}`

const everyDefault = `{"text":"a","mail":"a@example.com","uri":"https://example.com/","day":"2026-07-28","when":"2026-07-28T12:00:00Z",` +
	`"ratio":0.5,"count":2,"yes":false,"one":"g","titled":"g","named":"g","many":["r","g"],"titles":[]}`

// The client fills in the default of each field that its user leaves out, and cancels
// if an answer does not fit the form, for every kind of field.
func TestEveryKindOfField(t *testing.T) {
	var typed atomic.Pointer[map[string]any]
	o := client.Options{Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		return client.Accept(*typed.Load())
	}}
	everywhereSince(t, protocol.Version20251125, askingEveryField, o, func(t *testing.T, _ *server.Server, session *client.Session) {
		call := func(answer map[string]any) (*protocol.CallToolResult, error) {
			typed.Store(&answer)
			return session.CallTool(t.Context(), &protocol.CallToolParams{Name: "form"})
		}
		got, err := call(nil)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, "defaults", got.Content.Text(), "accept "+everyDefault)
		chosen := map[string]any{"text": "b", "mail": "b@example.com", "uri": "urn:b", "day": "2026-07-29", "when": "2026-07-29T00:00:00Z", "ratio": 1, "count": 9,
			"yes": true, "one": "r", "titled": "r", "named": "r", "many": []string{"b"}, "titles": []string{"r"}}
		if got, err = call(chosen); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(chosen)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, "a choice", got.Content.Text(), "accept "+string(raw))
		for name, wrong := range map[string]any{
			"text": "", "mail": "b", "uri": "b", "day": "29.7.2026", "when": "2026-07-29", "ratio": 1.5, "count": 0, "yes": "yes", "one": "Green", "titled": "Green", "named": "Green", "many": []string{}, "titles": []string{"b"},
		} {
			got, err := call(map[string]any{name: wrong})
			if err == nil && got.Content.Text() != "cancel " {
				t.Errorf("%s: %v: got %+v, want cancel", name, wrong, got.Content.Text())
			}
		}
	})
}

// The server checks the formats of an answer itself.
//
// Guarantees: G-0031.13, G-0031.6
func TestServerChecksTheFormatsOfAnAnswer(t *testing.T) {
	w := dial(t, askingEveryField())
	for name, text := range map[string]string{"mail": "b", "uri": "b", "day": "29.7.2026", "when": "2026-07-29"} {
		got := w.round("form", fmt.Sprintf(`,"inputResponses":{"q":{"action":"accept","content":{%q:%q}}}`, name, text))
		if !got.Error.is(jsonrpc.CodeInvalidParams, "/"+name) {
			t.Errorf("%s %q: got %+v, want the error %d with %q", name, text, got, jsonrpc.CodeInvalidParams, "/"+name)
		}
	}
}

func askingEveryField() *server.Server {
	s := newServer(server.Options{})
	needs := protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{Form: &protocol.Capability{}}}
	server.AddTool(s, protocol.Tool{Name: "form"}, func(ctx context.Context, _ struct{}) (string, error) {
		answers, err := server.Ask(ctx, protocol.InputRequests{"q": &protocol.ElicitParams{Message: "Which?", RequestedSchema: json.RawMessage(everyField)}})
		if err != nil {
			return "", err
		}
		answer := answers["q"].(*protocol.ElicitResult)
		return answer.Action + " " + string(answer.Content), nil
	}, server.Asks(server.Reruns, needs))
	return s
}

// wantSame compares texts that end with a JSON object.
func wantSame(t *testing.T, what, got, want string) {
	t.Helper()
	parts := func(text string) (string, any) {
		for i := range text {
			if text[i] == '{' {
				var value any
				if err := json.Unmarshal([]byte(text[i:]), &value); err != nil {
					t.Fatalf("%s: %s: %v", what, text, err)
				}
				again, err := json.Marshal(value)
				if err != nil {
					t.Fatal(err)
				}
				return text[:i], string(again)
			}
		}
		return text, nil
	}
	gotHead, gotValue := parts(got)
	wantHead, wantValue := parts(want)
	if gotHead != wantHead || gotValue != wantValue {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

// The client does not open pages itself: the program gets the whole URL and the name of
// the server. The content of an answer is dropped, and only accept counts as consent.
func TestPagesAreNeverFetched(t *testing.T) {
	var fetched atomic.Int64
	page := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { fetched.Add(1) }))
	defer page.Close()
	address := page.URL + "/in?state=0123456789&next=%2Fhome#top"
	newAsking := func() *server.Server {
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "in"}, func(ctx context.Context, _ struct{}) (string, error) {
			return "consent", server.ElicitURL(ctx, "Sign in", address)
		}, server.Asks(server.Reruns, pages))
		return s
	}
	var answer atomic.Pointer[protocol.ElicitResult]
	shown := make(chan string, 1)
	o := client.Options{ElicitURL: func(_ context.Context, s *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		shown <- s.Server().Info.Name + ": " + p.Message + ": " + p.URL
		return answer.Load(), nil
	}}
	everywhereSince(t, protocol.Version20251125, newAsking, o, func(t *testing.T, s *server.Server, session *client.Session) {
		for action, consents := range map[string]bool{protocol.ElicitAccept: true, protocol.ElicitDecline: false, protocol.ElicitCancel: false, "yes": false} {
			answer.Store(&protocol.ElicitResult{Action: action, Content: json.RawMessage(`{"secret":1}`)})
			result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "in"})
			if got := err == nil && !result.IsError; got != consents || consents && result.Content.Text() != "consent" {
				t.Errorf("%s: consent is %v (%+v, %v), want %v", action, got, result, err, consents)
			}
			if got := within(t, shown); got != session.Server().Info.Name+": Sign in: "+address {
				t.Errorf("the user was shown %s", got)
			}
		}
	})
	if n := fetched.Load(); n != 0 {
		t.Errorf("the page was fetched %d times, want 0", n)
	}
}

// A handler cannot ask a question that the client's revision lacks, even if the client
// declares the capability. It gets ErrUnsupported.
func TestQuestionsAreThoseOfTheRevision(t *testing.T) {
	type question func(context.Context) error
	tool := &protocol.CreateMessageParams{MaxTokens: 1, Tools: []*protocol.Tool{{Name: "t", InputSchema: json.RawMessage(`{"type":"object"}`)}},
		Messages: []protocol.SamplingMessage{{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text("hi")}}}}
	since := map[string]string{"form": protocol.Version20250618, "url": protocol.Version20251125, "tools": protocol.Version20251125}
	newAsking := func() *server.Server {
		s := newServer(server.Options{})
		for name, ask := range map[string]question{
			"form":  func(ctx context.Context) error { return server.Confirm(ctx, "Sure?") },
			"url":   func(ctx context.Context) error { return server.ElicitURL(ctx, "Sign in", "https://example.com/") },
			"tools": func(ctx context.Context) error { _, err := server.Sample(ctx, tool); return err },
		} {
			server.AddTool(s, protocol.Tool{Name: name}, func(ctx context.Context, _ struct{}) (string, error) {
				err := ask(ctx)
				if errors.Is(err, server.ErrUnsupported) {
					return "unsupported", nil
				}
				return "asked", err
			}, server.Asks(server.Reruns, protocol.ClientCapabilities{}))
		}
		return s
	}
	yes := func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		return client.Accept(nil)
	}
	o := client.Options{Elicit: yes, ElicitURL: yes, SampleTools: true,
		Sample: func(context.Context, *client.Session, *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			return &protocol.CreateMessageResult{Role: protocol.RoleAssistant, Model: "m", Content: protocol.SamplingContents{protocol.Text("hello")}}, nil
		}}
	everywhere(t, newAsking, o, func(t *testing.T, _ *server.Server, session *client.Session) {
		for name, first := range since {
			want := "asked"
			if session.Server().ProtocolVersion < first {
				want = "unsupported"
			}
			result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name})
			if err != nil || result.Content.Text() != want {
				t.Errorf("%s: got %+v, %v; want %s", name, result, err, want)
			}
		}
	})
}

// A client of 2025-06-18 gets forms of that revision: defaults for bools only, titles
// in enumNames, and no multiple choice. The order of the fields stays the same.
//
// Guarantees: G-0031.10
func TestFormsAreThoseOfTheRevision(t *testing.T) {
	const older = `{"type":"object","required":["text"],"properties":{` +
		`"text":{"type":"string","minLength":1,"maxLength":9},` +
		`"mail":{"type":"string","format":"email"},` +
		`"uri":{"type":"string","format":"uri"},` +
		`"day":{"type":"string","format":"date"},` +
		`"when":{"type":"string","format":"date-time"},` +
		`"ratio":{"type":"number","minimum":0,"maximum":1},` +
		`"count":{"type":"integer","minimum":1,"maximum":9},` +
		`"yes":{"type":"boolean","default":false},` +
		`"one":{"type":"string","enum":["r","g"]},` +
		`"titled":{"type":"string","enum":["r","g"],"enumNames":["Red","Green"]},` +
		`"named":{"type":"string","enum":["r","g"],"enumNames":["Red","Green"]}}}`
	form := func(schema string) *protocol.ElicitParams {
		return &protocol.ElicitParams{Mode: protocol.ElicitForm, Message: "Which?", RequestedSchema: json.RawMessage(schema)}
	}
	newAsking := func() *server.Server {
		s := newServer(server.Options{})
		for name, schema := range map[string]string{
			"form":    strings.Replace(everyField, `{`, `{"$schema":"https://json-schema.org/draft/2020-12/schema",`, 1),
			"several": strings.Replace(everyField, `"text"]`, `"text","many"]`, 1),
			"broken":  `{"type":"object","properties":{"a":7}}`,
		} {
			server.AddTool(s, protocol.Tool{Name: name}, func(ctx context.Context, _ struct{}) (string, error) {
				answers, err := server.Ask(ctx, protocol.InputRequests{"q": form(schema)})
				if errors.Is(err, server.ErrUnsupported) {
					return "unsupported", nil
				}
				if err != nil {
					return "", err
				}
				return string(answers["q"].(*protocol.ElicitResult).Content), nil
			}, server.Asks(server.Reruns, forms))
		}
		return s
	}
	shown := make(chan *protocol.ElicitParams, 1)
	o := client.Options{Elicit: func(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		shown <- p
		return client.Accept(map[string]any{"text": "b", "titled": "r"})
	}}
	everywhereSince(t, protocol.Version20250618, newAsking, o, func(t *testing.T, _ *server.Server, session *client.Session) {
		call := func(tool string) (*protocol.CallToolResult, error) {
			return session.CallTool(t.Context(), &protocol.CallToolParams{Name: tool})
		}
		got, err := call("form")
		if err != nil || got.IsError {
			t.Fatalf("got %+v, %v, want no error", got, err)
		}
		asked := within(t, shown)
		if session.Server().ProtocolVersion > protocol.Version20250618 {
			if !strings.Contains(string(asked.RequestedSchema), `"many"`) {
				t.Errorf("the user is shown %s, want %q in it", asked.RequestedSchema, `"many"`)
			}
			return
		}
		if string(asked.RequestedSchema) != older || asked.Mode != "" {
			t.Errorf("the user is shown %q %s, want %s", asked.Mode, asked.RequestedSchema, older)
		}
		wantSame(t, "the answer", got.Content.Text(), `{"text":"b","titled":"r","yes":false}`)
		if got, err = call("several"); err != nil || got.Content.Text() != "unsupported" {
			t.Errorf("a choice of several that is required: got %+v, %v, want %q", got, err, "unsupported")
		}
		if got, err = call("broken"); err != nil || !got.IsError || !strings.Contains(got.Content.Text(), `its field "a"`) {
			t.Errorf("an invalid form: got %+v, %v, want a tool error and %q in it", got, err, `its field "a"`)
		}
		select {
		case p := <-shown:
			t.Errorf("the user was shown %s", p.RequestedSchema)
		default:
		}
	})
}

// Before 2025-11-25, the server splits a message into messages of one block each, and
// cannot send the use of a tool to the client's model.
//
// Guarantees: G-0031.10
func TestConversationsAreThoseOfTheRevision(t *testing.T) {
	received := make(chan []protocol.SamplingMessage, 1)
	newAsking := func() *server.Server {
		s := newServer(server.Options{})
		for name, second := range map[string]protocol.Content{
			"text": protocol.Text("b"), "sound": &protocol.AudioContent{Data: []byte("b"), MIMEType: "audio/wav"},
			"tool": &protocol.ToolUseContent{ID: "1", Name: "t", Input: json.RawMessage("{}")},
		} {
			server.AddTool(s, protocol.Tool{Name: name}, func(ctx context.Context, _ struct{}) (string, error) {
				said, err := server.Sample(ctx, &protocol.CreateMessageParams{MaxTokens: 1, Messages: []protocol.SamplingMessage{
					{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text("a"), second}, Meta: protocol.Meta{"x.example/y": json.RawMessage("1")}},
				}})
				if errors.Is(err, server.ErrUnsupported) {
					return "unsupported", nil
				}
				if err != nil {
					return "", err
				}
				return said.Content.Text(), nil
			}, server.Asks(server.Reruns, protocol.ClientCapabilities{Sampling: &protocol.SamplingCapability{}}))
		}
		return s
	}
	o := client.Options{Sample: func(_ context.Context, _ *client.Session, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
		received <- p.Messages
		return &protocol.CreateMessageResult{Role: protocol.RoleAssistant, Model: "m", Content: protocol.SamplingContents{protocol.Text("hello")}}, nil
	}}
	everywhere(t, newAsking, o, func(t *testing.T, _ *server.Server, session *client.Session) {
		version := session.Server().ProtocolVersion
		for tool, want := range map[string]string{"text": "hello", "sound": "hello", "tool": "unsupported"} {
			if tool == "tool" && version >= protocol.Version20251125 {
				continue // needs a client whose model can use tools
			}
			got, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: tool})
			if err != nil || got.Content.Text() != want {
				t.Errorf("%s: got %+v, %v; want %s", tool, got, err, want)
			}
			if want != "hello" {
				continue
			}
			messages := within(t, received)
			if version >= protocol.Version20251125 {
				if len(messages) != 1 || len(messages[0].Content) != 2 || len(messages[0].Meta) != 1 {
					t.Errorf("%s: the model is shown %+v", tool, messages)
				}
				continue
			}
			if len(messages) != 2 || len(messages[0].Content) != 1 || len(messages[1].Content) != 1 || len(messages[0].Meta) != 0 {
				t.Fatalf("%s: the model is shown %+v", tool, messages)
			}
			_, sound := messages[1].Content[0].(*protocol.AudioContent)
			if want := tool == "sound" && version > protocol.Version20241105; sound != want {
				t.Errorf("%s: the model is shown %+v", tool, messages[1].Content[0])
			}
		}
	})
}

// Elicit returns what the user gave and the defaults of tags, but nothing that was only
// suggested: neither from a client that leaves suggestions to its user, nor from one of
// 2025-06-18, whose user never saw them.
//
// Guarantees: G-0031.11
func TestElicitReturnsOnlyWhatTheUserGave(t *testing.T) {
	type trip struct {
		City string `json:"city,omitempty"`
		Days int    `json:"days,omitempty" default:"3"`
		Note string `json:"note,omitempty"`
	}
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "book"}, func(ctx context.Context, _ struct{}) (string, error) {
		got, err := server.Elicit(ctx, "Where to?", trip{City: "Oslo", Days: 5, Note: "by train"})
		return fmt.Sprintf("%+v", got), err
	}, server.Asks(server.Reruns, forms))
	const answer = `{"action":"accept","content":{"note":"by boat"}}`
	const want = "{City: Days:3 Note:by boat}"

	w := dial(t, s)
	first := w.round("book", "")
	if got := w.round("book", retryParams(first.State, `"1":`+answer)); !strings.Contains(got.Text, want) {
		t.Errorf("%s: got %+v, want %s", protocol.Latest, got, want)
	}
	for _, version := range []string{protocol.Version20250618, protocol.Version20251125} {
		w := dial(t, s)
		w.send(strings.NewReplacer("VERSION", version, `"capabilities":{}`, `"capabilities":{"elicitation":{}}`).Replace(initializeFrame))
		w.want(`"serverInfo"`)
		w.send(
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"book"}}`,
		)
		var question struct {
			ID json.RawMessage `json:"id"`
		}
		w.read(&question)
		w.send(`{"jsonrpc":"2.0","id":` + string(question.ID) + `,"result":` + answer + `}`)
		w.want(want)
	}
}
