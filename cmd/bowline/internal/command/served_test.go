//go:build unix

package command

import (
	"os"
	"path/filepath"
	"testing"
)

// A gateway is not its own server, under whatever name of this machine.
//
// Guarantees: G-0088.14
func TestOwnAddress(t *testing.T) {
	for _, c := range []struct {
		url, address string
		is           bool
	}{
		{"http://127.0.0.1:8080/mcp", ":8080", true},
		{"http://localhost:8080/mcp/", "127.0.0.1:8080", true},
		{"http://localhost:8080/mcp/search", "127.0.0.1:8080", true},
		{"http://localhost:8080/mcp/group", "127.0.0.1:8080", true},
		{"http://localhost:8080/mcpother", "127.0.0.1:8080", false},
		{"http://[::1]:8080/mcp", "0.0.0.0:8080", true},
		{"http://tools:8080/mcp", "tools:8080", true},
		{"http://localhost/mcp", "127.0.0.1:80", true},
		{"http://localhost:8081/mcp", "127.0.0.1:8080", false},
		{"http://localhost:8080/other", "127.0.0.1:8080", false},
		{"http://tools:8080/mcp", "127.0.0.1:8080", false},
		{"http://localhost:8080/mcp", "10.0.0.1:8080", false},
		{"", ":8080", false},
	} {
		if is := isServed(c.url, c.address); is != c.is {
			t.Errorf("%s at %s: %t", c.url, c.address, is)
		}
	}
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, []byte(`{"mcpServers": {"self": {"url": "http://localhost:8080/mcp"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	bowline(t, "", "up", path, "--check").want(t, 2, "", "gateway itself")
	bowline(t, "", "up", path, "--check", "--http", ":8079").want(t, 0, "no mistakes", "")
}
