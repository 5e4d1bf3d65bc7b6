package protocol_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

// Append with a meta appends what Marshal writes of the same value with that _meta.
func TestAppendWithMeta(t *testing.T) {
	const meta = `{"a":1,"b":{"c":[]}}`
	for _, value := range []any{
		&protocol.CallToolParams{Name: "a", Arguments: json.RawMessage(`{"x":1}`)}, &protocol.CallToolParams{Name: "a", Arguments: json.RawMessage("null")},
		&protocol.CallToolParams{Name: "a", Task: &protocol.TaskMetadata{}}, new(protocol.ListToolsParams), new(protocol.EmptyResult),
		&protocol.CallToolResult{Content: protocol.Contents{&protocol.TextContent{Text: "a\nb"}}}, &protocol.CallToolResult{Content: protocol.Contents{&protocol.ImageContent{}}},
		new(protocol.ListToolsResult),
	} {
		with, err := protocol.Append(nil, value, json.RawMessage(meta))
		if err != nil {
			t.Fatal(err)
		}
		without, err := protocol.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var got, want map[string]any
		if err := json.Unmarshal(with, &got); err != nil {
			t.Fatalf("%T: %s: %v", value, with, err)
		}
		if err := json.Unmarshal(without, &want); err != nil {
			t.Fatal(err)
		}
		var members any
		if err := json.Unmarshal([]byte(meta), &members); err != nil {
			t.Fatal(err)
		}
		want["_meta"] = members
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%T: %s, without it %s", value, with, without)
		}
	}
	for _, none := range []any{1, []int{}, json.RawMessage("null")} {
		if raw, err := protocol.Append(nil, none, json.RawMessage(meta)); err == nil {
			t.Errorf("%v became %s", none, raw)
		}
	}
}
