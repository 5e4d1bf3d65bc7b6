//go:build unix

package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
)

// TestUpChecksTheFilesOfHosts checks the file of each host that package mcpjson has: only what only the host knows is a mistake, and
// what means nothing here is said.
//
// Guarantees: G-0018.21
func TestUpChecksTheFilesOfHosts(t *testing.T) {
	t.Setenv("API_KEY", "k-1")
	t.Setenv("TOOLS", "/opt/tools")
	for name, said := range map[string]struct {
		status int
		lines  []string // fragments of the mistakes, then of the notices
	}{
		"claude_code.json":    {2, []string{"NOT_SET_ANYWHERE is not set", "mcpServers.docs.headersHelper"}},
		"claude_desktop.json": {0, []string{"ignored: globalShortcut"}},
		"copilot.json":        {0, nil},
		"cursor.json":         {0, []string{"mcpServers.local.autoApprove", "mcpServers.login.auth"}},
		"gemini.json":         {0, []string{"write ${API_KEY} for the variable", "mcpServers.far.trust"}},
		"vscode.json":         {2, []string{`"${input:key}" has no answer`, "servers.boxed.sandbox"}},
		"windsurf.json":       {0, nil},
		"zed.json":            {2, []string{"only Zed knows", "context_servers.older.settings"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := bowline(t, "", "up", filepath.Join("..", "..", "..", "..", "mcpjson", "testdata", name), "--check")
			got.want(t, said.status, "", "")
			for _, line := range said.lines {
				if !strings.Contains(got.stderr, line) {
					t.Errorf("it said %q, and not %q", got.stderr, line)
				}
			}
			mistakes := slices.DeleteFunc(strings.Split(strings.TrimSpace(got.stderr), "\n"), func(line string) bool { return strings.Contains(line, ": ignored: ") })
			if said.status == 2 && len(mistakes) != 1 {
				t.Errorf("not one mistake: %q", mistakes)
			}
		})
	}
}

// TestUpServesTheFileOfAHost starts a gateway over each form of a file: the server that can be started is served, and the one with a
// variable that is not set is not.
//
// Guarantees: G-0018.21, G-0018.22, G-0088.4
func TestUpServesTheFileOfAHost(t *testing.T) {
	t.Parallel()
	command := map[string]any{"command": executable(t), "args": []string{"serve", "--stdio"}, "env": map[string]string{role: "command", "BOWLINE_KEYRING": "off"}, "excludeTools": []string{"add"}}
	zed := map[string]any{"command": map[string]any{"path": command["command"], "args": command["args"], "env": command["env"]}, "settings": map[string]any{}, "disabledTools": []string{"add"}}
	unset := map[string]any{"command": "${NOT_SET_AT_ALL}"}
	for path, file := range map[string]map[string]any{
		".mcp.json":             {"mcpServers": map[string]any{"works": command, "unset": unset}},
		".cursor/mcp.json":      {"mcpServers": map[string]any{"works": command, "unset": map[string]any{"url": "https://h.test", "headers": map[string]any{"K": "${env:NOT_SET_AT_ALL}"}}}},
		".vscode/mcp.json":      {"inputs": []any{}, "servers": map[string]any{"works": command, "unset": unset}},
		".zed/settings.json":    {"theme": "One Dark", "context_servers": map[string]any{"works": zed, "unset": unset}},
		"mcp_config.json":       {"mcpServers": map[string]any{"works": command, "unset": map[string]any{"serverUrl": "${env:NOT_SET_AT_ALL}"}}},
		".gemini/settings.json": {"theme": "dark", "mcpServers": map[string]any{"works": command, "unset": unset}},
	} {
		t.Run(path, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), filepath.FromSlash(path))
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			text := new(bytes.Buffer)
			if err := json.NewEncoder(text).Encode(file); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			up := startUp(t, path)
			defer up.end()
			if text, err := client.Call[string](t.Context(), up.client(""), "works__echo", map[string]string{"message": "hello"}); err != nil || text != "hello" {
				t.Errorf("the call: %q, %v", text, err)
			}
			if text, err := client.Call[string](t.Context(), up.client(""), "works__add", map[string]int{"a": 1, "b": 2}); err == nil {
				t.Errorf("a tool that is hidden in the host answered %q", text)
			}
			bowline(t, "", "ps", "--file", path).want(t, 0, "NOT_SET_AT_ALL", "")
		})
	}
}
