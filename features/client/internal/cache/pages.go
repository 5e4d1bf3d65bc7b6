package cache

import "time"

// A Use says which results a call accepts.
type Use[S comparable] struct {
	Pages    *Pages[S]     // those that a range over a list has found; nil outside of a range
	Fresh    bool          // none without a request
	MaxStale time.Duration // how old a result may be while the server is away
}

// Pages are the pages of a list in the cache. A range over the list uses all of them
// or none, because pages of different times do not fit together.
type Pages[S comparable] struct {
	fresh, stale map[Key]*Entry[S] // nil if a page is missing
	all          map[Key]*Entry[S] // the pages that the range uses; nil: none, or it has not begun
}

// PagesOf finds all pages of a list, of which it has most at most.
func (c *Cache[S]) PagesOf(method string, most int, present S, maxStale time.Duration) *Pages[S] {
	pages := &Pages[S]{fresh: c.whole(method, most, present, 0)}
	if maxStale > 0 {
		pages.stale = c.whole(method, most, present, maxStale)
	}
	return pages
}

// Begun returns the pages that a range continues with. FromCache says that its first page
// came from the cache, and not from the server.
func (p *Pages[S]) Begun(fromCache bool) *Pages[S] {
	switch {
	case !fromCache:
		return new(Pages[S])
	case p.stale != nil:
		return &Pages[S]{all: p.stale}
	default:
		return &Pages[S]{all: p.fresh}
	}
}

// Now returns a result that may be used without asking the server; nil for none. A range that has
// begun with results of the cache gets the rest of them, even if they are no longer fresh.
func (c *Cache[S]) Now(key Key, present S, use Use[S]) *Entry[S] {
	switch pages := use.Pages; {
	case pages != nil && pages.all != nil:
		return pages.all[key]
	case use.Fresh:
		return nil
	case pages != nil:
		return pages.fresh[key]
	default:
		return c.find(key, present, 0)
	}
}

// Away returns a result that may be used while the server is away; nil for none.
func (c *Cache[S]) Away(key Key, use Use[S]) *Entry[S] {
	switch {
	case use.MaxStale <= 0:
		return nil
	case use.Pages != nil:
		return use.Pages.stale[key]
	default:
		var nobody S
		return c.find(key, nobody, use.MaxStale)
	}
}
