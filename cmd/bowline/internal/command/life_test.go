//go:build unix

package command

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway/admin"
)

// rewrite replaces a text of a file, which must be there.
func rewrite(t testing.TB, path, old, by string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), old) {
		t.Fatalf("%q is not in %s: %v", old, text, err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), old, by)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestUpStartsAServerOnDemand lets a real child fall asleep, and calls it.
//
// Guarantees: G-0088.11
func TestUpStartsAServerOnDemand(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "one", "two")
	rewrite(t, path, `"two": {`, `"two": {"bowline": {"start": "demand", "idleStop": "1s"}, `)
	up := startUp(t, path)
	defer up.end()
	isAsleep := func(s admin.ServerReport) bool { return s.OnDemand && s.Tools > 0 }
	session := up.client("")
	for range 2 {
		awaitServer(t, path, "two", isAsleep)
		last := pidOf(t, path, "two")
		bowline(t, "", "ps", "--file", path).want(t, 0, "starts on demand", "")
		if _, err := client.Call[string](t.Context(), session, "two__echo", map[string]string{"message": "a"}); err != nil {
			t.Fatal(err)
		}
		if now := pidOf(t, path, "two"); now == last || syscall.Kill(last, 0) == nil {
			t.Errorf("process %d has answered; %d was to end", now, last)
		}
	}
}
