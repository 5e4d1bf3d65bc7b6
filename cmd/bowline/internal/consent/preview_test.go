package consent

import (
	"encoding/json"
	"os"
	"path/filepath"
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
		{"an address of Windsurf", `"a": {"url": "http://no.test", "serverUrl": "http://yes.test"}`, "  a: http://yes.test"},
		{"a command of Zed", `"a": {"command": {"path": "sh", "args": ["-c", "x"], "env": {"K": "v"}}, "args": ["no"]}`, "  a: sh -c x  with env K"},
		{"two lists", `"a": {"command": "x"}}, "context_servers": {"b": {"command": {"path": "y"}}`, "  a: x\n  b: y"},
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

// TestPreviewHidesNoProgram checks that an argument that may be a program, a file or a flag is shown,
// whatever its name looks like.
//
// Guarantees: G-0018.19
func TestPreviewHidesNoProgram(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "evil", "")
	write(t, "evil:x", "")
	write(t, filepath.Join("sub", "deep"), "")
	const token = "ghp_0123456789abcdefABCDEF"
	for _, args := range [][]string{
		{"git", "-c", "credential.helper=evil.sh", "ls-remote"}, {"git", "-c", "credential.helper=/tmp/x"},
		{"make", "-e", "SHELL=evil.sh"}, {"make", "--env=SHELL=evil.sh"}, {"make", "-eSHELL=evil.sh"}, {"npx", "docker", "-e", "SHELL=evil.sh"},
		{"x", "--token", "./run"}, {"x", "--token", "../run"}, {"x", "--token=~run"}, {"x", "--token=a/b"}, {"x", `--token=a\b`}, {"x", "--token=--exec"},
		{"x", "--token", "evil"}, {"perl", "-pat", "evil"}, {"perl", "-pat", "deep"}, {"x", "--token=sh"}, {"x", "TOKEN=sh"},
		{"x", "--token-command=run"}, {"x", "--password-file", "f"}, {"docker", "-e", "A=./x"},
		{"uvx", token}, {"uvx", "--from", token, "x"}, {"sudo", "-H", "evil:x"}, {"pip", "git+https://h.test/r#egg=x&subdirectory=evil"},
		{"sh", "-c", "x --token\nrun"}, {"sh", "-c", "-H 'A: ;touch PWNED'"}, {"sh", "-c", "make -e SHELL=run"},
	} {
		text, err := json.Marshal(map[string]any{"servers": map[string]any{"a": map[string]any{"command": args[0], "args": args[1:], "cwd": "${workspaceFolder}/sub"}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := preview("mcp.json", text); strings.Contains(got, "[redacted]") {
			t.Errorf("%q is shown as %s, want all of it", args, got)
		}
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
			"  a: https://[redacted]@h.test/mcp?key=[redacted]&n=[redacted]#[redacted]\n  b: https://h.test/mcp?[redacted]"},
		{"arguments", `"a": {"command": "npx", "args": ["mcp-remote", "https://h.test/?token=hunter2", "--header", "Authorization: Bearer hunter2", "--header=X-Key:hunter2",
			"-H", "Accept: text/plain", "--api-key", "hunter2", "--token=hunter2", "--key", "hunter2", "API_TOKEN=hunter2", "--port", "80"]}`,
			`  a: npx mcp-remote https://h.test/?token=[redacted] --header "Authorization: Bearer [redacted]" --header=X-Key:[redacted] ` +
				`-H "Accept: text/plain" --api-key [redacted] --token=[redacted] --key [redacted] API_TOKEN=[redacted] --port 80`},
		{"variables of a container", `"a": {"command": "/usr/bin/docker", "args": ["run", "-e", "ANY=hunter2", "--env", "B=hunter2", "--env=C=hunter2", "-eD=hunter2", "-e", "E", "image"]}`,
			`  a: /usr/bin/docker run -e ANY=[redacted] --env B=[redacted] --env=C=[redacted] -eD=[redacted] -e E image`},
		{"variables of a program", `"a": {"command": "x", "args": ["--env=GITHUB_TOKEN=hunter2", "--env", "API_KEY=hunter2", "-eA_TOKEN=hunter2"]}`,
			`  a: x --env=GITHUB_TOKEN=[redacted] --env API_KEY=[redacted] -eA_TOKEN=[redacted]`},
		{"flags", `"a": {"command": "x", "args": ["--header", "Cookie: sid=hunter2; b=hunter2", "-HX-Api-Key: hunter2", "--authorization", "Bearer hunter2", "--cookie", "a=hunter2; b=hunter2",
			"--jwt", "hunter2", "--pass", "hunter2", "--authorization=Basic hunter2"]}`,
			`  a: x --header "Cookie: [redacted]" "-HX-Api-Key: [redacted]" --authorization "Bearer [redacted]" --cookie [redacted] ` +
				`--jwt [redacted] --pass [redacted] "--authorization=Basic [redacted]"`},
		{"forms", `"a": {"command": "x", "args": ["y", "ghp_hunter2hunter2hunter2", "sk-hunter2hunter2hunter2", "xoxb-hunter2hunter2hunter2", "--a=ghp_hunter2hunter2hunter2"]}`,
			`  a: x y [redacted] [redacted] [redacted] --a=[redacted]`},
		{"URLs", `"a": {"command": "x", "args": ["postgresql://u:hunter2!@db/x", "DB=redis://:hunter2@db", "https://h.test/#access_token=hunter2&b=1", "https://h.test/?k=hunter2!", "--u=https://h.test/?k=hunter2"]},
			"b": {"url": "${BASE}/mcp?key=hunter2#hunter2"}`,
			"  a: x postgresql://[redacted]@db/x DB=redis://[redacted]@db https://h.test/#access_token=[redacted]&b=1 https://h.test/?k=[redacted] --u=https://h.test/?k=[redacted]\n  b: ${BASE}/mcp?key=[redacted]#[redacted]"},
		{"one text, and cwd", `"a": {"command": "sh", "args": ["-c", "K_TOKEN=hunter2 x --api-key hunter2 -H 'X-Key: hunter2' https://ada:hunter2@h.test"], "cwd": "smb://u:hunter2@h/d"}`,
			`  a: sh -c "K_TOKEN=[redacted] x --api-key [redacted] -H 'X-Key: [redacted]' https://[redacted]@h.test"  in smb://[redacted]@h/d`},
		{"a command that is one text", `"a": {"command": "x --token hunter2"}`, `  a: "x --token [redacted]"`},
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

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
