package protocol_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

// A trace context that is there twice becomes an empty list, however its names are written, and
// all else of the params is decoded as it was sent. Other repeated names are refused.
//
// Guarantees: G-0047.4
func TestRepeatedTraceIsNoFault(t *testing.T) {
	for params, want := range map[string]string{
		`{"name":"a","_meta":{"traceparent":"1","traceparent":"2","k":{"x":[1]}},"arguments":{"b":"_meta"}}`:         `{"k":{"x":[1]},"traceparent":[]}`,
		`{"_meta":{"a":1,"tracepar\u0065nt":"1","traceparent":{"x":"y"}},"name":"a","arguments":{"b":"_meta"}}`:      `{"a":1,"traceparent":[]}`,
		`{"_meta":{"baggage":"1","baggage":"2","tracestate":3,"tracestate":3},"name":"a","arguments":{"b":"_meta"}}`: `{"baggage":[],"tracestate":[]}`,
		`{"\u005fmeta":{"traceparent":1,"traceparent":1,"traceparent":1},"name":"a","arguments":{"b":"_meta"}}`:      `{"traceparent":[]}`,
		`{"_meta":{"traceparent":"1"},"name":"a","arguments":{"b":"_meta"}}`:                                         `{"traceparent":"1"}`,
	} {
		var called protocol.CallToolParams
		if err := protocol.UnmarshalParams([]byte(params), &called); err != nil {
			t.Errorf("%s: %v", params, err)
			continue
		}
		got, err := json.Marshal(called.Meta) // in the order of the names
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want || called.Name != "a" || string(called.Arguments) != `{"b":"_meta"}` {
			t.Errorf("%s: got the tool %q with %s and _meta %s, want %s", params, called.Name, called.Arguments, got, want)
		}
		if got, err := json.Marshal(protocol.MetaOf(json.RawMessage(params))); err != nil || string(got) != want {
			t.Errorf("%s: the _meta of undecoded params is %s, want %s (%v)", params, got, want, err)
		}
	}
	for _, params := range []string{
		`{"_meta":{"traceparent":1,"traceparent":1,"k":1,"k":1},"name":"a"}`,
		`{"_meta":{"traceparent":1,"traceparent":1},"name":"a","name":"b"}`,
		`{"_meta":{"traceparent":1,"traceparent":1},"_meta":{},"name":"a"}`,
		`{"_meta":{"k":{"traceparent":1,"traceparent":1}},"name":"a"}`,
		`{"traceparent":1,"traceparent":1,"name":"a"}`,
	} {
		if err := protocol.UnmarshalParams([]byte(params), new(protocol.CallToolParams)); err == nil || !strings.Contains(err.Error(), "duplicate") {
			t.Errorf("%s: got %v, want an error about the repeated name", params, err)
		}
	}
}
