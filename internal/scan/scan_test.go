package scan_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/internal/scan"
	"github.com/go-json-experiment/json/jsontext"
)

var texts = []string{
	`null`, `true`, `false`, ` 1 `, `-0`, `0.5e-3`, `1E+9`, `-12.75`, `""`, `"a"`, `{}`, `[]`, `{ }`, `[{},[ ],{ }]`, "[1,\t2\r\n]", "[1\r]", "[1\n]", "[1\t]",
	`{"a":[1,{"b":"\u00e9\n"}]}`, `"0123456\n89\\"`, `"\ud83d"`, `"\/"`, "\"\xff\"", "\"é0123456789\"", "\"\x7f\"",
	`{"a":1,"a":2}`, `{"a":{"a":1},"b":{"a":1}}`, `{"a":1,"\u0061":2}`, `{"é":1}`, `{"":1}`,
	``, ` `, `nul`, `nulll`, `tru`, `01`, `1.`, `.5`, `-`, `1e`, `1e+`, `+1`, `"`, `"a`, `"\`, `"\x"`, `"\u12g4"`, "\"\n\"", "\"0123456\n\"", "\"\x1f\"",
	`{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{1:2}`, `{"a" 1}`, `{"a":}`, `[`, `[1`, `[1,`, `[1,]`, `[,]`, `[1 2]`, `]`, `1 2`, `{}}`, "\ufeff{}",
	"{\"\xff\":1,\"\xfe\":2}", "\v1", "[\f]",
	strings.Repeat("[", scan.Deepest) + strings.Repeat("]", scan.Deepest),
	strings.Repeat("[", scan.Deepest+1) + strings.Repeat("]", scan.Deepest+1),
	strings.Repeat(`{"a":`, scan.Deepest) + `0` + strings.Repeat("}", scan.Deepest),
	manyMembers(64), manyMembers(65),
}

func manyMembers(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `,"%d":0`, i)
	}
	return "{" + text.String()[1:] + "}"
}

// depth returns how deep the objects and arrays of a valid text are nested.
func depth(text []byte) (most int) {
	from := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		if _, err := from.ReadToken(); err != nil {
			return most
		}
		most = max(most, from.StackDepth())
	}
}

// members counts the members of all objects in a valid text.
func members(text []byte) int { return bytes.Count(text, []byte{':'}) }

// check compares the result of package scan for a text with encoding/json and jsontext.
func check(t *testing.T, text []byte) {
	t.Helper()
	valid := json.Valid(text) && utf8.Valid(text)
	any := scan.Of(text)
	raw := any.Value()
	if sure := any.End(); sure != (valid && depth(text) <= scan.Deepest) {
		t.Fatalf("%q: accepted %t, valid %t", text, sure, valid)
	} else if sure && (!bytes.Equal(raw, bytes.Trim(text, " \t\r\n")) || cap(raw) != len(raw)) {
		t.Fatalf("%q: read %q, with room for %d", text, raw, cap(raw))
	} else if values, objects := count(text); sure && (any.Values() != values || any.Objects() != objects) {
		t.Fatalf("%q: %d values and %d objects, want %d and %d", text, any.Values(), any.Objects(), values, objects)
	} else if sure {
		if v, o := scan.CountValues(text); v != values || o != objects {
			t.Fatalf("%q: counted %d values and %d objects, want %d and %d", text, v, o, values, objects)
		}
	}
	lenient := jsontext.AllowInvalidUTF8(true)
	unique := scan.Unique(text)
	unique.Value()
	switch sure, want := unique.End(), jsontext.Value(text).IsValid(lenient) && valid; {
	case sure && !want:
		t.Fatalf("%q: accepted, but it is not valid, or has repeated names", text)
	case !sure && want && depth(text) <= scan.Deepest && members(text) <= 64 && bytes.IndexByte(text, '\\') < 0:
		t.Fatalf("%q: not accepted", text)
	case sure && unique.IsCompact():
		if formatted, err := jsontext.AppendFormat(nil, text, lenient); err != nil || !bytes.Equal(formatted, text) {
			t.Fatalf("%q is not compact: %q, %v", text, formatted, err)
		}
	}
}

// count counts the values that jsontext reads, and the objects with members among them.
func count(text []byte) (values, objects int) {
	from := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		container, length := from.StackIndex(from.StackDepth())
		token, err := from.ReadToken()
		if err != nil {
			return values, objects
		}
		if kind := token.Kind(); kind != '}' && kind != ']' && (container != '{' || length%2 != 0) {
			values++
		} else if container == '{' && length == 0 && kind == '"' {
			objects++
		}
	}
}

// Guarantees: G-0056.1
func TestSureTextIsValid(t *testing.T) {
	for _, text := range texts {
		check(t, []byte(text))
	}
}

// Guarantees: G-0056.1
func FuzzScan(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(check)
}

func TestDepthIsLimited(t *testing.T) {
	for limit, sure := range map[int]bool{1: false, 2: true, 3: true} {
		text := scan.Of([]byte(`{"a":[]}`))
		text.Limit(limit)
		text.Value()
		if text.End() != sure {
			t.Errorf("limit %d: %t", limit, !sure)
		}
	}
}

// Only objects and arrays that are open at once count against the depth and the room for names, however a text is read.
//
// Guarantees: G-0056.1
func TestWhatIsClosedTakesNoRoom(t *testing.T) {
	var walk func(text *scan.Text)
	walk = func(text *scan.Text) {
		switch text.Kind() {
		case '{':
			text.Members(func([]byte) bool { walk(text); return true })
		case '[':
			text.Elements(func() bool { walk(text); return true })
		default:
			text.Value()
		}
	}
	for of, begin := range map[string]func([]byte) scan.Text{"Of": scan.Of, "Unique": scan.Unique} {
		for how, read := range map[string]func(*scan.Text){"Value": func(text *scan.Text) { text.Value() }, "Members and Elements": walk} {
			for value, sure := range map[string]bool{`{"a":0}`: true, `[0]`: true, `{}`: true, `[]`: true, `{"a":[]}`: false, `[[]]`: false} {
				text := begin([]byte("[" + strings.Repeat(value+",", 100) + "0]"))
				text.Limit(2)
				if read(&text); text.End() != sure {
					t.Errorf("%s, read by %s, 100 of %s: %t", of, how, value, !sure)
				}
			}
			deep := begin([]byte(strings.Repeat("[", scan.Deepest+1) + strings.Repeat("]", scan.Deepest+1)))
			if deep.Limit(scan.Deepest + 1); deep.Value() != nil || deep.End() {
				t.Errorf("%s: a limit is above the deepest", of)
			}
			deep = begin([]byte(strings.Repeat("[", scan.Deepest+1) + strings.Repeat("]", scan.Deepest+1)))
			if read(&deep); deep.End() {
				t.Errorf("%s, read by %s: it reads more than the deepest", of, how)
			}
		}
		for limit, sure := range map[int]bool{1: false, 2: true} {
			for _, members := range []string{`"a":[]}`, `"a":{}}`, `"a":{"a":0},"b":{"a":0}}`} {
				inside := begin([]byte(members))
				inside.Inside(true)
				inside.Limit(limit)
				if inside.Members(func([]byte) bool { inside.Value(); return true }); inside.End() != sure {
					t.Errorf("%s, %s without its brace, limit %d: %t", of, members, limit, !sure)
				}
			}
		}
	}
}

// End reports false if the caller has not read everything, or has called Fail.
func TestTextFailsForGood(t *testing.T) {
	for name, read := range map[string]func(*scan.Text){
		"unread":  func(text *scan.Text) { text.Members(func([]byte) bool { return true }) },
		"refused": func(text *scan.Text) { text.Members(func([]byte) bool { text.Value(); return false }) },
		"failed":  func(text *scan.Text) { text.Fail(); text.Value() },
		"array":   func(text *scan.Text) { text.Elements(func() bool { text.Value(); return true }) },
	} {
		text := scan.Of([]byte(`{"a":1}`))
		if read(&text); text.End() {
			t.Errorf("%s: accepted", name)
		}
	}
	for value, isBool := range map[string]bool{"true": true, "false": true, "null": false, "0": false, `"true"`: false} {
		text := scan.Of([]byte(value))
		if got := text.Bool(); text.End() != isBool || got != (value == "true") {
			t.Errorf("%s as a boolean: %t, accepted %t", value, got, !isBool)
		}
	}
}
