package server

import (
	"context"

	"github.com/bowline-mcp/bowline/features/server/internal/catalog"
	"github.com/bowline-mcp/bowline/protocol"
)

// A page is one page of a list, with what all results of lists have.
type page[D any] struct {
	entries []D
	next    *string
	protocol.CacheableResult
}

// listPage returns one page of the features that the client of a call may see.
func listPage[T described, D any](ctx context.Context, c *call, all *catalog.Catalog[T], cursor *string, definition func(T) D) (page[D], error) {
	s := c.peer.server
	features, next, err := all.Page(cursor, s.options.PageSize, func(feature T) bool { return s.sees(ctx, feature.feature()) })
	if err != nil {
		return page[D]{}, err
	}
	entries := make([]D, len(features))
	for i, feature := range features {
		entries[i] = definition(feature)
	}
	return page[D]{entries, next, s.cacheable(c)}, nil
}

// cacheable says how long the client of a call may cache a list.
func (s *host) cacheable(c *call) (r protocol.CacheableResult) {
	if !c.modern || s.options.ListTTL <= 0 {
		return r
	}
	ttl := s.options.ListTTL.Milliseconds()
	r.TTLMs = &ttl
	// Everybody gets the same list unless Visible decides (2026-07-28 server/utilities/caching).
	r.CacheScope = protocol.CachePublic
	if s.options.Visible != nil {
		r.CacheScope = protocol.CachePrivate
	}
	return r
}

// sees is Server.Visible.
func (s *host) sees(ctx context.Context, f Feature) bool {
	return s.options.Visible == nil || s.options.Visible(ctx, f)
}

// A described feature can describe itself.
type described interface{ feature() Feature }
