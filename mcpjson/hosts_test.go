package mcpjson

import (
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A hostFile is a file of testdata, and what it says. The forms are those of public files and of the hosts' own pages; names and
// addresses are ours.
type hostFile struct {
	servers []settings
	wrong   map[string]string // fragments of the mistakes of the other servers
	notices []string          // of all servers
}

func hostFiles(t *testing.T) map[string]hostFile {
	here, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	bearer := http.Header{"Authorization": {"Bearer k-1"}}
	return map[string]hostFile{
		"claude_code.json": {
			servers: []settings{
				{Name: "docs", URL: "https://docs.example.test/mcp", Header: bearer},
				{Name: "events", URL: "https://events.example.test/sse", SSE: true},
				{Name: "thinking", Command: "docker", Args: []string{"run", "-i", "--rm", "-e", "MAX_THOUGHT_LENGTH=5000", "mcp/sequential-thinking"},
					Timeout: 10 * time.Minute},
			},
			wrong:   map[string]string{"keyed": "NOT_SET_ANYWHERE is not set"},
			notices: []string{"ignored: mcpServers.docs.headersHelper, mcpServers.docs.oauth, mcpServers.docs.alwaysLoad"},
		},
		"claude_desktop.json": {
			servers: []settings{
				{Name: "filesystem", Command: "npx", Args: []string{
					"-y", "@modelcontextprotocol/server-filesystem", `C:\Users\ada\Desktop`, "/Users/ada/Downloads"}},
				{Name: "github", Command: "docker", Args: []string{
					"run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN", "ghcr.io/github/github-mcp-server"},
					Env: []string{"GITHUB_PERSONAL_ACCESS_TOKEN=<your token>"}},
			},
			notices: []string{"ignored: globalShortcut", "ignored: globalShortcut"},
		},
		"copilot.json": {
			servers: []settings{
				{Name: "weather", Command: "/opt/tools/weather", Args: []string{"--units", "celsius"}, Env: []string{"KEY=k-1"}},
				{Name: "far", URL: "https://far.example.test/mcp", Header: bearer},
			},
		},
		"cursor.json": {
			servers: []settings{
				{Name: "remote", URL: "https://mcp.example.test/v1?team=a", Header: bearer, Timeout: time.Minute},
				{Name: "local", Command: "python", Args: []string{"/opt/tools/mcp-server.py"},
					Env: []string{"API_KEY=of-the-file", "TRACE=1", "API_KEY=k-1", "LEVEL=info"}},
				{Name: "paths", Command: strings.Join([]string{here, "bin", "testdata"}, string(filepath.Separator)), Args: []string{"--home", "/home/ada"}},
				{Name: "login", URL: "https://login.example.test/mcp"},
			},
			notices: []string{
				"ignored: mcpServers.local.autoApprove, mcpServers.local.alwaysAllow",
				"ignored: mcpServers.login.auth",
			},
		},
		"gemini.json": {
			servers: []settings{
				{Name: "python", Command: "python", Args: []string{"-m", "my_mcp_server"}, Dir: filepath.FromSlash("testdata/servers/python"),
					Env: []string{"KEY=$API_KEY", "OTHER=k-1"}},
				{Name: "cloud", URL: "https://cloud.example.test/mcp"},
				{Name: "far", URL: "https://far.example.test/mcp", Timeout: 30 * time.Second},
			},
			notices: []string{
				`:8:23: mcpServers.python.env.KEY: "$API_KEY" is passed on as it is: write ${API_KEY} for the variable`,
				"ignored: theme",
				"ignored: theme, mcpServers.cloud.authProviderType, mcpServers.cloud.oauth",
				"ignored: theme, mcpServers.far.trust, mcpServers.far.url",
			},
		},
		"vscode.json": {
			servers: []settings{
				{Name: "docs", URL: "https://docs.example.test/mcp"},
				{Name: "playwright", Command: "npx", Args: []string{"-y", "@playwright/mcp@latest"}, Env: []string{"PORT=8931", "HEADLESS=true"},
					Dir: filepath.FromSlash("testdata/web"), Init: 90 * time.Second, Timeout: 5 * time.Minute},
				{Name: "boxed", Command: "node", Args: []string{here + "/server.js"}, Env: []string{"API_KEY=of-the-file", "TRACE=1"}},
			},
			wrong: map[string]string{"secret": "nobody can be asked"},
			notices: []string{
				"ignored: servers.playwright.dev",
				"ignored: servers.boxed.sandboxEnabled, servers.boxed.sandbox",
			},
		},
		"windsurf.json": {
			servers: []settings{
				{Name: "github", Command: "npx", Args: []string{"-y", "@modelcontextprotocol/server-github"}, Env: []string{"GITHUB_PERSONAL_ACCESS_TOKEN=k-1"}},
				{Name: "far", URL: "https://far.example.test/mcp", Header: bearer},
			},
		},
		"zed.json": {
			servers: []settings{
				{Name: "indexed", Command: "uvx", Args: []string{"indexed-docs", "serve"}},
				{Name: "older", Command: "npx", Args: []string{"-y", "older-server"}, Env: []string{"TOKEN=t"}},
				{Name: "far", URL: "https://far.example.test/mcp", Header: bearer},
			},
			wrong: map[string]string{"packaged": "only Zed knows the command of its extension"},
			notices: []string{
				"ignored: theme, agent", "ignored: theme, agent, context_servers.older.settings", "ignored: theme, agent",
			},
		},
	}
}

// TestFilesOfHosts reads the files of eight hosts. What only the host knows is a mistake of that server alone.
//
// Guarantees: G-0018.1, G-0018.2, G-0018.5, G-0018.7, G-0018.12, G-0018.21
func TestFilesOfHosts(t *testing.T) {
	t.Setenv("HOME", "/home/ada")
	t.Setenv("USERPROFILE", "/home/ada")
	env := variables{"TOOLS": "/opt/tools", "API_KEY": "k-1"}
	files := hostFiles(t)
	for _, path := range must(filepath.Glob("testdata/*.json")) {
		t.Run(path, func(t *testing.T) {
			f, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			f.Env = env.lookUp
			want := files[filepath.Base(path)]
			var got hostFile
			for _, name := range f.Names() {
				s, err := f.Server(name)
				if wrong := (*Error)(nil); errors.As(err, &wrong) {
					if fragment, is := want.wrong[name]; !is || !strings.Contains(err.Error(), fragment) {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				got.servers, got.notices = append(got.servers, flat(s)), append(got.notices, s.Notices...)
			}
			for i, notice := range got.notices {
				got.notices[i] = strings.TrimPrefix(strings.TrimPrefix(notice, path), ": ")
			}
			if diff := cmp.Diff(want.servers, got.servers); diff != "" {
				t.Errorf("servers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want.notices, got.notices); diff != "" {
				t.Errorf("notices (-want +got):\n%s", diff)
			}
		})
	}
}

func must(paths []string, err error) []string {
	if err != nil || len(paths) == 0 {
		panic("no files of hosts")
	}
	return paths
}

// What a user has hidden in the host, a gateway does not offer either. The block bowline can only widen what includeTools lists.
//
// Guarantees: G-0018.18, G-0018.22
func TestHiddenToolsOfHosts(t *testing.T) {
	same := mustParse(t, server(`"command": "x"`), nil)
	for written, want := range map[string]Filter{
		`"includeTools": ["a", "b"], "excludeTools": ["b"]`: {Allow: []string{"a", "b"}, Deny: []string{"b"}},
		`"includeTools": []`:                                                        {Allow: []string{}},
		`"includeTools": null, "disabledTools": ["c"]`:                              {Deny: []string{"c"}},
		`"tools": ["a"]`:                                                            {Allow: []string{"a"}},
		`"tools": ["*"], "includeTools": ["b"]`:                                     {Allow: []string{"b"}},
		`"tools": {"a": {"enabled": false}}`:                                        {},
		`"includeTools": ["a"], "bowline": {"tools": {"allow": ["x*"]}}`:            {Allow: []string{"x*"}},
		`"disabledTools": ["c"], "bowline": {"tools": {"deny": ["d"]}}`:             {Deny: []string{"d", "c"}},
		`"disabledTools": ["c"], "bowline": {"tools": {"allow": ["c"], "deny":[]}}`: {Allow: []string{"c"}, Deny: []string{"c"}},
	} {
		f := mustParse(t, server(`"command": "x", `+written), nil)
		s, err := f.Server("a")
		if err != nil {
			t.Errorf("%s: %v", written, err)
			continue
		}
		if diff := cmp.Diff(want, s.Hosting.Tools); diff != "" {
			t.Errorf("%s (-want +got):\n%s", written, diff)
		}
		if other, err := same.Server("a"); err != nil || !s.Same(other) {
			t.Errorf("%s: not the same server: %v", written, err)
		}
	}
	f := mustParse(t, server(`"command": "x", "excludeTools": "a"`), nil)
	if _, err := f.Server("a"); err == nil || !strings.Contains(err.Error(), "excludeTools: expected an array of strings") {
		t.Errorf("a string: %v", err)
	}
}

// The folder of a project is where relative paths start, whichever host's folder in it has the file.
//
// Guarantees: G-0018.6
func TestFoldersOfHosts(t *testing.T) {
	var got []string
	for _, path := range []string{".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".gemini/settings.json", ".zed/settings.json", "other/mcp.json"} {
		f, err := parse(filepath.Join("p", filepath.FromSlash(path)), `{"context_servers": {"a": {"command": {"path": "x"}, "cwd": "web"}}}`, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := f.Server("a")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, filepath.ToSlash(flat(s).Dir))
	}
	if want := []string{"p/web", "p/web", "p/web", "p/web", "p/web", "p/other/web"}; !slices.Equal(got, want) {
		t.Errorf("cwd: %q, want %q", got, want)
	}
}
