package mcpconfig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	return nil, fmt.Errorf("%s: %w: %s: %s", c.Path, ErrNotFound, quote(name), c.suggest(name))
}

func (c *Config) suggest(name string) string {
	if len(c.Servers) == 0 {
		return "the file has none"
	}
	names := make([]string, len(c.Servers))
	closest, least := "", 2+len(name)/3
	for i, s := range c.Servers {
		names[i] = s.Name
		if d := distance(name, s.Name); d < least {
			closest, least = s.Name, d
		}
	}
	if closest == "" {
		return "it has: " + list(names)
	}
	return fmt.Sprintf("did you mean %s? It has: %s", closest, list(names))
}

// distance is the Levenshtein distance of the beginnings of two names, letter
// case aside.
func distance(a, b string) int {
	const longest = 64
	a, b = strings.ToLower(a[:min(len(a), longest)]), strings.ToLower(b[:min(len(b), longest)])
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substituted := diagonal
			if a[i] != b[j] {
				substituted++
			}
			diagonal = row[j+1]
			row[j+1] = min(substituted, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
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
