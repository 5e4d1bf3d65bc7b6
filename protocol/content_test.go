package protocol_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/google/go-cmp/cmp"
)

// An invalid block does not affect the other blocks of the result, because the tool has run.
func TestBlockThatCannotBeReadIsKept(t *testing.T) {
	for _, test := range []struct{ block, kind string }{
		{`{"type":"image","data":"AQ\nI=","mimeType":"image/png"}`, "image"},
		{`{"type":"image","data":"AQI","mimeType":"image/png"}`, "image"},
		{`{"type":"resource_link","uri":"a","name":"b","size":10.0}`, "resource_link"},
		{`{"type":"text","text":"a","annotations":{"priority":"high"}}`, "text"},
		{`{"type":5}`, ""},
		{`{}`, ""},
		{`null`, ""},
		{`"text"`, ""},
	} {
		wire := `[{"type":"text","text":"before"},` + test.block + `,{"type":"text","text":"after"}]`
		var contents protocol.Contents
		input := []byte(wire)
		if err := protocol.Unmarshal(input, &contents); err != nil {
			t.Errorf("%s: %v", test.block, err)
			continue
		}
		clear(input) // what is kept is a copy
		kept, ok := contents[1].(*protocol.UnknownContent)
		if !ok || kept.Type != test.kind || string(kept.Raw) != test.block {
			t.Errorf("%s became %#v", test.block, contents[1])
		}
		if got := contents.Text(); got != "before\nafter" {
			t.Errorf("%s: the text is %q", test.block, got)
		}
		if raw, err := protocol.Marshal(contents); err != nil || string(raw) != wire {
			t.Errorf("%s was encoded again as %s, %v", test.block, raw, err)
		}
	}
}

func TestContentsOutsideTheirBounds(t *testing.T) {
	var contents protocol.Contents
	most := "[" + strings.Repeat("{},", protocol.MaxItems-1) + "{}]"
	if err := protocol.Unmarshal([]byte(most), &contents); err != nil || len(contents) != protocol.MaxItems {
		t.Errorf("got %d blocks, %v", len(contents), err)
	}
	var limit *protocol.LimitError
	err := protocol.Unmarshal([]byte(strings.Replace(most, "{}]", "{},{}]", 1)), &contents)
	if !errors.As(err, &limit) || limit.Error() != "protocol: more than 10000 blocks of content" {
		t.Errorf("one block more got %v", err)
	}
	for _, wire := range []string{`{}`, `3`, `"a"`, `[1`, `[]]`} {
		if err := protocol.Unmarshal([]byte(wire), &contents); err == nil {
			t.Errorf("%s was accepted", wire)
		}
	}
}

// The functions that make blocks fill in all that they are given.
func TestBlocksAreMadeWhole(t *testing.T) {
	for want, blocks := range map[string]protocol.Contents{
		`[]`:                           protocol.Texts(),
		`[{"type":"text","text":"a"}]`: protocol.Texts("a"),
		`[{"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"text","text":"c"}]`: protocol.Texts("a", "b", "c"),
		`[{"type":"text","text":"a"},{"type":"image","data":"AQI=","mimeType":"m"},{"type":"audio","data":"AQI=","mimeType":"n"}]`: {
			protocol.Text("a"), protocol.Image([]byte{1, 2}, "m"), protocol.Audio([]byte{1, 2}, "n"),
		},
	} {
		if got, err := protocol.Marshal(blocks); err != nil || string(got) != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
	}
}

// A number, an id and an integer of another type are refused, and nothing of the message is kept.
func TestValuesOfAnotherTypeAreRefused(t *testing.T) {
	for wire, into := range map[string]any{
		`{"progressToken":1,"progress":"1"}`: new(protocol.ProgressParams), `{"progressToken":1,"progress":1e999}`: new(protocol.ProgressParams),
		`{"progressToken":{},"progress":1}`: new(protocol.ProgressParams), `{"progressToken":1.5,"progress":1}`: new(protocol.ProgressParams),
		`{"requestId":[]}`: new(protocol.CancelledParams), `{"tools":[],"ttlMs":"1"}`: new(protocol.ListToolsResult), `{"tools":[],"ttlMs":1.5}`: new(protocol.ListToolsResult),
	} {
		if err := protocol.Unmarshal([]byte(wire), into); err == nil {
			t.Errorf("%s became %+v, want an error", wire, into)
		}
	}
}

func TestAbsentContentsAreTold(t *testing.T) {
	for wire, absent := range map[string]bool{`{}`: true, `{"content":null}`: true, `{"content":[]}`: false} {
		var result protocol.CallToolResult
		if err := protocol.Unmarshal([]byte(wire), &result); err != nil || (result.Content == nil) != absent {
			t.Errorf("%s: got %#v, %v", wire, result.Content, err)
		}
	}
}

func TestContentsThatCannotBeSent(t *testing.T) {
	var text *protocol.TextContent
	var unknown *protocol.UnknownContent
	for name, block := range map[string]protocol.Content{
		"nil":           nil,
		"nil text":      text,
		"nil unknown":   unknown,
		"nothing known": &protocol.UnknownContent{Type: "hologram"},
		"no JSON":       &protocol.UnknownContent{Type: "hologram", Raw: json.RawMessage("{")},
	} {
		if raw, err := protocol.Marshal(protocol.Contents{block}); err == nil {
			t.Errorf("%s became %s", name, raw)
		}
	}
}

func TestTextJoinsTheTextBlocks(t *testing.T) {
	contents := protocol.Contents{
		&protocol.TextContent{Text: "one"}, &protocol.ImageContent{}, &protocol.TextContent{Text: "two"},
	}
	if diff := cmp.Diff("one\ntwo", contents.Text()); diff != "" {
		t.Error(diff)
	}
	if one, none := contents[:1].Text(), contents[1:2].Text(); one != "one" || none != "" {
		t.Errorf("one block: %q, an image: %q", one, none)
	}
}

func TestTextIsSentWithAllThatItHas(t *testing.T) {
	for want, text := range map[string]protocol.TextContent{
		`[{"type":"text","text":"a\"b"}]`:                                  {Text: `a"b`},
		`[{"type":"text","text":"a","_meta":{"b":1}}]`:                     {Text: "a", Meta: protocol.Meta{"b": json.RawMessage("1")}},
		`[{"type":"text","text":"a","annotations":{"audience":["user"]}}]`: {Text: "a", Annotations: &protocol.Annotations{Audience: []protocol.Role{protocol.RoleUser}}},
	} {
		if raw, err := protocol.Marshal(protocol.Contents{&text}); err != nil || string(raw) != want {
			t.Errorf("got %s, %v, want %s", raw, err, want)
		}
	}
}

// encoding/json, which programs use to log or store a result, gives the same JSON.
func TestContentsWithTheStandardLibrary(t *testing.T) {
	result := protocol.CallToolResult{Content: protocol.Contents{&protocol.TextContent{Text: "hi"}, &protocol.ImageContent{MIMEType: "image/png", Data: []byte{1}}}}
	marshalled, err := protocol.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(result.Content)
	if err != nil || !bytes.Contains(marshalled, raw) {
		t.Fatalf("got %s, %v; want what is in %s", raw, err, marshalled)
	}
	var back protocol.Contents
	if err := json.Unmarshal(raw, &back); err != nil || len(back) != 2 || back.Text() != "hi" {
		t.Fatalf("read back as %v, %v", back, err)
	}
}
