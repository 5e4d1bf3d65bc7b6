package mcpconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// variables is an environment.
type variables map[string]string

func (v variables) lookUp(name string) (string, bool) {
	value, set := v[name]
	return value, set
}

// nothing is set.
var nothing = variables(nil).lookUp

func mustParse(t *testing.T, text string, env variables) *Config {
	t.Helper()
	config, err := Parse("mcp.json", []byte(text), env.lookUp)
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return config
}

// TestFilesOfHosts reads files as three hosts keep them.
//
// Guarantees: G-0018.1, G-0018.2, G-0018.5, G-0018.7
func TestFilesOfHosts(t *testing.T) {
	env := variables{"TOOLS": "/opt/tools", "API_KEY": "k-1"}
	for path, want := range map[string]Config{
		"testdata/claude_desktop.json": {
			Servers: []Server{
				{Name: "filesystem", Kind: Stdio, Command: "npx", Args: []string{
					"-y", "@modelcontextprotocol/server-filesystem", `C:\Users\ada\Desktop`, "/Users/ada/Downloads"}},
				{Name: "github", Kind: Stdio, Command: "docker", Args: []string{
					"run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN", "ghcr.io/github/github-mcp-server"},
					Env: []string{"GITHUB_PERSONAL_ACCESS_TOKEN=<your token>"}},
			},
			Notices: []string{"testdata/claude_desktop.json: ignored: globalShortcut"},
		},
		"testdata/cursor.json": {
			Servers: []Server{
				{Name: "local", Kind: Stdio, Command: "python", Args: []string{"/opt/tools/mcp-server.py"},
					Env: []string{"API_KEY=k-1", "LEVEL=info"}},
				{Name: "remote", Kind: HTTP, URL: "https://mcp.example.test/v1?team=a",
					Headers: http.Header{"Authorization": {"Bearer k-1"}}, Timeout: time.Minute},
				{Name: "parked", Disabled: true},
			},
			Notices: []string{"testdata/cursor.json: ignored: " +
				"mcpServers.local.envFile, mcpServers.local.autoApprove, mcpServers.local.alwaysAllow"},
		},
		"testdata/vscode.json": {
			Servers: []Server{
				{Name: "playwright", Kind: Stdio, Command: "npx", Args: []string{"-y", "@playwright/mcp@latest"},
					Dir: filepath.FromSlash("testdata/web"), InitTimeout: 90 * time.Second, Timeout: 5 * time.Minute},
				{Name: "docs", Kind: HTTP, URL: "https://docs.example.test/mcp"},
				{Name: "old", Kind: SSE, URL: "http://127.0.0.1:8080/sse"},
				{Name: "asks", Disabled: true},
			},
			Notices: []string{"testdata/vscode.json: ignored: inputs, servers.playwright.dev, servers.old.gallery"},
		},
	} {
		t.Run(path, func(t *testing.T) {
			want.Path = path
			got, err := Load(path, env.lookUp)
			if err != nil {
				t.Fatalf("Load: %v", err)
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
		})
	}
}

// TestServersOfBothMaps come in file order, whichever map they are in.
//
// Guarantees: G-0018.1
func TestServersOfBothMaps(t *testing.T) {
	config := mustParse(t, `{"servers": {"z": {"command": "a"}, "a": {"command": "b"}}, "mcpServers": {"m": {"url": "http://h"}}}`, nil)
	var names []string
	for _, s := range config.Servers {
		names = append(names, s.Name)
	}
	if diff := cmp.Diff([]string{"z", "a", "m"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// TestText is what a file may be besides plain JSON.
//
// Guarantees: G-0018.2
func TestText(t *testing.T) {
	want := mustParse(t, `{"mcpServers": {"a": {"command": "x", "args": ["//", "/* */", ",]"]}}}`, nil).Servers
	for name, text := range map[string]string{
		"byte order mark":  "\uFEFF" + `{"mcpServers": {"a": {"command": "x", "args": ["//", "/* */", ",]"]}}}`,
		"comments":         "// {\n{/* [ */\"mcpServers\": {\"a\": {\"command\": \"x\", // \"\n\"args\": [\"//\", \"/* */\", /*/**/\",]\"]}}}",
		"comment at end":   `{"mcpServers": {"a": {"command": "x", "args": ["//", "/* */", ",]"]}}} // the end`,
		"trailing commas":  `{"mcpServers": {"a": {"command": "x", "args": ["//", "/* */", ",]",],},},}`,
		"carriage returns": "{\r\n\"mcpServers\": {// a\r\n\"a\": {\"command\": \"x\", \"args\": [\"//\", \"/* */\", \",]\"]}}}\r\n",
		"null settings":    `{"servers": null, "mcpServers": {"a": {"url": null, "type": null, "env": null, "timeout": null, "bowline": null, "command": "x", "args": ["//", "/* */", ",]"]}}}`,
	} {
		if diff := cmp.Diff(want, mustParse(t, text, nil).Servers); diff != "" {
			t.Errorf("%s: servers (-want +got):\n%s", name, diff)
		}
	}
}

// TestParseLeavesTheTextAlone, and what follows it in its array.
func TestParseLeavesTheTextAlone(t *testing.T) {
	const whole = `{"servers": {}} and more`
	text := []byte(whole)
	if _, err := Parse("m", text[:15], nothing); err != nil || string(text) != whole {
		t.Errorf("Parse: %v, and the text became %q", err, text)
	}
}

// TestKinds follow from command, url and type.
func TestKinds(t *testing.T) {
	for settings, want := range map[string]Kind{
		`"command": "x"`:                                        Stdio,
		`"command": "x", "type": "stdio"`:                       Stdio,
		`"url": "http://h"`:                                     HTTP,
		`"url": "http://h", "type": "http"`:                     HTTP,
		`"url": "http://h", "type": "streamable-http"`:          HTTP,
		`"url": "http://h", "type": "streamableHttp"`:           HTTP,
		`"url": "https://h:1/p?q#f", "type": "sse"`:             SSE,
		`"url": "http://[::1]:80/", "type": "${T:-sse}"`:        SSE,
		`"url": "HTTPS://user:pw@h", "type": "${env:NO:-http}"`: HTTP,
	} {
		config := mustParse(t, `{"mcpServers": {"a": {`+settings+`}}}`, nil)
		if got := config.Servers[0].Kind; got != want {
			t.Errorf("{%s} is of kind %q, want %q", settings, got, want)
		}
	}
}

// TestDir is relative to the project's folder.
//
// Guarantees: G-0018.6
func TestDir(t *testing.T) {
	absolute := t.TempDir()
	for _, c := range []struct{ file, cwd, want string }{
		{"mcp.json", "web", "web"},
		{"p/.mcp.json", "./web/../api", "p/api"},
		{"p/.mcp.json", "", ""},
		{"p/.vscode/mcp.json", "web", "p/web"},
		{"p/.cursor/mcp.json", "..", "."},
		{"/p/.vscode/x/mcp.json", "web", "/p/.vscode/x/web"},
		{"p/mcp.json", "${ROOT}", filepath.ToSlash(absolute)},
	} {
		text := `{"servers": {"a": {"command": "x", "cwd": "` + c.cwd + `"}}}`
		config, err := Parse(filepath.FromSlash(c.file), []byte(text), variables{"ROOT": absolute}.lookUp)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
		} else if got := filepath.ToSlash(config.Servers[0].Dir); got != c.want {
			t.Errorf("%+v: Dir is %q", c, got)
		}
	}
}

// TestTimeouts are milliseconds from a host, durations from us.
//
// Guarantees: G-0018.8
func TestTimeouts(t *testing.T) {
	for _, c := range []struct {
		settings      string
		timeout, init time.Duration
		notices       []string
	}{
		{settings: `"timeout": 1000`, timeout: time.Second},
		{settings: `"timeout": 1500.5`, timeout: 1500*time.Millisecond + 500*time.Microsecond},
		{settings: `"timeout": 2147483647`, timeout: 2147483647 * time.Millisecond},
		{settings: `"timeout": 6e4, "bowline": {"requestTimeout": "2m"}`, timeout: 2 * time.Minute},
		{settings: `"bowline": {"initTimeout": "${INIT:-10s}", "requestTimeout": null}`, init: 10 * time.Second},
		{settings: `"timeout": 60`, timeout: 60 * time.Millisecond, notices: []string{
			"mcp.json:1:47: servers.a.timeout: this is 60ms: the number is in milliseconds"}},
	} {
		config := mustParse(t, `{"servers": {"a": {"command": "x", `+c.settings+`}}}`, nil)
		s := config.Servers[0]
		if s.Timeout != c.timeout || s.InitTimeout != c.init {
			t.Errorf("{%s}: Timeout is %v, InitTimeout %v", c.settings, s.Timeout, s.InitTimeout)
		}
		if diff := cmp.Diff(c.notices, config.Notices); diff != "" {
			t.Errorf("{%s}: notices (-want +got):\n%s", c.settings, diff)
		}
	}
}

// TestIgnoredKeysAreOneNotice, those that only another kind uses among them.
//
// Guarantees: G-0018.7
func TestIgnoredKeysAreOneNotice(t *testing.T) {
	config := mustParse(t, `{"$schema": "s", "bowline": {}, "servers": {
		"a b": {"command": "x", "headers": {}, "Command": "y"},
		"c": {"url": "http://h", "env": {"K": "v"}, "args": [], "cwd": "", "disabledTools": []}}}`, nil)
	want := []string{`mcp.json: ignored: ["$schema"], bowline, servers["a b"].Command, servers["a b"].headers, ` +
		`servers.c.disabledTools, servers.c.args, servers.c.env, servers.c.cwd`}
	if diff := cmp.Diff(want, config.Notices); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
	many := `{"servers": {}`
	for i := range 30 {
		many += fmt.Sprintf(`, "x%d": {}`, i)
	}
	config = mustParse(t, many+"}", nil)
	if len(config.Notices) != 1 || !strings.HasSuffix(config.Notices[0], ", x19 and 10 more") {
		t.Errorf("notices of 30 unknown keys: %q", config.Notices)
	}
}

// TestLoad tells a file that cannot be read from one that is wrong.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "none.json"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := Load(dir, nil); err == nil {
		t.Error("a folder was read")
	}
	path := filepath.Join(dir, "mcp.json")
	write(t, path, `{"servers": {"a": {"command": "${BOWLINE_TEST_COMMAND}"}}}`)
	var wrong *Error
	if _, err := Load(path, nil); !errors.As(err, &wrong) || wrong.Path != path {
		t.Errorf("an unset variable: %v", err)
	}
	t.Setenv("BOWLINE_TEST_COMMAND", "x")
	if config, err := Load(path, nil); err != nil || config.Servers[0].Command != "x" || config.Path != path {
		t.Errorf("with the variable set: %+v, %v", config, err)
	}
}

// TestDiscover takes the files of a folder in their order.
//
// Guarantees: G-0018.10
func TestDiscover(t *testing.T) {
	dir := t.TempDir()
	if path, ok := Discover(dir); ok {
		t.Errorf("an empty folder has %s", path)
	}
	for _, folder := range []string{".vscode", ".cursor", ".mcp.json"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".vscode/mcp.json", ".cursor/mcp.json", "mcp.json", ".mcp.json"} {
		want := filepath.Join(dir, name)
		if name == ".mcp.json" {
			os.Remove(want) // a folder of that name did not count
		}
		write(t, want, "{}")
		if path, ok := Discover(dir); !ok || path != want {
			t.Errorf("after %s came: Discover is %s, %v", name, path, ok)
		}
	}
}

// TestServer finds by name, or says what there is.
//
// Guarantees: G-0018.9
func TestServer(t *testing.T) {
	config := mustParse(t, `{"servers": {"files": {"command": "x"}, "git": {"command": "y"}, "old": {"disabled": true}}}`, nil)
	s, err := config.Server("git")
	if err != nil || s.Command != "y" {
		t.Errorf(`Server("git") is %+v, %v`, s, err)
	}
	s.Command = "mine"
	if config.Servers[1].Command != "y" {
		t.Error("a change of the server returned changed the config")
	}
	for _, c := range []struct {
		config *Config
		name   string
		kind   error
		want   string
	}{
		{config, "flies", ErrNotFound, `mcp.json: no such server: "flies": did you mean files? It has: files, git, old`},
		{config, "FILES", ErrNotFound, `mcp.json: no such server: "FILES": did you mean files? It has: files, git, old`},
		{config, "postgres", ErrNotFound, `mcp.json: no such server: "postgres": it has: files, git, old`},
		{config, "old", ErrDisabled, `mcp.json: the server is disabled: "old"`},
		{&Config{Path: "mcp.json"}, "a\x1b", ErrNotFound, `mcp.json: no such server: "a\x1b": it has none`},
	} {
		if _, err := c.config.Server(c.name); !errors.Is(err, c.kind) || err.Error() != c.want {
			t.Errorf("Server(%q): %v\nwant %s", c.name, err, c.want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
