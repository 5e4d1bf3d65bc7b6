package protocol_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
)

// The table has a method in a revision exactly if the revision's schema defines
// it as a message of its own, which in the modern ones has a member jsonrpc.
func TestMethodsAreThoseOfThePublishedSchemas(t *testing.T) {
	for _, version := range protocol.Versions() {
		published := publishedMethods(t, version)
		for _, m := range protocol.Methods() {
			if m.Extension != "" && protocol.IsModern(version) {
				continue // defined in the schema of the extension
			}
			if m.In(version) != published[m.Name] {
				t.Errorf("%s: %s: the table says %t, the schema %t", version, m.Name, m.In(version), published[m.Name])
			}
			delete(published, m.Name)
		}
		for name := range published {
			t.Errorf("%s: the table lacks %s", version, name)
		}
	}
}

func publishedMethods(t *testing.T, version string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for name, definition := range specification.Of(version).Definitions() {
		method := definition.Properties["method"]
		if method == nil || method.Const == nil || (definition.Properties["jsonrpc"] == nil && protocol.IsModern(version)) {
			continue
		}
		text, ok := (*method.Const).(string)
		if !ok {
			t.Fatalf("%s: method %v", name, *method.Const)
		}
		if m, ok := protocol.MethodInfo(text); ok && m.Notification != strings.HasSuffix(name, "Notification") {
			t.Errorf("%s is not what the table says", text)
		}
		all[text] = true
	}
	return all
}

// Every constant that names a method is in the table.
func TestEveryMethodConstantIsInTheTable(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "method.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		name := spec.Names[0].Name
		if !strings.HasPrefix(name, "Method") && !strings.HasPrefix(name, "Notification") {
			return true
		}
		literal := spec.Values[0].(*ast.BasicLit)
		method, err := strconv.Unquote(literal.Value)
		m, ok := protocol.MethodInfo(method)
		if count++; err != nil || !ok || m.Name != method || m.Notification != strings.HasPrefix(name, "Notification") {
			t.Errorf("%s: got %+v, %t, %v", name, m, ok, err)
		}
		return true
	})
	if all := protocol.Methods(); count != len(all) {
		t.Errorf("%d constants, %d rows", count, len(all))
	}
	if m, ok := protocol.MethodInfo("tools/explode"); ok {
		t.Errorf("got %+v", m)
	}
}

// Has knows each capability that the table names.
func TestMethodCapabilitiesExist(t *testing.T) {
	const every = `{"listChanged":true,"subscribe":true,"list":{},"cancel":{},"form":{},"url":{},"context":{},"tools":{}}`
	names := strings.Split("tools prompts resources logging completions tasks roots sampling elicitation", " ")
	object := map[string]json.RawMessage{"extensions": json.RawMessage(`{"` + protocol.ExtensionTasks + `":{},"absent":null}`)}
	for _, name := range names {
		object[name] = json.RawMessage(every)
	}
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var client, noClient protocol.ClientCapabilities
	var server, noServer protocol.ServerCapabilities
	for _, into := range []any{&client, &server} {
		if err := protocol.Unmarshal(raw, into); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range protocol.Methods() {
		if !server.Has(m.ServerCapability) || !client.Has(m.ClientCapability) {
			t.Errorf("%s: Has does not know %q or %q", m.Name, m.ServerCapability, m.ClientCapability)
		}
		if m.ServerCapability != "" && noServer.Has(m.ServerCapability) || m.ClientCapability != "" && noClient.Has(m.ClientCapability) {
			t.Errorf("%s: Has reports %q or %q, which were not declared", m.Name, m.ServerCapability, m.ClientCapability)
		}
	}
	for name, want := range map[string]bool{
		"sampling.context": true, "sampling.tools": true, "elicitation.form": true, "telepathy": false,
		"extensions." + protocol.ExtensionTasks: true, "extensions.absent": false, "extensions.": false,
	} {
		if client.Has(name) != want {
			t.Errorf("%s: got %t", name, !want)
		}
	}
	if !server.Has("extensions."+protocol.ExtensionTasks) || server.Has("sampling") {
		t.Error("the server's set is wrong")
	}
}

// Each capability is reported from its own member, and with it only those that it is a part of.
func TestCapabilitiesAreNotMistakenForOthers(t *testing.T) {
	for raw, want := range map[string]string{
		`{}`:                                 "",
		`{"roots":{}}`:                       "roots",
		`{"roots":{"listChanged":true}}`:     "roots roots.listChanged",
		`{"sampling":{}}`:                    "sampling",
		`{"sampling":{"context":{}}}`:        "sampling sampling.context",
		`{"sampling":{"tools":{}}}`:          "sampling sampling.tools",
		`{"elicitation":{}}`:                 "elicitation elicitation.form",
		`{"elicitation":{"form":{}}}`:        "elicitation elicitation.form",
		`{"elicitation":{"url":{}}}`:         "elicitation elicitation.url",
		`{"tasks":{}}`:                       "tasks",
		`{"tasks":{"list":{}}}`:              "tasks tasks.list",
		`{"tasks":{"cancel":{}}}`:            "tasks tasks.cancel",
		`{"tools":{}}`:                       "tools",
		`{"tools":{"listChanged":true}}`:     "tools tools.listChanged",
		`{"prompts":{}}`:                     "prompts",
		`{"prompts":{"listChanged":true}}`:   "prompts prompts.listChanged",
		`{"resources":{}}`:                   "resources",
		`{"resources":{"subscribe":true}}`:   "resources resources.subscribe",
		`{"resources":{"listChanged":true}}`: "resources resources.listChanged",
		`{"logging":{}}`:                     "logging",
		`{"completions":{}}`:                 "completions",
	} {
		var client protocol.ClientCapabilities
		var server protocol.ServerCapabilities
		for _, into := range []any{&client, &server} {
			if err := protocol.Unmarshal([]byte(raw), into); err != nil {
				t.Fatal(err)
			}
		}
		var has []string
		for _, name := range strings.Fields("roots roots.listChanged sampling sampling.context sampling.tools elicitation elicitation.form elicitation.url " +
			"tasks tasks.list tasks.cancel tools tools.listChanged prompts prompts.listChanged resources resources.subscribe resources.listChanged logging completions") {
			ofClient, ofServer := client.Has(name), server.Has(name)
			if strings.HasPrefix(name, "tasks") && ofClient != ofServer {
				t.Errorf("%s: %s of a client: %t, of a server: %t", raw, name, ofClient, ofServer)
			}
			if ofClient || ofServer {
				has = append(has, name)
			}
		}
		if got := strings.Join(has, " "); got != want {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	}
}

func TestElicitationWithoutModesMeansForms(t *testing.T) {
	mode := &protocol.Capability{}
	for _, test := range []struct {
		capability *protocol.ElicitationCapability
		form, url  bool
	}{
		{nil, false, false},
		{&protocol.ElicitationCapability{}, true, false},
		{&protocol.ElicitationCapability{Form: mode}, true, false},
		{&protocol.ElicitationCapability{URL: mode}, false, true},
		{&protocol.ElicitationCapability{Form: mode, URL: mode}, true, true},
	} {
		if test.capability.CanForm() != test.form || test.capability.CanURL() != test.url {
			t.Errorf("%+v: form is %t, URL %t", test.capability, !test.form, !test.url)
		}
	}
}

func TestNameOf(t *testing.T) {
	for _, test := range []struct{ method, params, want string }{
		{protocol.MethodCallTool, `{"_meta":{"name":"no"},"name":"add"}`, "add"},
		{protocol.MethodCallTool, `{"arguments":{"name":"no"},"na\u006de":"\u0061dd","name":"second"}`, "add"},
		{protocol.MethodCallTool, `{"name":3}`, ""},
		{protocol.MethodCallTool, `{"Name":"add"}`, ""},
		{protocol.MethodCallTool, `[]`, ""},
		{protocol.MethodCallTool, `{"name":"add"`, ""},
		{protocol.MethodCallTool, ``, ""},
		{protocol.MethodGetPrompt, `{"name":"review"}`, "review"},
		{protocol.MethodReadResource, `{"name":"no","uri":"a:b"}`, "a:b"},
		{protocol.MethodUpdateTask, `{"taskId":"t","inputResponses":{}}`, "t"},
		{protocol.MethodListTools, `{"name":"no"}`, ""},
	} {
		m, ok := protocol.MethodInfo(test.method)
		if got := m.NameOf(json.RawMessage(test.params)); !ok || got != test.want {
			t.Errorf("%s %s: got %q, want %q", test.method, test.params, got, test.want)
		}
	}
}

func TestEras(t *testing.T) {
	for method, want := range map[string][2]bool{
		protocol.MethodPing: {true, false}, protocol.MethodCallTool: {true, true}, protocol.MethodListen: {false, true},
	} {
		if m, _ := protocol.MethodInfo(method); m.Legacy() != want[0] || m.Modern() != want[1] {
			t.Errorf("%s: legacy %t, modern %t", method, m.Legacy(), m.Modern())
		}
	}
}

func TestSeverityGrows(t *testing.T) {
	for i, level := range []protocol.LogLevel{
		protocol.LogDebug, protocol.LogInfo, protocol.LogNotice, protocol.LogWarning,
		protocol.LogError, protocol.LogCritical, protocol.LogAlert, protocol.LogEmergency,
	} {
		if level.Severity() != i {
			t.Errorf("%s: got %d", level, level.Severity())
		}
	}
	if protocol.LogLevel("loud").Severity() != -1 {
		t.Error("an unknown level has a severity")
	}
}
