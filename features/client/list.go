package client

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client/internal/cache"
	"github.com/bowline-mcp/bowline/protocol"
)

// maxPages and maxListBytes limit what one range over a list fetches, because a server may
// send pages without end.
const (
	maxPages     = 1000
	maxListBytes = 64 << 20
)

// A list is a method that returns one page of items.
type list[P, R, E any, Q requestParams[P]] struct {
	*method[P, R, Q]
	cursor func(*P) **string
	items  func(*R) (page []E, next *string)
}

var (
	tools = list[protocol.ListToolsParams, protocol.ListToolsResult, *protocol.Tool, *protocol.ListToolsParams]{
		listTools,
		func(p *protocol.ListToolsParams) **string { return &p.Cursor },
		func(r *protocol.ListToolsResult) ([]*protocol.Tool, *string) { return r.Tools, r.NextCursor },
	}
	resources = list[protocol.ListResourcesParams, protocol.ListResourcesResult, *protocol.Resource, *protocol.ListResourcesParams]{
		listResources,
		func(p *protocol.ListResourcesParams) **string { return &p.Cursor },
		func(r *protocol.ListResourcesResult) ([]*protocol.Resource, *string) {
			return r.Resources, r.NextCursor
		},
	}
	resourceTemplates = list[protocol.ListResourceTemplatesParams, protocol.ListResourceTemplatesResult, *protocol.ResourceTemplate, *protocol.ListResourceTemplatesParams]{
		listResourceTemplates,
		func(p *protocol.ListResourceTemplatesParams) **string { return &p.Cursor },
		func(r *protocol.ListResourceTemplatesResult) ([]*protocol.ResourceTemplate, *string) {
			return r.ResourceTemplates, r.NextCursor
		},
	}
	prompts = list[protocol.ListPromptsParams, protocol.ListPromptsResult, *protocol.Prompt, *protocol.ListPromptsParams]{
		listPrompts,
		func(p *protocol.ListPromptsParams) **string { return &p.Cursor },
		func(r *protocol.ListPromptsResult) ([]*protocol.Prompt, *string) { return r.Prompts, r.NextCursor },
	}
)

// Tools ranges over the tools of all pages. It fetches each page when the range
// reaches it, and ends after the first error, a *CallError. It wraps ErrStaleCursor
// if the server was replaced between two pages, ErrRepeatedCursor if a cursor leads
// back to its own page, and a *protocol.LimitError beyond 1,000 pages or 64 MiB.
// Resources, ResourceTemplates and Prompts behave the same way.
//
// If the cache holds all pages of the list (Options.CacheBytes,
// CallOptions.MaxStale), Tools yields those. If a page is missing, Tools asks for the
// whole list again.
//
// Give it the params that ListTools would take to begin with the page of their cursor. A
// cursor is valid only in the server session that returned it: see Pin. Only the first of
// several params counts, and nil means none. A range from a cursor does not use the cache.
func (s *Session) Tools(ctx context.Context, from ...*protocol.ListToolsParams) iter.Seq2[*protocol.Tool, error] {
	return tools.all(ctx, s, from)
}

// Resources ranges over the resources of all pages, as Tools does over the tools.
func (s *Session) Resources(ctx context.Context, from ...*protocol.ListResourcesParams) iter.Seq2[*protocol.Resource, error] {
	return resources.all(ctx, s, from)
}

// ResourceTemplates ranges over the resource templates of all pages, as Tools does
// over the tools.
func (s *Session) ResourceTemplates(ctx context.Context, from ...*protocol.ListResourceTemplatesParams) iter.Seq2[*protocol.ResourceTemplate, error] {
	return resourceTemplates.all(ctx, s, from)
}

// Prompts ranges over the prompts of all pages, as Tools does over the tools.
func (s *Session) Prompts(ctx context.Context, from ...*protocol.ListPromptsParams) iter.Seq2[*protocol.Prompt, error] {
	return prompts.all(ctx, s, from)
}

// ListTools fetches one page of tools. A nil params asks for the first page. A cursor
// is valid only in the server session that returned it; Tools takes care of that.
func (s *Session) ListTools(ctx context.Context, params *protocol.ListToolsParams) (*protocol.ListToolsResult, error) {
	return resultOf(listTools.call(ctx, s, params))
}

// ListResources fetches one page of resources, as ListTools does of tools.
func (s *Session) ListResources(ctx context.Context, params *protocol.ListResourcesParams) (*protocol.ListResourcesResult, error) {
	return resultOf(listResources.call(ctx, s, params))
}

// ListResourceTemplates fetches one page of resource templates, as ListTools does of
// tools.
func (s *Session) ListResourceTemplates(ctx context.Context, params *protocol.ListResourceTemplatesParams) (*protocol.ListResourceTemplatesResult, error) {
	return resultOf(listResourceTemplates.call(ctx, s, params))
}

// ListPrompts fetches one page of prompts, as ListTools does of tools.
func (s *Session) ListPrompts(ctx context.Context, params *protocol.ListPromptsParams) (*protocol.ListPromptsResult, error) {
	return resultOf(listPrompts.call(ctx, s, params))
}

// all ranges over the items of all pages of one server session, or of those from a cursor on.
func (l list[P, R, E, Q]) all(ctx context.Context, s *Session, from []*P) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		// The params change while the range goes on, and may be those of another range, too.
		params := new(P)
		if len(from) > 0 && from[0] != nil {
			*params = *from[0]
		}
		view := s.With(s.options)
		if *l.cursor(params) == nil {
			view.options.pages = s.cache.PagesOf(l.Name, maxPages, s.peer.Load(), s.options.MaxStale)
		} else { // the rest of a list is never whole
			view.options.pages = new(cache.Pages[*peer])
		}
		w := walk[P, R, E, Q]{list: l, session: view, params: params}
		for more := true; more; {
			page, err := w.fetch(ctx)
			if err != nil {
				yield(*new(E), err)
				return
			}
			items, next := l.items(page)
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if more, err = w.turn(next); err != nil {
				yield(*new(E), err)
				return
			}
		}
	}
}

// A walk goes through the pages of one server session.
type walk[P, R, E any, Q requestParams[P]] struct {
	list    list[P, R, E, Q]
	session *Session // from the second page on, it is bound to the server of the first page
	params  *P
	fetched int
	bytes   int64
	lastID  int64 // the id of the request for the last page
}

func (w *walk[P, R, E, Q]) fetch(ctx context.Context) (*R, error) {
	page, last, err := w.list.call(ctx, w.session, w.params)
	w.fetched++
	w.lastID = last.id
	w.bytes += int64(len(last.raw))
	if w.fetched == 1 {
		w.session.options.pages = w.session.options.pages.Begun(last.fromCache)
	}
	var failed *conn.CallError
	switch {
	case w.bytes > maxListBytes:
		return nil, answered(w.list.Name, w.lastID, &protocol.LimitError{What: "bytes of " + w.list.Name, Limit: maxListBytes})
	case last.fromCache: // the next page does not come from the server
	case err == nil && last.peer != nil:
		w.session = w.session.boundTo(last.peer.Epoch())
	case w.fetched > 1 && errors.Is(err, conn.ErrStale) && errors.As(err, &failed):
		failed.Err = fmt.Errorf("%w: %w", ErrStaleCursor, failed.Err)
	}
	return page, err
}

// turn stores the cursor of the next page, and reports whether there is one.
func (w *walk[P, R, E, Q]) turn(next *string) (more bool, err error) {
	cursor := w.list.cursor(w.params)
	switch {
	case next == nil:
		return false, nil
	case *cursor != nil && **cursor == *next:
		return false, answered(w.list.Name, w.lastID, fmt.Errorf("%w: %.100q", ErrRepeatedCursor, *next))
	case w.fetched == maxPages:
		return false, answered(w.list.Name, w.lastID, &protocol.LimitError{What: "pages of " + w.list.Name, Limit: maxPages})
	default:
		*cursor = next
		return true, nil
	}
}
