package server

import (
	"context"

	"github.com/bowline-mcp/bowline/features/server/internal/catalog"
	"github.com/bowline-mcp/bowline/protocol"
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
func listPage[T described, D any](ctx context.Context, c *call, all *catalog.Catalog[T], cursor *string, definition func(T) D) (page[D], error) {
	s := c.peer.server
	features, next, err := all.Page(cursor, s.options.PageSize, func(feature T) bool { return s.Visible(ctx, feature.feature()) })
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
