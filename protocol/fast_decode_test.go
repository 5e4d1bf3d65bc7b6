package protocol

import (
	"bytes"
	"strings"
	"testing"

	general "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

// sameDecoding compares the fast decoder of a type with reflection.
func sameDecoding[T, G any](t *testing.T, raw []byte, toGeneral func(*T) *G) (sure bool) {
	t.Helper()
	read := new(T)
	sure = any(read).(fastDecoder).decodeFast(raw)
	if !sure {
		if diff := cmp.Diff(new(T), read); diff != "" {
			t.Fatalf("%q: the value was changed, although the fast decoder has refused it: %s", raw, diff)
		}
		return false
	}
	want := new(G)
	if err := general.Unmarshal(raw, want, jsontext.AllowInvalidUTF8(true)); err != nil {
		t.Fatalf("%q was decoded, and reflection fails with %v", raw, err)
	}
	if diff := cmp.Diff(want, toGeneral(read)); diff != "" {
		t.Fatalf("%q: %s", raw, diff)
	}
	return true
}

func sameParams(t *testing.T, raw []byte) bool {
	return sameDecoding(t, raw, func(p *CallToolParams) *generalParams { return (*generalParams)(p) })
}

func sameResult(t *testing.T, raw []byte) bool {
	return sameDecoding(t, raw, func(r *CallToolResult) *generalResult { return (*generalResult)(r) })
}

// sameHandshake decodes a text as each message of a handshake.
func sameHandshake(t *testing.T, raw []byte) (params, result, discovered bool) {
	params = sameDecoding(t, raw, func(p *InitializeParams) *generalInitializeParams { return (*generalInitializeParams)(p) })
	result = sameDecoding(t, raw, func(r *InitializeResult) *generalInitializeResult { return (*generalInitializeResult)(r) })
	discovered = sameDecoding(t, raw, func(r *DiscoverResult) *generalDiscoverResult { return (*generalDiscoverResult)(r) })
	return params, result, discovered
}

// sameOpening decodes a text as the params and as the result of initialize. Each has members
// that are unknown to the other, so at most one fast decoder accepts the text.
func sameOpening(t *testing.T, raw []byte) bool {
	params, result, _ := sameHandshake(t, raw)
	return params || result
}

func sameDiscovery(t *testing.T, raw []byte) bool {
	_, _, discovered := sameHandshake(t, raw)
	return discovered
}

type (
	generalPage             ListToolsResult
	generalInitializeParams InitializeParams
	generalInitializeResult InitializeResult
	generalDiscoverResult   DiscoverResult
)

func samePage(t *testing.T, raw []byte) bool {
	return sameDecoding(t, raw, func(r *ListToolsResult) *generalPage { return (*generalPage)(r) })
}

var (
	plainPages = []string{
		`{}`, `{"tools":[]}`, `{"tools":[{"name":"a","title":"b","description":"c\n","inputSchema":{"type":"object"},"outputSchema":true,"_meta":{"d":1}},{}],"nextCursor":""}`,
		`{"_meta":{},"resultType":"complete","ttlMs":-50,"cacheScope":"public","tools":[{"annotations":{"title":"e","readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":true}}]}`,
	}
	unusualPages = []string{
		`{"tools":null}`, `{"tools":[null]}`, `{"tools":[{"name":null}]}`, `{"tools":[{"inputSchema":null}]}`, `{"tools":[{"icons":[]}]}`,
		`{"tools":[{"execution":{}}]}`, `{"tools":[{"other":1}]}`, `{"nextCursor":null}`, `{"ttlMs":1.0}`, `{"ttlMs":9223372036854775808}`, `{"ttlMs":null}`,
		`{"tools":[{"annotations":null}]}`, `{"tools":[{"annotations":{"other":1}}]}`, `{"tools":[{"name":"a","name":"b"}]}`, `{"other":1}`, `{"tools":{}}`,
	}
	plainOpenings = []string{
		`{}`, `{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"a","version":"1"}}`,
		`{"_meta":{"a":1},"protocolVersion":"2025-03-26","capabilities":{"roots":{"listChanged":true},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}}}}`,
		`{"protocolVersion":"2025-06-18","capabilities":{"roots":{},"sampling":{"context":{}},"elicitation":{},"experimental":{"a":{"b":1}},"extensions":{"c":{}}}}`,
		`{"protocolVersion":"2025-11-25","clientInfo":{"name":"a","title":"b\n","version":"c","description":"d","websiteUrl":"https://e"}}`,
		`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":false},"resources":{"subscribe":true,"listChanged":true},
			"logging":{},"completions":{},"experimental":{},"extensions":{"a":{}}},"serverInfo":{"name":"s","version":"1"},"instructions":"use \"it\""}`,
		`{"capabilities":{"tools":{},"prompts":{},"resources":{}}}`,
	}
	unusualOpenings = []string{
		`{"protocolVersion":"1900-01-01"}`, `{"protocolVersion":null}`, `{"protocolVersion":"2025\u002d11-25"}`, `{"capabilities":null}`, `{"capabilities":[]}`,
		`{"capabilities":{"roots":null}}`, `{"capabilities":{"roots":{"listChanged":1}}}`, `{"capabilities":{"roots":{"other":1}}}`, `{"capabilities":{"roots":true}}`,
		`{"capabilities":{"sampling":{"tools":null}}}`, `{"capabilities":{"sampling":{"tools":{"other":1}}}}`, `{"capabilities":{"elicitation":{"form":{},"form":{}}}}`,
		`{"capabilities":{"tasks":{}}}`, `{"capabilities":{"other":{}}}`, `{"capabilities":{"experimental":null}}`, `{"capabilities":{"extensions":{"a":null}}}`,
		`{"capabilities":{"tools":{"listChanged":null}}}`, `{"capabilities":{"logging":{"other":1}}}`, `{"capabilities":{"resources":{"other":true}}}`,
		`{"clientInfo":{"icons":[]}}`, `{"clientInfo":{"other":1}}`, `{"clientInfo":null}`, `{"serverInfo":{"name":1}}`, `{"instructions":null}`, `{"other":1}`,
		`{"capabilities":{"roots":{},"roots":{}}}`, `[]`, `{"protocolVersion":"2025-11-25"`,
	}
	plainDiscoveries = []string{
		`{}`, `{"resultType":"complete","ttlMs":0,"cacheScope":"public","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{"listChanged":true}},
			"instructions":"a","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}`, `{"supportedVersions":[]}`,
	}
	unusualDiscoveries = []string{
		`{"supportedVersions":null}`, `{"supportedVersions":["1900-01-01"]}`, `{"supportedVersions":[null]}`, `{"supportedVersions":{}}`, `{"ttlMs":1.5}`, `{"other":1}`,
	}
	plainParams = []string{
		`{}`, `{"name":"echo"}`, `{"name":"a\n\u00e9\ud83d","arguments":{}}`, ` { "arguments" : {"a":[1, 2]} , "name" : "echo" } `,
		`{"_meta":{"progressToken":1,"a":{"b":"c"}},"name":"echo","arguments":{"é":"é"}}`, `{"_meta":{}}`,
	}
	unusualParams = []string{
		`{"name":null}`, `{"name":1}`, `{"arguments":null}`, `{"arguments":[]}`, `{"_meta":null}`, `{"_meta":{"a":null}}`, `{"_meta":[]}`,
		`{"name":"a","name":"b"}`, `{"arguments":{"a":1,"a":2}}`, `{"\u006eame":"a"}`, `{"Name":"a"}`, `{"requestState":"s"}`, `{"task":{}}`,
		"{\"name\":\"\xff\"}", `[]`, `null`, `{"name":"a"}}`, ``,
	}
	plainResults = []string{
		`{}`, `{"content":[]}`, `{"content":[{"type":"text","text":"a\"\n\u00e9\ud800"},{"text":"b","type":"text"}],"isError":true}`,
		`{"_meta":{"a":1},"resultType":"complete","content":[{"type":"text","text":""}],"structuredContent":{"a":[null]},"isError":false}`,
		`{"structuredContent":[1]}`, `{"content":[{"type":"text"}]}`,
	}
	unusualResults = []string{
		`{"content":null}`, `{"content":[null]}`, `{"content":[{"type":"image","data":"","mimeType":"a"}]}`, `{"content":[{"text":"a"}]}`,
		`{"content":[{"type":"text","text":null}]}`, `{"content":[{"type":"text","text":"a","_meta":{}}]}`, `{"content":[{"type":"text","text":1}]}`,
		`{"content":[{"type":"te\u0078t","text":"a"}]}`, `{"content":{}}`, `{"isError":null}`, `{"isError":1}`, `{"structuredContent":null}`,
		`{"resultType":"input_required","inputRequests":{}}`, `{"other":1}`, `{"content":[],"content":[]}`,
	}
)

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
		sameParams(t, raw)
		sameResult(t, raw)
		samePage(t, raw)
		sameHandshake(t, raw)
	})
}

// Too many blocks are refused.
func TestPlainBlocksAreBounded(t *testing.T) {
	result := &CallToolResult{Content: make(Contents, MaxBlocks+1)}
	for i := range result.Content {
		result.Content[i] = Text("")
	}
	raw, err := Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	if new(CallToolResult).decodeFast(raw) {
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
