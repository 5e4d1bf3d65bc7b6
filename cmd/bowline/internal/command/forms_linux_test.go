package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/protocol"
	"golang.org/x/sys/unix"
)

// TestConfirmationsAreTheQuestionItself checks that a form without fields is answered by yes or
// no, by nothing else, and by one answer.
//
// Guarantees: G-0031.14
func TestConfirmationsAreTheQuestionItself(t *testing.T) {
	for _, c := range []struct {
		dialogue []exchange
		status   int
		want     string
	}{
		{[]exchange{{"Delete note 3? [y/n] ", "y\n"}}, 0, "deleted\n"},
		{[]exchange{{"Delete note 3? [y/n] ", "YES\n"}}, 0, "deleted\n"},
		{[]exchange{{"Delete note 3? [y/n] ", "n\n"}}, process.ExitToolFailed, "the user declined"},
		{[]exchange{{"Delete note 3? [y/n] ", "\n"}, {"y or n: ", "3\n"}, {"y or n: ", "no\n"}}, process.ExitToolFailed, "the user declined"},
		{[]exchange{{"Delete note 3? [y/n] ", "maybe\n"}, {"y or n: ", "\x04"}}, process.ExitToolFailed, "the user gave no answer"},
	} {
		for _, revision := range []string{protocol.Latest, "2025-06-18"} {
			screen, status := onTerminal(t, "", c.dialogue, withPeer(t, "clerk", "call", "delete", "--revision", revision)...)
			if status != c.status {
				t.Errorf("%q: status %d, want %d", c.dialogue, status, c.status)
			}
			wantPrinted(t, screen, c.want)
			if strings.Contains(screen, "Do you want to answer?") {
				t.Errorf("two questions are asked for one answer:\n%s", screen)
			}
		}
	}
}

// TestFormsAreCheckedFieldByField checks that what does not fit is asked again at its field,
// that choices have numbers and titles, and that Enter accepts a default of any type.
func TestFormsAreCheckedFieldByField(t *testing.T) {
	const (
		accept = "Do you want to answer? [y/n] "
		colors = `"items": {"type": "string", "enum": ["red", "green", "blue"]}`
	)
	for _, c := range []struct {
		name, properties, required string
		dialogue                   []exchange
		want                       string
	}{
		{
			"a default of each type",
			`"n": {"type": "integer", "default": 12345678901234567}, "x": {"type": "number", "default": 2.50}, "s": {"type": "string", "default": "a, b"},
			 "b": {"type": "boolean", "default": false}, "e": {"type": "string", "enum": ["one", "two"], "default": "two"},
			 "l": {"type": "array", ` + colors + `, "default": ["red", "blue"]}, "free": {"type": "array", "items": {"type": "string"}, "default": ["a,b", "c"]}`,
			`"n", "x", "s", "b", "e", "l", "free"`,
			[]exchange{
				{"n (integer)\n  [12345678901234567] > ", "\n"},
				{"[2.50] > ", "\n"},
				{"[a, b] > ", "\n"},
				{"b (yes or no)\n  [no] > ", "\n"},
				{"[two] > ", "\n"},
				{"[red, blue] > ", "\n"},
				{`[["a,b","c"]] > `, "\n"},
			},
			`accept {"b":false,"e":"two","free":["a,b","c"],"l":["red","blue"],"n":12345678901234567,"s":"a, b","x":2.50}`,
		},
		{
			"numbers and titles choose",
			`"l": {"type": "array", ` + colors + `}, "t": {"type": "string", "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}], "default": "#0f0"},
			 "m": {"type": "array", "items": {"anyOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]}},
			 "old": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]}`,
			`"l", "t", "m", "old"`,
			[]exchange{
				{"1. red\n    2. green\n    3. blue\n", ""}, {"> ", "1,4\n"},
				{`"4" is not one of the choices`, ""}, {"  > ", "3, red\n"},
				{"1. Red (#f00)\n    2. Green (#0f0)\n  [Green] > ", "red\n"},
				{"1. Red (#f00)\n", ""}, {"> ", "Green,1,2\n"},
				{"1. Small (s)\n    2. Medium (m)\n", ""}, {"> ", "2\n"},
			},
			`accept {"l":["blue","red"],"m":["#0f0","#f00"],"old":"m","t":"#f00"}`,
		},
		{
			"choices that are numbers have none",
			`"size": {"type": "string", "enum": ["2", "1"]}, "year": {"type": "integer", "enum": [2025, 1]}`, `"size", "year"`,
			[]exchange{{"- 2\n    - 1\n", ""}, {"> ", "3\n"}, {"is not one of the choices", ""}, {"> ", "1\n"}, {"- 2025\n", ""}, {"> ", "1\n"}},
			`accept {"size":"1","year":1}`,
		},
		{
			"a bad value is asked again at its field",
			`"first": {"type": "string", "minLength": 2}, "last": {"type": "integer", "minimum": 18}, "sure": {"type": "boolean"}, "l": {"type": "array", "minItems": 2, ` + colors + `}`,
			`"first", "last", "sure", "l"`,
			[]exchange{
				{"first\n", ""}, {"> ", "x\n"}, {"first is shorter than 2 characters", ""}, {"> ", "Ada\n"},
				{"last (integer)\n", ""}, {"> ", "17\n"}, {"last is less than 18", ""}, {"> ", "old\n"}, {`"old" is not an integer`, ""}, {"> ", "18\n"},
				{"> ", "1\n"}, {`enter yes or no`, ""}, {"> ", "Y\n"},
				{"> ", "1,1\n"}, {"l has fewer than 2 elements", ""}, {"> ", "1,2\n"},
			},
			`accept {"first":"Ada","l":["red","green"],"last":18,"sure":true}`,
		},
		{
			"optional fields are left out, and a default that does not fit is not offered",
			`"a": {"type": "string"}, "b": {"type": "integer", "minimum": 5, "default": 4}, "c": {"type": "boolean"}`, ``,
			[]exchange{{"(optional) > ", "\n"}, {"b (integer)\n  > ", "\n"}, {"An answer is required", ""}, {"> ", "5\n"}, {"(optional) > ", "\n"}},
			`accept {"b":5}`,
		},
		{
			"formats are checked",
			`"mail": {"type": "string", "format": "email"}, "site": {"type": "string", "format": "uri"}, "day": {"type": "string", "format": "date"},
			 "at": {"type": "string", "format": "date-time"}`, `"mail", "site", "day", "at"`,
			[]exchange{
				{"mail (email address)\n", ""}, {"> ", "ada\n"}, {"mail is not ", ""}, {"> ", "ada@example.com\n"},
				{"site (URI, such as", ""}, {"> ", "example\n"}, {"site is not ", ""}, {"> ", "https://example.com\n"},
				{"day (date, such as", ""}, {"> ", "26.11.2026\n"}, {"day is not ", ""}, {"> ", "2026-11-26\n"},
				{"at (date and time, such as", ""}, {"> ", "2026-11-26\n"}, {"at is not ", ""}, {"> ", "2026-11-26T15:04:05Z\n"},
			},
			`accept {"at":"2026-11-26T15:04:05Z","day":"2026-11-26","mail":"ada@example.com","site":"https://example.com"}`,
		},
		{
			"the empty text is a default",
			`"a": {"type": "string", "default": ""}`, `"a"`,
			[]exchange{{"[] > ", "\n"}},
			`accept {"a":""}`,
		},
		{
			"nothing of a list can be chosen",
			`"l": {"type": "array", ` + colors + `, "default": ["red"]}`, `"l"`,
			[]exchange{{"[] for none", ""}, {"> ", "[]\n"}},
			`accept {"l":[]}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("FORM", `{"type": "object", "properties": {`+c.properties+`}, "required": [`+c.required+`]}`)
			screen, status := onTerminal(t, "", append([]exchange{{accept, "y\n"}}, c.dialogue...), withPeer(t, "clerk", "call", "form")...)
			if status != 0 {
				t.Errorf("status %d", status)
			}
			wantPrinted(t, screen, c.want)
			if n := strings.Count(screen, accept); n != 1 {
				t.Errorf("the form was begun %d times:\n%s", n, screen)
			}
		})
	}
}

// browser puts a browser into PATH. opened waits for the next address that it is given.
func browser(t *testing.T) (opened func() string) {
	t.Helper()
	directory := t.TempDir()
	pipe := filepath.Join(directory, "opened")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, "xdg-open"), []byte("#!/bin/sh\nprintf %s \"$1\" >'"+pipe+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", directory)
	file, err := os.OpenFile(pipe, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return func() string {
		if err := file.SetReadDeadline(time.Now().Add(hangGuard)); err != nil {
			t.Fatal(err)
		}
		address := make([]byte, 4096)
		n, err := file.Read(address)
		if err != nil {
			t.Errorf("no page was opened: %v", err)
		}
		return string(address[:n])
	}
}

// TestPagesThatACallNeedsAreOffered checks what error -32042 of 2025-11-25 does: the whole URL is
// shown, the page is opened if the user agrees, and the call is repeated.
//
// Guarantees: G-0031.15
func TestPagesThatACallNeedsAreOffered(t *testing.T) {
	const url = "https://bank.test/login?a=1#b"
	call := withPeer(t, "clerk", "call", "bank", "--revision", "2025-11-25")
	opened := browser(t)
	screen, status := onTerminal(t, t.TempDir(), []exchange{
		{"Log in to your bank.\n", ""}, {url, ""}, {"Open bank.test in your browser? [y/N] ", "y\n"}, {"finished there? Then the request is sent again. [y/n] ", "yse\n"}, {"y or n: ", "y\n"},
	}, call...)
	if got := opened(); status != 0 || got != url {
		t.Errorf("status %d, opened %q, want %q", status, got, url)
	}
	wantPrinted(t, screen, "42 euros\n")

	screen, status = onTerminal(t, t.TempDir(), []exchange{{"in your browser? [y/N] ", "n\n"}}, call...)
	if status == 0 {
		t.Errorf("status 0 of a call that was not executed")
	}
	wantPrinted(t, screen, "log in first")

	cmd := command(t, call...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Open this page, and then call again:\n    "+url) {
		t.Errorf("without a terminal: %v\n%s", err, out)
	}
}
