package cache

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const list = protocol.MethodListTools

func page(cursor string) Key { return KeyOf(list, &cursor) }

// keep keeps a result of server 1 for so long.
func (c *Cache[S]) keep(key Key, raw string, server S, lifetime, stale time.Duration) {
	c.Keep(key, c.Begin(key.method), Entry[S]{Raw: []byte(raw), Server: server}, lifetime, stale)
}

// holds lists the pages that may be used now, or while the server is away.
func holds(c *Cache[int], stale time.Duration, cursors ...string) (all []string) {
	for _, cursor := range cursors {
		if e := c.Now(page(cursor), 1, Use[int]{}); stale == 0 && e != nil {
			all = append(all, cursor+"="+string(e.Raw))
		}
		if e := c.Away(page(cursor), Use[int]{MaxStale: stale}); e != nil {
			all = append(all, cursor+"="+string(e.Raw))
		}
	}
	return all
}

// sizes fails if the cache counts other bytes than it has.
func sizes(t *testing.T, c *Cache[int], what string) {
	t.Helper()
	var bytes int64
	for e := c.recent.Front(); e != nil; e = e.Next() {
		bytes += e.Value.(*Entry[int]).size()
	}
	if c.bytes != bytes || c.bytes > c.Limit || c.recent.Len() != len(c.entries) {
		t.Errorf("%s: %d bytes are counted for %d, of %d; %d entries in order of %d", what, c.bytes, bytes, c.Limit, c.recent.Len(), len(c.entries))
	}
}

// A result is used while its server allows it, and while that server is away for as long as the program does: until the instant itself then, and for a
// day at most.
//
// Guarantees: G-0035.1, G-0035.4, G-0035.5
func TestHowLongAResultIsUsed(t *testing.T) {
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		lifetime, stale, asked time.Duration
		age                    time.Duration
		now, away              bool
	}{
		"fresh":                         {time.Minute, 0, 0, time.Minute - 1, true, false},
		"no longer fresh":               {time.Minute, 0, 0, time.Minute, false, false},
		"as old as it may be":           {0, time.Hour, time.Minute, time.Minute, false, true},
		"older":                         {0, time.Hour, time.Minute, time.Minute + 1, false, false},
		"fresh, and too old while away": {time.Hour, 0, time.Minute, time.Minute + 1, true, false},
		"kept for a day":                {0, 2 * day, 2 * day, day - 1, false, true},
		"kept for no longer":            {0, 2 * day, 2 * day, day, false, false},
		"not kept":                      {0, 0, time.Minute, 0, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &Cache[int]{Limit: DefaultBytes}
			c.keep(page("a"), "1", 1, test.lifetime, test.stale)
			timer := time.NewTimer(test.age)
			<-timer.C
			now, away := c.Now(page("a"), 1, Use[int]{}) != nil, c.Away(page("a"), Use[int]{MaxStale: test.asked}) != nil
			if now != test.now || away != test.away {
				t.Errorf("%s: used %t, while the server is away %t; want %t, %t", name, now, away, test.now, test.away)
			}
			sizes(t, c, name)
		})
	}
}

// What is reported while a request is on its way concerns its result, too. A result that must not be kept replaces the one before it.
//
// Guarantees: G-0035.2
func TestWhatIsNotKept(t *testing.T) {
	read := func(uri string) Key { return KeyOf(protocol.MethodReadResource, &uri) }
	for name, test := range map[string]struct {
		key  Key
		then func(c *Cache[int])
		kept bool
	}{
		"nothing happens":      {page("a"), func(*Cache[int]) {}, true},
		"its list changes":     {page("a"), func(c *Cache[int]) { c.Receive(protocol.NotificationToolsListChanged, nil) }, false},
		"another list changes": {page("a"), func(c *Cache[int]) { c.Receive(protocol.NotificationPromptsListChanged, nil) }, true},
		"all is cleared":       {page("a"), func(c *Cache[int]) { c.Clear() }, false},
		"reports of it begin":  {page("a"), func(c *Cache[int]) { c.Granted(&protocol.SubscriptionFilter{ToolsListChanged: true}) }, false},
		"reports of another list begin": {page("a"), func(c *Cache[int]) {
			c.Granted(&protocol.SubscriptionFilter{PromptsListChanged: true, ResourcesListChanged: true})
		}, true},
		"reports of the prompts begin":   {KeyOf(protocol.MethodListPrompts, nil), func(c *Cache[int]) { c.Granted(&protocol.SubscriptionFilter{PromptsListChanged: true}) }, false},
		"reports of the tools begin":     {KeyOf(protocol.MethodListPrompts, nil), func(c *Cache[int]) { c.Granted(&protocol.SubscriptionFilter{ToolsListChanged: true}) }, true},
		"any resource changes":           {read("x"), func(c *Cache[int]) { c.Receive(protocol.NotificationResourcesUpdated, []byte(`{"uri":"y"}`)) }, false},
		"the resources change":           {read("x"), func(c *Cache[int]) { c.Receive(protocol.NotificationResourcesListChanged, nil) }, false},
		"a resource changes, not a list": {page("a"), func(c *Cache[int]) { c.Receive(protocol.NotificationResourcesUpdated, []byte(`{"uri":"a"}`)) }, true},
	} {
		c := &Cache[int]{Limit: DefaultBytes}
		c.keep(test.key, "before", 1, time.Hour, time.Hour)
		begun := c.Begin(test.key.method)
		test.then(c)
		c.Keep(test.key, begun, Entry[int]{Raw: []byte("after"), Server: 1}, time.Hour, time.Hour)
		got := c.Away(test.key, Use[int]{MaxStale: time.Hour})
		if kept := got != nil && string(got.Raw) == "after"; kept != test.kept || !test.kept && got != nil {
			t.Errorf("%s: got %+v, want the result kept: %t", name, got, test.kept)
		}
		sizes(t, c, name)
	}
}

// A full cache drops what was not used for the longest time. A result as large as the cache fits into it, and one that is larger does not.
// What has expired is removed when there are many.
//
// Guarantees: G-0035.4
func TestAFullCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := (&Entry[int]{Raw: []byte("1"), key: page("a")}).size()
		c := &Cache[int]{Limit: 3 * one}
		for _, cursor := range []string{"a", "b", "c"} {
			c.keep(page(cursor), "1", 1, time.Hour, 0)
		}
		c.Now(page("a"), 1, Use[int]{})
		c.keep(page("d"), "1", 1, time.Hour, 0)
		if got := holds(c, 0, "a", "b", "c", "d"); !slices.Equal(got, []string{"a=1", "c=1", "d=1"}) {
			t.Errorf("got %q, want all but b", got)
		}
		sizes(t, c, "one too many")
		c.keep(page("c"), strings.Repeat("x", int(2*one)+2), 1, time.Hour, 0) // larger than all
		if got := holds(c, 0, "a", "c", "d"); !slices.Equal(got, []string{"a=1", "d=1"}) {
			t.Errorf("got %q, want a and d", got)
		}
		c.keep(page("c"), strings.Repeat("x", int(2*one)+1), 1, time.Hour, 0) // as large
		if got := holds(c, 0, "a", "c", "d"); len(got) != 1 || got[0][0] != 'c' {
			t.Errorf("got %d results, want c alone", len(got))
		}
		sizes(t, c, "a large one")
		c.Clear()
		sizes(t, c, "cleared")
		c.Limit = DefaultBytes
		for n := range 64 {
			c.keep(page(fmt.Sprint(n)), "1", 1, time.Minute, 0)
		}
		timer := time.NewTimer(time.Minute)
		<-timer.C
		c.keep(page("last"), "1", 1, time.Minute, 0)
		if len(c.entries) != 1 {
			t.Errorf("%d results are kept, want the one that has not expired", len(c.entries))
		}
		sizes(t, c, "expired")
	})
}

// A range over a list uses all of its pages or none, up to as many as it may have. One that has begun with them goes on with them, also if it
// wants no kept results, or they are outdated. Those of another server are for when it is away.
//
// Guarantees: G-0035.3, G-0035.5
func TestPagesOfAList(t *testing.T) {
	c := &Cache[int]{Limit: DefaultBytes}
	second := "2"
	first := KeyOf(list, nil)
	c.Keep(first, c.Begin(list), Entry[int]{Raw: []byte("1"), Next: &second, Server: 1}, time.Hour, 0)
	c.keep(page("2"), "2", 1, time.Hour, 0)
	c.keep(KeyOf(protocol.MethodListPrompts, nil), "p", 1, time.Hour, 0)
	use := Use[int]{Pages: c.PagesOf(list, 2, 1, 0)}
	if c.Now(first, 1, use) == nil || c.Away(first, use) != nil {
		t.Error("the pages are not used, or as if the server were away")
	}
	for what, pages := range map[string]*Pages[int]{"one page is allowed": c.PagesOf(list, 1, 1, 0), "another server": c.PagesOf(list, 2, 7, 0)} {
		if e := c.Now(first, 1, Use[int]{Pages: pages}); e != nil {
			t.Errorf("%s: got %s, want none", what, e.Raw)
		}
	}
	begun := use.Pages.Begun(true)
	c.Receive(protocol.NotificationToolsListChanged, nil)
	if e := c.Now(page("2"), 1, Use[int]{Pages: begun, Fresh: true}); e == nil || string(e.Raw) != "2" {
		t.Errorf("got %v, want the second page of a range that has begun", e)
	}
	if e := c.Now(page("2"), 1, Use[int]{Pages: use.Pages.Begun(false)}); e != nil {
		t.Errorf("got %s for a range that has begun with the server, want none", e.Raw)
	}
	away := Use[int]{Pages: c.PagesOf(list, 2, 7, time.Hour), MaxStale: time.Hour}
	if c.Now(first, 7, away) != nil || c.Away(first, away) == nil || c.Now(page("2"), 7, Use[int]{Pages: away.Pages.Begun(true)}) == nil {
		t.Error("the pages of another server are used, or not while it is away")
	}
	c.drop(page("2"))
	if gap := c.PagesOf(list, 2, 7, time.Hour); c.Away(first, Use[int]{Pages: gap, MaxStale: time.Hour}) != nil {
		t.Error("a list with a gap is used")
	}
	c.Forget(list)
	if c.Away(first, Use[int]{MaxStale: time.Hour}) != nil || c.Now(KeyOf(protocol.MethodListPrompts, nil), 1, Use[int]{}) == nil {
		t.Error("Forget forgets another list, or not its own")
	}
	sizes(t, c, "forgotten")
}

// Expired results are removed even if nobody asks for them.
func TestExpiredResultsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Cache[string]{Limit: 1 << 30}
		for i := range 10_000 {
			key := Key{method: protocol.MethodReadResource, about: fmt.Sprint(i)}
			c.Keep(key, c.Begin(key.method), Entry[string]{Server: "s"}, time.Second, 0)
			timer := time.NewTimer(100 * time.Millisecond)
			<-timer.C
		}
		if n := len(c.entries); n > 100 {
			t.Errorf("%d results are kept of which ten are valid, want 100 at most", n)
		}
	})
}

// A notification of an update invalidates the resources that it names and those that
// contain them, and no others.
//
// Guarantees: G-0035.2
func TestResourcesThatAnUpdateInvalidates(t *testing.T) {
	for _, test := range []struct {
		reported []string
		ended    []string
	}{
		{nil, nil},
		{[]string{"x://a"}, []string{"x://a", "x://", "x:/", "x:"}},
		{[]string{"x://a/b/c"}, []string{"x://a/b/c", "x://a/b/", "x://a/b", "x://a/", "x://a", "x://", "x:/", "x:"}},
		{[]string{"x://a/"}, []string{"x://a/", "x://a", "x://", "x:/", "x:"}},
		{[]string{"x://ab", "y", ""}, []string{"", "x://ab", "x://", "x:/", "x:"}},
		{[]string{"/a"}, []string{"", "/"}},
		{[]string{"x://a/b!", "x://a!"}, []string{"x://a/", "x://a", "x://", "x:/", "x:"}},
	} {
		c := &Cache[string]{Limit: 1 << 20}
		for _, uri := range []string{"", "/", "x:", "x:/", "x://", "x://a", "x://a/", "x://a/b", "x://a/b/", "x://a/b/c", "x://a/b/c/", "x://a/c", "x://ab", "z"} {
			for _, method := range []string{protocol.MethodReadResource, protocol.MethodListResources} {
				c.Keep(Key{method: method, about: uri}, c.Begin(method), Entry[string]{Server: "s"}, time.Second, 0)
			}
		}
		c.updated(test.reported...)
		for key := range c.entries {
			ended := key.method == protocol.MethodReadResource && slices.Contains(test.ended, key.about)
			if found := c.find(key, "s", 0) != nil; found == ended {
				t.Errorf("after an update of %q: found %s of %q: %t", test.reported, key.method, key.about, found)
			}
		}
	}
}

// The work for a notification does not depend on the length of its URI, the number of
// slashes in it, or the number of URIs in the cache. Otherwise it would take hours
// here.
func TestHostileUpdatesTakeBoundedWork(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c := &Cache[string]{Limit: 16 << 20}
		for i := range 20_000 {
			key := Key{method: protocol.MethodReadResource, about: fmt.Sprintf("a/%d", i)}
			c.Keep(key, c.Begin(key.method), Entry[string]{Server: "s"}, time.Hour, 0)
		}
		c.updated(strings.Repeat("a/", 8<<20))
		c.Granted(&protocol.SubscriptionFilter{ResourceSubscriptions: slices.Repeat([]string{"a/19999/", "b"}, 500_000)})
		for key := range c.entries {
			if found := c.find(key, "s", 0) != nil; found == (key.about == "a/19999") {
				t.Errorf("found %s: %t", key.about, found)
			}
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("the notification still takes time, want it to be done")
	}
}

// The lifetime that a server gives counts only in the modern revisions, and is between nothing and a day.
//
// Guarantees: G-0035.1, G-0035.4
func TestLifetimes(t *testing.T) {
	for said, want := range map[int64]time.Duration{-1: 0, 0: 0, 1500: 1500 * time.Millisecond, 1 << 62: 24 * time.Hour} {
		hints := &protocol.CacheableResult{TTLMs: &said}
		if modern, legacy := Lifetime(hints, true), Lifetime(hints, false); modern != want || legacy != 0 {
			t.Errorf("%d ms: %v, and %v in the legacy revisions, want %v and none", said, modern, legacy, want)
		}
	}
	if got := Lifetime(new(protocol.CacheableResult), true); got != 0 {
		t.Errorf("without a lifetime: %v, want none", got)
	}
}
