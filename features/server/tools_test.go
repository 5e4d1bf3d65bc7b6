package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A toolFunc is a tool that gets its params undecoded.
type toolFunc = func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error)

var anyObject = json.RawMessage(`{"type":"object"}`)

func newServer(o server.Options) *server.Server {
	return server.New(protocol.Implementation{Name: "s", Version: "1"}, o)
}

// startSession begins a session of the newest legacy revision with a server of one tool,
// "t".
func startSession(t *testing.T, tool protocol.Tool, handler toolFunc) *rawPeer {
	t.Helper()
	s := newServer(server.Options{})
	tool.Name = "t"
	if tool.InputSchema == nil {
		tool.InputSchema = anyObject
	}
	server.AddTool(s, tool, handler)
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	return w
}

// constantTool returns a handler that always returns the same.
func constantTool(result *protocol.CallToolResult, err error) toolFunc {
	return func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error) { return result, err }
}

func TestStructuredContentMatchesTheOutputSchema(t *testing.T) {
	promise := protocol.Tool{OutputSchema: json.RawMessage(`{"type":"object","properties":{"sum":{}}}`)}
	for _, test := range []struct {
		name    string
		content protocol.CallToolResult
		code    int64
	}{
		{"kept", protocol.CallToolResult{StructuredContent: json.RawMessage(`{"sum":6}`)}, 0},
		{"broken", protocol.CallToolResult{StructuredContent: json.RawMessage(`[]`)}, jsonrpc.CodeInternalError},
		{"forgotten", protocol.CallToolResult{}, jsonrpc.CodeInternalError},
		{"failed", protocol.CallToolResult{IsError: true}, 0},
	} {
		w := startSession(t, promise, constantTool(&test.content, nil))
		if got := w.call("t", `{}`); got.Error.Code != test.code {
			t.Errorf("%s: got %+v, want %v", test.name, got, test.code)
		}
	}
}

func TestToolWithoutResultIsAnInternalError(t *testing.T) {
	w := startSession(t, protocol.Tool{}, constantTool(nil, nil))
	if got := w.call("t", `{}`); got.Error.Code != jsonrpc.CodeInternalError || !strings.Contains(got.Error.Message, "no result") {
		t.Errorf("got %+v, want got.Error.Code == %v and %q in it", got, jsonrpc.CodeInternalError, "no result")
	}
}

func TestResultThatCannotBeEncodedIsAnInternalError(t *testing.T) {
	w := startSession(t, protocol.Tool{}, constantTool(&protocol.CallToolResult{StructuredContent: json.RawMessage(`{"a":`)}, nil))
	const want = "tools/call: the result cannot be encoded: "
	for _, fault := range []*fault{
		w.wantFault(jsonrpc.CodeInternalError, legacy(`1`, "tools/call", `"name":"t"`)), w.wantFault(jsonrpc.CodeInternalError, modern(`1`, "tools/call", `"name":"t"`)),
	} {
		if !strings.HasPrefix(fault.Message, want) {
			t.Errorf("got %q, want %q and why", fault.Message, want)
		}
	}
}

func TestToolErrorsAndProtocolErrorsDiffer(t *testing.T) {
	w := startSession(t, protocol.Tool{}, constantTool(nil, errors.New("out of paper")))
	if got := w.call("t", `{}`); !got.Result.IsError || got.Result.Content.Text() != "out of paper" {
		t.Errorf("a failure of the tool: got %+v, want a tool error and got.Result.Content.Text() == %q", got, "out of paper")
	}
	fault := &jsonrpc.Error{Code: -32050, Message: "sign in first"}
	w = startSession(t, protocol.Tool{}, constantTool(nil, fmt.Errorf("outer: %w", fault)))
	if got := w.call("t", `{}`); got.Error.Code != fault.Code || got.Error.Message != fault.Message {
		t.Errorf("a failure of the protocol: got %+v, want got.Error.Code == %v and got.Error.Message == %v", got, fault.Code, fault.Message)
	}
	// These have a code in 2026-07-28, and no other revision.
	for code, err := range map[int64]error{
		protocol.CodeMissingCapability: fmt.Errorf("outer: %w", &server.UnsupportedError{Capability: "sampling"}),
		jsonrpc.CodeInvalidParams:      fmt.Errorf("outer: %w", &server.AnswerError{Key: "a", Err: errors.New("too long")}),
	} {
		w = startSession(t, protocol.Tool{}, constantTool(nil, err))
		if got := w.call("t", `{}`); !got.Result.IsError || got.Result.Content.Text() != err.Error() {
			t.Errorf("before 2026-07-28: got %+v, want the tool error %q", got, err)
		}
		if got := w.wantFault(code, modern(`1`, "tools/call", `"name":"t"`)); got.Message != err.Error() {
			t.Errorf("in 2026-07-28: got %q, want %q", got.Message, err)
		}
	}
}

// What another server answers to a call of a handler is a failure of the handler. Its code does not
// become that of this server, which would make a client repeat a call that was executed, or look for
// a mistake in its own arguments.
func TestErrorOfAnotherCallIsAFailureOfTheHandler(t *testing.T) {
	for _, code := range []int64{jsonrpc.CodeOverloaded, jsonrpc.CodeInvalidParams, -32042} {
		t.Run(fmt.Sprint(code), func(t *testing.T) { testErrorOfAnotherCall(t, code) })
	}
}

func testErrorOfAnotherCall(t *testing.T, code int64) {
	upstream := fmt.Errorf("no receipt: %w", &conn.CallError{
		Method: "tools/call", Cause: conn.PeerError, Delivery: conn.Sent, Err: &jsonrpc.Error{Code: code, Message: "busy"},
	})
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(context.Context, struct{}) (string, error) { return "", upstream })
	server.AddTool(s, protocol.Tool{Name: "own"}, func(context.Context, struct{}) (string, error) {
		return "", fmt.Errorf("%w: %w", &jsonrpc.Error{Code: 7, Message: "own"}, upstream)
	})
	server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, struct{}) (string, error) { return "", upstream })
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	if got := w.call("t", `{}`); !got.Result.IsError || got.Result.Content.Text() != upstream.Error() {
		t.Errorf("the tool: got %+v, want the tool error %q", got, upstream)
	}
	if got := w.call("own", `{}`); got.Error.Code != 7 {
		t.Errorf("an error of its own: got %+v, want code 7", got)
	}
	w.send(`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p"}}`)
	var got answer
	if w.read(&got); got.Error.Code != jsonrpc.CodeInternalError || !strings.Contains(got.Error.Message, "busy") {
		t.Errorf("the prompt: got %+v, want code %d and its text", got.Error, jsonrpc.CodeInternalError)
	}
}

func TestInvalidArgumentsAreReportedAsTheRevisionRequires(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(_ context.Context, in struct {
		N int64 `json:"n"`
	}) (string, error) {
		return fmt.Sprint(in.N), nil
	})
	for _, arguments := range []string{`{"n":"one"}`, `{}`, `{"n":1.5}`, `{"n":9223372036854775808}`, `{"n":1e300}`} {
		w := dial(t, s)
		w.initialize(protocol.Version20251125)
		got := w.call("t", arguments)
		if !got.Result.IsError || strings.Contains(got.Result.Content.Text(), "int64") {
			t.Errorf("%s: got %+v, want a tool error and no %q in it", arguments, got, "int64")
		}
		w = dial(t, s)
		w.initialize(protocol.Version20250618)
		got = w.call("t", arguments)
		if got.Error.Code != jsonrpc.CodeInvalidParams || strings.Contains(got.Error.Message, "int64") {
			t.Errorf("%s before 2025-11-25: got %+v", arguments, got)
		}
	}
}

func TestPeersLearnNothingOfGoTypes(t *testing.T) {
	w := dial(t, echoServer())
	w.initialize(protocol.Version20251125)
	for _, params := range []string{`{"name":1}`, `{"name":"t","_meta":7}`, `{"name":"t","name":"t"}`} {
		w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`)
		var got answer
		w.read(&got)
		if got.Error.Code != jsonrpc.CodeInvalidParams || strings.Contains(got.Error.Message, "Go ") || strings.Contains(got.Error.Message, "protocol.") {
			t.Errorf("%s: got %+v, want got.Error.Code == %v, no %q in it and no %q in it", params, got.Error, jsonrpc.CodeInvalidParams, "Go ", "protocol.")
		}
	}
}

func TestErrorsShortenWhatAPeerSends(t *testing.T) {
	long := "x" + strings.Repeat("ä", 100_000)
	w := startSession(t, protocol.Tool{InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"}}}`)},
		constantTool(&protocol.CallToolResult{}, nil))
	for name, frame := range map[string]string{
		"tool":   `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + long + `"}}`,
		"method": `{"jsonrpc":"2.0","id":1,"method":"` + long[:1001] + `"}`,
		"member": `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"` + long + `":1,"` + long + `":1}}}`,
	} {
		w.send(frame)
		var got answer
		w.read(&got)
		if got.Error.Code == 0 || len(got.Error.Message) > 600 && name != "member" || len(got.Error.Message) > 4100 || strings.ContainsRune(got.Error.Message, utf8.RuneError) || strings.Contains(got.Error.Message, `\x`) {
			t.Errorf("%s: %d bytes: %.700s", name, len(got.Error.Message), got.Error.Message)
		}
	}
	text := w.call("t", `{"a":"`+long+`"}`).Result.Content.Text()
	if len(text) == 0 || len(text) > 600 || strings.ContainsRune(text, utf8.RuneError) {
		t.Errorf("arguments: %d bytes", len(text))
	}
}

// An error repeats at most 256 bytes of a name that a peer has sent, and all of a shorter one.
func TestErrorsRepeatTheBeginningOfANameThatAPeerSends(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := withSkills(t, server.Options{Tasks: &server.TaskOptions{}})
		server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, struct {
			N int    `json:"n"`
			A string `json:"a,omitempty" enum:"b"`
		}) (string, error) {
			return "", nil
		})
		server.AddTool(s, protocol.Tool{Name: "fails", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(_ context.Context, in struct{ Text string }) (string, error) {
				return "", &jsonrpc.Error{Code: 7, Message: in.Text}
			})
		server.AddTool(s, protocol.Tool{Name: "asks"}, func(ctx context.Context, _ struct{}) (string, error) {
			return "", server.Confirm(ctx, "Sure?")
		}, server.Asks(server.Waits, forms))
		legacyOne, unknown, w := dial(t, s), dial(t, s), dial(t, s)
		legacyOne.initialize(protocol.Version20251125)
		taskMessage := func(text string) string {
			got := w.ask(withTasks(`1`, "tools/call", `"name":"fails","arguments":{"Text":"`+text+`"}`))
			synctest.Wait()
			return w.ask(withTasks(`1`, "tasks/get", `"taskId":`+string(got.Result["taskId"]))).text("statusMessage")
		}
		round := func(text string) string {
			state := w.round("asks", "").State
			return w.round("asks", retryParams(state, `"1":{"action":"`+text+`"}`)).Error.Message
		}
		refused := func(w *rawPeer, frame func(id, method, params string) string, method, params string) func(string) string {
			return func(text string) string {
				got := w.ask(frame(`1`, strings.ReplaceAll(method, "X", text), strings.ReplaceAll(params, "X", text)))
				if got.Error == nil {
					return got.text("content")
				}
				return got.Error.Message
			}
		}
		for name, message := range map[string]func(text string) string{
			"a tool":                   refused(w, modern, "tools/call", `"name":"X"`),
			"a prompt":                 refused(w, modern, "prompts/get", `"name":"X"`),
			"an argument of a prompt":  refused(w, modern, "prompts/get", `"name":"p","arguments":{"n":"X"}`),
			"a resource":               refused(w, modern, "resources/read", `"uri":"X"`),
			"a skill":                  refused(w, modern, "skills/get", `"uri":"X"`),
			"a directory":              refused(w, modern, "resources/directory/read", `"uri":"X"`),
			"a task":                   refused(w, withTasks, "tasks/get", `"taskId":"X"`),
			"a completed prompt":       refused(w, modern, "completion/complete", `"ref":{"type":"ref/prompt","name":"X"},"argument":{"name":"a","value":""}`),
			"a completed resource":     refused(w, modern, "completion/complete", `"ref":{"type":"ref/resource","uri":"X"},"argument":{"name":"a","value":""}`),
			"a reference":              refused(w, modern, "completion/complete", `"ref":{"type":"X"},"argument":{"name":"a","value":""}`),
			"a method":                 refused(w, modern, "X", ``),
			"a method before its time": refused(unknown, legacy, "X", ``),
			"a log level":              refused(legacyOne, legacy, "logging/setLevel", `"level":"X"`),
			"a log level of a request": func(text string) string {
				frame := strings.Replace(modern(`1`, "tools/list", ``), `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"`+text+`",`, 1)
				return w.ask(frame).Error.Message
			},
			"a place in params": func(text string) string {
				const before = "/arguments/"
				got := refused(w, modern, "prompts/get", `"name":"p","arguments":{"X":7}`)(text[len(before):])
				return strings.Replace(got, before, text[:len(before)], 1)
			},
			"an action":             round,
			"the failure of a task": taskMessage,
		} {
			for size, want := range map[int]string{256: strings.Repeat("x", 256), 257: strings.Repeat("x", 256) + "…"} {
				got := message(strings.Repeat("x", size))
				if !strings.Contains(got, want) || strings.Contains(got, want+"x") || strings.Contains(got, want+"…") {
					t.Errorf("%s of %d bytes: got %q, want %d bytes of it", name, size, got, 256)
				}
			}
		}
		s.Close(t.Context())
	})
}

func TestAddToolRefusesInvalidNamesAndSchemas(t *testing.T) {
	nothing := constantTool(nil, errors.New("never called"))
	schema := func(s string) protocol.Tool { return protocol.Tool{Name: "x", InputSchema: json.RawMessage(s)} }
	for name, add := range map[string]func(*server.Server){
		"no name":            func(s *server.Server) { server.AddTool(s, protocol.Tool{InputSchema: anyObject}, nothing) },
		"no handler":         func(s *server.Server) { server.AddTool(s, schema(`{"type":"object"}`), toolFunc(nil)) },
		"no schema":          func(s *server.Server) { server.AddTool(s, protocol.Tool{Name: "x"}, nothing) },
		"schema of a string": func(s *server.Server) { server.AddTool(s, schema(`{"type":"string"}`), nothing) },
		"external reference": func(s *server.Server) {
			server.AddTool(s, schema(`{"type":"object","properties":{"a":{"$ref":"https://example.com/s"}}}`), nothing)
		},
		"endless schema": func(s *server.Server) { server.AddTool(s, schema(`{"type":"object","$ref":"#"}`), nothing) },
		"unknown dialect": func(s *server.Server) {
			server.AddTool(s, schema(`{"type":"object","$schema":"https://example.com/mine"}`), nothing)
		},
	} {
		wantPanic(t, name, "server: ", func() { add(newServer(server.Options{})) })
	}
}

// wantPanic checks that f panics with a message of this package.
func wantPanic(t *testing.T, name, message string, f func()) {
	t.Helper()
	defer func() {
		if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "server: ") || !strings.Contains(got, message) {
			t.Errorf("%s: got panic %q, want one with %q", name, got, message)
		}
	}()
	f()
}
