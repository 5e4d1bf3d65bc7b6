package mcpjson

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestExpand replaces variables.
//
// Guarantees: G-0018.5
func TestExpand(t *testing.T) {
	env := variables{"A": "one", "B_2": "two", "_": "under", "EMPTY": "", "LOOKS": "${A}", "QUOTES": `"\`}
	for written, want := range map[string]string{
		"":                       "",
		"plain":                  "plain",
		"${A}":                   "one",
		"<${A}${B_2}-${_}>":      "<onetwo-under>",
		"${env:A}":               "one",
		"${EMPTY}":               "",
		"${EMPTY:-x}":            "",
		"${A:-x}":                "one",
		"${NO:-x}":               "x",
		"${env:NO:-x}":           "x",
		"${NO:-}":                "",
		"${NO:-a:-b c/$1{}":      "a:-b c/$1{",
		"${LOOKS}":               "${A}",
		"${NO:-$}{A}":            "${A}",
		"$A $$ $ {A} }$":         "$A $$ $ {A} }$",
		"$${A}":                  "$one",
		"%A% $(A) `A` ~ {env:A}": "%A% $(A) `A` ~ {env:A}",
		"${QUOTES}":              `"\`,
	} {
		got := all(t, mustParse(t, server(`"command": "x", "args": ["`+written+`"]`), env))[0].Args[0]
		if got != want {
			t.Errorf("%q gives %q, want %q", written, got, want)
		}
	}
}

// TestExpandMistakes names variables that cannot be replaced.
//
// Guarantees: G-0018.3, G-0018.5
func TestExpandMistakes(t *testing.T) {
	form := " is none of ${NAME}, ${env:NAME}, ${NAME:-default}, ${input:ID}, ${workspaceFolder}, ${workspaceFolderBasename}, " +
		"${userHome}, ${pathSeparator} and ${/}"
	for written, want := range map[string]string{
		"${NO}":                              "the environment variable NO is not set, and there is no default: set it, or write ${NO:-default}",
		"${env:NO}":                          "the environment variable NO is not set, and there is no default: set it, or write ${NO:-default}",
		"${env:userHome}":                    "the environment variable userHome is not set, and there is no default: set it, or write ${userHome:-default}",
		"${workspaceFolder:web}":             `"${workspaceFolder:web}"` + form,
		"${command:pick}":                    `"${command:pick}"` + form,
		"${file:/etc/x}":                     `"${file:/etc/x}"` + form,
		"${}":                                `"${}"` + form,
		"${env:}":                            `"${env:}"` + form,
		"${A-x}":                             `"${A-x}"` + form,
		"${1A}":                              `"${1A}"` + form,
		"${0A}":                              `"${0A}"` + form,
		"${9A}":                              `"${9A}"` + form,
		"${" + strings.Repeat("?", 77) + "}": `"${` + strings.Repeat("?", 77) + `}"` + form,
		"${ A}":                              `"${ A}"` + form,
		"${//}":                              `"${//}"` + form,
		"${:-x}":                             `"${:-x}"` + form,
		"${NO:-${A}}":                        `the default of "${NO}" holds another ${: a default is plain text`,
		"${A":                                "${ without its }",
		"${A} ${":                            "${ without its }",
		"${" + strings.Repeat("?", 99) + "}": `"${` + strings.Repeat("?", 78) + `"...` + form,
	} {
		got := mistakes(t, server(`"command": "x", "args": ["`+written+`"]`), variables{"A": "one"})
		if want := "m:2:32: servers.a.args[0]: " + want; got != want {
			t.Errorf("%q gives %s\nwant %s", written, got, want)
		}
	}
}

// TestEveryStringIsExpanded checks that every string is expanded, and no key.
//
// Guarantees: G-0018.5
func TestEveryStringIsExpanded(t *testing.T) {
	env := variables{"T": "stdio", "C": "cmd", "X": "x", "U": "http://h", "D": "3s"}
	servers := all(t, mustParse(t, `{"servers": {
		"${X}": {"type": "${T}", "command": "${C}", "args": ["${X}"], "env": {"${X}": "${X}"}, "cwd": "/${X}",
			"bowline": {"initTimeout": "${D}", "requestTimeout": "${D}"}},
		"b": {"url": "${U}", "headers": {"h": "${X}"}}}}`, env))
	s := servers[0]
	got := []string{s.Name, s.Command, s.Args[0], s.Env[0], s.Dir, s.Init.String(), s.Timeout.String(), servers[1].URL, servers[1].Header.Get("h")}
	if got, want := strings.Join(got, " "), "${X} cmd x ${X}=x /x 3s 3s http://h x"; got != want {
		t.Errorf("the settings are %s\nwant             %s", got, want)
	}
}

// TestEnvironmentTakesNumbers checks that numbers in env are kept as they are written.
//
// Guarantees: G-0018.14
func TestEnvironmentTakesNumbers(t *testing.T) {
	got := all(t, mustParse(t, server(`"command": "x", "env": {"A": 80, "B": 1.50e3, "C": true, "D": false, "E": "${N}"}`), variables{"N": "n"}))[0].Env
	if diff := cmp.Diff([]string{"A=80", "B=1.50e3", "C=true", "D=false", "E=n"}, got); diff != "" {
		t.Errorf("env (-want +got):\n%s", diff)
	}
}

// TestFolders checks that the project's folder is absolute, and is the parent of .vscode.
//
// Guarantees: G-0018.6
func TestFolders(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for path, folder := range map[string]string{"mcp.json": here, ".vscode/mcp.json": here, "p/.mcp.json": filepath.Join(here, "p")} {
		f, err := parse(filepath.FromSlash(path), server(`"command": "${workspaceFolder}/x", "args": ["${userHome}"]`), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := all(t, f)[0]
		if s.Command != folder+"/x" || s.Args[0] != home {
			t.Errorf("%s: command %q, args %q", path, s.Command, s.Args)
		}
	}
}

const inputs = `{"inputs": [
	{"type": "promptString", "id": "key", "description": "API key", "password": true},
	{"type": "pickString", "id": "place", "default": "b", "options": ["a", "b"]},
	{"type": "pickString", "id": "empty"}, {"type": "pickString", "id": "none of them", "options": []}, {"type": "pickString", "id": "numbers", "options": ["a", 7]},
	{"type": "command", "id": "command", "command": "x"},
	7
], "servers": {
	"a": {"command": "x", "args": ["${input:key} ${input:place}", "${input:key}"]},
	"b": {"command": "x", "args": ["${input:WHICH}"]}
}}`

// TestInputsAreAskedForOnce checks that each input is requested once, when a server needs it.
//
// Guarantees: G-0018.15
func TestInputsAreAskedForOnce(t *testing.T) {
	f := mustParse(t, inputs, nil)
	var asked []Input
	f.Ask = func(in Input) (string, error) {
		asked = append(asked, in)
		return "<" + in.ID + ">", nil
	}
	if len(f.Names()) != 2 || len(asked) != 0 {
		t.Fatalf("requested too early: %+v", asked)
	}
	for range 2 {
		s, err := f.Server("a")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"<key> <place>", "<key>"}, flat(s).Args); diff != "" {
			t.Errorf("args (-want +got):\n%s", diff)
		}
	}
	want := []Input{{ID: "key", Description: "API key", Password: true}, {ID: "place", Default: "b", Options: []string{"a", "b"}}}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("requested (-want +got):\n%s", diff)
	}
}

// TestInputsThatHaveNoAnswer checks the error for an input without a value.
//
// Guarantees: G-0018.15
func TestInputsThatHaveNoAnswer(t *testing.T) {
	refuse := func(Input) (string, error) { return "", errors.New("nobody is there") }
	for _, c := range []struct {
		id, want string
		ask      func(Input) (string, error)
	}{
		{"key", "is asked of the user, and nobody can be asked here: use an environment variable, ${NAME}", nil},
		{"key", "has no answer: nobody is there", refuse},
		{"none", "the file has no input of that id", refuse},
		{"empty", "the input has no options to choose from", refuse},
		{"none of them", "the input has no options to choose from", refuse},
		{"numbers", "an option of the input is not a string, or empty", refuse},
		{"command", `the type of the input is "command": only promptString and pickString can be asked`, refuse},
	} {
		f := mustParse(t, strings.ReplaceAll(inputs, "WHICH", c.id), nil)
		f.Ask = c.ask
		var wrong *Error
		if _, err := f.Server("b"); !errors.As(err, &wrong) || !strings.HasSuffix(err.Error(), c.want) || wrong.Mistakes[0].Line != 9 {
			t.Errorf("%s: %v\nwant %s", c.id, err, c.want)
		}
	}
}
