package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPreviewShowsWhatIsWritten checks that a reference is shown with its default, which may
// be all that runs, and that everything that goes to a server over HTTP is shown.
//
// Guarantees: G-0018.19
func TestPreviewShowsWhatIsWritten(t *testing.T) {
	t.Setenv("BOWLINE_TEST_SECRET", "HUNTER2")
	for _, c := range []struct{ name, servers, want string }{
		{"defaults", `"a": {"command": "${DOCS:-sh}", "args": ["${ARGS:--c}", "${FILE:-touch PWNED; cat}", ""]}`,
			`  a: ${DOCS:-sh} ${ARGS:--c} "${FILE:-touch PWNED; cat}" ""`},
		{"escapes", `"a": {"command": "\u0024{DOCS:-s\u0068}", "args": ["a\nb\u202e"]}`, `  a: ${DOCS:-sh} "a\nb\u202e"`},
		{"surroundings of a command", `"a": {"command": "x", "env": {"P": 8080, "K": "${BOWLINE_TEST_SECRET} ${input:k}"}, "envFile": "${F:-.env}", "cwd": "${workspaceFolder}/d"}`,
			`  a: x  with ${F:-.env} K="${BOWLINE_TEST_SECRET} ${input:k}" P=8080  in ${workspaceFolder}/d`},
		{"names that differ in case", `"a": {"command": "sh", "COMMAND": "ls", "Args": ["-l"]}`, "  a: sh"},
		{"headers and login", `"a": {"url": "https://${HOST:-h.test}/mcp", "headers": {"X-Key": "${BOWLINE_TEST_SECRET}", "A": "<b>"},
			"bowline": {"auth": {"clientId": "c", "clientSecret": "${BOWLINE_TEST_SECRET}", "allowHosts": ["${H:-10.0.0.1}"], "port": 1e3}}}`,
			`  a: https://${HOST:-h.test}/mcp  with headers {"A":"<b>","X-Key":"${BOWLINE_TEST_SECRET}"}` +
				` auth {"allowHosts":["${H:-10.0.0.1}"],"clientId":"c","clientSecret":"${BOWLINE_TEST_SECRET}","port":1e3}`},
		{"login alone", `"a": {"type": "sse", "url": "http://h.test", "bowline": {"auth": {"clientId": "c"}}}`, `  a: http://h.test  with auth {"clientId":"c"}`},
		{"two addresses", `"a": {"type": "${T:-http}", "command": null, "url": "http://no.test", "httpUrl": "${U:-http://yes.test}"}`, "  a: ${U:-http://yes.test}"},
		{"mistakes", `"a": {"command": 7, "args": "-c", "env": ["K"]}, "b\u009b": [], "c": {}`,
			"  a: 7 -c  with [\"K\"]\n  b\uFFFD: (cannot be shown: read the file)\n  c: (cannot be shown: read the file)"},
		{"disabled", `"a": {"command": "x", "disabled": true}`, "  none"},
	} {
		got := preview("mcp.json", []byte(`{"servers": {`+c.servers+`}, // a comment`+"\n}"))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	if got, want := preview("mcp.json", []byte("what")), "  mcp.json:1:1: "; len(got) < len(want) || got[:len(want)] != want {
		t.Errorf("what is not JSON is shown as %q, want the mistake", got)
	}
}
