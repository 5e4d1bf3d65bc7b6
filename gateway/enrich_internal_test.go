package gateway

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/protocol"
)

// What a server has said is there as it was, whatever it has said: without the addition, the result is the one before.
//
// Guarantees: G-0103.1
func TestNothingThatAServerHasSaidChanges(t *testing.T) {
	added := Addition{Meta: map[string]any{"owner": "ada"}, Content: protocol.Contents{protocol.Text("one"), protocol.Text("two")}}
	for _, result := range []string{
		`{"content":[]}`, `{"content": [ ] , "isError":true}`, `{ "content":[{"type":"text","text":"]}, \"_meta\""}],"structuredContent":{"content":[1],"_meta":{}}}`,
		`{"_meta":{},"content":[{"type":"new","x":1e400}]}`, `{"content":[{"type":"text","text":"a","_meta":{"io.github.bowline-mcp/context":1}}],"_meta": { "x" : {"io.github.bowline-mcp/context":[]} } ,"unknown":[ 1 ]}`,
	} {
		got, err := added.addTo(json.RawMessage(result))
		if err != nil || !json.Valid(got) {
			t.Errorf("%s: %s, %v", result, got, err)
			continue
		}
		if diff := cmp.Diff(members(t, result), without(t, string(got))); diff != "" {
			t.Errorf("%s became %s:\n%s", result, got, diff)
		}
		for _, each := range []Addition{{Meta: added.Meta}, {Content: added.Content}, {}} {
			if _, err := each.addTo(json.RawMessage(result)); err != nil {
				t.Errorf("%+v to %s: %v", each, result, err)
			}
		}
	}
	for result, want := range map[string]error{
		`{"content":[],"_meta":{"io.github.bowline-mcp/context":null}}`: errTaken, `{"content":[],"_meta":null}`: errTaken, `{"content":[],"_meta":{},"_meta":{}}`: errTaken,
	} {
		if got, err := added.addTo(json.RawMessage(result)); !errors.Is(err, want) || got != nil {
			t.Errorf("%s: %s, %v", result, got, err)
		}
	}
	large := Addition{Content: protocol.Contents{protocol.Text(strings.Repeat("x", maxAddition))}}
	if got, err := large.addTo(json.RawMessage(`{"content":[]}`)); !errors.Is(err, errAddition) {
		t.Errorf("%.40s, %v", got, err)
	}
}

// members decodes the parts of an object no further than it must: numbers are compared as they are written.
func members(t *testing.T, object string) (m map[string]string) {
	t.Helper()
	var raw map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &raw); err != nil {
		t.Fatal(err)
	}
	m = make(map[string]string)
	for name, value := range raw {
		m[name] = strings.ReplaceAll(string(value), " ", "")
	}
	if m["_meta"] == "{}" {
		delete(m, "_meta")
	}
	return m
}

// without takes away what was added.
func without(t *testing.T, object string) map[string]string {
	t.Helper()
	m := members(t, object)
	if !strings.HasSuffix(m["content"], `{"type":"text","text":"one"},{"type":"text","text":"two"}]`) || !strings.HasSuffix(m["_meta"], `"`+MetaContext+`":{"owner":"ada"}}`) {
		t.Errorf("the addition is not in %s", object)
	}
	m["content"] = strings.TrimSuffix(strings.TrimSuffix(m["content"], `{"type":"text","text":"one"},{"type":"text","text":"two"}]`), ",") + "]"
	if m["_meta"] = strings.TrimSuffix(strings.TrimSuffix(m["_meta"], `"`+MetaContext+`":{"owner":"ada"}}`), ",") + "}"; m["_meta"] == "{}" {
		delete(m, "_meta")
	}
	return m
}
