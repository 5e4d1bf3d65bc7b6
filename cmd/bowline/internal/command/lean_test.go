package command

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
)

// TestWithoutOTLP checks that a command without OTLP says how to install one that has it.
//
// Guarantees: G-0053.5
func TestWithoutOTLP(t *testing.T) {
	bowline(t, "", "serve", "--stdio", "--otlp").want(t, process.ExitUsage, "", "go install ./cmd/bowline/full/bowline")
	file := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(file, []byte(`{"mcpServers":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	bowline(t, "", "up", file, "--audit-otlp").want(t, process.ExitUsage, "", "go install ./cmd/bowline/full/bowline")
}

// TestTheFirstRunIsSmall adds up the files of the modules that go run downloads for the command.
//
// Guarantees: G-0053.4
func TestTheFirstRunIsSmall(t *testing.T) {
	list, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Dir}}{{end}}", "../..").Output()
	if err != nil {
		t.Fatal(err)
	}
	size, counted := int64(0), map[string]bool{}
	for line := range strings.Lines(string(list)) {
		module, folder, _ := strings.Cut(strings.TrimSpace(line), " ")
		if counted[module] || strings.HasPrefix(module, "github.com/bowline-mcp/") {
			continue
		}
		counted[module] = true
		for _, large := range []string{"google.golang.org/", "github.com/prometheus/", "go.opentelemetry.io/otel/exporters/"} {
			if strings.HasPrefix(module, large) {
				t.Errorf("the command needs %s, want it in the full command or only in tests", module)
			}
		}
		err := fs.WalkDir(os.DirFS(folder), ".", func(_ string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				size += info.Size()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if size > 60_000_000 || len(counted) < 10 {
		t.Errorf("the command needs %d modules of %d MB, want at most 60 MB", len(counted), size/1_000_000)
	}
	t.Logf("%d modules, %d MB", len(counted), size/1_000_000)
}
