package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/member"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
)

// A command without NATS says how to install the one that has it.
func TestClusterNeedsTheFullCommand(t *testing.T) {
	for _, args := range [][]string{
		{"serve", "--http", "127.0.0.1:0", "--cluster", "demo"}, {"nodes", "--cluster", "demo"}, {"nodes"}, {"drain", "a"},
	} {
		bowline(t, "", args...).want(t, process.ExitUsage, "", "go install ./cmd/bowline/full/bowline")
	}
	bowline(t, "", "serve", "--stdio", "--cluster", "demo").want(t, process.ExitUsage, "", "--cluster needs --http")
	bowline(t, "", "serve", "--http", "127.0.0.1:0", "--node", "a").want(t, process.ExitUsage, "", "name the cluster with --cluster")
	bowline(t, "", "serve", "--http", "127.0.0.1:0", "--cluster", "demo", "--node", "a.b").want(t, process.ExitUsage, "", "1 to 64 letters")
}

// A key is written once, for this user only.
func TestClusterInit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.key")
	bowline(t, "", "cluster", "init").want(t, process.ExitUsage, "", "bowline cluster init --cluster-key FILE")
	bowline(t, "", "cluster", "init", "--cluster-key", path).want(t, 0, "", "wrote "+path)
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		t.Errorf("the key has the mode %v", info.Mode())
	}
	bowline(t, "", "cluster", "init", "--cluster-key", path).want(t, process.ExitUsage, "", "exists already")
	if again, err := os.ReadFile(path); err != nil || string(again) != string(first) {
		t.Errorf("the key was replaced: %v", err)
	}
	if key, err := member.ReadKey("test", strings.NewReader(string(first))); err != nil || len(key) != 32 {
		t.Errorf("the key has %d bytes: %v", len(key), err)
	}
	for _, wrong := range []string{"", "abc", strings.Repeat("0", 62), strings.Repeat("0", 66), strings.Repeat("x", 64)} {
		if _, err := member.ReadKey("test", strings.NewReader(wrong)); err == nil || !strings.Contains(err.Error(), "bowline cluster init") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
