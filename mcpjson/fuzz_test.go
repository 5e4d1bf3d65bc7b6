package mcpjson

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// FuzzParse checks that any text is read, or that its mistakes have places in it.
//
// Guarantees: G-0018.3, G-0018.11
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{
		"", "\uFEFF", "{", "[[[[", "{\"servers\":{\"a\":{\"url\":\"http://h\",\"headers\":{\"a\":\"\"}}}}", "// x", "/*",
		server(`"command": "${TOOLS}", "args": ["${NO:-${X}}", "\ud83d"], "timeout": -0.1`),
		"{\"mcpServers\": {\"\": []}, \"servers\": {\"\": 1}, \"servers\": null}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := string(text)
		config, err := parse("m", before, variables{"TOOLS": "/opt", "API_KEY": "k"})
		if err != nil {
			checkError(t, before, err)
			return
		}
		config.ReadFile = func(path string) ([]byte, error) { return []byte("P='" + path + "'"), nil }
		config.Ask = func(in Input) (string, error) { return in.Default, nil }
		whole := config.Check()
		if whole != nil {
			checkError(t, before, whole)
		}
		mistaken := false
		for _, name := range config.Names() {
			server, err := config.Server(name)
			if err != nil {
				mistaken = true
				checkError(t, before, err)
				continue
			}
			checkServer(t, server)
		}
		if mistaken != (whole != nil) {
			t.Fatalf("Check: %v, but a server with mistakes: %v", whole, mistaken)
		}
	})
}

func checkError(t *testing.T, text string, err error) {
	t.Helper()
	var wrong *Error
	if !errors.As(err, &wrong) || len(wrong.Mistakes) == 0 {
		t.Fatalf("%v is not an *Error", err)
	}
	for _, m := range wrong.Mistakes {
		checkPlace(t, strings.TrimPrefix(text, "\uFEFF"), m)
	}
}

func checkPlace(t *testing.T, text string, m Mistake) {
	t.Helper()
	lines := strings.Split(text, "\n")
	if m.Line < 1 || m.Line > len(lines) || m.Column < 1 || m.Column > len(lines[m.Line-1])+1 {
		t.Fatalf("%+v has no place in the text", m)
	}
	if m.Message == "" || strings.ContainsAny(m.Path+m.Message, "\n\r\x1b\x00") || !utf8.ValidString(m.Path+m.Message) {
		t.Fatalf("%+q cannot be printed", m)
	}
}

func checkServer(t *testing.T, s *Server) {
	t.Helper()
	settings := flat(s)
	if settings.Name == "" || (settings.Command == "") == (settings.URL == "") || settings.Timeout < 0 || settings.Init < 0 ||
		strings.ContainsRune(settings.Command+settings.URL+settings.Dir+strings.Join(settings.Args, ""), 0) {
		t.Fatalf("%+v cannot be used", settings)
	}
	if checked := s.Transport.(transport.Checked); checked.Check() != nil {
		t.Fatalf("%+v: %v", settings, checked.Check())
	}
}

// TestDecorationsChangeNothing checks that comments, white space and trailing commas between
// the tokens of a file have no effect.
//
// Guarantees: G-0018.2
func TestDecorationsChangeNothing(t *testing.T) {
	tokens := []string{`{`, `"servers"`, `:`, `{`, `"a"`, `:`, `{`, `"command"`, `:`, `"x//"`, `,`, `"args"`, `:`, `[`, `"1"`, `,`, `",/*"`, `]`, `}`, `}`, `}`}
	want := all(t, mustParse(t, strings.Join(tokens, ""), nil))
	between := rapid.SampledFrom([]string{"", " ", "\n", "\r\n", "\t", "// }\n", "/* ] */", "/**/", "/*\n//*/", "//\"\n"})
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		for i, token := range tokens {
			closes := token == "}" || token == "]"
			if closes && rapid.Bool().Draw(t, "comma") {
				text.WriteString("," + between.Draw(t, "after comma"))
			}
			text.WriteString(token + between.Draw(t, fmt.Sprintf("after token %d", i)))
		}
		f, err := Parse("mcp.json", []byte(text.String()))
		if err != nil {
			t.Fatalf("%q: %v", text.String(), err)
		}
		got, err := f.Server("a")
		if err != nil {
			t.Fatalf("%q: %v", text.String(), err)
		}
		if diff := cmp.Diff(want, []settings{flat(got)}); diff != "" {
			t.Fatalf("%q (-want +got):\n%s", text.String(), diff)
		}
	})
}

// TestMistakesDoNotHideEachOther makes mistakes in any servers of a file. Each is reported on
// its own line, and no other.
//
// Guarantees: G-0018.3
func TestMistakesDoNotHideEachOther(t *testing.T) {
	good := []string{`"command": "x"`, `"url": "http://h"`, `"disabled": true, "command": "${NO}"`}
	bad := []string{``, `"command": 1`, `"command": "${NO}"`, `"url": "x"`, `"command": "x", "timeout": 0`, `"command": "x", "bowline": {"x": 1}`}
	rapid.Check(t, func(t *rapid.T) {
		text := "{\"mcpServers\": {\n"
		var want, got []int
		for i := range rapid.IntRange(1, 12).Draw(t, "servers") {
			settings := rapid.SampledFrom(append(good, bad...)).Draw(t, "settings")
			for _, b := range bad {
				if settings == b {
					want = append(want, 2+i)
				}
			}
			text += fmt.Sprintf("\"s%d\": {%s},\n", i, settings)
		}
		f, err := parse("m", text+"}}", nil)
		if err != nil {
			t.Fatal(err)
		}
		var wrong *Error
		if errors.As(f.Check(), &wrong) {
			for _, m := range wrong.Mistakes {
				got = append(got, m.Line)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s\nlines with mistakes (-want +got):\n%s", text, diff)
		}
	})
}
