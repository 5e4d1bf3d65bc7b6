package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// twoKinds refers to itself from two alternatives, like the schema of a tree with two kinds
// of nodes. Without the memo, each level of a value would double the work.
const twoKinds = `{"type":"object","properties":{"n":{"$ref":"#/$defs/node"}},"$defs":{"node":{"oneOf":[` +
	`{"properties":{"kind":{"const":"a"},"next":{"$ref":"#/$defs/node"}}},` +
	`{"properties":{"kind":{"const":"b"},"next":{"$ref":"#/$defs/node"}}}]}}}`

func nested(before, inside, after string, depth int) string {
	return strings.Repeat(before, depth) + inside + strings.Repeat(after, depth)
}

// The work is proportional to the size of the value, or ends with ErrTooCostly.
//
// Guarantees: G-0016.9
func TestAttacksTakeFewSteps(t *testing.T) {
	for name, attack := range map[string]struct {
		schema, value string
		most          int // steps
		costly        bool
	}{
		"two kinds": {twoKinds, `{"n":` + nested(`{"kind":"b","next":`, `{"kind":"a"}`, `}`, 40) + `}`, 2_000, false},
		"two kinds, unevaluated": {strings.Replace(twoKinds, `{"oneOf"`, `{"unevaluatedProperties":false,"oneOf"`, 1),
			`{"n":` + nested(`{"kind":"b","next":`, `{"kind":"a"}`, `}`, 40) + `}`, 4_000, false},
		"two kinds, deeper": {twoKinds, `{"n":` + nested(`{"kind":"b","next":`, `{"kind":"a"}`, `}`, 4_000) + `}`, 200_000, false},
		"any of itself twice": {`{"properties":{"n":{"$ref":"#"}},"$defs":{"x":{"items":{"anyOf":[{"not":{"$ref":"#/$defs/x"}},{"not":{"$ref":"#/$defs/x"}}]}}},"$ref":"#/$defs/x"}`,
			nested(`[`, ``, `]`, 1_000), 30_000, false},
		"doubling references": {doublingInPlace(2_000), `{"a":1}`, 20_000, false},
		"unique elements":     {`{"uniqueItems":true}`, `[` + manyDifferent(100_000) + `]`, 1_000_000, false},
		"nested unique elements": {`{"$defs":{"u":{"uniqueItems":true,"items":{"$ref":"#/$defs/u"}}},"$ref":"#/$defs/u"}`,
			nested(`[`, ``, `]`, 9_000), 0, true},
		"a huge enum":           {`{"items":{"enum":[` + manyDifferent(20_000) + `]}}`, `[` + manyDifferent(20_000) + `]`, 200_000, false},
		"patterns on long text": {`{"allOf":[` + strings.Repeat(`{"pattern":"(x+x+)+$"},`, 200) + `{}]}`, `"` + strings.Repeat("x", 1<<20) + `"`, 0, true},
		"many patterns":         {`{"patternProperties":{` + manyPatterns(2_000) + `}}`, `{` + manyMembers(10_000) + `}`, 0, true},
		"many dependencies":     {`{"dependentRequired":{` + manyDependencies(5_000) + `}}`, `{` + manyMembers(5_000) + `}`, 0, true},
		"a million elements":    {`{"items":{"minLength":1}}`, `[` + strings.Repeat(`{},`, 999_999) + `{}]`, 5_000_000, false},
		"a chain of schemas for a deep value": {`{"$defs":{"d":{"items":` + nested(`{"not":`, `{"not":{"$ref":"#/$defs/d"}}`, `}`, 4_001) + `}},"$ref":"#/$defs/d"}`,
			nested(`[`, ``, `]`, 500), 0, true},
	} {
		v, err := Compile(t.Context(), json.RawMessage(attack.schema))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		steps, err := v.validate(t.Context(), []byte(attack.value))
		if costly := errors.Is(err, ErrTooCostly); costly != attack.costly || !costly && steps > attack.most {
			t.Errorf("%s: %d steps for %d and %d bytes, %v", name, steps, len(attack.schema), len(attack.value), err)
		}
	}
}

// doublingInPlace returns a schema that applies 2^n schemas to one value.
func doublingInPlace(n int) string {
	var defs strings.Builder
	for i := range n {
		fmt.Fprintf(&defs, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/a0","$defs":{%s"a%d":{"type":["object","array"]}}}`, defs.String(), n)
}

func many(n int, format string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.ReplaceAll(format, "#", fmt.Sprint(i))
	}
	return strings.Join(all, ",")
}

func manyDifferent(n int) string    { return many(n, `"a#"`) }
func manyPatterns(n int) string     { return many(n, `"^(a|b)*#$":{}`) }
func manyMembers(n int) string      { return many(n, `"a#":0`) }
func manyDependencies(n int) string { return many(n, `"a#":["a0","a4999"]`) }

// Validate ends when its context ends.
//
// Guarantees: G-0016.9
func TestValidateStopsWithItsContext(t *testing.T) {
	v, err := Compile(t.Context(), json.RawMessage(`{"items":{"minLength":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("the client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	steps, err := v.validate(ctx, []byte(`[`+strings.Repeat(`{},`, 99_999)+`{}]`))
	if !errors.Is(err, why) || steps > 5_000 {
		t.Errorf("got %v after %d steps", err, steps)
	}
}

// The memory for a document of many small values is proportional to its size: 16 bytes for
// each value, where a tree of Go values takes more than a hundred.
func TestValidationTakesLittleMemory(t *testing.T) {
	v, err := Compile(t.Context(), json.RawMessage(`{"type":"object","properties":{"message":{"type":"string"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	value := []byte(`{"message":[` + strings.Repeat(`{},`, 1<<20/3) + `{}]}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = v.Validate(t.Context(), value)
	runtime.ReadMemStats(&after)
	var invalid *InvalidError
	if !errors.As(err, &invalid) || invalid.Path != "/message" {
		t.Errorf("got %v", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 16*uint64(len(value)) {
		t.Errorf("%d bytes for %d", took, len(value))
	}
}

// Signs inside strings are no values. A text of commas takes no more memory than another
// text of its length, of which validation makes no copy.
//
// Guarantees: G-0016.9
func TestSignsInStringsTakeNoMemory(t *testing.T) {
	v, err := Compile(t.Context(), json.RawMessage(`{"type":"object","properties":{"text":{"type":"integer"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, sign := range []string{`,`, `:`, `[`, `{`, `\",`, `\\\",`} {
		value := []byte(`{"text":"` + strings.Repeat(sign, 1<<20/len(sign)) + `"}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err = v.Validate(t.Context(), value)
		runtime.ReadMemStats(&after)
		var invalid *InvalidError
		if !errors.As(err, &invalid) || invalid.Path != "/text" {
			t.Errorf("a string of %s: got %v, want it refused because it is no integer", sign, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 16<<10 {
			t.Errorf("a string of %s: %d bytes for %d, want at most 16 KiB", sign, took, len(value))
		}
	}
}

// The names of a large object are indexed once: in at most six bytes for each byte of the
// text, of which the index of values takes most.
//
// Guarantees: G-0016.9
func TestManyMembersTakeLittleMemory(t *testing.T) {
	v, err := Compile(t.Context(), json.RawMessage(`{"type":"object","properties":{"a":{}},"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	value := []byte(`{` + manyMembers(300_000) + `}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = v.Validate(t.Context(), value)
	runtime.ReadMemStats(&after)
	var invalid *InvalidError
	if !errors.As(err, &invalid) || invalid.Reason != `has the member "a0", which the schema does not allow` {
		t.Errorf("got %v, want the first member in the error", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 6*uint64(len(value)) {
		t.Errorf("%d bytes for %d, want at most 6 for each", took, len(value))
	}
	if mallocs := after.Mallocs - before.Mallocs; mallocs > 100 {
		t.Errorf("%d allocations, want at most 100", mallocs)
	}
}

// A name that is there twice is refused, however it is written and wherever it is.
func TestRepeatedNamesAreRefused(t *testing.T) {
	v, err := Compile(t.Context(), json.RawMessage(`{"minProperties":0}`))
	if err != nil {
		t.Fatal(err)
	}
	for value, repeated := range map[string]bool{
		`{"a":1,"b":{"a":2}}`: false, `[{"a":1},{"a":1}]`: false, `{"":0}`: false, `{"a":1,"A":1}`: false, `{` + manyMembers(1_000) + `}`: false,
		`{"a":1,"a":1}`: true, `{"a":1,"\u0061":1}`: true, `{"":0,"":0}`: true, `[[{"b":{"a":1,"c":2,"a":3}}]]`: true, "{\"\xff\":1,\"\xfe\":1}": true,
		`{` + manyMembers(1_000) + `,"a999":0}`: true, `{"a500":0,` + manyMembers(1_000) + `}`: true,
	} {
		if err := v.Validate(t.Context(), []byte(value)); errors.Is(err, jsontext.ErrDuplicateName) != repeated || !repeated && err != nil {
			t.Errorf("%.40s: got %v, want it refused %t", value, err, repeated)
		}
	}
}

// An error says which part of the value does not fit.
func TestFaultsAreTold(t *testing.T) {
	for _, test := range [][3]string{
		{`{"type":"object"}`, `[]`, `the value is an array, not an object`},
		{`{"type":["string","null"]}`, `1`, `the value is a number, not a string or null`},
		{`{"properties":{"a/b":{"items":{"type":"integer"}}}}`, `{"x":[],"a/b":[1,2.5]}`, `/a~1b/1 is a number, not an integer`},
		{`{"required":["a","b"]}`, `{"a":1}`, `the value lacks the member "b"`},
		{`{"properties":{"a":{}},"additionalProperties":false}`, `{"a":1,"b":2}`, `the value has the member "b", which the schema does not allow`},
		{`{"enum":["a","b"]}`, `"c"`, `the value is none of the 2 allowed values, such as "a"`},
		{`{"const":{"a":1}}`, `{"a":2}`, `the value is not {"a":1}`},
		{`{"minimum":8388608}`, `0`, `the value is less than 8388608`}, {`{"maximum":1}`, `2`, `the value is more than 1`},
		{`{"exclusiveMinimum":1}`, `1`, `the value is not more than 1`}, {`{"exclusiveMaximum":1}`, `1`, `the value is not less than 1`},
		{`{"multipleOf":2}`, `3`, `the value is not a multiple of 2`}, {`{"minLength":2}`, `"é"`, `the value is shorter than 2 characters`},
		{`{"maxLength":1}`, `"\u00e9a"`, `the value is longer than 1 character`}, {`{"pattern":"^a"}`, `"b"`, `the value does not match the pattern "^a"`},
		{`{"minItems":1}`, `[]`, `the value has fewer than 1 element`}, {`{"maxItems":0}`, `[1]`, `the value has more than 0 elements`},
		{`{"contains":{"const":1}}`, `[2]`, `the value has fewer than 1 element that the schema of contains allows`},
		{`{"contains":{},"maxContains":1}`, `[1,2]`, `the value has more than 1 element that the schema of contains allows`},
		{`{"uniqueItems":true}`, `[{"a":1,"b":2},{"b":2.0,"a":1}]`, `the value has two equal elements`},
		{`{"prefixItems":[{}],"unevaluatedItems":false}`, `[1,2]`, `/1 is an element that the schema does not allow`},
		{`{"unevaluatedProperties":false}`, `{"a":1}`, `the value has the member "a", which the schema does not allow`},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, `the value lacks the member "b", which another member needs`},
		{`{"minProperties":1}`, `{}`, `the value has fewer than 1 member`}, {`{"maxProperties":0}`, `{"a":1}`, `the value has more than 0 members`},
		{`{"propertyNames":{"maxLength":1}}`, `{"ab":1}`, `/ab is longer than 1 character`},
		{`{"anyOf":[false,false]}`, `1`, `the value fits none of the 2 alternatives`}, {`{"oneOf":[false]}`, `1`, `the value fits none of the 1 alternatives`},
		{`{"oneOf":[{},{}]}`, `1`, `the value fits more than one of the alternatives, of which it must fit exactly one`},
		{`{"not":{}}`, `1`, `the value fits a schema that it must not fit`}, {`{"items":false}`, `[1]`, `/0 is not allowed`},
	} {
		v, err := Compile(t.Context(), json.RawMessage(test[0]))
		if err != nil {
			t.Errorf("%s: %v", test[0], err)
			continue
		}
		if err := v.Validate(t.Context(), json.RawMessage(test[1])); err == nil || err.Error() != test[2] {
			t.Errorf("%s: %s: got %v, want %s", test[0], test[1], err, test[2])
		}
	}
}

func TestMemoIsBounded(t *testing.T) {
	v, err := Compile(t.Context(), json.RawMessage(`{"items":{"$ref":"#/$defs/a"},"$defs":{"a":{"minLength":1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	e := evaluation{budget: budget{left: maxSteps, beyond: ErrTooCostly}}
	if e.values, err = index([]byte(`[`+strings.Repeat(`0,`, maxMemo)+`0]`), &e.budget); err != nil {
		t.Fatal(err)
	}
	if f := e.apply(v.root, 0, nil); !f.isNone() || len(e.memo) == 0 || len(e.memo) > maxMemo {
		t.Errorf("%d results are remembered, %+v", len(e.memo), f)
	}
}
