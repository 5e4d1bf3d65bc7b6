package cache

import (
	linked "container/list"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
)

// These limits apply to every cache, whatever a server allows.
const (
	DefaultBytes = 16 << 20
	maxLifetime  = 24 * time.Hour
	entryBytes   = 512 // what an entry costs in addition to its key and its result
)

// A Cache keeps results of one session (ADR-0035). It keeps them encoded, so that each
// caller gets its own values. S is who sent a result: two servers are the same if
// they are equal.
type Cache[S comparable] struct {
	Limit int64 // in bytes, set before the first use; negative: there is no cache

	mu      sync.Mutex
	bytes   int64
	entries map[Key]*linked.Element // elements are *Entry[S]
	recent  linked.List             // the most recently used comes first
	sweepAt int                     // at how many entries the cache next removes expired ones
	changes map[string]*Changes     // the changes reported so far, by method
}

// A Key identifies a request whose result may be kept: the method, and the cursor
// or the URI. Nothing else in the request affects its result. The first page of a list has
// no cursor, and the empty string is one.
type Key struct {
	method, about string
	first         bool
}

// KeyOf returns the key of a request with a cursor or URI; nil for none.
func KeyOf(method string, about *string) Key {
	if about == nil {
		return Key{method: method, first: true}
	}
	return Key{method: method, about: *about}
}

// Changes counts the changes that were reported for one method.
type Changes struct {
	all  uint64 // how often all results may have changed
	some uint64 // how often any result may have changed
}

// An Entry is a result in the cache. Nobody changes it.
type Entry[S comparable] struct {
	Raw      json.RawMessage
	Next     *string   // the cursor of the next page; nil: none, or the result is not a list
	Server   S         // who sent the result
	Received time.Time // when; Keep sets it

	key      Key
	fresh    time.Time // until when the server allows the use of the result
	until    time.Time // when the entry is removed
	change   uint64    // Changes.all when the request was sent
	outdated bool      // the server reported a change of this result; guarded by the lock of the cache
}

func (e *Entry[S]) size() int64 {
	return int64(len(e.Raw)+2*len(e.key.about)+len(e.key.method)) + entryBytes
}

// Begin returns the changes so far. Call it before a request, and pass the result to
// Keep.
func (c *Cache[S]) Begin(method string) Changes {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.of(method)
}

// of returns the changes of a method. The caller holds the lock.
func (c *Cache[S]) of(method string) *Changes {
	if c.changes[method] == nil {
		if c.changes == nil {
			c.changes = make(map[string]*Changes)
		}
		c.changes[method] = new(Changes)
	}
	return c.changes[method]
}

// Keep keeps a result for the lifetime that its server allows, and at least for as long as stale,
// unless a change was reported since Begin.
func (c *Cache[S]) Keep(key Key, begun Changes, e Entry[S], lifetime, stale time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(key) // the new result replaces the entry, or must not be kept
	now := time.Now()
	e.key, e.Received, e.change = key, now, begun.all
	e.fresh, e.until = now.Add(lifetime), now.Add(max(lifetime, min(stale, maxLifetime)))
	if !e.until.After(now) || e.size() > c.Limit || begun != *c.of(key.method) {
		return
	}
	if c.entries == nil {
		c.entries = make(map[Key]*linked.Element)
	}
	if len(c.entries) >= c.sweepAt {
		for key, old := range c.entries {
			if !now.Before(old.Value.(*Entry[S]).until) {
				c.drop(key)
			}
		}
		c.sweepAt = max(64, 2*len(c.entries))
	}
	c.entries[key] = c.recent.PushFront(&e)
	c.bytes += e.size()
	for c.bytes > c.Limit {
		c.drop(c.recent.Back().Value.(*Entry[S]).key)
	}
}

// Lifetime returns for how long a server allows the use of a result. Only the modern revisions
// say that.
func Lifetime(said *protocol.CacheableResult, modern bool) time.Duration {
	if said.TTLMs == nil || !modern {
		return 0
	}
	return time.Duration(min(max(*said.TTLMs, 0), maxLifetime.Milliseconds())) * time.Millisecond
}

// drop removes a result. The caller holds the lock.
func (c *Cache[S]) drop(key Key) {
	if e, ok := c.entries[key]; ok {
		c.bytes -= c.recent.Remove(e).(*Entry[S]).size()
		delete(c.entries, key)
	}
}

// find returns a result of the present server that may still be used, or, if stale
// is positive, any that is at most that old. It returns nil for none.
func (c *Cache[S]) find(key Key, present S, stale time.Duration) *Entry[S] {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.look(key, present, stale)
	if e != nil {
		c.recent.MoveToFront(c.entries[key])
	}
	return e
}

// look is find for a caller that holds the lock.
func (c *Cache[S]) look(key Key, present S, stale time.Duration) *Entry[S] {
	element, ok := c.entries[key]
	if !ok {
		return nil
	}
	e, now := element.Value.(*Entry[S]), time.Now()
	switch {
	case !now.Before(e.until):
		c.drop(key)
		return nil
	case stale > 0 && now.Sub(e.Received) <= stale:
		return e
	case stale > 0 || !now.Before(e.fresh) || e.Server != present || e.outdated || e.change != c.of(key.method).all:
		return nil
	}
	return e
}

// whole returns what find returns for every page of a list. It returns nil if a page is
// missing, or if there are more than most.
func (c *Cache[S]) whole(method string, most int, present S, stale time.Duration) map[Key]*Entry[S] {
	c.mu.Lock()
	defer c.mu.Unlock()
	pages, key := make(map[Key]*Entry[S]), KeyOf(method, nil)
	for range most {
		e := c.look(key, present, stale)
		if e == nil {
			return nil
		}
		if pages[key] = e; e.Next == nil {
			return pages
		}
		key = KeyOf(method, e.Next)
	}
	return nil
}

// Forget drops all pages of a list whose cursor is no longer valid.
func (c *Cache[S]) Forget(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range maps.Clone(c.entries) {
		if key.method == method {
			c.drop(key)
		}
	}
}

// Clear drops everything, including results that have not arrived yet.
func (c *Cache[S]) Clear() {
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
func (c *Cache[S]) changed(methods ...string) {
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
func (c *Cache[S]) updated(uris ...string) {
	if len(uris) == 0 {
		return
	}
	changed := slices.Sorted(slices.Values(uris))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(protocol.MethodReadResource).some++
	for key, e := range c.entries {
		if key.method == protocol.MethodReadResource && anyWithin(changed, key.about) {
			e.Value.(*Entry[S]).outdated = true
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

// affected contains, for each notification, the methods whose results may have changed. Granted
// names the same notifications.
var affected = map[string][]string{
	protocol.NotificationToolsListChanged:     {protocol.MethodListTools},
	protocol.NotificationPromptsListChanged:   {protocol.MethodListPrompts},
	protocol.NotificationResourcesListChanged: {protocol.MethodListResources, protocol.MethodListResourceTemplates, protocol.MethodReadResource},
}

// Receive handles a notification from the server.
func (c *Cache[S]) Receive(method string, params json.RawMessage) {
	if methods, ok := affected[method]; ok {
		c.changed(methods...)
		return
	}
	var updated protocol.ResourceUpdatedParams
	if method == protocol.NotificationResourcesUpdated && protocol.Unmarshal(params, &updated) == nil {
		c.updated(updated.URI)
	}
}

// Granted handles the acknowledgement of a subscription: changes before it were not
// reported.
func (c *Cache[S]) Granted(granted *protocol.SubscriptionFilter) {
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
