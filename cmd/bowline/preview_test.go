package main

import (
	"strings"
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
			`  a: x  with envFile ${F:-.env}; env K, P  in ${workspaceFolder}/d`},
		{"names that differ in case", `"a": {"command": "sh", "COMMAND": "ls", "Args": ["-l"]}`, "  a: sh"},
		{"headers and login", `"a": {"url": "https://${HOST:-h.test}/mcp", "headers": {"X-Key": "${BOWLINE_TEST_SECRET}", "A": "<b>"},
			"bowline": {"auth": {"clientId": "c", "clientSecret": "${BOWLINE_TEST_SECRET}", "allowHosts": ["${H:-10.0.0.1}"], "port": 1e3}}}`,
			`  a: https://${HOST:-h.test}/mcp  with headers A, X-Key` +
				`; auth {"allowHosts":["${H:-10.0.0.1}"],"clientId":"c","clientSecret":"[redacted]","port":1e3}`},
		{"login alone", `"a": {"type": "sse", "url": "http://h.test", "bowline": {"auth": {"clientId": "c"}}}`, `  a: http://h.test  with auth {"clientId":"c"}`},
		{"two addresses", `"a": {"type": "${T:-http}", "command": null, "url": "http://no.test", "httpUrl": "${U:-http://yes.test}"}`, "  a: ${U:-http://yes.test}"},
		{"mistakes", `"a": {"command": 7, "args": "-c", "env": ["K"]}, "b\u009b": [], "c": {}`,
			"  a: 7 -c  with env (cannot be shown: read the file)\n  b\uFFFD: (cannot be shown: read the file)\n  c: (cannot be shown: read the file)"},
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

// No credential that stands in a file is on the terminal, and nothing is hidden that a shell could
// run.
//
// Guarantees: G-0018.19
func TestPreviewShowsNoCredentials(t *testing.T) {
	for _, c := range []struct{ name, servers, want string }{
		{"env", `"a": {"command": "x", "env": {"GITHUB_TOKEN": "hunter2", "LD_PRELOAD": "hunter2"}}`, "  a: x  with env GITHUB_TOKEN, LD_PRELOAD"},
		{"headers", `"a": {"url": "https://h.test/mcp", "headers": {"Authorization": "Bearer hunter2", "X-Team": "hunter2"}}`, "  a: https://h.test/mcp  with headers Authorization, X-Team"},
		{"login", `"a": {"url": "https://h.test/mcp", "bowline": {"auth": {"clientSecret": "hunter2", "issuer": "https://ada:hunter2@as.test/?k=hunter2"}}}`,
			`  a: https://h.test/mcp  with auth {"clientSecret":"[redacted]","issuer":"https://[redacted]@as.test/?k=[redacted]"}`},
		{"a URL", `"a": {"url": "https://ada:hunter2@h.test/mcp?key=hunter2&n=hunter2#f"}, "b": {"url": "https://h.test/mcp?hunter2"}`,
			"  a: https://[redacted]@h.test/mcp?key=[redacted]&n=[redacted]#f\n  b: https://h.test/mcp?[redacted]"},
		{"arguments", `"a": {"command": "npx", "args": ["mcp-remote", "https://h.test/?token=hunter2", "--header", "Authorization: Bearer hunter2", "--header=X-Key:hunter2",
			"-H", "Accept: text/plain", "--api-key", "hunter2", "--token=hunter2", "--key", "hunter2", "-e", "ANY=hunter2", "API_TOKEN=hunter2", "--port", "80"]}`,
			`  a: npx mcp-remote https://h.test/?token=[redacted] --header "Authorization: Bearer [redacted]" --header=X-Key:[redacted] ` +
				`-H "Accept: text/plain" --api-key [redacted] --token=[redacted] --key [redacted] -e ANY=[redacted] API_TOKEN=[redacted] --port 80`},
		{"what runs", `"a": {"command": "sh", "args": ["-c", "curl https://h.test/?$(touch PWNED)&touch PWNED", "--token", "x;touch PWNED", "--key=$(touch PWNED)", "-e", "A=b c", "image:tag"]}`,
			`  a: sh -c "curl https://h.test/?$(touch PWNED)&touch PWNED" --token "x;touch PWNED" "--key=$(touch PWNED)" -e "A=b c" image:tag`},
		{"a command that looks like a flag", `"a": {"command": "--token", "args": ["rm", "-rf", "x"]}`, "  a: --token rm -rf x"},
	} {
		got := preview("mcp.json", []byte(`{"servers": {`+c.servers+`}}`))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if strings.Contains(got, "hunter2") {
			t.Errorf("%s: a credential is shown", c.name)
		}
	}
}
