package paramheader

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"
)

// An annotation is valid on a string, an integer or a boolean that is reached from the
// root through properties only, and once for each header (2026-07-28
// basic/transports/streamable-http).
func TestWhichAnnotationsAreValid(t *testing.T) {
	property := func(schema string) string { return `{"type":"object","properties":{"a":` + schema + `}}` }
	tooMany, most := new(strings.Builder), ""
	for n := range maxArguments + 1 {
		if n == maxArguments {
			most = tooMany.String()[1:]
		}
		fmt.Fprintf(tooMany, `,"p%d":{"type":"string","x-mcp-header":"H%d"}`, n, n)
	}
	for schema, valid := range map[string]bool{
		property(`{"type":"string","x-mcp-header":"Region"}`):                                      true,
		property(`{"type":"integer","x-mcp-header":"Region"}`):                                     true,
		property(`{"type":"boolean","x-mcp-header":"Region"}`):                                     true,
		property(`{"type":"object","properties":{"b":{"type":"string","x-mcp-header":"Region"}}}`): true,
		`{"type":"object","properties":{"x-mcp-header":{"type":"string"}}}`:                        true,
		property(`{"x-mcp-header":"Region","type":"string"}`):                                      true,
		property(`true`): true,
		property(`{"type":{"x-mcp-header":"Region"}}`):                                                                       false,
		property(`{"x-mcp-header":"Region","a":}`):                                                                           false,
		property(`{"type":"number","x-mcp-header":"Region"}`):                                                                false,
		property(`{"type":"object","x-mcp-header":"Region"}`):                                                                false,
		property(`{"type":"array","x-mcp-header":"Region"}`):                                                                 false,
		property(`{"type":["string","null"],"x-mcp-header":"Region"}`):                                                       false,
		property(`{"x-mcp-header":"Region"}`):                                                                                false,
		property(`{"type":"string","x-mcp-header":""}`):                                                                      false,
		property(`{"type":"string","x-mcp-header":7}`):                                                                       false,
		property(`{"type":"string","x-mcp-header":"My Region"}`):                                                             false,
		property(`{"type":"string","x-mcp-header":"Region:"}`):                                                               false,
		property(`{"type":"string","x-mcp-header":"Ré"}`):                                                                    false,
		property(`{"type":"string","x-mcp-header":"` + strings.Repeat("x", maxHeaderName+1) + `"}`):                          false,
		property(`{"type":"array","items":{"type":"string","x-mcp-header":"Region"}}`):                                       false,
		property(`{"anyOf":[{"type":"string","x-mcp-header":"Region"}]}`):                                                    false,
		`{"type":"object","$defs":{"d":{"type":"string","x-mcp-header":"Region"}}}`:                                          false,
		`{"type":"string","x-mcp-header":"Region"}`:                                                                          true, // no argument has that path, so nothing is mirrored
		`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"R"},"b":{"type":"string","x-mcp-header":"r"}}}`: false,
		`{"type":"object","properties":{` + tooMany.String()[1:] + `}}`:                                                      false,
		`{"type":"object","properties":{` + most + `}}`:                                                                      true,
		property(`{"type":"string","x-mcp-header":"` + strings.Repeat("x", maxHeaderName) + `"}`):                            true,
	} {
		if all, err := Arguments(json.RawMessage(schema)); (err == nil) != valid {
			t.Errorf("%.200s: got %v, %v, want %v", schema, all, err, valid)
		}
	}
}

// Annotated arguments are mirrored to headers, encoded if necessary.
func TestMirroredHeaders(t *testing.T) {
	all, err := Arguments(json.RawMessage(`{"type":"object","properties":{
		"s":{"type":"string","x-mcp-header":"S"},"i":{"type":"integer","x-mcp-header":"I"},"b":{"type":"boolean","x-mcp-header":"B"},
		"o":{"type":"object","properties":{"s":{"type":"string","x-mcp-header":"Inner"}}},"not":{"type":"string"},
		"a":{"properties":{"b":{"properties":{"c":{"properties":{"d":{"type":"string","x-mcp-header":"D"},"e":{"type":"string","x-mcp-header":"E"}}}}}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for arguments, want := range map[string]map[string]string{
		``:                                    {},
		`{}`:                                  {},
		`{"s":"","not":"x"}`:                  {"S": ""},
		`{"s":" ü\t","i":42,"b":false}`:       {"S": " ü\t", "I": "42", "B": "false"},
		`{"i":-1e3}`:                          {"I": "-1000"},
		`{"i":1.5,"s":null,"b":null}`:         {},
		`{"i":9007199254740991}`:              {"I": "9007199254740991"},
		`{"i":9007199254740993}`:              {},
		`{"i":1e999999999}`:                   {},
		`{"o":{"s":"deep"}}`:                  {"Inner": "deep"},
		`{"a":{"b":{"c":{"d":"1","e":"2"}}}}`: {"D": "1", "E": "2"},
		`{"o":"s","s":{"s":1},"b":[true]}`:    {},
		`[1]`:                                 {},
	} {
		if got := Texts(all, json.RawMessage(arguments)); !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", arguments, got, want)
		}
	}
}

// The work for a schema depends on its size alone, and not on its depth, because a server
// chooses both.
func TestDeepSchemasTakeBoundedWork(t *testing.T) {
	const depth, size = 2000, 1 << 20
	annotated := `{"type":"string","x-mcp-header":"Region","description":"` + strings.Repeat("x", size) + `"}`
	for name, test := range map[string]struct {
		open, shut string
		valid      bool
	}{
		"properties of properties":  {`{"properties":{"a":`, `}}`, true},
		"properties without a mark": {`{"properties":{"a":{"description":"x-mcp-header"},"b":`, `}}`, true},
		"items of items":            {`{"items":`, `}`, false},
		"lists of lists":            {`{"anyOf":[`, `]}`, false},
	} {
		schema := json.RawMessage(strings.Repeat(test.open, depth) + annotated + strings.Repeat(test.shut, depth))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		all, err := Arguments(schema)
		runtime.ReadMemStats(&after)
		if (err == nil) != test.valid || test.valid && (len(all) != 1 || len(all[0].Path) != depth) {
			t.Errorf("%s: got %d arguments, %v, want valid: %t", name, len(all), err, test.valid)
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 20*size {
			t.Errorf("%s: %d bytes were allocated for a schema of %d, want %d at most", name, allocated, len(schema), 20*size)
		}
	}
}
