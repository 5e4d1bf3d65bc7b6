//go:build linux

package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol"
)

// TestFaultsOfChildren has a child for each fault beside one that works. That one does not notice, the others have a state and a reason, and no
// process is left, not even one that a child has started.
//
// Guarantees: G-0088.3
func TestFaultsOfChildren(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "good")
	faults := map[string]struct {
		script string
		is     func(admin.ServerReport) bool
	}{
		"exits": {"echo out of order >&2; exit 3", func(s admin.ServerReport) bool {
			return s.State == admin.Backoff && strings.Contains(s.LastFailure, "3") && s.Stderr == "out of order"
		}},
		"silent":  {"exec sleep 1000", func(s admin.ServerReport) bool { return s.State == admin.Starting && s.PID != 0 }},
		"garbage": {"echo hello; echo '{]'; exec sleep 1000", func(s admin.ServerReport) bool { return s.State == admin.Starting || s.State == admin.Backoff }},
		"floods":  {"exec yes", func(s admin.ServerReport) bool { return s.State == admin.Starting || s.State == admin.Backoff }},
		"forks":   {"sleep 1001 & exec sleep 1001", func(s admin.ServerReport) bool { return s.State == admin.Starting && s.PID != 0 }},
		"absent":  {"", func(s admin.ServerReport) bool { return s.State == admin.Backoff && s.LastFailure != "" }},
	}
	var entries strings.Builder
	for name, fault := range faults {
		command := "/bin/sh"
		if fault.script == "" {
			command = "/none/such"
		}
		pid := filepath.Join(filepath.Dir(path), name+".pid")
		fmt.Fprintf(&entries, `%q: {"command": %q, "args": ["-c", %q]},`, name, command, fmt.Sprintf("echo $$ > %s; %s", pid, fault.script))
	}
	rewrite(t, path, `{"mcpServers": {`, `{"mcpServers": {`+entries.String())
	up := startUp(t, path)
	session := up.client("")
	call := func(name string) (*protocol.CallToolResult, error) {
		return session.CallTool(t.Context(), &protocol.CallToolParams{Name: name + "__echo", Arguments: []byte(`{"message":"a"}`)})
	}
	for range 10 {
		if result, err := call("good"); err != nil || result.IsError {
			t.Fatalf("the server that works: %v, %v", result, err)
		}
	}
	for name, fault := range faults {
		awaitServer(t, path, name, fault.is)
	}
	if _, err := client.Call[string](t.Context(), session, "good__echo", map[string]string{"message": "a"}); err != nil {
		t.Errorf("the server that works: %v", err)
	}
	up.end()
	for name := range faults {
		if text, err := os.ReadFile(filepath.Join(filepath.Dir(path), name+".pid")); err == nil {
			var pid int
			if _, err := fmt.Sscan(string(text), &pid); err != nil {
				t.Fatal(err)
			}
			awaitGone(t, pid, -pid) // with those that it has started
		}
	}
}
