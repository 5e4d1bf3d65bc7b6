package schema

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A shape accepts no value that the full validator refuses. It accepts each value in usual
// notation that the full validator accepts.
func TestShapeAgreesWithTheValidator(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := anySchema(2).Draw(t, "schema")
		v, err := Compile(t.Context(), json.RawMessage(raw))
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if v.shape == nil {
			t.Fatalf("%s has no shape", raw)
		}
		plain := anyValue(2, plainLeaf(), `"a"`, `"b"`, `"c"`).Draw(t, "plain value")
		if sure, fits := v.shape.surelyFits([]byte(plain)), v.fitsInFull(plain); sure != fits {
			t.Fatalf("%s with %s: accepted by the shape %t, fits %t", plain, raw, sure, fits)
		}
		odd := anyValue(2, rapid.OneOf(plainLeaf(), oddLeaf()), `"a"`, `"b"`, `"c"`, `"\u0061"`, "\"\xff\"").Draw(t, "value")
		if v.shape.surelyFits([]byte(odd)) && !v.fitsInFull(odd) {
			t.Fatalf("%s does not fit %s", odd, raw)
		}
	})
}

func (v *Validator) fitsInFull(raw string) bool {
	return (&Validator{root: v.root}).Validate(context.Background(), json.RawMessage(raw)) == nil
}

// A name with an escape is the same name as without.
func TestShapeIsNotSureOfEscapes(t *testing.T) {
	v, err := Compile(t.Context(), json.RawMessage(`{"properties":{"a":{"type":"string"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for value, fits := range map[string]bool{`{"a":"1"}`: true, `{"\u0061":"1"}`: true, `{"\u0061":1}`: false, `{"b":1}`: true} {
		if err := v.Validate(t.Context(), json.RawMessage(value)); (err == nil) != fits {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// A schema with any other keyword has no shape.
func TestShapeIsOfShapesOnly(t *testing.T) {
	for _, raw := range []string{
		`{"enum":[1]}`, `{"const":1}`, `{"minimum":1}`, `{"maxLength":1}`, `{"pattern":"a"}`, `{"prefixItems":[{}]}`, `{"minItems":1}`,
		`{"uniqueItems":true}`, `{"contains":{}}`, `{"minProperties":1}`, `{"patternProperties":{"a":{}}}`, `{"propertyNames":{}}`,
		`{"unevaluatedProperties":false}`, `{"allOf":[{}]}`, `{"not":{}}`, `{"if":{}}`, `{"dependentRequired":{"a":["b"]}}`,
		`{"dependentSchemas":{"a":{}}}`, `{"$defs":{"a":{}},"$ref":"#/$defs/a"}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","dependencies":{"a":["b"]}}`,
		`{"properties":{"a":{"enum":[1]}}}`, `{"items":{"enum":[1]}}`, `{"additionalProperties":{"enum":[1]}}`, `{"items":false}`,
	} {
		v, err := Compile(t.Context(), json.RawMessage(raw))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
		} else if v.shape != nil {
			t.Errorf("%s has a shape", raw)
		}
	}
}

func anySchema(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		object := map[string]any{"description": "a"}
		types := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"object", "array", "string", "boolean", "null", "number", "integer"}), 0, 3, rapid.ID).Draw(t, "types")
		switch len(types) {
		case 0:
		case 1:
			object["type"] = types[0]
		default:
			object["type"] = types
		}
		if depth > 0 {
			inner := rapid.Map(anySchema(depth-1), func(raw string) json.RawMessage { return json.RawMessage(raw) })
			object["properties"] = rapid.MapOfN(anyName(), inner, 0, 2).Draw(t, "properties")
			object["required"] = rapid.SliceOfNDistinct(anyName(), 0, 2, rapid.ID).Draw(t, "required")
			switch rapid.IntRange(0, 3).Draw(t, "additional properties") {
			case 1:
				object["additionalProperties"] = false
			case 2:
				object["additionalProperties"] = inner.Draw(t, "others")
			}
			if rapid.Bool().Draw(t, "with items") {
				object["items"] = inner.Draw(t, "items")
			}
		}
		raw, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	})
}

func anyName() *rapid.Generator[string] { return rapid.SampledFrom([]string{"a", "b", "\ufffd"}) }

func plainLeaf() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{`"a"`, `"\n"`, `true`, `false`, `null`, `0`, `-17`, `1.5`, `{}`, `[]`})
}

// oddLeaf draws a value in unusual notation, or invalid JSON.
func oddLeaf() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{`1.0`, `1e3`, `1e999`, `123456789012345678901`, `"\ud800"`, "\"\xff\"", ` 1 `, `01`, `}`, `1 2`, ``, `"`})
}

// anyValue draws a value that may have repeated names.
func anyValue(depth int, leaf *rapid.Generator[string], names ...string) *rapid.Generator[string] {
	if depth == 0 {
		return leaf
	}
	inner := anyValue(depth-1, leaf, names...)
	list := rapid.Map(rapid.SliceOfN(inner, 0, 2), func(all []string) string { return "[" + strings.Join(all, ",") + "]" })
	member := rapid.Custom(func(t *rapid.T) string {
		name := rapid.SampledFrom(names).Draw(t, "name")
		return name + ":" + inner.Draw(t, "value")
	})
	object := rapid.Map(rapid.SliceOfN(member, 0, 3), func(all []string) string { return "{" + strings.Join(all, ",") + "}" })
	return rapid.OneOf(leaf, list, object, object)
}

// A shape does not accept anything but one value that fits.
func TestShapeIsNotSure(t *testing.T) {
	for _, c := range [][2]string{
		{`{}`, `1 2`}, {`{}`, `{} {}`}, {`{"type":"object"}`, `{}}`},
		{`{"properties":{"\ufffd":{"type":"string"}}}`, "{\"\xff\":1}"},
		{`{"type":"integer"}`, "1" + strings.Repeat("0", 330)},
	} {
		v, err := Compile(t.Context(), json.RawMessage(c[0]))
		if err != nil || v.shape == nil {
			t.Fatal(c, err)
		}
		if v.shape.surelyFits([]byte(c[1])) {
			t.Errorf("the shape of %s accepts %s", c[0], c[1])
		}
	}
}

// For any schema and value, a value that the shape accepts fits.
func FuzzShape(f *testing.F) {
	for _, s := range []string{`{"type":"object","properties":{"a":{"type":["string","null"]},"b":{"type":"integer"}},"required":["a","a"],"additionalProperties":false}`,
		`{"items":{"type":"number"},"type":[]}`, `true`, `{"additionalProperties":{"type":"array","items":{}}}`, `{"type":"integer","format":"int64","default":"x"}`, `{"properties":{"":{"type":"object"}}}`, `{"$schema":"http://json-schema.org/draft-07/schema#","items":{"type":"string"},"required":["a"]}`} {
		for _, v := range []string{`{"a":"x","b":1}`, `[1,2.0,-0]`, `{"a":null,"a":1}`, `123456789012345678`, ``, ` {} `, `"\ud800"`, "{\"\xff\":1,\"\xfe\":1}", `{"":{}}`, `{"b":-0,"a":"\u0000"}`} {
			f.Add([]byte(s), []byte(v))
		}
	}
	f.Fuzz(func(t *testing.T, s, v []byte) {
		c, err := Compile(t.Context(), json.RawMessage(s))
		if err != nil || c.shape == nil {
			return
		}
		keep := string(v)
		sure := c.shape.surelyFits(v)
		if string(v) != keep {
			t.Fatal("value changed")
		}
		if sure && !c.fitsInFull(keep) {
			t.Fatalf("the shape of %s accepts %s, which does not fit", s, v)
		}
	})
}
