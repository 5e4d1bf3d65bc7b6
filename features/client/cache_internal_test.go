package client

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
)

// Expired results are removed even if nobody asks for them.
func TestExpiredResultsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, second := &cache{limit: 1 << 30}, &peer{requestMeta: requestMeta{members: protocol.Meta{}}}, int64(1000)
		for i := range 10_000 {
			key := cacheKey{method: protocol.MethodReadResource, about: fmt.Sprint(i)}
			c.keep(key, c.begin(key.method), &protocol.CacheableResult{TTLMs: &second}, nil, attempt{peer: p}, 0)
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
		c, p, ttl := &cache{limit: 1 << 20}, &peer{requestMeta: requestMeta{members: protocol.Meta{}}}, int64(1000)
		for _, uri := range []string{"", "/", "x:", "x:/", "x://", "x://a", "x://a/", "x://a/b", "x://a/b/", "x://a/b/c", "x://a/b/c/", "x://a/c", "x://ab", "z"} {
			for _, method := range []string{protocol.MethodReadResource, protocol.MethodListResources} {
				c.keep(cacheKey{method: method, about: uri}, c.begin(method), &protocol.CacheableResult{TTLMs: &ttl}, nil, attempt{peer: p}, 0)
			}
		}
		c.updated(test.reported...)
		for key := range c.entries {
			ended := key.method == protocol.MethodReadResource && slices.Contains(test.ended, key.about)
			if found := c.find(key, p, 0) != nil; found == ended {
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
		c, p, ttl := &cache{limit: 16 << 20}, &peer{requestMeta: requestMeta{members: protocol.Meta{}}}, int64(time.Hour/time.Millisecond)
		for i := range 20_000 {
			key := cacheKey{method: protocol.MethodReadResource, about: fmt.Sprintf("a/%d", i)}
			c.keep(key, c.begin(key.method), &protocol.CacheableResult{TTLMs: &ttl}, nil, attempt{peer: p}, 0)
		}
		c.updated(strings.Repeat("a/", 8<<20))
		c.granted(&protocol.SubscriptionFilter{ResourceSubscriptions: slices.Repeat([]string{"a/19999/", "b"}, 500_000)})
		for key := range c.entries {
			if found := c.find(key, p, 0) != nil; found == (key.about == "a/19999") {
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
