package protocol_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/google/go-cmp/cmp"
)

func TestVersionsAreOfOneEraEach(t *testing.T) {
	all := protocol.Versions()
	if !slices.IsSorted(all) || all[len(all)-1] != protocol.Latest {
		t.Errorf("got %v", all)
	}
	for _, version := range all {
		if protocol.IsLegacy(version) == protocol.IsModern(version) {
			t.Errorf("%s is legacy and modern, or neither", version)
		}
	}
	if protocol.IsModern("2099-01-01") || protocol.IsModern("") {
		t.Error("an unknown version is modern")
	}
}

func TestContentsRoundTrip(t *testing.T) {
	const wire = `[{"type":"text","text":""},` +
		`{"type":"image","data":"AQI=","mimeType":"image/png"},` +
		`{"type":"hologram","depth":3,"_meta":{"x":1}},` +
		`{"type":"resource","resource":{"uri":"file:///a","text":""}},` +
		`{"type":"resource_link","uri":"file:///b","name":"b","size":0}]`
	var contents protocol.Contents
	if err := protocol.Unmarshal([]byte(wire), &contents); err != nil {
		t.Fatal(err)
	}
	if _, ok := contents[2].(*protocol.UnknownContent); !ok {
		t.Errorf("a block of unknown type became %T", contents[2])
	}
	raw, err := protocol.Marshal(contents)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wire, string(raw)); diff != "" {
		t.Error(diff)
	}
}

func TestCapabilitiesKeepWhatTheyDoNotKnow(t *testing.T) {
	const wire = `{"tools":{"listChanged":true},"telepathy":{"range":7}}`
	var capabilities protocol.ServerCapabilities
	if err := protocol.Unmarshal([]byte(wire), &capabilities); err != nil {
		t.Fatal(err)
	}
	raw, err := protocol.Marshal(capabilities)
	if err != nil || string(raw) != wire {
		t.Errorf("got %s, %v", raw, err)
	}
}

func TestUnmarshalIsStrict(t *testing.T) {
	for name, raw := range map[string]string{
		"duplicate name": `{"name":"a","name":"b"}`,
		"wrong type":     `{"name":1}`,
		"cut off":        `{"name":"a"`,
	} {
		var params protocol.CallToolParams
		if err := protocol.Unmarshal([]byte(raw), &params); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	var params protocol.CallToolParams
	if err := protocol.Unmarshal([]byte(`{"Name":"a"}`), &params); err != nil || params.Name != "" {
		t.Errorf("names are case-sensitive: got %+v, %v", params, err)
	}
}

func TestArgumentsKeepEveryDigit(t *testing.T) {
	const arguments = `{"id":9007199254740993,"huge":123456789012345678901234567890}`
	var params protocol.CallToolParams
	if err := protocol.Unmarshal([]byte(`{"name":"x","arguments":`+arguments+`}`), &params); err != nil {
		t.Fatal(err)
	}
	raw, err := protocol.Marshal(params)
	if err != nil || string(raw) != `{"name":"x","arguments":`+arguments+`}` {
		t.Errorf("got %s, %v", raw, err)
	}
}

func TestSetMetaDoesNotTouchASharedMap(t *testing.T) {
	shared := protocol.Meta{"a": json.RawMessage("1")}
	params := protocol.RequestParams{Meta: shared}
	params.SetMeta("b", json.RawMessage("2"))
	if len(shared) != 1 || len(params.Meta) != 2 {
		t.Errorf("shared %v, own %v", shared, params.Meta)
	}
}

func TestAddMetaDoesNotTouchASharedMap(t *testing.T) {
	shared, members := protocol.Meta{"a": json.RawMessage("1")}, protocol.Meta{"a": json.RawMessage("2"), "b": json.RawMessage("3")}
	params := protocol.RequestParams{Meta: shared}
	params.AddMeta(members)
	if diff := cmp.Diff(members, params.Meta); diff != "" {
		t.Error(diff)
	}
	var empty protocol.RequestParams
	empty.AddMeta(members)
	empty.Meta["mine"] = json.RawMessage("4")
	if len(shared) != 1 || string(shared["a"]) != "1" || len(members) != 2 {
		t.Errorf("shared %v, members %v", shared, members)
	}
}

func FuzzContents(f *testing.F) {
	f.Add([]byte(`[{"type":"text","text":"a"},{"type":"x"}]`))
	f.Add([]byte(`[{"type":"image","data":"!!"}]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var contents protocol.Contents
		if protocol.Unmarshal(raw, &contents) != nil {
			return
		}
		again, err := protocol.Marshal(contents)
		if err != nil {
			t.Fatalf("what was decoded cannot be encoded: %v", err)
		}
		var twice protocol.Contents
		if err := protocol.Unmarshal(again, &twice); err != nil {
			t.Fatalf("what was encoded cannot be decoded: %v", err)
		}
	})
}
