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

// No schema of a peer makes the process hang or crash.
//
// Guarantees: G-0016.10
func TestOnlySchemasThatEndSoonAreCompiled(t *testing.T) {
	for name, c := range map[string]struct {
		schema   string
		compiled bool
	}{
		"plain":                     {`{"type": "object", "properties": {"n": {"type": "integer"}}}`, true},
		"a lost reference":          {`{"properties": {"a": {"$ref": "#/$defs/none"}}}`, false},
		"draft-07":                  {`{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}`, true},
		"with an id":                {`{"$id": "https://example.com/a", "$defs": {"a": {}}, "properties": {"a": {"$ref": "#/$defs/a"}}}`, true},
		"a tree":                    {`{"$defs": {"tree": {"properties": {"left": {"$ref": "#/$defs/tree"}}}}, "$ref": "#/$defs/tree"}`, true},
		"a property named $ref":     {`{"properties": {"$ref": {"type": "string"}}}`, true},
		"itself":                    {`{"$ref": "#"}`, false},
		"itself, in other letters":  {`{"$REF": "#"}`, true}, // is no keyword
		"in a circle":               {`{"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"if": {"$ref": "#/$defs/a"}}}}`, false},
		"a circle in a property":    {`{"properties": {"n": {"anyOf": [{"$ref": "#/properties/n"}]}}}`, false},
		"a circle of dependencies":  {`{"dependentSchemas": {"n": {"$ref": "#"}}}`, false},
		"doubling":                  {doubling(500), true},
		"an inner id":               {`{"properties": {"a": {"$id": "https://example.com/a", "$ref": "#"}}}`, false},
		"dynamic":                   {`{"$dynamicAnchor": "a", "$dynamicRef": "#a"}`, false},
		"an anchor of itself":       {`{"$anchor": "a", "not": {"$ref": "#a"}}`, false},
		"an anchor":                 {`{"$defs": {"x": {"$anchor": "a", "type": "integer"}}, "properties": {"n": {"$ref": "#a"}}}`, true},
		"an anchor in a list":       {`{"allOf": [{"$anchor": "a", "type": "object"}], "properties": {"left": {"$ref": "#a"}}}`, true},
		"a name with a tilde":       {`{"$defs": {"~1": {"type": "object"}}, "properties": {"left": {"$ref": "#/$defs/~01"}}}`, true},
		"a malformed definition":    {`{"$defs": {"a": {"type": "text"}}}`, false},
		"one of draft-07":           {`{"definitions": {"a": {"type": "text"}}}`, false},
		"then without if":           {`{"then": false, "else": false}`, true},
		"a malformed then":          {`{"then": 7}`, false},
		"the longest pattern":       {`{"pattern": "` + strings.Repeat("a", 4096) + `"}`, true},
		"a pattern too long":        {`{"pattern": "` + strings.Repeat("a", 4097) + `"}`, false},
		"an array's element":        {`{"allOf": [{"type": "object"}], "properties": {"left": {"$ref": "#/allOf/0"}}}`, true},
		"no such element":           {`{"allOf": [{}], "properties": {"left": {"$ref": "#/allOf/1"}}}`, false},
		"elsewhere":                 {`{"$ref": "https://example.com/"}`, false},
		"another dialect":           {`{"$schema": "https://json-schema.org/draft/2019-09/schema"}`, false},
		"too long":                  {`{"description": "` + strings.Repeat("a", 256<<10) + `"}`, false},
		"no schema":                 {`7`, false},
		"a boolean":                 {`true`, true},
		"a number for a schema":     {`{"properties": {"a": 7}}`, false},
		"an unknown type":           {`{"type": "text"}`, false},
		"a type that is no text":    {`{"type": ["string", 7]}`, false},
		"a list of no schemas":      {`{"allOf": {}}`, false},
		"properties in a list":      {`{"properties": []}`, false},
		"a negative length":         {`{"minLength": -1}`, false},
		"half a length":             {`{"maxItems": 0.5}`, false},
		"a limit that is no number": {`{"minimum": "1"}`, false},
		"a multiple of nothing":     {`{"multipleOf": 0}`, false},
		"an enum that is no list":   {`{"enum": "a"}`, false},
		"a pattern that is none":    {`{"pattern": "("}`, false},
		"a pattern of property":     {`{"patternProperties": {"(": {}}}`, false},
		"required that is no list":  {`{"required": "a"}`, false},
		"required of numbers":       {`{"required": [1]}`, false},
		"unique of a word":          {`{"uniqueItems": "yes"}`, false},
		"a long pattern":            {`{"pattern": "` + strings.Repeat("a", 5000) + `"}`, false},
		"large patterns":            {`{"allOf": [{"pattern": "` + strings.Repeat("a{1000}", 99) + `"}, {"pattern": "` + strings.Repeat("b{1000}", 99) + `"}]}`, false},
	} {
		validator, err := schema.Compile(t.Context(), json.RawMessage(c.schema))
		if compiled := err == nil; compiled != c.compiled {
			t.Errorf("%s: compiled %t (%v), want %t", name, compiled, err, c.compiled)
			continue
		}
		if err == nil {
			if err := validator.Validate(t.Context(), json.RawMessage(`{"n": 1, "left": {"left": {}}}`)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
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

func TestValidate(t *testing.T) {
	validator, err := schema.Compile(t.Context(), json.RawMessage(`{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false}`))
	if err != nil || !validator.IsObject() {
		t.Fatal(err)
	}
	for value, fits := range map[string]bool{
		`{"n":1}`: true, `{"n":1.0}`: true, `{"n":1e300}`: true, `{"n":0.5}`: false, `{}`: false, `{"n":"1"}`: false, `{"n":1,"m":2}`: false, `{"N":1}`: false,
		`[]`: false, `null`: false, `{"n":1,"n":2}`: false, `{`: false,
	} {
		if err := validator.Validate(t.Context(), json.RawMessage(value)); (err == nil) != fits {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// The keywords of draft-07 count beside those that have replaced them, and each dialect may be named in several ways.
func TestKeywordsOfTwoDialects(t *testing.T) {
	for raw, values := range map[string]map[string]bool{
		`{"dependentRequired":{"a":["b"]},"dependencies":{"a":["c"]}}`: {
			`{"a":1}`: false, `{"a":1,"b":1}`: false, `{"a":1,"c":1}`: false, `{"a":1,"b":1,"c":1}`: true, `{"b":1}`: true,
		},
		`{"dependentSchemas":{"a":{"required":["b"]}},"dependencies":{"a":{"required":["c"]}}}`: {
			`{"a":1}`: false, `{"a":1,"b":1}`: false, `{"a":1,"c":1}`: false, `{"a":1,"b":1,"c":1}`: true, `{"b":1}`: true,
		},
		`{"items":[{"type":"string"}],"additionalItems":false}`: {`["a"]`: true, `["a",1]`: false, `[1]`: false},
		`{"if":{"required":["a"]},"then":{"required":["b"]}}`:   {`{"a":1}`: false, `{"a":1,"b":1}`: true, `{}`: true},
	} {
		for _, dialect := range []string{
			"", "https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#", "http://json-schema.org/draft-07/schema#",
			"https://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-07/schema", "https://json-schema.org/draft-07/schema",
		} {
			validator, err := schema.Compile(t.Context(), json.RawMessage(fmt.Sprintf(`{"$schema":%q,%s`, dialect, raw[1:])))
			if err != nil {
				t.Errorf("%s in %q: %v", raw, dialect, err)
				continue
			}
			for value, fits := range values {
				if err := validator.Validate(t.Context(), json.RawMessage(value)); (err == nil) != fits {
					t.Errorf("%s in %q: %s: got %v, want it to fit: %t", raw, dialect, value, err, fits)
				}
			}
		}
	}
}

func TestRefusalsAreTold(t *testing.T) {
	for raw, want := range map[string]error{
		``: schema.ErrMissing,
		`{"$schema":"https://json-schema.org/draft/2019-09/schema"}`: schema.ErrDialect,
		`{"$ref":"#"}`: schema.ErrEndless,
		`{"if":{"type":"string"},"else":{"$ref":"#"}}`:         schema.ErrEndless,
		`{"if":{"type":"string"},"then":{"$ref":"#"}}`:         schema.ErrEndless,
		`{"$ref":"#/none"}`:                                    schema.ErrReference,
		`{"pattern":"` + strings.Repeat("a{1000}", 200) + `"}`: schema.ErrTooLarge,
	} {
		if _, err := schema.Compile(t.Context(), json.RawMessage(raw)); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", raw, err, want)
		}
	}
}

// An error names the reference that is not supported, and says what to do about it.
//
// Guarantees: G-0016.10
func TestRefusedReferencesAreNamed(t *testing.T) {
	for raw, want := range map[string]string{
		`{"items":{"$dynamicRef":"#node"}}`:                                                 `schema: unsupported reference: $dynamicRef "#node": use $ref`,
		`{"items":{"$dynamicRef":7}}`:                                                       `schema: unsupported reference: $dynamicRef "7": use $ref`,
		`{"$defs":{"a":{"$ref":"https://example.com/a"}}}`:                                  `schema: unsupported reference: $ref "https://example.com/a" is in another document, which is not fetched: copy it into $defs`,
		`{"$id":"https://example.com/a","items":{"$ref":"other.json#/b"}}`:                  `schema: unsupported reference: $ref "other.json#/b" is in another document, which is not fetched: copy it into $defs`,
		`{"items":{"$ref":"#/none"}}`:                                                       `schema: unsupported reference: $ref "#/none" leads to nothing in the schema`,
		`{"items":{"$id":"https://example.com/a"}}`:                                         `schema: unsupported reference: $id "https://example.com/a" is below the root`,
		`{"$defs":{"a":{"$id":"https://example.com/` + strings.Repeat("a", 99_000) + `"}}}`: `schema: unsupported reference: $id "https://example.com/` + strings.Repeat("a", 80) + `" is below the root`,
	} {
		if _, err := schema.Compile(t.Context(), json.RawMessage(raw)); !errors.Is(err, schema.ErrReference) || err.Error() != want {
			t.Errorf("%.80s: got %v, want %s", raw, err, want)
		}
	}
}

// CheckReferences finds a reference that leads out of a schema wherever Compile would, except where its comment says, and nothing else.
//
// Guarantees: G-0016.10
func TestReferencesThatLeadOutAreFound(t *testing.T) {
	const dynamic, outside = `{"$dynamicRef":"#node"}`, "{\"$ref\" :\t\n\"a.json\"}"
	const dynamicRefused, outsideRefused = `schema: unsupported reference: $dynamicRef "#node": use $ref`,
		`schema: unsupported reference: $ref "a.json" is in another document, which is not fetched: copy it into $defs`
	cases := map[string]string{
		outside: outsideRefused,
		`{"type":"object","$defs":{"a":{"items":{"anyOf":[{"$ref":"#"},` + dynamic + `]}}}}`:       dynamicRefused,
		`{"$ref":"#/$defs/a","$defs":{"a":` + outside + `}}`:                                       outsideRefused,
		`{"properties":{"$dynamicRef":{},"$ref":{}}}`:                                              "", // names of properties
		`{"enum":[` + outside + `,"$ref"],"const":` + dynamic + `,"x":` + dynamic + `}`:            "",
		`{"$ref": "#/$defs/a","$defs":{"a":{}}}`:                                                   "",
		`{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/a","not":` + dynamic + `}`: "", // it is ignored
		`{"$ref":"#/none"}`: "",
		`["$ref"]`:          "",
		`{"$ref":a`:         "",
		``:                  "",
	}
	cases[`{"items":[{}],"additionalItems":`+dynamic+`}`] = dynamicRefused
	cases[`{"items":{},"additionalItems":`+dynamic+`}`] = "" // it is ignored
	for _, keyword := range []string{"not", "if", "then", "else", "contains", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "items"} {
		cases[`{"`+keyword+`":`+dynamic+`}`] = dynamicRefused
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf", "prefixItems", "items"} {
		cases[`{"`+keyword+`":[{},`+dynamic+`]}`] = dynamicRefused
	}
	for _, keyword := range []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"} {
		cases[`{"`+keyword+`":{"a":{},"b":`+outside+`,"c":`+dynamic+`}}`] = outsideRefused
	}
	for raw, want := range cases {
		err := schema.CheckReferences(json.RawMessage(raw))
		if want == "" && err != nil || want != "" && (!errors.Is(err, schema.ErrReference) || err.Error() != want) {
			t.Errorf("%s: got %v, want %q", raw, err, want)
		}
		_, refused := schema.Compile(t.Context(), json.RawMessage(raw))
		isLocal := strings.Contains(fmt.Sprint(refused), "leads to nothing")
		if (err != nil || !isLocal) && errors.Is(err, schema.ErrReference) != errors.Is(refused, schema.ErrReference) {
			t.Errorf("%s: got %v, and Compile says %v", raw, err, refused)
		}
	}
	for _, raw := range []string{
		`{"$ref":"#/x","x":` + dynamic + `}`,
		`{"\u0024dynamicRef":"#node"}`,
		`{"not":` + dynamic + `,"description":"` + strings.Repeat("a", 256<<10) + `"}`,
	} {
		if err := schema.CheckReferences(json.RawMessage(raw)); err != nil {
			t.Errorf("%.80s: got %v, want nil", raw, err)
		}
		if _, err := schema.Compile(t.Context(), json.RawMessage(raw)); err == nil {
			t.Errorf("%.80s compiles", raw)
		}
	}
}

// Each schema that compiles validates each value, and ends.
func FuzzCompile(f *testing.F) {
	for _, raw := range []string{doubling(3), `{"$ref": "#"}`, `{"type": ["string", 7]}`, `{"items": {"$ref": "#"}}`, `{"not":{"$ref":"a","$dynamicRef":"b"}}`, `[]`} {
		f.Add([]byte(raw), []byte(`{"a":[1,{"a":null}]}`))
	}
	f.Fuzz(func(t *testing.T, raw, value []byte) {
		if validator, err := schema.Compile(t.Context(), raw); err == nil {
			validator.Validate(t.Context(), value)
			if err := schema.CheckReferences(raw); err != nil {
				t.Errorf("%q compiles, and CheckReferences says %v", raw, err)
			}
		}
	})
}

// What a reference evaluates counts, even if the same reference was followed before where nobody asked what it evaluates.
func TestReferencesThatAreFollowedForTwoReasons(t *testing.T) {
	const definitions = `"$defs":{"a":{"properties":{"x":true}}},"unevaluatedProperties":false,`
	for _, raw := range []string{
		`{` + definitions + `"not":{"not":{"$ref":"#/$defs/a"}},"allOf":[{"$ref":"#/$defs/a"}]}`,
		`{` + definitions + `"allOf":[{"not":{"not":{"$ref":"#/$defs/a"}}},{"$ref":"#/$defs/a"}]}`,
	} {
		v, err := schema.Compile(t.Context(), json.RawMessage(raw))
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Validate(t.Context(), json.RawMessage(`{"x":1}`)); err != nil {
			t.Errorf("%s: %v, want no error", raw, err)
		}
	}
}
