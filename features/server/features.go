package server

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// These are the kinds of features.
const (
	KindTool     = "tool"
	KindResource = "resource"
	KindTemplate = "template"
	KindPrompt   = "prompt"
)

// A Feature describes one thing that a server offers, for Options.Visible.
type Feature struct {
	Kind       string // KindTool, KindResource, KindTemplate or KindPrompt
	Name       string // the name of a tool or prompt, the URI of a resource, or the text of a template
	Definition any    // *protocol.Tool, *protocol.Resource, *protocol.ResourceTemplate or *protocol.Prompt; read-only
}

// A FeatureOption is an option for adding a feature: Asks, Form or a Completion.
type FeatureOption interface{ apply(*settings) }

// settings contains the options of a feature.
type settings struct {
	asking     *askingOption
	completion map[string]completer // completions by argument
}

func newSettings(options []FeatureOption) settings {
	s := settings{completion: make(map[string]completer)}
	for _, o := range options {
		o.apply(&s)
	}
	return s
}

// A page is one page of a list, with what all results of lists have.
type page[D any] struct {
	entries []D
	next    *string
	protocol.CacheableResult
}

// listPage returns one page of the features that the client of a call may see.
func listPage[T described, D any](ctx context.Context, c *call, all *catalog[T], cursor *string, definition func(T) D) (page[D], error) {
	s := c.peer.server
	features, next, err := all.page(cursor, s.options.PageSize, func(feature T) bool { return s.Visible(ctx, feature.feature()) })
	if err != nil {
		return page[D]{}, err
	}
	entries := make([]D, len(features))
	for i, feature := range features {
		entries[i] = definition(feature)
	}
	return page[D]{entries, next, s.cacheable(c)}, nil
}

// A Page is one page of what a method of the program lists; see ListPage.
type Page[T any] struct {
	Entries []T
	Next    *string // the cursor of the next page; nil: this is the last one
	protocol.CacheableResult
}

// ListPage returns a page of what a method lists that was added with AddMethod, as the server makes the pages
// of its own lists: in the order of the names, at most Options.PageSize entries, without those
// that Options.Visible hides, and with how long a client may cache them. Ctx is that of the
// handler. It fails if the cursor is not nil, and not one of this server's.
func ListPage[T any](ctx context.Context, s *Server, cursor *string, all map[string]T, feature func(T) Feature) (Page[T], error) {
	entries, next, err := catalogOf(all).page(cursor, s.options.PageSize, func(one T) bool { return s.Visible(ctx, feature(one)) })
	if err != nil {
		return Page[T]{}, err
	}
	return Page[T]{entries, next, s.Cacheable(ctx)}, nil
}

// Cacheable says how long the client of the request in ctx may cache what is the same as a list, such as
// an entry of it; see Options.ListTTL.
func (s *Server) Cacheable(ctx context.Context) protocol.CacheableResult {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return s.cacheable(c)
	}
	return protocol.CacheableResult{}
}

// cacheable says how long the client of a call may cache a list.
func (s *Server) cacheable(c *call) (r protocol.CacheableResult) {
	if !c.modern || s.options.ListTTL <= 0 {
		return r
	}
	ttl := s.options.ListTTL.Milliseconds()
	r.TTLMs = &ttl
	r.CacheScope = protocol.CachePublic
	if s.options.Visible != nil {
		r.CacheScope = protocol.CachePrivate
	}
	return r
}

// Visible reports whether the client of the request in ctx may see a feature, by Options.Visible.
func (s *Server) Visible(ctx context.Context, f Feature) bool {
	return s.options.Visible == nil || s.options.Visible(ctx, f)
}

// A described feature can describe itself.
type described interface{ feature() Feature }

// A catalog contains the features of one kind, ordered by name, and lists them in pages.
// A cursor contains the name at which a page begins, so it stays valid when features
// change.
type catalog[T any] struct {
	mu      sync.RWMutex
	names   []string // sorted
	byName  map[string]T
	ever    bool // the catalog has had a feature
	changes int  // how often the catalog has changed
}

// catalogOf returns a catalog of features by their names. It keeps the map.
func catalogOf[T any](all map[string]T) *catalog[T] {
	return &catalog[T]{byName: all, names: slices.Sorted(maps.Keys(all)), ever: len(all) > 0}
}

// set adds a feature, or replaces the one with its name.
func (c *catalog[T]) set(name string, feature T) {
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

// remove removes features, and reports whether any of them existed.
func (c *catalog[T]) remove(names []string) (changed bool) {
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

func (c *catalog[T]) changeCount() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.changes
}

func (c *catalog[T]) get(name string) (T, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	feature, ok := c.byName[name]
	return feature, ok
}

// use marks the catalog as used.
func (c *catalog[T]) use() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ever = true
}

// used reports whether there is a feature, or ever was one.
func (c *catalog[T]) used() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.ever
}

// all returns every feature, in order.
func (c *catalog[T]) all() []T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	features := make([]T, len(c.names))
	for i, name := range c.names {
		features[i] = c.byName[name]
	}
	return features
}

// page returns up to size features that pass the filter, beginning at the cursor. It
// also returns the cursor of the next page, if there may be one.
func (c *catalog[T]) page(cursor *string, size int, filter func(T) bool) ([]T, *string, error) {
	from, err := decodeCursor(cursor)
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
				next := encodeCursor(names[i])
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

func (c *catalog[T]) count() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.names)
}

// from returns at most so many features, beginning at a name.
func (c *catalog[T]) from(name string, most int) (names []string, features []T) {
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

// cursorPrefix distinguishes our cursors from other strings.
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
