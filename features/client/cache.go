package client

import (
	linked "container/list"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// These limits apply to every cache, whatever a server allows.
const (
	defaultCacheBytes = 16 << 20
	maxLifetime       = 24 * time.Hour
	entryBytes        = 512 // what an entry costs in addition to its key and its result
)

// A cache keeps results of one session (ADR-0035). It keeps them encoded, so that each
// caller gets its own values.
type cache struct {
	limit int64 // the limit in bytes; negative: there is no cache

	mu      sync.Mutex
	bytes   int64
	entries map[cacheKey]*linked.Element // elements are *entry
	recent  linked.List                  // the most recently used comes first
	sweepAt int                          // at how many entries the cache next removes expired ones
	changes map[string]*changes          // the changes reported so far, by method
}

// A cacheKey identifies a request whose result may be kept: the method, and the cursor
// or the URI. Nothing else in the request affects its result. The first page of a list has
// no cursor, and the empty string is one.
type cacheKey struct {
	method, about string
	first         bool
}

// keyOf returns the key of a request with a cursor or URI; nil for none.
func keyOf(method string, about *string) cacheKey {
	if about == nil {
		return cacheKey{method: method, first: true}
	}
	return cacheKey{method: method, about: *about}
}

// changes counts the changes that were reported for one method.
type changes struct {
	all  uint64 // how often all results may have changed
	some uint64 // how often any result may have changed
}

// An entry is a result in the cache.
type entry struct {
	key      cacheKey
	raw      json.RawMessage
	next     *string // the cursor of the next page
	peer     *peer   // the server that sent the result
	received time.Time
	fresh    time.Time // until when the server allows the use of the result
	until    time.Time // when the entry is removed
	change   uint64    // changes.all when the request was sent
	outdated bool      // the server reported a change of this result
}

func (e *entry) size() int64 {
	return int64(len(e.raw)+2*len(e.key.about)+len(e.key.method)) + entryBytes
}

// begin returns the changes so far. Call it before a request, and pass the result to
// keep.
func (c *cache) begin(method string) changes {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.of(method)
}

// of returns the changes of a method. The caller holds the lock.
func (c *cache) of(method string) *changes {
	if c.changes[method] == nil {
		if c.changes == nil {
			c.changes = make(map[string]*changes)
		}
		c.changes[method] = new(changes)
	}
	return c.changes[method]
}

// keep keeps a result for its lifetime, and at least for as long as stale, unless a
// change was reported since begin.
func (c *cache) keep(key cacheKey, begun changes, said *protocol.CacheableResult, next *string, from attempt, stale time.Duration) {
	var lifetime time.Duration
	if said.TTLMs != nil && from.peer.Modern() { // only modern revisions have this field
		lifetime = time.Duration(min(max(*said.TTLMs, 0), maxLifetime.Milliseconds())) * time.Millisecond
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(key) // the new result replaces the entry, or must not be kept
	now := time.Now()
	e := &entry{
		key: key, raw: from.raw, next: next, peer: from.peer, change: begun.all,
		received: now, fresh: now.Add(lifetime), until: now.Add(max(lifetime, min(stale, maxLifetime))),
	}
	if !e.until.After(now) || e.size() > c.limit || begun != *c.of(key.method) {
		return
	}
	if c.entries == nil {
		c.entries = make(map[cacheKey]*linked.Element)
	}
	if len(c.entries) >= c.sweepAt {
		for key, e := range c.entries {
			if !now.Before(e.Value.(*entry).until) {
				c.drop(key)
			}
		}
		c.sweepAt = max(64, 2*len(c.entries))
	}
	c.entries[key] = c.recent.PushFront(e)
	c.bytes += e.size()
	for c.bytes > c.limit {
		c.drop(c.recent.Back().Value.(*entry).key)
	}
}

// drop removes a result. The caller holds the lock.
func (c *cache) drop(key cacheKey) {
	if e, ok := c.entries[key]; ok {
		c.bytes -= c.recent.Remove(e).(*entry).size()
		delete(c.entries, key)
	}
}

// find returns a result of the present server that may still be used, or, if stale
// is positive, any that is at most that old.
func (c *cache) find(key cacheKey, now *peer, stale time.Duration) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.look(key, now, stale)
	if e != nil {
		c.recent.MoveToFront(c.entries[key])
	}
	return e
}

// look is find for a caller that holds the lock.
func (c *cache) look(key cacheKey, present *peer, stale time.Duration) *entry {
	element, ok := c.entries[key]
	if !ok {
		return nil
	}
	e, now := element.Value.(*entry), time.Now()
	switch {
	case !now.Before(e.until):
		c.drop(key)
		return nil
	case stale > 0 && now.Sub(e.received) <= stale:
		return e
	case stale > 0 || !now.Before(e.fresh) || e.peer != present || e.outdated || e.change != c.of(key.method).all:
		return nil
	}
	return e
}

// whole returns what find returns for every page of a list. It returns nil if a page is
// missing.
func (c *cache) whole(method string, present *peer, stale time.Duration) map[cacheKey]*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	pages, key := make(map[cacheKey]*entry), keyOf(method, nil)
	for range MaxPages {
		e := c.look(key, present, stale)
		if e == nil {
			return nil
		}
		if pages[key] = e; e.next == nil {
			return pages
		}
		key = keyOf(method, e.next)
	}
	return nil
}

// forget drops all pages of a list whose cursor is no longer valid.
func (c *cache) forget(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range maps.Clone(c.entries) {
		if key.method == method {
			c.drop(key)
		}
	}
}

// clear drops everything, including results that have not arrived yet.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries, c.bytes = nil, 0
	c.recent.Init()
	for _, changes := range c.changes {
		changes.all++
	}
}

// changed handles a report that the results of some methods may have changed. The
// results stay for calls that accept stale ones.
func (c *cache) changed(methods ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, method := range methods {
		c.of(method).all++
	}
}

// updated handles a report that some resources, or ones below them, have changed. A
// server chooses the URIs, and may send millions of them, or some of several megabytes.
// So updated makes one search for each kept result, and does not look at the parts of a
// URI.
func (c *cache) updated(uris ...string) {
	if len(uris) == 0 {
		return
	}
	changed := slices.Sorted(slices.Values(uris))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(protocol.MethodReadResource).some++
	for key, e := range c.entries {
		if key.method == protocol.MethodReadResource && anyWithin(changed, key.about) {
			e.Value.(*entry).outdated = true
		}
	}
}

// anyWithin reports whether one of the sorted URIs is the resource or is below it, that
// is, begins with the resource's URI and a slash.
func anyWithin(sorted []string, resource string) bool {
	if _, ok := slices.BinarySearch(sorted, resource); ok {
		return true
	}
	directory := resource
	if !strings.HasSuffix(resource, "/") {
		directory += "/"
	}
	i, _ := slices.BinarySearch(sorted, directory)
	return i < len(sorted) && strings.HasPrefix(sorted[i], directory)
}

// affected contains, for each notification, the methods whose results may have changed.
var affected = map[string][]string{
	protocol.NotificationToolsListChanged:     {protocol.MethodListTools},
	protocol.NotificationPromptsListChanged:   {protocol.MethodListPrompts},
	protocol.NotificationResourcesListChanged: {protocol.MethodListResources, protocol.MethodListResourceTemplates, protocol.MethodReadResource},
}

// ClearCache empties the session's cache; see Options.CacheBytes. Call it when the
// session changes to the credentials of another user.
func (s *Session) ClearCache() { s.cache.clear() }

// receive handles a notification from the server.
func (c *cache) receive(in *conn.Incoming) {
	if methods, ok := affected[in.Method]; ok {
		c.changed(methods...)
		return
	}
	var updated protocol.ResourceUpdatedParams
	if in.Method == protocol.NotificationResourcesUpdated && protocol.Unmarshal(in.Params, &updated) == nil {
		c.updated(updated.URI)
	}
}

// granted handles the acknowledgement of a subscription: changes before it were not
// reported.
func (c *cache) granted(granted *protocol.SubscriptionFilter) {
	for notification, reports := range map[string]bool{
		protocol.NotificationToolsListChanged:     granted.ToolsListChanged,
		protocol.NotificationPromptsListChanged:   granted.PromptsListChanged,
		protocol.NotificationResourcesListChanged: granted.ResourcesListChanged,
	} {
		if reports {
			c.changed(affected[notification]...)
		}
	}
	c.updated(granted.ResourceSubscriptions...)
}

// cached says which results of a method are kept.
type cached[P, R any] struct {
	about func(*P) (*string, protocol.Meta) // what the result depends on: the cursor or URI
	hints func(*R) *protocol.CacheableResult
	next  func(*R) *string // the cursor of the next page; nil if the result is not a list
}

// mayCache reports whether the result of a request may come from the cache, and be kept.
// It may not if the session has no cache or is ending, or if the request has _meta of its
// own or answers to questions, on which the result may depend.
func (m *method[P, R, Q]) mayCache(s *Session, params *P) bool {
	if s.cache.limit < 0 || s.isOver() || s.conn.State() == conn.Closing {
		return false
	}
	if _, meta := m.cached.about(params); len(meta) > 0 {
		return false
	}
	return m.input == nil || m.input(params).InputResponses == nil && m.input(params).RequestState == nil
}

// keep keeps the result of a request, unless questions led to it or it asks some.
func (m *method[P, R, Q]) keep(s *Session, key cacheKey, begun changes, result *R, last attempt) {
	if last.asked || m.asksIn(result) != nil {
		return
	}
	var next *string
	if m.cached.next != nil {
		next = m.cached.next(result)
	}
	s.cache.keep(key, begun, m.cached.hints(result), next, last, s.options.MaxStale)
}

// fresh finds a result that the server allows to be used now.
func (m *method[P, R, Q]) fresh(s *Session, key cacheKey) (*R, attempt, bool) {
	e, pages := (*entry)(nil), s.options.pages
	switch {
	case pages != nil && pages.all != nil:
		e = pages.all[key]
	case s.options.Fresh:
	case pages != nil:
		e = pages.fresh[key]
	default:
		e = s.cache.find(key, s.peer.Load(), 0)
	}
	if e == nil || s.options.Epoch != 0 && e.peer.Epoch() != s.options.Epoch {
		return nil, attempt{}, false
	}
	return m.reuse(s, e)
}

// stale finds a result for a caller that accepts an old one while the server is away.
func (m *method[P, R, Q]) stale(s *Session, key cacheKey) (*R, attempt, bool) {
	e, pages := (*entry)(nil), s.options.pages
	switch {
	case s.options.MaxStale <= 0, s.options.Epoch != 0:
	case pages != nil:
		e = pages.stale[key]
	default:
		e = s.cache.find(key, nil, s.options.MaxStale)
	}
	if e == nil {
		return nil, attempt{}, false
	}
	return m.reuse(s, e)
}

func (m *method[P, R, Q]) reuse(s *Session, e *entry) (*R, attempt, bool) {
	result, err := m.read(s.session, e.raw, new(R), e.peer, false)
	if err != nil {
		return nil, attempt{}, false
	}
	m.cached.hints(result).Received = e.received
	return result, attempt{peer: e.peer, raw: e.raw, fromCache: true}, true
}

// cachedPages are the pages of a list in the cache. A range over the list uses all of them
// or none, because pages of different times do not fit together.
type cachedPages struct {
	fresh, stale map[cacheKey]*entry // nil if a page is missing
	all          map[cacheKey]*entry // the pages that the range uses; nil: none, or it has not begun
}

// cachedPages finds all pages of a list.
func (s *Session) cachedPages(method string) *cachedPages {
	pages := &cachedPages{fresh: s.cache.whole(method, s.peer.Load(), 0)}
	if s.options.MaxStale > 0 {
		pages.stale = s.cache.whole(method, nil, s.options.MaxStale)
	}
	return pages
}

// begun returns the pages that a range continues with. FromCache says that its first page
// came from the cache, and not from the server.
func (p *cachedPages) begun(fromCache bool) *cachedPages {
	switch {
	case !fromCache:
		return new(cachedPages)
	case p.stale != nil:
		return &cachedPages{all: p.stale}
	default:
		return &cachedPages{all: p.fresh}
	}
}
