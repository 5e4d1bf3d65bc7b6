package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/schema"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A peer's schema can neither hang nor end the process.
func TestOnlySchemasThatEndSoonAreCompiled(t *testing.T) {
	for name, c := range map[string]struct {
		schema   string
		compiled bool
	}{
		"plain":                    {`{"type": "object", "properties": {"n": {"type": "integer"}}}`, true},
		"a lost reference":         {`{"properties": {"a": {"$ref": "#/$defs/none"}}}`, false},
		"draft-07":                 {`{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}`, true},
		"with an id":               {`{"$id": "https://example.com/a", "$defs": {"a": {}}, "properties": {"a": {"$ref": "#/$defs/a"}}}`, true},
		"a tree":                   {`{"$defs": {"tree": {"properties": {"left": {"$ref": "#/$defs/tree"}}}}, "$ref": "#/$defs/tree"}`, true},
		"a property named $ref":    {`{"properties": {"$ref": {"type": "string"}}}`, true},
		"itself":                   {`{"$ref": "#"}`, false},
		"itself, in other letters": {`{"$REF": "#"}`, false},
		"in a circle":              {`{"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"if": {"$ref": "#/$defs/a"}}}}`, false},
		"a circle in a property":   {`{"properties": {"n": {"ANYOF": [{"$ref": "#/properties/n"}]}}}`, false},
		"doubling a little":        {doubling(7), true},
		"doubling":                 {doubling(8), false},
		"an inner id":              {`{"properties": {"a": {"$id": "https://example.com/a", "$ref": "#"}}}`, false},
		"dynamic":                  {`{"$dynamicAnchor": "a", "$dynamicRef": "#a"}`, false},
		"an anchor":                {`{"$anchor": "a", "not": {"$ref": "#a"}}`, false},
		"elsewhere":                {`{"$ref": "https://example.com/"}`, false},
		"another dialect":          {`{"$schema": "https://json-schema.org/draft/2019-09/schema"}`, false},
		"too long":                 {`{"description": "` + strings.Repeat("a", schema.LargestSchema) + `"}`, false},
		"no schema":                {`7`, false},
	} {
		validator, err := schema.Compile(json.RawMessage(c.schema))
		if compiled := err == nil; compiled != c.compiled {
			t.Errorf("%s: compiled %t (%v), want %t", name, compiled, err, c.compiled)
			continue
		}
		if err == nil {
			if err := validator.Validate(json.RawMessage(`{"n": 1, "left": {"left": {}}}`)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// doubling is a schema with 2^n ways through it.
func doubling(n int) string {
	var defs strings.Builder
	for i := range n {
		fmt.Fprintf(&defs, `"a%d": {"allOf": [{"$ref": "#/$defs/a%d"}, {"$ref": "#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	return fmt.Sprintf(`{"$ref": "#/$defs/a0", "$defs": {%s "a%d": {}}}`, defs.String(), n)
}

func TestValidate(t *testing.T) {
	validator, err := schema.Compile(json.RawMessage(`{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false}`))
	if err != nil || !validator.IsObject() {
		t.Fatal(err)
	}
	for value, fits := range map[string]bool{
		`{"n":1}`: true, `{"n":1.0}`: true, `{}`: false, `{"n":"1"}`: false, `{"n":1,"m":2}`: false, `{"N":1}`: false,
		`[]`: false, `null`: false, `{"n":1,"n":2}`: false, `{`: false,
	} {
		if err := validator.Validate(json.RawMessage(value)); (err == nil) != fits {
			t.Errorf("%s: %v", value, err)
		}
	}
}

func TestRefusalsAreTold(t *testing.T) {
	for raw, want := range map[string]error{
		``: schema.ErrMissing,
		`{"$schema":"https://json-schema.org/draft/2019-09/schema"}`: schema.ErrDialect,
		`{"$ref":"#"}`: schema.ErrEndless,
	} {
		if _, err := schema.Compile(json.RawMessage(raw)); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", raw, err, want)
		}
	}
}

// Whatever is compiled validates whatever value there is, and ends.
func FuzzCompile(f *testing.F) {
	for _, raw := range []string{doubling(3), `{"$ref": "#"}`, `{"type": ["string", 7]}`, `{"items": {"$ref": "#"}}`, `[]`} {
		f.Add([]byte(raw), []byte(`{"a":[1,{"a":null}]}`))
	}
	f.Fuzz(func(t *testing.T, raw, value []byte) {
		if validator, err := schema.Compile(raw); err == nil {
			validator.Validate(value)
		}
	})
}
