package protocol_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
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
		for _, before := range []string{"", "x"} {
			raw, err := protocol.Append([]byte(before), none, json.RawMessage(meta))
			if want := fmt.Sprintf("protocol: encode %T: no object, which could have _meta", none); raw != nil || err == nil || err.Error() != want {
				t.Errorf("%v became %q, %v; want nothing and %s", none, raw, err, want)
			}
		}
	}
}

// Append keeps what is there before, whether a value is encoded by a function of its own or not, and nothing of a value that cannot be encoded. The
// error names its type, and wraps the reason.
func TestAppendKeepsWhatIsBefore(t *testing.T) {
	for _, value := range []any{new(protocol.PingParams), map[string]int{}, &protocol.CallToolParams{Name: "a"}} {
		alone, err := protocol.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := protocol.Append([]byte("before"), value, nil); err != nil || string(got) != "before"+string(alone) {
			t.Errorf("%T: got %q, %v; want it behind what was there", value, got, err)
		}
		if protocol.SizeOf(value) < 0 || protocol.SizeOf(alone) != len(alone) {
			t.Errorf("%T: the sizes are %d and %d, want that of the text", value, protocol.SizeOf(value), protocol.SizeOf(alone))
		}
	}
	why := errors.New("not today")
	for _, value := range []any{unwilling{why}, &protocol.ProgressParams{Progress: math.Inf(1)}, &protocol.ProgressParams{Progress: math.Inf(-1)}, &protocol.ProgressParams{Progress: math.NaN()}} {
		raw, err := protocol.Append([]byte("before"), value, nil)
		if raw != nil || err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("protocol: encode %T: ", value)) {
			t.Errorf("%T: got %q, %v; want an error that names it", value, raw, err)
		}
		if _, ok := value.(unwilling); ok && !errors.Is(err, why) {
			t.Errorf("got %v, want one that wraps %v", err, why)
		}
	}
}

// An unwilling value cannot be encoded.
type unwilling struct{ why error }

func (u unwilling) MarshalJSON() ([]byte, error) { return nil, u.why }
