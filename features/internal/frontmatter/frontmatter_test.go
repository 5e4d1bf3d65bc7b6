package frontmatter_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/internal/frontmatter"
)

// The frontmatter of a file is returned as JSON.
func TestParse(t *testing.T) {
	for file, want := range map[string]string{
		"---\nname: a\ndescription: b\n---\nbody": `{"name":"a","description":"b"}`,
		"---\r\nname: a\r\n---\r\n":               `{"name":"a"}`,
		"---\nname: a\n---":                       `{"name":"a"}`,
		"\ufeff---\nname: a\n--- \nbody":          `{"name":"a"}`,
		"---\na: []\nb: {}\n---\n":                `{"a":[],"b":{}}`,
		"---\na: " + strings.Repeat("[", 32) + strings.Repeat("]", 32) + "\n---\n": `{"a":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + `}`,
		"---\nn: 7\nf: 1.50\nb: true\nz: null\nd: 2026-11-22\nq: \"7\"\n---\n":     `{"n":7,"f":1.5,"b":true,"z":null,"d":"2026-11-22","q":"7"}`,
		"---\nmetadata:\n  a: [x, y]\ntext: >\n  folded\n  text\n---\n":            `{"metadata":{"a":["x","y"]},"text":"folded text\n"}`,
	} {
		got, err := frontmatter.Parse([]byte(file))
		if err != nil || !frontmatter.Equal(got, json.RawMessage(want)) {
			t.Errorf("%q: got %s, %v", file, got, err)
		}
		for range 10 { // a client may compare the bytes
			if again, err := frontmatter.Parse([]byte(file)); err != nil || string(again) != string(got) {
				t.Fatalf("%q: got %s and %s, %v", file, got, again, err)
			}
		}
	}
}

// To compare two values changes neither.
func TestEqualChangesNothing(t *testing.T) {
	a, b := json.RawMessage(`{"b": 1.0, "a": 2}`), json.RawMessage(`{"a":2,"b":1}`)
	if !frontmatter.Equal(a, b) || string(a) != `{"b": 1.0, "a": 2}` || string(b) != `{"a":2,"b":1}` {
		t.Errorf("got %s and %s, want them equal, and as they were", a, b)
	}
}

// Files without frontmatter, and YAML without an equal JSON, are refused.
func TestParseRefuses(t *testing.T) {
	for file, want := range map[string]string{
		"":                           "begin",
		"name: a":                    "begin",
		"---\nname: a\n":             "ends",
		"---\n- a\n---\n":            "no mapping",
		"---\n---\n":                 "no mapping",
		"---\na: &x 1\nb: *x\n---\n": "anchors",
		"---\na: &x 1\n---\n":        "anchors",
		"---\na: 1\na: 2\n---\n":     "twice",
		"---\na: " + strings.Repeat("[", 33) + strings.Repeat("]", 33) + "\n---\n": "deeper",
		"---\n7: a\n---\n":      "no text",
		"---\na: !own b\n---\n": "tag",
		"---\na: .inf\n---\n":   "",
		"---\na: [\n---\n":      "",
		"---\na: " + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "\n---\n": "deeper",
		"---\na: " + strings.Repeat("a", 70_000) + "\n---\n":                         "larger",
	} {
		if got, err := frontmatter.Parse([]byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: got %s, %v, want an error and %v in it", file, got, err, want)
		}
	}
	if frontmatter.Equal(json.RawMessage(`{"a":1}`), json.RawMessage(`{"a":2}`)) || frontmatter.Equal(nil, nil) {
		t.Error("different values are equal, want them to differ")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("---\nname: a\nmetadata: {a: [1, b]}\n---\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		if raw, err := frontmatter.Parse(file); err == nil && !json.Valid(raw) {
			t.Errorf("got %s", raw)
		}
	})
}
