package protocol

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	general "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// sameDecoding compares the generated decoder of a type with reflection.
func sameDecoding[T any](t *testing.T, raw []byte) (sure bool) {
	t.Helper()
	return sameAsReflection(t, raw, new(T), new(T))
}

// sameAsReflection compares the generated decoder with reflection, and if it accepts the text, the
// encoders, too.
func sameAsReflection(t *testing.T, raw []byte, read, want any) (sure bool) {
	t.Helper()
	if !decodeFast(raw, false, read) {
		if diff := cmp.Diff(want, read, cmpopts.EquateComparable(jsonrpc.ID{})); diff != "" {
			t.Fatalf("%T: %q: the value was changed, although the fast decoder has refused it: %s", read, raw, diff)
		}
		return false
	}
	if err := general.Unmarshal(raw, want, jsontext.AllowInvalidUTF8(true)); err != nil {
		t.Fatalf("%T: %q was decoded, and reflection fails with %v", read, raw, err)
	}
	if diff := cmp.Diff(want, read, cmpopts.EquateComparable(jsonrpc.ID{})); diff != "" {
		t.Fatalf("%T: %q: %s", read, raw, diff)
	}
	written, ok := appendFast(nil, read)
	if !ok {
		return true
	}
	reflected, err := general.Marshal(want, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		t.Fatalf("%T: %q was encoded, and reflection fails with %v", read, raw, err)
	}
	if string(written) == string(reflected) {
		return true
	}
	for _, text := range []*[]byte{&written, &reflected} { // members of maps have no order
		if err := (*jsontext.Value)(text).Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false), jsontext.AllowInvalidUTF8(true)); err != nil {
			t.Fatalf("%s: %v", *text, err)
		}
	}
	if string(written) != string(reflected) {
		t.Fatalf("%T: %s was written, and by reflection %s", read, written, reflected)
	}
	return true
}

func sameParams(t *testing.T, raw []byte) bool { return sameDecoding[CallToolParams](t, raw) }

func sameResult(t *testing.T, raw []byte) bool { return sameDecoding[CallToolResult](t, raw) }

func samePage(t *testing.T, raw []byte) bool { return sameDecoding[ListToolsResult](t, raw) }

func sameDiscovery(t *testing.T, raw []byte) bool { return sameDecoding[DiscoverResult](t, raw) }

// sameOpening decodes a text as the params and as the result of initialize.
func sameOpening(t *testing.T, raw []byte) bool {
	params, result := sameDecoding[InitializeParams](t, raw), sameDecoding[InitializeResult](t, raw)
	return params && result
}

var (
	plainPages = []string{
		`{}`, `{"tools":[]}`, `{"tools":[{"name":"a","title":"b","description":"c\n","inputSchema":{"type":"object"},"outputSchema":true,"_meta":{"d":1}},{}],"nextCursor":""}`,
		`{"_meta":{},"resultType":"complete","ttlMs":-50,"cacheScope":"public","tools":[{"annotations":{"title":"e","readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":true}}]}`,
		`{"other":1}`, `{"tools":[{"icons":[]}]}`, `{"tools":[{"execution":{}}]}`, `{"tools":[{"other":1}]}`, `{"tools":[{"annotations":{"other":1}}]}`,
	}
	unusualPages = []string{
		`{"tools":null}`, `{"tools":[null]}`, `{"tools":[{"name":null}]}`, `{"tools":[{"inputSchema":null}]}`,
		`{"nextCursor":null}`, `{"ttlMs":1.0}`, `{"ttlMs":9223372036854775808}`, `{"ttlMs":null}`,
		`{"tools":[{"annotations":null}]}`, `{"tools":[{"name":"a","name":"b"}]}`, `{"tools":{}}`,
	}
	plainOpenings = []string{
		`{}`, `{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"a","version":"1"}}`,
		`{"_meta":{"a":1},"protocolVersion":"2025-03-26","capabilities":{"roots":{"listChanged":true},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}}}}`,
		`{"protocolVersion":"2025-06-18","capabilities":{"roots":{},"sampling":{"context":{}},"elicitation":{},"experimental":{"a":{"b":1}},"extensions":{"c":{}}}}`,
		`{"protocolVersion":"2025-11-25","clientInfo":{"name":"a","title":"b\n","version":"c","description":"d","websiteUrl":"https://e"}}`,
		`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":false},"resources":{"subscribe":true,"listChanged":true},
			"logging":{},"completions":{},"experimental":{},"extensions":{"a":{}}},"serverInfo":{"name":"s","version":"1"},"instructions":"use \"it\""}`,
		`{"capabilities":{"tools":{},"prompts":{},"resources":{}}}`,
		`{"other":1}`, `{"protocolVersion":"1900-01-01"}`, `{"protocolVersion":"2025\u002d11-25"}`, `{"capabilities":{"roots":{"other":1}}}`,
		`{"capabilities":{"sampling":{"tools":{"other":1}}}}`, `{"capabilities":{"tasks":{}}}`, `{"capabilities":{"other":{}}}`,
		`{"capabilities":{"logging":{"other":1}}}`, `{"capabilities":{"resources":{"other":true}}}`, `{"clientInfo":{"icons":[]}}`,
		`{"clientInfo":{"other":1}}`,
	}
	unusualOpenings = []string{
		`{"protocolVersion":null}`, `{"capabilities":null}`, `{"capabilities":[]}`,
		`{"capabilities":{"roots":null}}`, `{"capabilities":{"roots":{"listChanged":1}}}`, `{"capabilities":{"roots":true}}`,
		`{"capabilities":{"sampling":{"tools":null}}}`, `{"capabilities":{"elicitation":{"form":{},"form":{}}}}`,
		`{"capabilities":{"experimental":null}}`, `{"capabilities":{"extensions":{"a":null}}}`,
		`{"capabilities":{"tools":{"listChanged":null}}}`,
		`{"clientInfo":null}`, `{"serverInfo":{"name":1}}`, `{"instructions":null}`,
		`{"capabilities":{"roots":{},"roots":{}}}`, `[]`, `{"protocolVersion":"2025-11-25"`,
	}
	plainDiscoveries = []string{
		`{}`, `{"resultType":"complete","ttlMs":0,"cacheScope":"public","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{"listChanged":true}},
			"instructions":"a","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}`, `{"supportedVersions":[]}`,
		`{"other":1}`, `{"supportedVersions":["1900-01-01"]}`,
	}
	unusualDiscoveries = []string{
		`{"supportedVersions":null}`, `{"supportedVersions":[null]}`, `{"supportedVersions":{}}`, `{"ttlMs":1.5}`,
	}
	plainParams = []string{
		`{}`, `{"name":"echo"}`, `{"name":"a\n\u00e9\ud83d","arguments":{}}`, ` { "arguments" : {"a":[1, 2]} , "name" : "echo" } `,
		`{"_meta":{"progressToken":1,"a":{"b":"c"}},"name":"echo","arguments":{"é":"é"}}`, `{"_meta":{}}`,
		`{"arguments":[]}`, `{"Name":"a"}`, `{"requestState":"s"}`, `{"task":{}}`,
	}
	unusualParams = []string{
		`{"name":null}`, `{"name":1}`, `{"arguments":null}`, `{"_meta":null}`, `{"_meta":{"a":null}}`, `{"_meta":[]}`,
		`{"name":"a","name":"b"}`, `{"arguments":{"a":1,"a":2}}`, `{"\u006eame":"a"}`,
		"{\"name\":\"\xff\"}", `[]`, `null`, `{"name":"a"}}`, ``,
	}
	plainResults = []string{
		`{}`, `{"content":[]}`, `{"content":[{"type":"text","text":"a\"\n\u00e9\ud800"},{"text":"b","type":"text"}],"isError":true}`,
		`{"_meta":{"a":1},"resultType":"complete","content":[{"type":"text","text":""}],"structuredContent":{"a":[null]},"isError":false}`,
		`{"structuredContent":[1]}`, `{"content":[{"type":"text"}]}`,
		`{"content":[{"type":"image","data":"","mimeType":"a"}]}`, `{"content":[{"type":"text","text":"a","_meta":{}}]}`, `{"content":[{"type":"te\u0078t","text":"a"}]}`, `{"other":1}`, `{"content":[{"type":"audio","data":"AQ==","mimeType":"a","annotations":{"audience":["user"],"priority":0.5}},{"type":"resource_link","uri":"a:b","name":"c","size":-1,"icons":[{"src":"d","sizes":["any"]}]}]}`, `{"content":[{"uri":"a","type":"resource","resource":{"uri":"a","text":"b"}},{"type":"resource","resource":{"uri":"a","blob":""}},{"resource":{"uri":"a"},"type":"resource"}]}`,
	}
	unusualResults = []string{
		`{"content":null}`, `{"content":[null]}`, `{"content":[{"text":"a"}]}`,
		`{"content":[{"type":"text","text":null}]}`, `{"content":[{"type":"text","text":1}]}`,
		`{"content":{}}`, `{"isError":null}`, `{"isError":1}`, `{"structuredContent":null}`,
		`{"resultType":"input_required","inputRequests":{}}`, `{"content":[],"content":[]}`,
		`{"content":[{"type":"resource","resource":{"uri":"a","blob":"","text":""}}]}`,
		`{"content":[{"type":"image","data":"?"}]}`,
		`{"content":[{"type":"hologram"}]}`,
		`{"other":null}`,
		`{"other":{"a":1,"a":2}}`,
		`{"inputRequests":{}}`,
		`{"requestState":"a"}`,
	}
)

// A newer peer sends members that nobody knows here. They do not leave a message to reflection.
//
// Guarantees: G-0056.4
func TestUnknownMembersAreFast(t *testing.T) {
	for _, fresh := range messages {
		if !sameAsReflection(t, []byte(`{"x-unknown":{"a":[1]}}`), fresh(), fresh()) {
			t.Errorf("%T was left to reflection", fresh())
		}
	}
}

// The fast decoder accepts most calls and results, and gives the same value as reflection.
// Anything else is left to reflection.
//
// Guarantees: G-0056.4
func TestPlainIsReadAsGeneral(t *testing.T) {
	for _, c := range []struct {
		texts []string
		read  func(*testing.T, []byte) bool
		sure  bool
	}{
		{plainParams, sameParams, true}, {unusualParams, sameParams, false},
		{plainResults, sameResult, true}, {unusualResults, sameResult, false},
		{plainPages, samePage, true}, {unusualPages, samePage, false},
		{plainOpenings, sameOpening, true}, {unusualOpenings, sameOpening, false},
		{plainDiscoveries, sameDiscovery, true}, {unusualDiscoveries, sameDiscovery, false},
	} {
		for _, text := range c.texts {
			if sure := c.read(t, []byte(text)); sure != c.sure {
				t.Errorf("%s: accepted by the fast decoder: %t", text, sure)
			}
		}
	}
}

// Guarantees: G-0056.4
func FuzzPlainReading(f *testing.F) {
	for _, texts := range [][]string{
		plainParams, unusualParams, plainResults, unusualResults, plainPages, unusualPages,
		plainOpenings, unusualOpenings, plainDiscoveries, unusualDiscoveries,
	} {
		for _, text := range texts {
			f.Add([]byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, fresh := range messages {
			sameAsReflection(t, raw, fresh(), fresh())
		}
	})
}

// Too many blocks are refused.
func TestPlainBlocksAreBounded(t *testing.T) {
	result := &CallToolResult{Content: make(Contents, MaxItems+1)}
	for i := range result.Content {
		result.Content[i] = Text("")
	}
	raw, err := Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	if decodeFast(raw, false, new(CallToolResult)) {
		t.Error("too many blocks were accepted")
	}
}

// Arguments that are at least half of the params are not copied, and have no capacity beyond
// their end. Smaller ones are copied, so that they do not keep the params in memory.
func TestArgumentsKeepWhatTheyAreMostOf(t *testing.T) {
	for arguments, kept := range map[string]bool{`{"text":"` + strings.Repeat("a", 100) + `"}`: true, `{}`: false} {
		raw := []byte(`{"arguments":` + arguments + `,"name":"echo"}`)
		var params CallToolParams
		if err := Unmarshal(raw, &params); err != nil {
			t.Fatal(err)
		}
		if _ = append(params.Arguments, '!'); !bytes.HasSuffix(raw, []byte(`,"name":"echo"}`)) {
			t.Errorf("appending to the arguments has changed the params to %s", raw)
		}
		clear(raw)
		if got := string(params.Arguments) != arguments; got != kept {
			t.Errorf("%d bytes of arguments: kept as a part of the params: %t", len(arguments), got)
		}
	}
}

// What is not said to refer to the message is a copy: its values stay when the memory of the message is used again.
func TestSmallPartsAreCopied(t *testing.T) {
	const meta = `"_meta":{"a":[1],"` + MetaServerInfo + `":{"name":"s"},"` + MetaTraceparent + `":"00-1"}`
	for wire, into := range map[string]any{
		`{` + meta + `,"name":"a","arguments":{}}`:                                                                                           new(CallToolParams),
		`{` + meta + `,"content":[{"type":"text","text":"a","_meta":{"b":{}}}],"other":{"c":2}}`:                                             new(CallToolResult),
		`{` + meta + `,"tools":[{"name":"a","inputSchema":{"type":"object"},"other":[1,2,3]}]}`:                                              new(ListToolsResult),
		`{"uri":"a:b","inputResponses":{"a":{"action":"accept","content":{"b":1}},"b":{"shrug":[1,2,3]}}}`:                                   new(ReadResourceParams),
		`{"requestState":"s","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"b"}}}}`:                                new(CallToolResult),
		`{"protocolVersion":"2025-06-18","capabilities":{"experimental":{"a":{"b":1}},"x":{"c":3}},"clientInfo":{"name":"a","version":"1"}}`: new(InitializeParams),
	} {
		raw := []byte(wire)
		if err := Unmarshal(raw, into); err != nil {
			t.Errorf("%s: %v", wire, err)
		}
		clear(raw)
		want := reflect.New(reflect.TypeOf(into).Elem()).Interface()
		if err := Unmarshal([]byte(wire), want); err != nil || !reflect.DeepEqual(into, want) {
			t.Errorf("got %+v, %v, want %+v", into, err, want)
		}
	}
}
