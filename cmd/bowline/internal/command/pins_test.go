//go:build unix

package command

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A tool that is another one than before the gateway was started again is printed, and can be called once it was approved.
//
// Guarantees: G-0098.9, G-0098.10
func TestPinsOfTheCommand(t *testing.T) {
	path, catalogue := filepath.Join(t.TempDir(), "mcp.json"), filepath.Join(t.TempDir(), "catalogue.json")
	mcpFile(t, path, "one")
	addBlock(t, path, `{"catalogue": "`+catalogue+`", "pins": "block"}`)
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	call := func(up *upRun) error {
		session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{FailFast: true}).Connect(t.Context(), &streamable.Client{URL: up.url})
		if err != nil {
			return err
		}
		defer session.Close(context.Background())
		_, err = client.Call[string](t.Context(), session, "one__echo", map[string]string{"message": "hello"})
		return err
	}
	up := startUp(t, path)
	if err := call(up); err != nil {
		t.Error(err)
	}
	bowline(t, "", "pins").want(t, 0, "all tools are as they were approved", "")
	up.end()
	text, err := os.ReadFile(catalogue)
	if err != nil {
		t.Fatal(err)
	}
	pin := regexp.MustCompile(`"echo":\{"sum":"[0-9a-f]{64}"`)
	if !pin.Match(text) {
		t.Fatalf("%s", text)
	}
	if err := os.WriteFile(catalogue, pin.ReplaceAll(text, []byte(`"echo":{"sum":"`+strings.Repeat("0", 64)+`"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	up = startUp(t, path)
	defer up.end()
	if err := call(up); err == nil || !strings.Contains(err.Error(), "has changed since it was approved") {
		t.Errorf("a call: %v", err)
	}
	bowline(t, "", "pins").want(t, 0, "one/echo  (not offered)\n", "")
	bowline(t, "", "pins").want(t, 0, "  - description: -\n  + description: \"", "")
	bowline(t, "", "pins", "approve").want(t, 2, "", "name a server")
	bowline(t, "", "pins", "approve", "one", "none").want(t, 4, "", "no tool")
	bowline(t, "", "pins", "approve", "one", "echo@0123456789abcdef").want(t, 4, "", "no tool")
	printed := bowline(t, "", "pins")
	version := regexp.MustCompile(`(?m)^  version: ([0-9a-f]{16})$`).FindStringSubmatch(printed.stdout)
	if version == nil {
		t.Fatal(printed.stdout)
	}
	bowline(t, "", "pins", "approve", "one", "echo@"+version[1]).want(t, 0, "", "")
	bowline(t, "", "pins").want(t, 0, "all tools are as they were approved", "")
	if err := call(up); err != nil {
		t.Error(err)
	}
}
