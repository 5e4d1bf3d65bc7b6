package protocol_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/google/go-cmp/cmp"
)

const questions = `"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"Size?","requestedSchema":{"type":"object","properties":{}}}},` +
	`"b":{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":9}},` +
	`"c":{"method":"roots/list","params":{}}},"requestState":"s"`

const answers = `"inputResponses":{"a":{"action":"accept","content":{"size":3}},` +
	`"b":{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m","stopReason":"endTurn"},` +
	`"c":{"roots":[{"uri":"file:///a"}]},"d":{"shrug":true},"e":null,"f":3},"requestState":"s"`

// A result that requires input is decoded as it was sent, without the members that only
// complete results have. So is a request with the answers.
func TestQuestionsAndAnswersComeAsTheyWereSent(t *testing.T) {
	for _, test := range []struct {
		wire   string
		decode func(string) (string, error)
	}{
		{`{"_meta":{"a":1},"resultType":"input_required",` + questions + `}`, roundTrip[protocol.CallToolResult]},
		{`{"_meta":{"a":1},"resultType":"input_required",` + questions + `,"other":1}`, roundTrip[protocol.CallToolResult]},
		{`{"resultType":"input_required",` + questions + `}`, roundTrip[*protocol.CallToolResult]},
		{`{"resultType":"input_required",` + questions + `}`, roundTrip[protocol.GetPromptResult]},
		{`{"resultType":"input_required",` + questions + `}`, roundTrip[*protocol.ReadResourceResult]},
		{`{"resultType":"input_required","requestState":""}`, roundTrip[*protocol.CallToolResult]},
		{`{"_meta":{"a":1},` + answers + `,"name":"x","arguments":{}}`, roundTrip[protocol.CallToolParams]},
		{`{` + answers + `,"name":"x"}`, roundTrip[*protocol.CallToolParams]},
		{`{"inputResponses":{},"name":"x"}`, roundTrip[*protocol.CallToolParams]},
		{`{"requestState":"","name":"x"}`, roundTrip[*protocol.CallToolParams]},
		{`{"name":"x","task":{"ttl":5}}`, roundTrip[*protocol.CallToolParams]},
		{`{` + answers + `,"name":"x"}`, roundTrip[protocol.GetPromptParams]},
		{`{` + answers + `,"uri":"a:b"}`, roundTrip[protocol.ReadResourceParams]},
	} {
		if got, err := test.decode(test.wire); err != nil || got != test.wire {
			t.Errorf("%s was decoded and encoded as %s, %v", test.wire, got, err)
		}
	}
}

// A server that requires input need not set the type of its result. The result has no cache
// hints.
func TestStampOfAResultThatAsks(t *testing.T) {
	state := "s"
	asks := &protocol.InputRequired{RequestState: &state}
	content := protocol.Texts("not sent")
	for name, result := range map[string]protocol.ModernResult{
		"tool":     &protocol.CallToolResult{InputRequired: asks, Content: content, StructuredContent: json.RawMessage("1"), IsError: true},
		"prompt":   &protocol.GetPromptResult{InputRequired: asks, Messages: []protocol.PromptMessage{{Content: content[0]}}},
		"resource": &protocol.ReadResourceResult{InputRequired: asks},
	} {
		const want = `{"_meta":{"io.modelcontextprotocol/serverInfo":{}},"resultType":"input_required","requestState":"s"}`
		if got := encode(t, result); got != `{"resultType":"input_required","requestState":"s"}` {
			t.Errorf("%s without a stamp: got %s", name, got)
		}
		result.Stamp(json.RawMessage(`{}`))
		if typed := result.(interface{ Type() string }); typed.Type() != protocol.ResultInputRequired {
			t.Errorf("%s: its type is %s", name, typed.Type())
		}
		if got := encode(t, result); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func TestInputResponsesAreReadByTheirMembers(t *testing.T) {
	var params protocol.CallToolParams
	if err := protocol.Unmarshal([]byte(`{`+answers+`}`), &params); err != nil {
		t.Fatal(err)
	}
	want := protocol.InputResponses{
		"a": &protocol.ElicitResult{Action: protocol.ElicitAccept, Content: json.RawMessage(`{"size":3}`)},
		"b": &protocol.CreateMessageResult{Role: protocol.RoleAssistant, Content: protocol.SamplingContents{protocol.Text("hi")}, Model: "m", StopReason: protocol.StopEndTurn},
		"c": &protocol.ListRootsResult{Roots: []protocol.Root{{URI: "file:///a"}}},
		"d": &protocol.UnknownInputResponse{Raw: json.RawMessage(`{"shrug":true}`)},
		"e": &protocol.UnknownInputResponse{Raw: json.RawMessage(`null`)},
		"f": &protocol.UnknownInputResponse{Raw: json.RawMessage(`3`)},
	}
	if diff := cmp.Diff(want, params.InputResponses); diff != "" {
		t.Error(diff)
	}
	for wire, kind := range map[string]protocol.InputResponse{
		`{"action":3}`:             &protocol.UnknownInputResponse{Raw: json.RawMessage(`{"action":3}`)},
		`{"roots":{}}`:             &protocol.UnknownInputResponse{Raw: json.RawMessage(`{"roots":{}}`)},
		`{"action":"a","roots":7}`: &protocol.ElicitResult{Action: "a"},
		`{"action":"a","role":""}`: &protocol.ElicitResult{Action: "a"},
	} {
		var got protocol.InputResponses
		if err := protocol.Unmarshal([]byte(`{"k":`+wire+`}`), &got); err != nil {
			t.Errorf("%s: %v", wire, err)
		}
		if diff := cmp.Diff(protocol.InputResponses{"k": kind}, got); diff != "" {
			t.Errorf("%s: %s", wire, diff)
		}
	}
}

func TestQuestionsThatNobodyCanAnswer(t *testing.T) {
	for _, wire := range []string{
		`{"a":{"method":"tools/call","params":{}}}`, `{"a":{}}`, `{"a":3}`, `{"a":null}`, `[]`, `3`,
		`{"a":{"method":"roots/list","params":[]}}`, `{"a":{"method":"elicitation/create","params":{"message":1}}}`,
	} {
		var got protocol.InputRequests
		if err := protocol.Unmarshal([]byte(wire), &got); err == nil {
			t.Errorf("%s became %v", wire, got)
		}
	}
	var got protocol.InputRequests
	if err := protocol.Unmarshal([]byte(`{"a":{"method":"roots/list"}}`), &got); err != nil || len(got) != 1 {
		t.Errorf("an input request without params got %v, %v", got, err)
	}
}

func TestQuestionsAndAnswersThatCannotBeSent(t *testing.T) {
	for name, value := range map[string]any{
		"no question":           protocol.InputRequests{"a": nil},
		"nil question":          protocol.InputRequests{"a": (*protocol.ElicitParams)(nil)},
		"malformed question":    protocol.InputRequests{"a": &protocol.ElicitParams{RequestedSchema: json.RawMessage("{")}},
		"no answer":             protocol.InputResponses{"a": nil},
		"nil answer":            protocol.InputResponses{"a": (*protocol.ListRootsResult)(nil)},
		"unknown answer":        protocol.InputResponses{"a": &protocol.UnknownInputResponse{}},
		"nil unknown answer":    protocol.InputResponses{"a": (*protocol.UnknownInputResponse)(nil)},
		"message of nothing":    protocol.PromptMessage{Role: protocol.RoleUser},
		"both contents":         protocol.ResourceContents{Text: new(string), Blob: []byte{}},
		"neither":               protocol.ResourceContents{URI: "a:b"},
		"names that become one": &protocol.GetPromptParams{Name: "a", Arguments: map[string]string{"\xff": "b", "\xfe": "c"}},
	} {
		if raw, err := protocol.Marshal(value); err == nil {
			t.Errorf("%s became %s", name, raw)
		}
	}
}

// An unknown answer, what is kept of an unknown block, and what a server says of itself stay the same when the frame that they came in is used again.
func TestWhatIsKeptDoesNotShareTheFrame(t *testing.T) {
	frames := []string{
		`{"name":"t","inputResponses":{"d":{"shrug":true}}}`,
		`{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"other":{"a":1}}`,
	}
	call, result := new(protocol.CallToolParams), new(protocol.CallToolResult)
	for n, into := range []any{call, result} {
		frame := []byte(frames[n])
		if err := protocol.Unmarshal(frame, into); err != nil {
			t.Fatal(err)
		}
		clear(frame)
	}
	for want, got := range map[string]json.RawMessage{
		`{"shrug":true}`:             call.InputResponses["d"].(*protocol.UnknownInputResponse).Raw,
		`{"name":"s","version":"1"}`: result.Meta[protocol.MetaServerInfo],
		`{"a":1}`:                    result.Others["other"],
	} {
		if string(got) != want {
			t.Errorf("got %q, want %s", got, want)
		}
	}
}

// A question that is nil is refused, and so is one of an unknown method; the error names both the question and the method.
func TestQuestionsThatAreRefusedAreNamed(t *testing.T) {
	for _, question := range []protocol.InputRequest{nil, (*protocol.ElicitParams)(nil), (*protocol.CreateMessageParams)(nil), (*protocol.ListRootsParams)(nil)} {
		if raw, err := protocol.Marshal(protocol.InputRequests{"a": question}); err == nil {
			t.Errorf("%T became %s, want an error", question, raw)
		}
	}
	var got protocol.InputRequests
	err := protocol.Unmarshal([]byte(`{"size":{"method":"tools/call","params":{}}}`), &got)
	if want := `input request "size" has the unknown method "tools/call"`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
