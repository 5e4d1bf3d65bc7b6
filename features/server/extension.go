package server

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/bowline-mcp/bowline/features/server/internal/catalog"
	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/protocol"
)

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
	entries, next, err := catalog.Of(all).Page(cursor, s.options.PageSize, func(one T) bool { return s.Visible(ctx, feature(one)) })
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

// Visible reports whether the client of the request in ctx may see a feature, by Options.Visible.
func (s *Server) Visible(ctx context.Context, f Feature) bool {
	return s.sees(ctx, f)
}

// ListChanged tells clients that the list of a kind of features has changed, if the program serves it itself; see Options.Route. It
// never blocks. Changes within 10 ms are sent as one. It panics for an unknown kind.
func (s *Server) ListChanged(kind string) { s.subscriptions.Tell(listOf(kind)) }

// listOf returns the change of the list of a kind.
func listOf(kind string) changes.Change {
	switch kind {
	case KindTool:
		return changes.Tools()
	case KindPrompt:
		return changes.Prompts()
	case KindResource, KindTemplate:
		return changes.Resources()
	default:
		panic(fmt.Sprintf("server: ListChanged: %q is no kind of feature", kind))
	}
}

// AddMethod adds a method that the server does not have itself. A method that is not part of MCP is in
// every revision. A method of an extension, such as skills/list, is in the revisions of the extension, and
// is offered once AddExtension has added that.
//
// In may be a struct or map, a pointer to one, json.RawMessage for undecoded params, or struct{}
// for none. Out must encode to a JSON object. For clients of 2026-07-28,
// "resultType": "complete" is added unless the object has a resultType. AddMethod
// replaces a method with the same name that was added before. It panics for a method that the server has
// itself, whether it offers that or not.
func AddMethod[In, Out any](s *Server, name string, f func(context.Context, In) (Out, error)) {
	info, known := protocol.MethodInfo(name)
	if known && info.Extension == "" || info.Notification || name == "" || f == nil {
		panic(fmt.Sprintf("server: method %q: a method of one's own needs a name of its own, and a function", name))
	}
	m := row(name, func(ctx context.Context, _ *call, params *In) (*Out, error) {
		out, err := f(ctx, *params)
		if err != nil {
			return nil, err
		}
		return &out, nil
	})
	m.added = true
	if extension := info.Extension; extension != "" {
		m.offered = func(c *call) bool { return c.offered.Has("extensions." + extension) }
	}
	s.adding.Lock()
	defer s.adding.Unlock()
	// A copy replaces the table, so that calls read it without a lock. Adding waits for adding alone.
	methods := maps.Clone(*s.methods.Load())
	if before := methods[name]; before != nil && !before.added {
		panic(fmt.Sprintf("server: method %q: the server has it itself", name))
	}
	methods[name] = m
	s.methods.Store(&methods)
}

// AddExtension tells clients of 2026-07-28 from now on that the server has an extension, and offers
// the methods of that extension that were added with AddMethod. The settings are a JSON object. Those in
// Options.Capabilities take precedence. A call for an extension that was added before replaces its settings.
func (s *Server) AddExtension(name string, settings json.RawMessage) {
	s.adding.Lock()
	defer s.adding.Unlock()
	extensions := make(map[string]json.RawMessage)
	if before := s.extensions.Load(); before != nil {
		maps.Copy(extensions, *before)
	}
	extensions[name] = slices.Clone(settings)
	s.extensions.Store(&extensions)
}
