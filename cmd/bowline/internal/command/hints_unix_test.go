//go:build unix

package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
)

// TestHintsForCommands checks what is said of a program that cannot be started.
func TestHintsForCommands(t *testing.T) {
	directory := t.TempDir()
	for name, text := range map[string]string{"plain": "echo hello\n", "lost": "#!/no/such/shell\n"} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for command, hint := range map[string]string{
		"'sh -c true'":                    `it is a whole command line: the program is "sh"`,
		filepath.Join(directory, "plain"): "exec format error: it is neither a script whose first line is like #!/bin/sh",
		filepath.Join(directory, "lost"):  `its first line names the interpreter "/no/such/shell", which does not exist`,
	} {
		o := bowline(t, "", "tools", "--command", command)
		if o.want(t, process.ExitNoSession, "", hint); strings.Contains(o.stderr, connect.AdviceMissing) {
			t.Errorf("%s: the advice contradicts the hint:\n%s", command, o.stderr)
		}
	}
	path := writeConfig(t, "mcp.json", "\n")
	bowline(t, "", "tools", "--mcp-config", path).want(t, process.ExitUsage, "", "the file is empty")
}
