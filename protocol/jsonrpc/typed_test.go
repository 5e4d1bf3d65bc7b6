package jsonrpc_test

import (
	"encoding/json"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Params and results are decoded elsewhere, with go-json-experiment/json and fields of type
// encoding/json.RawMessage. This test checks the behaviour that those decoders rely on.
//
// Guarantees: G-0016.7
func TestTypedDecodingKeepsRawValues(t *testing.T) {
	type params struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
		Meta      json.RawMessage `json:"_meta,omitzero"`
	}
	lenient := jsonv2.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for _, test := range []struct{ text, arguments, meta, written string }{
		{`{"name":"n","arguments":{"a": 1.0},"_meta":null}`, `{"a": 1.0}`, `null`, `{"name":"n","arguments":{"a":1.0},"_meta":null}`},
		{`{"name":"n","Arguments":{"a":1}}`, ``, ``, `{"name":"n"}`},
		{`{"name":"n","arguments":{"a":1,"a":2}}`, `{"a":1,"a":2}`, ``, `{"name":"n","arguments":{"a":1,"a":2}}`},
		{`{"name":"n\ud800","arguments":{}}`, `{}`, ``, `{"name":"n�"}`}, // omitempty leaves out an empty object
		{`{"name":"n","_meta":{}}`, ``, `{}`, `{"name":"n","_meta":{}}`}, // omitzero does not
	} {
		frame := []byte(test.text)
		var p params
		if err := jsonv2.Unmarshal(frame, &p, lenient); err != nil {
			t.Fatal(err)
		}
		clear(frame) // what was decoded is a copy
		if string(p.Arguments) != test.arguments || string(p.Meta) != test.meta {
			t.Errorf("%s: arguments %s, meta %s", test.text, p.Arguments, p.Meta)
		}
		if written, err := jsonv2.Marshal(p, lenient); err != nil || string(written) != test.written {
			t.Errorf("%s is written as %s, %v", test.text, written, err)
		}
	}
	var p params
	for _, text := range []string{`{"name":"n","arguments":{"a":1,"a":2}}`, `{"name":"\ud800"}`} {
		if err := jsonv2.Unmarshal([]byte(text), &p); err == nil {
			t.Errorf("%s is accepted without the option for it", text)
		}
	}
}
