package arguments

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	jsonschema "github.com/bowline-mcp/bowline/protocol/schema"
)

const shapes = `{
	"type": "object",
	"properties": {
		"text": {"type": "string"},
		"count": {"type": "integer"},
		"ratio": {"type": "number"},
		"flag": {"type": "boolean"},
		"list": {"type": "array"},
		"tree": {"type": "object"},
		"nothing": {"type": "null"},
		"either": {"type": ["integer", "string"]},
		"optional": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
		"referred": {"$ref": "#/$defs/a~1b"},
		"lost": {"$ref": "#/$defs/none"},
		"free": {}
	},
	"$defs": {"a/b": {"oneOf": [{"type": "boolean"}]}}
}`

// TestValuesAreTypedByTheSchema checks that a value is text if the schema allows text, and JSON
// otherwise.
func TestValuesAreTypedByTheSchema(t *testing.T) {
	for pair, want := range map[string]string{
		"text=7":        `"7"`,
		"text=null":     `"null"`,
		"count=7":       `7`,
		"count=7.0":     `7.0`,
		"count=-1e3":    `-1e3`,
		"count=7.5":     `argument "count": expected integer, got "7.5"`,
		"count=":        `argument "count": expected integer, got ""`,
		"ratio=7.5":     `7.5`,
		"ratio=NaN":     `argument "ratio": expected number, got "NaN"`,
		"flag=true":     `true`,
		"flag=yes":      `argument "flag": expected boolean, got "yes"`,
		"list=[1]":      `[1]`,
		"list={}":       `argument "list": expected array, got "{}"`,
		`tree={"a":1}`:  `{"a":1}`,
		"nothing=null":  `null`,
		"either=7":      `"7"`,
		"optional=7":    `7`,
		"optional=null": `null`,
		"optional=x":    `argument "optional": expected integer or null, got "x"`,
		"referred=true": `true`,
		"referred=x":    `argument "referred": expected boolean, got "x"`,
		"lost=7":        `"7"`,
		"free=7":        `"7"`,
		"free:=7":       `7`,
		"other=7":       `"7"`,
	} {
		given, err := readPairs([]string{pair})
		if err != nil {
			t.Fatal(err)
		}
		got, err := given.pairs[0].Parse(ReadSchema(t.Context(), json.RawMessage(shapes), jsonschema.Compile).Types(given.pairs[0].key))
		if value := string(got); err != nil && err.Error() != want || err == nil && value != want {
			t.Errorf("%s: %s, %v; want %s", pair, value, err, want)
		}
	}
}

// doubling returns a schema that applies 2^n schemas to one value.
func doubling(n int) string {
	var defs strings.Builder
	for i := range n {
		fmt.Fprintf(&defs, `"a%d": {"allOf": [{"$ref": "#/$defs/a%d"}, {"$ref": "#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	return fmt.Sprintf(`{"$ref": "#/$defs/a0", "$defs": {%s "a%d": {}}}`, defs.String(), n)
}

// TestTypesOfADoublingSchema checks that the search for types ends.
func TestTypesOfADoublingSchema(t *testing.T) {
	raw := strings.ReplaceAll(doubling(64), "allOf", "anyOf")
	nested := fmt.Sprintf(`{"properties": {"n": {"$ref": "#/$defs/a0"}}, %s`, raw[1:])
	if types := ReadSchema(t.Context(), json.RawMessage(nested), jsonschema.Compile).Types("n"); len(types) > 0 {
		t.Errorf("types %q of a schema without any", types)
	}
}

// FuzzSchema checks that the command describes any schema of a peer without a crash.
func FuzzSchema(f *testing.F) {
	for _, schema := range []string{shapes, doubling(3), `{"$ref": "#"}`, `{"type": ["string", 7]}`, `{"required": 7, "properties": {"a": true}}`, `[]`} {
		f.Add([]byte(schema), "a", "7")
	}
	f.Fuzz(func(t *testing.T, raw []byte, key, value string) {
		schema := ReadSchema(t.Context(), raw, jsonschema.Compile)
		given := Given{pairs: []Pair{{key: key, Value: value}}}
		whole, err := given.Fit(t.Context(), "tool", schema)
		if err == nil && !json.Valid(whole) {
			t.Errorf("not JSON: %q", whole)
		}
		if synopsis := schema.synopsis("tool"); strings.ContainsAny(synopsis, "\x1b\n") {
			t.Errorf("not one printable line: %q", synopsis)
		}
	})
}
