package jsonrpc_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Guarantees: G-0017.2
func TestIDKeepsItsTypeAndEveryDigit(t *testing.T) {
	for _, literal := range []string{
		`0`, `7`, `-7`, `9007199254740993`, `9223372036854775807`, `-9223372036854775808`,
		`9223372036854775808`, `18446744073709551615`, strings.Repeat("9", 64),
		`""`, `"7"`, `"a\nb"`, `"\"\\"`, `"漢字"`, `"` + strings.Repeat("x", 1024) + `"`,
		`"` + strings.Repeat(`\u0001`, 1024) + `"`, // 1024 bytes after unescaping
	} {
		id, err := jsonrpc.ParseID([]byte(literal))
		if err != nil {
			t.Errorf("ParseID(%s): %v", literal, err)
			continue
		}
		if got := string(id.Append(nil)); got != literal || len(got) > id.MaxSize() {
			t.Errorf("ParseID(%s) is written as %s, with at most %d bytes", literal, got, id.MaxSize())
		}
	}
}

// Guarantees: G-0017.3
func TestParseIDRefuses(t *testing.T) {
	for _, literal := range []string{
		``, ` `, `null`, `true`, `false`, `{}`, `[]`, `[1]`,
		`1.5`, `-1e-3`, `1.05e1`, `1e64`, `-1e63`, `1e999999999999999999999`, `1e-999999999999999999999`, `1.`, `1e`, `01`, `+1`, `0x1`, `1_0`, `NaN`, `-`,
		`"`, `"a`, `a"`, `1 2`, `"a""b"`, `"\ud800"`, "\"\xff\"", "\"\n\"",
		strings.Repeat("9", 65), `"` + strings.Repeat("x", 1025) + `"`,
		`"` + strings.Repeat(`\u0041`, 1025) + `"`,
	} {
		if id, err := jsonrpc.ParseID([]byte(literal)); err == nil {
			t.Errorf("ParseID(%q) = %v, want an error", literal, id)
		} else if !id.IsZero() {
			t.Errorf("ParseID(%q) failed with id %v", literal, id)
		}
	}
}

// Guarantees: G-0017.13
func TestIDsOfEqualNumbersAreEqual(t *testing.T) {
	for digits, literals := range map[string][]string{
		`0`:    {`-0`, `0.0`, `-0.00`, `0e0`, `0e999999999999999999999`, `0.0e-7`},
		`1`:    {`1.0`, `1.000`, `1e0`, `1E0`, `1.0e+0`, `10e-1`, `0.1e1`, `0.001E3`},
		`-7`:   {`-7.0`, `-70e-1`, `-0.7e1`},
		`1200`: {`12e2`, `1.2e3`, `1200.0`, `120000e-2`},

		`9007199254740993`:     {`9007199254740993.0`, `9.007199254740993e15`},
		`18446744073709551616`: {`18446744073709551616.0`, `1.8446744073709551616e19`},

		`1` + strings.Repeat("0", 63): {`1e63`, `0.1e64`},
	} {
		want, err := jsonrpc.ParseID([]byte(digits))
		if err != nil {
			t.Fatal(err)
		}
		for _, literal := range literals {
			got, err := jsonrpc.ParseID([]byte(literal))
			if err != nil || got != want || string(got.Append(nil)) != digits {
				t.Errorf("ParseID(%s) = %v, %v, want %s", literal, got, err, digits)
			}
		}
	}
}

func TestIDEqualityIsTypeAndValue(t *testing.T) {
	parse := func(literal string) jsonrpc.ID {
		t.Helper()
		id, err := jsonrpc.ParseID([]byte(literal))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	if parse(`1`) == parse(`"1"`) {
		t.Error("1 equals its string")
	}
	if parse(` 1 `) != jsonrpc.IntegerID(1) || parse(`"\u0041"`) != jsonrpc.StringID("A") {
		t.Error("a parsed id differs from the same id of IntegerID")
	}
	if jsonrpc.StringID("\xff") != parse(`"�"`) {
		t.Error("StringID differs from the parsed id of its JSON")
	}
	if (jsonrpc.ID{}) == jsonrpc.IntegerID(0) || (jsonrpc.ID{}) == jsonrpc.StringID("") {
		t.Error("the zero ID equals another ID")
	}
}

func TestIDInt64(t *testing.T) {
	for literal, fits := range map[string]bool{`9223372036854775807`: true, `9223372036854775808`: false, `"1"`: false} {
		id, err := jsonrpc.ParseID([]byte(literal))
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := id.Int64(); ok != fits || ok && n != math.MaxInt64 {
			t.Errorf("Int64 of %s = %d, %v", literal, n, ok)
		}
	}
}

func TestIDString(t *testing.T) {
	for id, want := range map[jsonrpc.ID]string{
		{}:                     "none",
		jsonrpc.IntegerID(1):   "1",
		jsonrpc.StringID("1"):  `"1"`,
		jsonrpc.StringID("\n"): `"\n"`,
	} {
		if got := id.String(); got != want {
			t.Errorf("String = %s, want %s", got, want)
		}
	}
}

// Guarantees: G-0016.7, G-0017.2
func TestIDAsField(t *testing.T) {
	type cancelled struct {
		RequestID jsonrpc.ID  `json:"requestId,omitzero"`
		Token     *jsonrpc.ID `json:"token,omitempty"`
	}
	libraries := map[string]struct {
		marshal   func(any) ([]byte, error)
		unmarshal func([]byte, any) error
	}{
		"encoding/json": {json.Marshal, json.Unmarshal},
		"v2": {
			func(v any) ([]byte, error) { return jsonv2.Marshal(v) },
			func(b []byte, v any) error { return jsonv2.Unmarshal(b, v) },
		},
	}
	for name, library := range libraries {
		t.Run(name, func(t *testing.T) {
			for text, want := range map[string]string{
				`{"requestId":18446744073709551615,"token":"t"}`: `{"requestId":18446744073709551615,"token":"t"}`,
				`{"requestId":"7"}`:               `{"requestId":"7"}`,
				`{"requestId":null,"token":null}`: `{}`,
			} {
				value := cancelled{RequestID: jsonrpc.IntegerID(99)}
				if err := library.unmarshal([]byte(text), &value); err != nil {
					t.Fatal(err)
				}
				if got, err := library.marshal(value); err != nil || string(got) != want {
					t.Errorf("%s becomes %s, %v", text, got, err)
				}
			}
			for _, text := range []string{`{"requestId":1.5}`, `{"requestId":true}`, `{"token":{}}`} {
				var value cancelled
				if err := library.unmarshal([]byte(text), &value); err == nil {
					t.Errorf("%s is accepted as %+v", text, value)
				}
			}
		})
	}
}
