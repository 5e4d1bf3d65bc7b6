package cache

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
