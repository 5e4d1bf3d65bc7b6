package server_test

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/features/skills"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/google/jsonschema-go/jsonschema"
)

// Every way to add, replace or remove a feature tells the clients of the list that has changed, and of no other. What changes nothing
// tells nobody.
//
// Guarantees: G-0029.4
func TestEveryChangeOfAFeatureIsTold(t *testing.T) {
	tool := func(s *server.Server) { addNamed(s, "t") }
	prompt := func(s *server.Server) {
		server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, struct{}) (string, error) { return "", nil })
	}
	resource := func(s *server.Server) {
		server.AddResource(s, protocol.Resource{URI: "x://a", Name: "a"}, func(context.Context) (string, error) { return "", nil })
	}
	template := func(s *server.Server) {
		server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "y://{a}", Name: "a"}, func(context.Context, map[string]string) (string, error) { return "", nil })
	}
	files := func(s *server.Server) { s.AddFiles("files://a", fstest.MapFS{}, server.FilesOptions{}) }
	skill := func(s *server.Server) {
		if err := skills.New(s).Add(fstest.MapFS{}); err != nil {
			t.Error(err)
		}
	}
	inBothEras(t, func(t *testing.T, modernly bool) {
		s := newServer(changeable())
		w := listener(t, s, modernly)
		for _, step := range []struct {
			change func(*server.Server)
			told   string
		}{
			{tool, toldTools}, {tool, toldTools}, {prompt, toldPrompts}, {prompt, toldPrompts}, {resource, toldResources}, {resource, toldResources},
			{template, toldResources}, {template, toldResources}, {files, toldResources}, {skill, toldResources},
			{func(s *server.Server) {
				s.RemoveTools("none")
				s.RemovePrompts("none")
				s.RemoveResources("none")
				s.RemoveTemplates("none")
			}, ""},
			{func(s *server.Server) { s.RemoveTools("none", "t") }, toldTools},
			{func(s *server.Server) { s.RemovePrompts("p", "none") }, toldPrompts},
			{func(s *server.Server) { s.RemoveResources("x://a") }, toldResources},
			{func(s *server.Server) { s.RemoveTemplates("y://{a}") }, toldResources},
			{func(s *server.Server) {
				s.RemoveTools("t")
				s.RemovePrompts("p")
				s.RemoveResources("x://a")
				s.RemoveTemplates("y://{a}")
			}, ""},
			{func(s *server.Server) { s.ResourceUpdated("x://a") }, toldUpdated + "x://a"},
			{func(s *server.Server) { s.ResourceUpdated("x://other") }, ""},
		} {
			step.change(s)
			w.wantTold(strings.FieldsFunc(step.told, func(c rune) bool { return c == '\n' })...)
		}
	})
}

// A feature of which a mistake is found when it is added panics with the kind and the name of the feature, and what is wrong.
// The server does not have it then.
func TestMistakesOfAFeatureAreNamed(t *testing.T) {
	type user struct {
		Name string `json:"name"`
	}
	none := func(context.Context, struct{}) (string, error) { return "", nil }
	asks := server.Asks(server.Waits, forms)
	fleet := server.Options{Asking: server.AskingOptions{Fleet: true, Secrets: fixed(make([]byte, 32))}}
	read := func(context.Context) (string, error) { return "", nil }
	const noFunction, inFleet = "a name and a function are needed", "set Options.Node"
	for name, test := range map[string]struct {
		o    server.Options
		add  func(*server.Server)
		want string
	}{
		"tool in a fleet":   {fleet, func(s *server.Server) { server.AddTool(s, protocol.Tool{Name: "a"}, none, asks) }, `tool "a": in a Fleet`},
		"prompt in a fleet": {fleet, func(s *server.Server) { server.AddPrompt(s, protocol.Prompt{Name: "a"}, none, asks) }, inFleet},
		"resource in a fleet": {fleet, func(s *server.Server) {
			server.AddResource(s, protocol.Resource{URI: "x://a", Name: "a"}, read, asks)
		}, inFleet},
		"template in a fleet": {fleet, func(s *server.Server) {
			server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "x://{name}", Name: "a"}, func(context.Context, user) (string, error) { return "", nil }, asks)
		}, inFleet},
		"tool of two input schemas": {add: func(s *server.Server) {
			server.AddTool(s, protocol.Tool{Name: "a", InputSchema: anyObject}, none, server.InputSchema(&jsonschema.Schema{Type: "object", Title: "another"}))
		}, want: `tool "a": it has two input schemas`},
		"tool of a broken output schema": {add: func(s *server.Server) {
			server.AddTool(s, protocol.Tool{Name: "a", OutputSchema: json.RawMessage(`{"$ref":"#/none"}`)}, func(context.Context, struct{}) (user, error) { return user{}, nil })
		}, want: `tool "a": `},
		"tool of an unknown support of tasks": {add: func(s *server.Server) {
			server.AddTool(s, protocol.Tool{Name: "a", Execution: &protocol.ToolExecution{TaskSupport: "some"}}, none)
		}, want: `tool "a": unknown task support "some"`},
		"completion of a resource": {add: func(s *server.Server) {
			server.AddResource(s, protocol.Resource{URI: "x://a", Name: "a"}, read, server.Completion{Argument: "name"})
		}, want: `completion of "name"`},
		"tool without a function":     {add: func(s *server.Server) { server.AddTool[struct{}, string](s, protocol.Tool{Name: "a"}, nil) }, want: "no function"},
		"prompt without a function":   {add: func(s *server.Server) { server.AddPrompt[struct{}, string](s, protocol.Prompt{Name: "a"}, nil) }, want: `prompt "a": ` + noFunction},
		"prompt without a name":       {add: func(s *server.Server) { server.AddPrompt(s, protocol.Prompt{}, none) }, want: noFunction},
		"resource without a function": {add: func(s *server.Server) { server.AddResource[string](s, protocol.Resource{URI: "x://a", Name: "a"}, nil) }, want: `resource "x://a": ` + noFunction},
		"resource without a name":     {add: func(s *server.Server) { server.AddResource(s, protocol.Resource{URI: "x://a"}, read) }, want: noFunction},
		"resource without a URI":      {add: func(s *server.Server) { server.AddResource(s, protocol.Resource{Name: "a"}, read) }, want: "not absolute"},
		"resource of a broken URI":    {add: func(s *server.Server) { server.AddResource(s, protocol.Resource{URI: "x://%zz", Name: "a"}, read) }, want: "not absolute"},
		"resource of a relative URI":  {add: func(s *server.Server) { server.AddResource(s, protocol.Resource{URI: "/a", Name: "a"}, read) }, want: "not absolute"},
		"template without a function": {add: func(s *server.Server) {
			server.AddTemplate[struct{}, string](s, protocol.ResourceTemplate{URITemplate: "x://a", Name: "a"}, nil)
		}, want: `template "x://a": ` + noFunction},
		"template without a name":  {add: func(s *server.Server) { server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "x://a"}, none) }, want: noFunction},
		"files without a scheme":   {add: func(s *server.Server) { s.AddFiles("docs", fstest.MapFS{}, server.FilesOptions{}) }, want: `files "docs": the base is not an absolute URI`},
		"files of a broken URI":    {add: func(s *server.Server) { s.AddFiles("x://%zz", fstest.MapFS{}, server.FilesOptions{}) }, want: "not an absolute URI"},
		"no files":                 {add: func(s *server.Server) { s.AddFiles("x://a", nil, server.FilesOptions{}) }, want: "os.DirFS follows links"},
		"a method of its own":      {add: func(s *server.Server) { server.AddMethod(s, "tasks/get", none) }, want: `method "tasks/get"`},
		"a method of the protocol": {add: func(s *server.Server) { server.AddMethod(s, "tools/list", none) }, want: `method "tools/list"`},
		"a method without a name":  {add: func(s *server.Server) { server.AddMethod(s, "", none) }, want: "a name of its own"},
		"a method of no function":  {add: func(s *server.Server) { server.AddMethod[struct{}, string](s, "a/b", nil) }, want: "and a function"},
		"no way to ask":            {add: func(*server.Server) { server.Asks(0, forms) }, want: "Waits or Reruns"},
		"an unknown way to ask":    {add: func(*server.Server) { server.Asks(server.Reruns+1, forms) }, want: "Waits or Reruns"},
	} {
		s := newServer(test.o)
		wantPanic(t, name, test.want, func() { test.add(s) })
		if got := dial(t, s).ask(modern(`1`, "server/discover", ``)).text("capabilities"); got != `{"logging":{}}` {
			t.Errorf("%s: the server has the capabilities %s, want no feature", name, got)
		}
	}
	longest := strings.Repeat("aZ09_-.b", 16)
	addNamed(newServer(server.Options{}), longest)
	for bad, want := range map[string]string{
		"": "a name is needed", longest + "a": "longer than 128", "a b": `contains ' '`, "ä": `contains 'ä'`, "a/b": `contains '/'`,
		"a`": "contains '`'", "a{": `contains '{'`, "a@": `contains '@'`, "a[": `contains '['`, "a:": `contains ':'`,
	} {
		wantPanic(t, bad, want, func() { addNamed(newServer(server.Options{}), bad) })
	}
}

// A server without tasks calls a tool that may or must become one as any other, whatever the client declares.
//
// Guarantees: G-0032.8
func TestWithoutTasksEveryToolIsCalled(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newServer(server.Options{})
		for _, support := range []protocol.TaskSupport{"", protocol.TaskForbidden, protocol.TaskOptional, protocol.TaskRequired} {
			server.AddTool(s, protocol.Tool{Name: cmp.Or(string(support), "unset"), Execution: &protocol.ToolExecution{TaskSupport: support}},
				func(context.Context, struct{}) (string, error) { return "called", nil })
		}
		old, w := dial(t, s), dial(t, s)
		old.session()
		for _, support := range []string{"unset", "forbidden", "optional", "required"} {
			for _, got := range []response{
				w.ask(modern(`1`, "tools/call", `"name":"`+support+`"`)), w.ask(withTasks(`1`, "tools/call", `"name":"`+support+`"`)),
				old.ask(legacy(`1`, "tools/call", `"name":"`+support+`"`)), old.ask(legacy(`1`, "tools/call", `"name":"`+support+`","task":{}`)),
			} {
				if !strings.Contains(got.text("content"), "called") {
					t.Errorf("%s: got %s, %v, want it called", support, got.Result, got.Error)
				}
			}
		}
		for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
			if got := w.ask(withTasks(`1`, method, `"taskId":"a"`)); !got.Error.is(-32601, "") {
				t.Errorf("%s: got %s, %v, want no such method", method, got.Result, got.Error)
			}
		}
	})
}
