package client_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// everyHandler returns the options of a client that can be asked everything.
func everyHandler() client.Options {
	elicit := func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		return nil, nil
	}
	return client.Options{
		Elicit: elicit, ElicitURL: elicit, SampleTools: true,
		Sample: func(context.Context, *client.Session, *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			return nil, nil
		},
		Roots: func(context.Context, *client.Session) ([]protocol.Root, error) { return nil, nil },
	}
}

// passedOn returns a server that passes the params of each call of a tool to seen.
func passedOn(seen *json.RawMessage) *server.Server {
	return server.New(serverInfo, server.Options{
		Capabilities: protocol.ServerCapabilities{Tools: &protocol.ListCapability{}},
		Route: map[string]server.RawHandler{protocol.MethodCallTool: func(_ context.Context, params json.RawMessage) (json.RawMessage, error) {
			*seen = params
			return json.RawMessage(`{"content":[]}`), nil
		}},
	})
}

// A modern server may ask what both can answer, and make a task if both can have one: the client that made the request, and the session that
// passes it on. One that has said nothing of itself, as legacy clients do, can have no task. A legacy server has been told when the session
// began. It is the same with middleware.
//
// Guarantees: G-0089.4
func TestRelayDeclaresWhatBothCan(t *testing.T) {
	all := everyHandler()
	forms, pages, none := client.Options{Elicit: all.Elicit}, client.Options{ElicitURL: all.ElicitURL}, client.Options{}
	tasks, own := all, client.Options{Tasks: true}
	tasks.Tasks = true
	own.Capabilities.Extensions = map[string]json.RawMessage{"own/ext": json.RawMessage(`{"a":1}`)}
	noTools := client.Options{Sample: all.Sample}
	const withTasks = `"extensions":{"io.modelcontextprotocol/tasks":{}}`
	const everything = `"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}}`
	for name, c := range map[string]struct {
		own          client.Options
		theirs, want string // theirs: "" if nothing is said
	}{
		"all, less":                {all, `{"sampling":{},"elicitation":{"url":{}}}`, `{"sampling":{},"elicitation":{"url":{}}}`},
		"all, forms":               {all, `{"sampling":{"tools":{}},"elicitation":{},"roots":{}}`, `{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{}}}`},
		"all, more":                {all, `{` + everything + `,"extensions":{"x/y":{}}}`, `{` + everything + `}`},
		"all, nothing":             {all, `{}`, `{}`},
		"all, unsaid":              {all, ``, `{` + everything + `}`},
		"forms, others":            {forms, `{"sampling":{},"elicitation":{"url":{}},"roots":{}}`, `{}`},
		"forms, forms":             {forms, `{"elicitation":{"form":{}}}`, `{"elicitation":{"form":{}}}`},
		"forms, both":              {forms, `{"elicitation":{"form":{},"url":{}}}`, `{"elicitation":{"form":{}}}`},
		"pages, both":              {pages, `{"elicitation":{"form":{},"url":{}}}`, `{"elicitation":{"url":{}}}`},
		"pages, forms":             {pages, `{"elicitation":{"form":{}}}`, `{}`},
		"no tools, tools":          {noTools, `{"sampling":{"tools":{}}}`, `{"sampling":{}}`},
		"none, all":                {none, `{` + everything + `,` + withTasks + `}`, `{}`},
		"tasks, tasks":             {tasks, `{` + everything + `,` + withTasks + `}`, `{` + everything + `,` + withTasks + `}`},
		"tasks, no tasks":          {tasks, `{` + everything + `}`, `{` + everything + `}`},
		"tasks, unsaid":            {tasks, ``, `{` + everything + `}`},
		"own extension, no tasks":  {own, `{}`, `{"extensions":{"own/ext":{"a":1}}}`},
		"own extension, and tasks": {own, `{` + withTasks + `}`, `{"extensions":{"io.modelcontextprotocol/tasks":{},"own/ext":{"a":1}}}`},
		"own extension, unsaid":    {own, ``, `{"extensions":{"own/ext":{"a":1}}}`},
	} {
		for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
			for _, middleware := range []bool{false, true} {
				about := fmt.Sprintf("%s, %s, middleware %t", name, version, middleware)
				var seen json.RawMessage
				o := c.own
				if o.ProtocolVersion = version; middleware {
					o.Middleware = []client.Middleware{func(next client.Handler) client.Handler { return next }}
				}
				session := connectTo(t, passedOn(&seen), o)
				for _, more := range []string{``, `"mine":1`} { // twice: the second time, both are known
					var meta []string
					for _, part := range []string{more, c.theirs} {
						if part != "" && part == c.theirs {
							part = `"io.modelcontextprotocol/clientCapabilities":` + part
						}
						if part != "" {
							meta = append(meta, part)
						}
					}
					params := `{"name":"any"}`
					if len(meta) > 0 {
						params = `{"name":"any","_meta":{` + strings.Join(meta, ",") + `}}`
					}
					if _, err := session.Relay(t.Context(), protocol.MethodCallTool, json.RawMessage(params)); err != nil {
						t.Fatalf("%s: %v", about, err)
					}
					var got struct {
						Meta map[string]json.RawMessage `json:"_meta"`
					}
					if err := json.Unmarshal(seen, &got); err != nil {
						t.Fatal(err)
					}
					want := c.want
					if protocol.IsLegacy(version) {
						want = ""
					}
					if declared := string(got.Meta[protocol.MetaClientCapabilities]); !sameCapabilities(t, declared, want) {
						t.Errorf("%s, %s: the server was told %s, want %s", about, params, declared, want)
					}
					if (more != "") != (string(got.Meta["mine"]) == "1") {
						t.Errorf("%s, %s: the server got %s", about, params, seen)
					}
				}
			}
		}
	}
}

// sameCapabilities compares what is said, in whatever order.
func sameCapabilities(t *testing.T, a, b string) bool {
	t.Helper()
	var values [2]any
	for i, text := range []string{a, b} {
		if err := json.Unmarshal([]byte(cmp.Or(text, "null")), &values[i]); err != nil {
			t.Fatal(err)
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// Each client gets what it has itself, in whatever order they come, also one that says very much.
//
// Guarantees: G-0089.4
func TestRelayForSeveralClients(t *testing.T) {
	var seen json.RawMessage
	o := everyHandler()
	o.ProtocolVersion = protocol.Latest
	session := connectTo(t, passedOn(&seen), o)
	long := `{"roots":{},"extensions":{"x/y":{"a":"` + strings.Repeat("a", 3000) + `"}}}`
	for range 3 {
		for theirs, want := range map[string]string{`{"roots":{}}`: `{"roots":{}}`, `{"sampling":{}}`: `{"sampling":{}}`, long: `{"roots":{}}`} {
			params := `{"name":"any","_meta":{"io.modelcontextprotocol/clientCapabilities":` + theirs + `}}`
			if _, err := session.Relay(t.Context(), protocol.MethodCallTool, json.RawMessage(params)); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(seen), `"io.modelcontextprotocol/clientCapabilities":`+want) {
				t.Errorf("%.100s: the server got %s", theirs, seen)
			}
		}
	}
	for _, wrong := range []string{`7`, `{"roots":7}`} {
		seen = nil
		params := `{"name":"any","_meta":{"io.modelcontextprotocol/clientCapabilities":` + wrong + `}}`
		if _, err := session.Relay(t.Context(), protocol.MethodCallTool, json.RawMessage(params)); !client.NotExecuted(err) || seen != nil {
			t.Errorf("%s: got %v, and the server %s", wrong, err, seen)
		}
	}
}

// A method that this package does not know is relayed as it is. What is no object is not.
//
// Guarantees: G-0089.4
func TestRelayOfAMethodOfOnesOwn(t *testing.T) {
	var seen []string
	s := server.New(serverInfo, server.Options{})
	server.AddMethod(s, "own/method", func(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
		seen = append(seen, string(params))
		return json.RawMessage(`{"own":[1,2]}`), nil
	})
	session := connectTo(t, s, client.Options{ProtocolVersion: protocol.LatestLegacy})
	for _, params := range []string{`{"a":{"b":[1]}}`, ``} {
		if result, err := session.Relay(t.Context(), "own/method", json.RawMessage(params)); err != nil || !strings.Contains(string(result), `"own":[1,2]`) {
			t.Errorf("%s: got %s, %v", params, result, err)
		}
	}
	for _, params := range []string{`[]`, `7`, `{"a":1,"a":2}`, `{"a":{"b":1,"b":2}}`, `{"_meta":7}`, `{`, `{} {}`} {
		if _, err := session.Relay(t.Context(), "own/method", json.RawMessage(params)); !client.NotExecuted(err) || !strings.Contains(err.Error(), "own/method") {
			t.Errorf("%s: got %v, want an error that says it was not executed, and of which method", params, err)
		}
	}
	if len(seen) != 2 || seen[0] != `{"a":{"b":[1]}}` {
		t.Errorf("the server got %q", seen)
	}
}
