package protocol_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

func encode(t *testing.T, value any) string {
	t.Helper()
	raw, err := protocol.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestResultsWithoutStampAreAsTheyWere(t *testing.T) {
	for want, result := range map[string]any{
		`{"_meta":{"a":1},"tools":[]}`: protocol.ListToolsResult{CacheableResult: protocol.CacheableResult{Result: protocol.Result{Meta: protocol.Meta{"a": json.RawMessage("1")}}}},
		`{"tools":[]}`:                 protocol.ListToolsResult{},
		`{"content":[]}`:               protocol.CallToolResult{},
		`{}`:                           protocol.EmptyResult{},
	} {
		if got := encode(t, result); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestStampSetsWhatIsMissing(t *testing.T) {
	const server = `{"name":"s","version":"1"}`
	const meta = `"_meta":{"io.modelcontextprotocol/serverInfo":` + server + `}`
	asking := protocol.Result{ResultType: protocol.ResultInputRequired}
	ttl := int64(5)
	for want, result := range map[string]protocol.ModernResult{
		`{` + meta + `,"resultType":"complete"}`:                                                &protocol.EmptyResult{},
		`{` + meta + `,"resultType":"complete","content":[]}`:                                   &protocol.CallToolResult{},
		`{` + meta + `,"resultType":"input_required","content":[]}`:                             &protocol.CallToolResult{Result: asking},
		`{` + meta + `,"resultType":"complete","ttlMs":0,"cacheScope":"private"}`:               &protocol.CacheableResult{},
		`{` + meta + `,"resultType":"complete","ttlMs":5,"cacheScope":"public"}`:                &protocol.CacheableResult{TTLMs: &ttl, CacheScope: protocol.CachePublic},
		`{` + meta + `,"resultType":"input_required"}`:                                          &protocol.CacheableResult{Result: asking},
		`{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"b"}},"resultType":"complete"}`: &protocol.EmptyResult{Result: protocol.Result{Meta: protocol.Meta{protocol.MetaServerInfo: json.RawMessage(`{"name":"b"}`)}}},
		`{` + meta + `,"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[]}`:    &protocol.ListToolsResult{},
	} {
		result.Stamp(json.RawMessage(server))
		if got := encode(t, result); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestStampDoesNotTouchASharedMap(t *testing.T) {
	shared := protocol.Meta{"a": json.RawMessage("1")}
	result := protocol.CallToolResult{Result: protocol.Result{Meta: shared}}
	result.Stamp(json.RawMessage(`{}`))
	if len(shared) != 1 || len(result.Meta) != 2 {
		t.Errorf("shared %v, own %v", shared, result.Meta)
	}
}

func TestStampWithoutServerInfo(t *testing.T) {
	var result protocol.EmptyResult
	result.Stamp(nil)
	if got := encode(t, result); got != `{"resultType":"complete"}` {
		t.Errorf("got %s", got)
	}
}

// Accessors say what is there, and the functions that fill in a result leave what is set.
func TestWhatIsSetStays(t *testing.T) {
	empty, set := new(protocol.Result), &protocol.Result{ResultType: "other", Meta: protocol.Meta{}}
	if empty.Type() != protocol.ResultComplete || set.Type() != "other" || empty.HasMeta() || !set.HasMeta() {
		t.Errorf("got the types %q and %q, and _meta: %t and %t", empty.Type(), set.Type(), empty.HasMeta(), set.HasMeta())
	}
	kept := &protocol.ListToolsResult{CacheableResult: protocol.CacheableResult{CacheScope: "other"}}
	if kept.Stamp(nil); kept.CacheScope != "other" || kept.TTLMs == nil || kept.ResultType != protocol.ResultComplete || kept.HasMeta() {
		t.Errorf("got %+v, want the scope that was set, and no _meta", kept.CacheableResult)
	}
	task := &protocol.CallToolResult{Task: new(protocol.Task), Result: protocol.Result{ResultType: "other", Meta: protocol.Meta{"a": []byte(`1`)}}}
	task.Stamp(nil)
	if raw, err := protocol.Marshal(task); err != nil || !strings.Contains(string(raw), `"_meta":{"a":1}`) || !strings.Contains(string(raw), `"resultType":"other"`) {
		t.Errorf("got %s, %v; want the type and the _meta that were set", raw, err)
	}
	text := func(s string) *string { return &s }
	read := &protocol.ReadResourceResult{Contents: []protocol.ResourceContents{{Text: text("a")}, {Blob: []byte("b")}, {Text: text("")}, {Text: text("c")}}}
	if got := read.Text(); got != "a\n\nc" {
		t.Errorf("got the text %q, want all texts", got)
	}
	var contents protocol.ResourceContents
	if err := protocol.Unmarshal([]byte(`{"uri":"x:a"}`), &contents); err != nil || contents.Text == nil || *contents.Text != "" {
		t.Errorf("got %+v, %v; want an empty text", contents, err)
	}
}

// A reason is that of an error of its own code only.
func TestReasonsOfInvalidParams(t *testing.T) {
	fault := protocol.InvalidParams(protocol.ReasonMeta, "no")
	if fault.Code != jsonrpc.CodeInvalidParams || fault.Message != "no" || string(fault.Data) != `{"reason":"invalid_meta"}` {
		t.Errorf("got %+v", fault)
	}
	other := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Data: fault.Data}
	if !protocol.IsInvalidParams(fault, protocol.ReasonMeta) || protocol.IsInvalidParams(fault, protocol.ReasonRequestState) || protocol.IsInvalidParams(other, protocol.ReasonMeta) || protocol.IsInvalidParams(nil, "") {
		t.Error("a reason is found where it is not, or not where it is")
	}
}

// Methods describes what there is, to be changed by nobody, and names are texts.
func TestDescriptionsOfMethods(t *testing.T) {
	all := protocol.Methods()
	all[0].Name = "changed"
	if again := protocol.Methods()[0].Name; again == "changed" {
		t.Error("a caller of Methods has changed the methods")
	}
	if m, ok := protocol.MethodInfo("none"); ok || m != (protocol.Method{}) {
		t.Errorf("got %+v, %t for a method that there is not", m, ok)
	}
	for name, want := range map[string][2]bool{
		protocol.MethodGetTask: {true, true}, protocol.MethodUpdateTask: {false, true}, protocol.MethodPing: {true, false}, protocol.MethodGetTaskResult: {true, false},
	} {
		if m, _ := protocol.MethodInfo(name); m.Legacy() != want[0] || m.Modern() != want[1] {
			t.Errorf("%s: legacy %t, modern %t; want %v", name, m.Legacy(), m.Modern(), want)
		}
	}
	m, _ := protocol.MethodInfo(protocol.MethodCallTool)
	for params, want := range map[string]string{`{"name":"a\u0062"}`: "ab", `{"name":123}`: "", `{"name":"a\x"}`: "", `{"name":""}`: "", `{}`: ""} {
		if got := m.NameOf([]byte(params)); got != want {
			t.Errorf("%s: got the name %q, want %q", params, got, want)
		}
	}
}
