package server

import (
	"encoding/base64"
	"slices"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A catalogue holds named features, ordered by name, and lists them in pages.
// Its cursors say where a page begins, so they outlive changes.
type catalogue[T any] struct {
	mu     sync.RWMutex
	names  []string // sorted
	byName map[string]T
}

// set adds a feature, or replaces the one of that name.
func (c *catalogue[T]) set(name string, feature T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byName == nil {
		c.byName = make(map[string]T)
	}
	if i, known := slices.BinarySearch(c.names, name); !known {
		c.names = slices.Insert(c.names, i, name)
	}
	c.byName[name] = feature
}

func (c *catalogue[T]) get(name string) (T, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	feature, ok := c.byName[name]
	return feature, ok
}

func (c *catalogue[T]) len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.names)
}

// page returns the features from cursor on, and the cursor of the next page if
// there is one.
func (c *catalogue[T]) page(cursor *string, size int) ([]T, *string, error) {
	from, err := decodeCursor(cursor)
	if err != nil {
		return nil, nil, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	first, _ := slices.BinarySearch(c.names, from)
	last := first + min(size, len(c.names)-first)
	features := make([]T, 0, last-first)
	for _, name := range c.names[first:last] {
		features = append(features, c.byName[name])
	}
	if last == len(c.names) {
		return features, nil, nil
	}
	next := encodeCursor(c.names[last])
	return features, &next, nil
}

// cursorPrefix tells our cursors from strings that are none.
const cursorPrefix = "from:"

func encodeCursor(name string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorPrefix + name))
}

func decodeCursor(cursor *string) (string, error) {
	if cursor == nil {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(*cursor)
	name, ours := strings.CutPrefix(string(raw), cursorPrefix)
	if err != nil || !ours {
		return "", refuse(jsonrpc.CodeInvalidParams, "the cursor is not one of this server's")
	}
	return name, nil
}
