package protocol_test

import (
	"encoding/json"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
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
