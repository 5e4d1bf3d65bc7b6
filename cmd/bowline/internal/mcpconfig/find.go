package mcpconfig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/suggest"
)

var (
	// ErrNotFound says that the file has no server of this name.
	ErrNotFound = errors.New("no such server")
	// ErrDisabled says that the file has the server, and that it is disabled.
	ErrDisabled = errors.New("the server is disabled")
)

// Server is the server called name, for the caller to change. The error is
// ErrNotFound, with the names there are and the one most like it, or
// ErrDisabled.
func (c *Config) Server(name string) (*Server, error) {
	for _, s := range c.Servers {
		switch {
		case s.Name == name && s.Disabled:
			return nil, fmt.Errorf("%s: %w: %s", c.Path, ErrDisabled, quote(name))
		case s.Name == name:
			return &s, nil
		}
	}
	names := make([]string, len(c.Servers))
	for i, s := range c.Servers {
		names[i] = s.Name
	}
	return nil, fmt.Errorf("%s: %w: %s: %s", c.Path, ErrNotFound, quote(name), suggest.Among(name, names))
}

// Discover finds the file of a project's folder: the first of .mcp.json (Claude
// Code), mcp.json, .cursor/mcp.json and .vscode/mcp.json. Files meant for any
// host come before those of one editor.
func Discover(dir string) (path string, ok bool) {
	for _, name := range []string{".mcp.json", "mcp.json", ".cursor/mcp.json", ".vscode/mcp.json"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, true
		}
	}
	return "", false
}
