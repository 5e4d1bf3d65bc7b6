package catalog

import (
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// ErrNotFound means that there is no such thing, or that the client may not see it.
var ErrNotFound = errors.New("not found")

// A Catalog contains the features of one kind, ordered by name, and lists them in pages.
// A cursor contains the name at which a page begins, so it stays valid when features
// change: a client that reads page by page while features come and go gets each that stays, once.
//
// What is in a catalog is read-only: it is returned to callers that go on without the lock.
type Catalog[T any] struct {
	mu      sync.RWMutex
	names   []string // sorted, so that a page begins at a name and not at a number, which changes
	byName  map[string]T
	ever    bool // the catalog has had a feature
	changes int  // how often the catalog has changed
}

// Of returns a catalog of features by their names. It keeps the map, which the caller must not
// change any more.
func Of[T any](all map[string]T) *Catalog[T] {
	return &Catalog[T]{byName: all, names: slices.Sorted(maps.Keys(all)), ever: len(all) > 0}
}

// Set adds a feature, or replaces the one with its name. Calls that have found the replaced one go
// on with it. To tell clients of the change is for the caller, after Set has returned, so that a
// client that asks at once finds it.
func (c *Catalog[T]) Set(name string, feature T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byName == nil {
		c.byName = make(map[string]T)
	}
	if i, known := slices.BinarySearch(c.names, name); !known {
		c.names = slices.Insert(c.names, i, name)
	}
	c.byName[name] = feature
	c.ever = true
	c.changes++
}

// Remove removes features, and reports whether any of them existed: if none did, clients need not
// be told. Names that are not there are no error, so two goroutines may remove the same.
func (c *Catalog[T]) Remove(names []string) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if i, known := slices.BinarySearch(c.names, name); known {
			c.names = slices.Delete(c.names, i, i+1)
			delete(c.byName, name)
			changed = true
			c.changes++
		}
	}
	return changed
}

// Changes returns how often the catalog has changed. A list that was made of it is outdated when
// that has grown: read it before the features, so that a change between the two makes the list be
// made again, and not be missed.
func (c *Catalog[T]) Changes() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.changes
}

// Get returns the feature with a name. It does not check who may see it: that is for the caller,
// who must answer the same in both cases, so that a client does not learn of what it must not see.
func (c *Catalog[T]) Get(name string) (T, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	feature, ok := c.byName[name]
	return feature, ok
}

// Use marks the catalog as used, by a program that finds features in another way than by their
// names.
func (c *Catalog[T]) Use() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ever = true
}

// Used reports whether there is a feature, or ever was one. It never becomes false again: a server
// that has declared a capability must not withdraw it, since a client has read it once, and goes on
// asking for lists.
func (c *Catalog[T]) Used() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.ever
}

// All returns every feature, in order. The slice is the caller's.
func (c *Catalog[T]) All() []T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	features := make([]T, len(c.names))
	for i, name := range c.names {
		features[i] = c.byName[name]
	}
	return features
}

// Page returns up to size features that pass the filter, beginning at the cursor. It
// also returns the cursor of the next page, if there may be one.
//
// It reads as much as the page lacks, filters that without the lock, and reads on. What is added or
// removed meanwhile may be on the page or not; nothing is on it twice, because it goes on after the
// last name that it has read.
func (c *Catalog[T]) Page(cursor *string, size int, filter func(T) bool) ([]T, *string, error) {
	from, err := DecodeCursor(cursor)
	if err != nil {
		return nil, nil, err
	}
	page := make([]T, 0, min(size, c.count()))
	for {
		wanted := min(size-len(page), c.count()) + 1 // one feature more than fits, to know whether there is another page
		names, features := c.from(from, wanted)
		for i, feature := range features {
			if !filter(feature) {
				continue
			}
			if len(page) == size {
				next := EncodeCursor(names[i])
				return page, &next, nil
			}
			page = append(page, feature)
		}
		if len(names) < wanted {
			return page, nil, nil
		}
		from = names[len(names)-1] + "\x00" // the next possible name
	}
}

// count is only a hint of how much to allocate and to read: it may be outdated when it is used.
func (c *Catalog[T]) count() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.names)
}

// from returns at most so many features, beginning at a name. It copies them: the caller's filter
// may take long, and may call the server, which would wait for the lock.
func (c *Catalog[T]) from(name string, most int) (names []string, features []T) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	first, _ := slices.BinarySearch(c.names, name)
	names = slices.Clone(c.names[first:min(first+most, len(c.names))])
	features = make([]T, len(names))
	for i, name := range names {
		features[i] = c.byName[name]
	}
	return names, features
}

// cursorPrefix distinguishes our cursors from other strings, such as those of another server at the
// same address.
const cursorPrefix = "from:"

// EncodeCursor returns the cursor of a page that begins at a name. It is not secret, and not signed: a client that makes one up
// gets what it could have listed anyway.
func EncodeCursor(name string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorPrefix + name))
}

// DecodeCursor returns the name at which a page begins, and "" for the first one.
func DecodeCursor(cursor *string) (string, error) {
	if cursor == nil {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(*cursor)
	name, ours := strings.CutPrefix(string(raw), cursorPrefix)
	if err != nil || !ours {
		return "", refusal.New(jsonrpc.CodeInvalidParams, "the cursor is not one of this server's")
	}
	return name, nil
}
