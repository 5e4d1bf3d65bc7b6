package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
)

// Whatever is kept, found, dropped and outdated, the books are right and the bound
// holds, and what nobody can use goes by itself.
//
// Guarantees: G-0035.4
func TestTheBooksOfACache(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random, c, p := rand.New(rand.NewPCG(seed, 0)), &cache{limit: 20_000}, &peer{requestMeta: requestMeta{members: protocol.Meta{}}}
			for range 500 {
				key := cacheKey{protocol.MethodReadResource, fmt.Sprintf("x://%d/%d", random.IntN(5), random.IntN(40))}
				switch random.IntN(8) {
				case 0:
					c.updated(key.about)
				case 1:
					c.changed(key.method)
				case 2:
					c.find(key, p, time.Duration(random.IntN(3))*time.Second)
				case 3:
					c.whole(key.method, p, 0)
				case 4:
					if random.IntN(20) == 0 {
						c.forget(key.method)
					}
				default:
					ttl := random.Int64N(10_000)
					c.keep(key, c.begin(key.method), &protocol.CacheableResult{TTLMs: &ttl}, nil, attempt{peer: p, raw: make([]byte, random.IntN(2000))}, time.Duration(random.IntN(9))*time.Second)
				}
				timer := time.NewTimer(time.Duration(random.IntN(300)) * time.Millisecond)
				<-timer.C
				var sum int64
				for _, e := range c.entries {
					sum += e.Value.(*entry).size()
				}
				if sum != c.bytes || sum > c.limit || len(c.entries) != c.recent.Len() {
					t.Fatalf("seed %d: %d bytes in %d entries, %d in the list; the books say %d", seed, sum, len(c.entries), c.recent.Len(), c.bytes)
				}
			}
			if c.clear(); c.bytes != 0 || len(c.entries) != 0 || c.recent.Len() != 0 {
				t.Errorf("seed %d: something is left", seed)
			}
		})
	}
}

func TestWhatIsOverIsSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, second := &cache{limit: 1 << 30}, &peer{requestMeta: requestMeta{members: protocol.Meta{}}}, int64(1000)
		for i := range 10_000 {
			key := cacheKey{protocol.MethodReadResource, fmt.Sprint(i)}
			c.keep(key, c.begin(key.method), &protocol.CacheableResult{TTLMs: &second}, nil, attempt{peer: p}, 0)
			timer := time.NewTimer(100 * time.Millisecond)
			<-timer.C
		}
		if n := len(c.entries); n > 100 {
			t.Errorf("%d results are there, and ten of use", n)
		}
	})
}

// A report ends what is kept of the resources it names and of those that contain them,
// and of no others.
//
// Guarantees: G-0035.2
func TestWhichResourcesAReportEnds(t *testing.T) {
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
				c.keep(cacheKey{method, uri}, c.begin(method), &protocol.CacheableResult{TTLMs: &ttl}, nil, attempt{peer: p}, 0)
			}
		}
		c.updated(test.reported...)
		for key := range c.entries {
			ended := key.method == protocol.MethodReadResource && slices.Contains(test.ended, key.about)
			if found := c.find(key, p, 0) != nil; found == ended {
				t.Errorf("a report of %q: %s of %q was found: %t", test.reported, key.method, key.about, found)
			}
		}
	}
}

// Neither the length of a URI, nor the slashes in it, nor the number of URIs multiplies
// the work of a report: it would take hours then.
func TestHostileReportsEnd(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, p, ttl := &cache{limit: 16 << 20}, &peer{requestMeta: requestMeta{members: protocol.Meta{}}}, int64(time.Hour/time.Millisecond)
		for i := range 20_000 {
			key := cacheKey{protocol.MethodReadResource, fmt.Sprintf("a/%d", i)}
			c.keep(key, c.begin(key.method), &protocol.CacheableResult{TTLMs: &ttl}, nil, attempt{peer: p}, 0)
		}
		c.updated(strings.Repeat("a/", 8<<20))
		c.granted(&protocol.SubscriptionFilter{ResourceSubscriptions: slices.Repeat([]string{"a/19999/", "b"}, 500_000)})
		for key := range c.entries {
			if found := c.find(key, p, 0) != nil; found == (key.about == "a/19999") {
				t.Errorf("%s was found: %t", key.about, found)
			}
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("the report is still being worked on")
	}
}
