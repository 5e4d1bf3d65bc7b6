package mcpconfig

import (
	"strings"
	"testing"
)

// TestExpand puts variables in.
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
		got := mustParse(t, server(`"command": "x", "args": ["`+written+`"]`), env).Servers[0].Args[0]
		if got != want {
			t.Errorf("%q gives %q, want %q", written, got, want)
		}
	}
}

// TestExpandMistakes names what cannot be put in.
//
// Guarantees: G-0018.3, G-0018.5
func TestExpandMistakes(t *testing.T) {
	form := " is neither ${NAME} nor ${env:NAME} nor ${NAME:-default}"
	for written, want := range map[string]string{
		"${NO}":                              "the environment variable NO is not set, and there is no default",
		"${env:NO}":                          "the environment variable NO is not set, and there is no default",
		"${workspaceFolder}/x":               "the environment variable workspaceFolder is not set, and there is no default",
		"${input:token}":                     `"${input:token}" is for VS Code to ask its user: use an environment variable, ${NAME}`,
		"${command:pick}":                    `"${command:pick}"` + form,
		"${file:/etc/x}":                     `"${file:/etc/x}"` + form,
		"${}":                                `"${}"` + form,
		"${env:}":                            `"${env:}"` + form,
		"${A-x}":                             `"${A-x}"` + form,
		"${1A}":                              `"${1A}"` + form,
		"${ A}":                              `"${ A}"` + form,
		"${/}":                               `"${/}"` + form,
		"${:-x}":                             `"${:-x}"` + form,
		"${NO:-${A}}":                        `the default of "${NO}" holds another ${`,
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

// TestEveryStringIsExpanded, and no key.
//
// Guarantees: G-0018.5
func TestEveryStringIsExpanded(t *testing.T) {
	env := variables{"T": "stdio", "C": "cmd", "X": "x", "U": "http://h", "D": "3s"}
	config := mustParse(t, `{"servers": {
		"${X}": {"type": "${T}", "command": "${C}", "args": ["${X}"], "env": {"${X}": "${X}"}, "cwd": "/${X}",
			"bowline": {"initTimeout": "${D}", "requestTimeout": "${D}"}},
		"b": {"url": "${U}", "headers": {"h": "${X}"}}}}`, env)
	s := config.Servers[0]
	got := []string{s.Name, string(s.Kind), s.Command, s.Args[0], s.Env[0], s.Dir, s.InitTimeout.String(), s.Timeout.String(),
		config.Servers[1].URL, config.Servers[1].Headers.Get("h")}
	if got, want := strings.Join(got, " "), "${X} stdio cmd x ${X}=x /x 3s 3s http://h x"; got != want {
		t.Errorf("the settings are %s\nwant             %s", got, want)
	}
}
