package server

import (
	"encoding/json"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

// A result of the program may have white space in it, also where it has nothing else.
//
// Guarantees: G-0089.2
func TestRawResultsWithWhiteSpace(t *testing.T) {
	s := New(protocol.Implementation{Name: "s", Version: "1"}, Options{})
	defer s.Close(t.Context())
	c := &call{Request: Request{peer: &peer{server: &s.host}}}
	for _, text := range []string{"{}", "{ }", "{\n}", `{ "a": 1 }`, `{ "resultType": "complete" , "_meta": {} }`} {
		for name, got := range map[string]json.RawMessage{"a routed method": c.appendModern(nil, json.RawMessage(text)), "a method of the program": complete(json.RawMessage(text))} {
			var result map[string]any
			if err := json.Unmarshal(got, &result); err != nil || result["resultType"] != protocol.ResultComplete {
				t.Errorf("%s: %q became %s: %v", name, text, got, err)
			}
		}
	}
}

// What is no object, or has a resultType, is what the program says.
//
// Guarantees: G-0089.2
func TestRawResultsThatAreNotCompleted(t *testing.T) {
	for _, text := range []string{``, `7`, `[]`, `[{"a":1}]`, `"{}"`, `{"resultType":"task"}`} {
		if got := complete(json.RawMessage(text)); string(got) != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
