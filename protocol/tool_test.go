package protocol_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

func TestPageOfTools(t *testing.T) {
	for wire, fits := range map[string]bool{
		`{"tools":[]}`:             true,
		`{"tools":[{"name":"a"}]}`: true,
		`{"tools":[null]}`:         false,
		`{"tools":[{},null]}`:      false,
		`{"tools":[3]}`:            false,
		`{"tools":{}}`:             false,
	} {
		var page protocol.ListToolsResult
		if err := protocol.Unmarshal([]byte(wire), &page); (err == nil) != fits {
			t.Errorf("%s: got %+v, %v", wire, page, err)
		} else if fits && page.Tools == nil {
			t.Errorf("%s: the list was decoded as absent", wire)
		}
	}
	for _, wire := range []string{`{}`, `{"tools":null}`} {
		var page protocol.ListToolsResult
		if err := protocol.Unmarshal([]byte(wire), &page); err != nil || page.Tools != nil {
			t.Errorf("%s: got %+v, %v", wire, page, err)
		}
	}
}

func TestPageOfToolsIsBounded(t *testing.T) {
	page := func(tools int) string { return `{"tools":[` + strings.Repeat("{},", tools-1) + "{}]}" }
	var result protocol.ListToolsResult
	if err := protocol.Unmarshal([]byte(page(protocol.MaxItems)), &result); err != nil || len(result.Tools) != protocol.MaxItems {
		t.Errorf("got %d tools, %v", len(result.Tools), err)
	}
	var limit *protocol.LimitError
	err := protocol.Unmarshal([]byte(page(protocol.MaxItems+1)), &result)
	if !errors.As(err, &limit) || limit.Limit != protocol.MaxItems {
		t.Errorf("one tool more got %v", err)
	}
}

func TestToolsAndResultsKeepWhatTheyDoNotKnow(t *testing.T) {
	const tool = `{"name":"a","inputSchema":{},"execution":{"taskSupport":"optional"}}`
	if got, err := roundTrip[protocol.Tool](tool); err != nil || got != tool {
		t.Errorf("got %s, %v", got, err)
	}
	const result = `{"resultType":"mystery","content":[],"secret":"s"}`
	if got, err := roundTrip[protocol.CallToolResult](result); err != nil || got != result {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestOthersAreNotWhatIsKnown(t *testing.T) {
	other := map[string]json.RawMessage{"content": json.RawMessage("[]")}
	if raw, err := protocol.Marshal(protocol.CallToolResult{Others: other}); err == nil {
		t.Errorf("got %s", raw)
	}
}

func TestDisplayNamePrefersTitles(t *testing.T) {
	titled := &protocol.ToolAnnotations{Title: "annotated"}
	for _, test := range []struct {
		tool protocol.Tool
		want string
	}{
		{protocol.Tool{Name: "name", Title: "title", Annotations: titled}, "title"},
		{protocol.Tool{Name: "name", Annotations: titled}, "annotated"},
		{protocol.Tool{Name: "name", Annotations: &protocol.ToolAnnotations{}}, "name"},
		{protocol.Tool{Name: "name"}, "name"},
	} {
		if got := test.tool.DisplayName(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// Empty and null arguments count as absent, for the sender and for the receiver.
func TestArgumentsThatHoldNothing(t *testing.T) {
	for given, want := range map[string]string{
		``: `{"name":"t","arguments":{}}`, `null`: `{"name":"t","arguments":{}}`, ` null `: `{"name":"t","arguments":{}}`,
		`{}`: `{"name":"t","arguments":{}}`, `[]`: `{"name":"t","arguments":[]}`,
	} {
		for _, task := range []*protocol.TaskMetadata{nil, {}} { // the short and the general way
			params := &protocol.CallToolParams{Name: "t", Arguments: json.RawMessage(given), Task: task}
			got, err := protocol.Marshal(params)
			if task != nil {
				want = strings.TrimSuffix(want, "}") + `,"task":{}}`
			}
			if err != nil || string(got) != want || string(params.Arguments) != given {
				t.Errorf("%q: got %s, %v, want %s", given, got, err, want)
			}
		}
	}
	if got, err := protocol.Marshal(&protocol.CallToolParams{Name: "t"}); err != nil || string(got) != `{"name":"t"}` {
		t.Errorf("without arguments: got %s, %v", got, err)
	}
	var params protocol.CallToolParams
	if err := protocol.Unmarshal([]byte(`{"name":"t","arguments": null }`), &params); err != nil || params.Arguments != nil {
		t.Errorf("null was read as %q, %v", params.Arguments, err)
	}
}
