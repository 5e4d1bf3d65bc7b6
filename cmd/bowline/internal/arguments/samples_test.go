package arguments

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	jsonschema "github.com/bowline-mcp/bowline/protocol/schema"
)

// TestExamplesFitTheSchemaAndTheShell checks examples for names and values that a shell, or the
// command, would take for something else.
func TestExamplesFitTheSchemaAndTheShell(t *testing.T) {
	for _, c := range []struct{ tool, properties, want string }{
		{"t", `"a": {"default": "it's $(id)"}`, `bowline call t 'a=it'\''s $(id)' FLAGS`},
		{"t", `"a": {"type": "number", "minimum": 2.5}, "b": {"type": "array"}, "c": {"type": "object"}, "d": {"type": "boolean"}`, `bowline call t a=2.5 'b=[]' 'c={}' d=true FLAGS`},
		{"t", `"a": {"type": "string", "examples": ["x y"]}`, `bowline call t 'a=x y' FLAGS`},
		{"t", `"--insecure": {"type": "boolean"}`, `bowline call t '{"--insecure":true}' FLAGS`},
		{"t", `"a:": {"type": "string"}`, `bowline call t '{"a:":"A:"}' FLAGS`},
		{"-t", `"a": {"type": "integer"}`, `bowline call FLAGS -- -t a=1`},
		{"my tool;\n", `"a": {"type": "integer"}`, `bowline call 'my tool;\n' a=1 FLAGS`},
		{"t", `"a": {"type": "array", "minItems": 2, "items": {"type": "string"}}`, `bowline call t 'a=["A","A"]' FLAGS`},
		{"t", `"a": {"type": "array", "minItems": 2, "uniqueItems": true, "items": {"enum": ["x", "y"]}}`, `bowline call t 'a=["x","y"]' FLAGS`},
		{"t", `"a": {"type": "integer", "maximum": -3}`, `bowline call t a=-3 FLAGS`},
		{"t", `"a": {"type": "integer", "exclusiveMinimum": 5}`, `bowline call t a=6 FLAGS`},
		{"t", `"a": {"type": "number", "exclusiveMaximum": 0.5, "exclusiveMinimum": 0}`, `bowline call t a=0.25 FLAGS`},
		{"t", `"a": {"type": "integer", "minimum": 5, "multipleOf": 4}`, `bowline call t a=8 FLAGS`},
		{"t", `"a": {"type": "string", "minLength": 4}`, `bowline call t a=AAAA FLAGS`},
		{"t", `"abcd": {"type": "string", "maxLength": 2}`, `bowline call t abcd=AB FLAGS`},
		{"t", `"a": {"type": "string", "format": "date-time"}`, `bowline call t a=2026-11-26T15:04:05Z FLAGS`},
		{"t", `"a": {"type": "string", "format": "email"}`, `bowline call t a=ada@example.com FLAGS`},
		{"t", `"a": {"type": "object", "required": ["b"], "properties": {"b": {"type": "object", "required": ["c"], "properties": {"c": {"type": "integer", "minimum": 7}}}}}`,
			`bowline call t 'a={"b":{"c":7}}' FLAGS`},
		{"t", `"a": {"$ref": "#/$defs/port"}`, `bowline call t a=1024 FLAGS`},
		{"t", `"a": {"anyOf": [{"type": "integer", "minimum": 9}, {"type": "null"}]}`, `bowline call t a=9 FLAGS`},
		{"t", `"a": {"enum": [3, 4]}`, `bowline call t a:=3 FLAGS`},
		{"t", `"a": {"const": "x"}`, `bowline call t a=x FLAGS`},
		{"t", `"a": {"type": "string", "pattern": "^q{3}-[0-9]+$"}`, `bowline call t a=… FLAGS`},
		{"t", `"a": {"type": "integer", "default": "five"}`, `bowline call t a=1 FLAGS`},
		{"t", `"a": {"type": "array", "minItems": 1000000, "items": {"type": "string"}}`, `bowline call t a=… FLAGS`},
		{"t", `"a": {"$ref": "#/$defs/tree"}`, `bowline call t a=… FLAGS`},
	} {
		const defs = `"$defs": {"port": {"type": "integer", "minimum": 1024}, "tree": {"type": "object", "required": ["n"], "properties": {"n": {"$ref": "#/$defs/tree"}}}}, `
		raw := json.RawMessage(`{"properties": {` + c.properties + `}}`)
		var root Object
		if err := protocol.Unmarshal(raw, &root); err != nil {
			t.Fatal(err)
		}
		var required []string
		for key := range root["properties"].(Object) {
			required = append(required, `"`+key+`"`)
		}
		raw = json.RawMessage(`{` + defs + `"required": [` + strings.Join(required, ",") + `], "properties": {` + c.properties + `}}`)
		if got := ReadSchema(t.Context(), raw, jsonschema.Compile).Example(t.Context(), c.tool, "FLAGS"); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.properties, got, c.want)
		}
	}
}

// TestExamplesThatFitTogether checks that an example is not shown if its values do not fit together.
func TestExamplesThatFitTogether(t *testing.T) {
	raw := json.RawMessage(`{"required": ["a", "b"], "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "not": {"properties": {"a": {"const": 1}}}}`)
	if got, want := ReadSchema(t.Context(), raw, jsonschema.Compile).Example(t.Context(), "t", "FLAGS"), "bowline call t a=… b=… FLAGS"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestExamplesOfSchemasThatReferToThemselves checks that the search for an example is bounded.
func TestExamplesOfSchemasThatReferToThemselves(t *testing.T) {
	parts := strings.TrimSuffix(strings.Repeat(`{"$ref": "#/$defs/a"},`, 16), ",")
	raw := json.RawMessage(`{"$defs": {"a": {"anyOf": [` + parts + `], "oneOf": [` + parts + `], "allOf": [` + parts + `]}}, "required": ["x"], "properties": {"x": {"$ref": "#/$defs/a"}}}`)
	s := ReadSchema(t.Context(), raw, jsonschema.Compile)
	search := &sampleSearch{Schema: s, budget: mostSchemas}
	search.samples(t.Context(), s.Properties()["x"], "x", 0)
	if search.tried != mostTried {
		t.Errorf("the search tried %d subschemas, want it to end at %d", search.tried, mostTried)
	}
}
