package mcpjson

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEnvFile reads typical .env files.
//
// Guarantees: G-0018.17
func TestEnvFile(t *testing.T) {
	for text, want := range map[string][]string{
		"":                          nil,
		"\uFEFFA=1\r\nB=2\r\n":      {"A=1", "B=2"},
		"# A=1\n\n  \n#\nB = 2 # c": {"B=2"},
		"export A=1\nexport=2":      {"A=1", "export=2"},
		"A=\nB=''\nC=\"\"":          {"A=", "B=", "C="},
		"A=a#b\nB=#b\nC=a b  #c":    {"A=a#b", "B=", "C=a b"},
		"A=a\t#b\nB=a#\tb":          {"A=a", "B=a#\tb"},
		`A='a "#" \n b' # c`:        {`A=a "#" \n b`},
		`A="a\n\t\r\"\\\q#'"`:       {"A=a\n\t\r\"\\\\q#'"},
		"A=`it's \"so\"`":           {`A=it's "so"`},
		"A='1\n#2\n3'\nB=4":         {"A=1\n#2\n3", "B=4"},
		"A=${B} $(C) $D":            {"A=${B} $(C) $D"},
		"my.name-1=x=y=z":           {"my.name-1=x=y=z"},
		"A=1\nA=2":                  {"A=1", "A=2"},
	} {
		got, line, err := parseEnv(text)
		if err != nil {
			t.Errorf("%q: line %d: %v", text, line, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// TestEnvFileYieldsToEnv checks that a variable of env comes after that of the file, because
// the last one counts.
//
// Guarantees: G-0018.17
func TestEnvFileYieldsToEnv(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "secrets", ".env"), "A=file\nB=file\n")
	f, err := parse(filepath.Join(dir, ".vscode", "mcp.json"),
		server(`"command": "x", "envFile": "secrets/.env", "env": {"B": "env"}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"A=file", "B=file", "B=env"}, all(t, f)[0].Env); diff != "" {
		t.Errorf("env (-want +got):\n%s", diff)
	}
}

// TestWrongEnvFile checks that an error contains the line, and no value.
//
// Guarantees: G-0018.3, G-0018.4, G-0018.17
func TestWrongEnvFile(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"A=1\nSECRET":                     `"${FILE}", line 2: expected NAME=value`,
		"SE CRET=1":                       `"${FILE}", line 1: expected NAME=value`,
		"=SECRET":                         `"${FILE}", line 1: expected NAME=value`,
		"A='1\n2'\nB=\"SECRET":            `"${FILE}", line 3: a quote without its partner`,
		"A='1\n2'\nB='SECRET'S":           `"${FILE}", line 3: something follows the closing quote`,
		"A=\"SECRET\n\\":                  `"${FILE}", line 1: a quote without its partner`,
		"A=SECRET\x00":                    `"${FILE}", line 1: a NUL character, which no program can receive`,
		strings.Repeat("#", 1<<20) + "\n": `"${FILE}" cannot be read: it is above the limit of 1048576 bytes`,
	} {
		path := filepath.Join(dir, ".env")
		writeFile(t, path, text)
		got := mistakesOf(t, path)
		if want := "m:2:34: servers.a.envFile: " + want; got != want || strings.Contains(got, "SECRET") {
			t.Errorf("%.40q gives %s\nwant %s", text, got, want)
		}
	}
	full := filepath.Join(dir, "full")
	writeFile(t, full, strings.Repeat("#", 1<<20))
	if text, err := readFile(full); err != nil || len(text) != 1<<20 {
		t.Errorf("of a file of the largest size %d bytes are read: %v", len(text), err)
	}
	if got := mistakesOf(t, filepath.Join(dir, "none")); !strings.HasPrefix(got, `m:2:34: servers.a.envFile: "${FILE}" cannot be read: `) || strings.Contains(got, dir) {
		t.Errorf("a missing file gives %s", got)
	}
	if got, want := mistakesOf(t, dir), `m:2:34: servers.a.envFile: "${FILE}" cannot be read: it is not a regular file`; got != want {
		t.Errorf("a directory gives %s", got)
	}
}

func mistakesOf(t *testing.T, path string) string {
	t.Helper()
	f, err := Parse("m", []byte(server(`"command": "x", "envFile": "${FILE}"`)))
	if err != nil {
		t.Fatal(err)
	}
	f.Env = variables{"FILE": path}.lookUp
	if err = f.Check(); err == nil {
		t.Fatal("there is no error")
	}
	return err.Error()
}

// TestReadFileIsTheCallers checks that ReadFile of the caller is used.
func TestReadFileIsTheCallers(t *testing.T) {
	f := mustParse(t, server(`"command": "x", "envFile": "/e"`), nil)
	f.ReadFile = func(path string) ([]byte, error) { return []byte("P=" + filepath.ToSlash(path)), nil }
	if diff := cmp.Diff([]string{"P=/e"}, all(t, f)[0].Env); diff != "" {
		t.Errorf("env (-want +got):\n%s", diff)
	}
}

// FuzzEnvFile checks that any text is read, or refused with a line.
func FuzzEnvFile(f *testing.F) {
	for _, text := range []string{"A=1", "A='", "A=\"\\\"\nB=1", "export A=`\n`#", "=\x00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		env, line, err := parseEnv(text)
		if err != nil && (line < 1 || line > strings.Count(text, "\n")+1) {
			t.Fatalf("line %d is not in the text", line)
		}
		for _, variable := range env {
			if name, _, found := strings.Cut(variable, "="); !found || name == "" || strings.ContainsRune(variable, 0) {
				t.Fatalf("%q is not a variable", variable)
			}
		}
	})
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
