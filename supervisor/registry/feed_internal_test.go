package registry

import (
	"context"
	"fmt"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// The changes that wait for a watcher are no more than the names that exist and those that it has seen,
// however many changes there are.
//
// Guarantees: G-0013.5
func TestFeedIsBounded(t *testing.T) {
	f := newFeed[int]()
	for n := range 10 {
		f.set(fmt.Sprint("seen ", n), 1, nil)
	}
	for range 10 {
		f.next()
	}
	for n := range 10_000 {
		name := fmt.Sprint("passing ", n)
		f.set(name, 1, nil)
		f.set(name, 2, nil)
		f.set(name, 0, nil)
		f.set(fmt.Sprint("seen ", n%10), n%3, nil)
		if len(f.pending) > 10 || f.order.Len() != len(f.pending) || len(f.seen) != 10 {
			t.Fatalf("after %d changes: %d wait, %d in order, %d seen; want 10 at most, the same, 10",
				n, len(f.pending), f.order.Len(), len(f.seen))
		}
	}
	for range 10 {
		f.next()
	}
	if u, ok := f.next(); ok {
		t.Errorf("%v waits behind ten changes, want none", u)
	}
	for n := range 10 {
		f.set(fmt.Sprint("seen ", n), 0, nil)
		f.next()
	}
	if len(f.seen) > 0 || len(f.pending) > 0 {
		t.Errorf("%d names are seen and %d wait, want none", len(f.seen), len(f.pending))
	}
}

// Changes that happen while a watcher is busy wake it once, when it waits next.
//
// Guarantees: G-0013.4
func TestFeedWakesABusyWatcherOnce(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	f := newFeed[int]()
	if f.await(ended) {
		t.Error("await returned true without a change")
	}
	f.set("n", 1, nil)
	f.set("m", 1, nil)
	if !f.await(t.Context()) || f.await(ended) {
		t.Error("want await to return true exactly once after two changes")
	}
}

// A Registry keeps no memory for watchers that have ended.
//
// Guarantees: G-0013.6
func TestWatchersLeave(t *testing.T) {
	names := new(Local)
	r := New(Options{Store: names})
	if _, err := names.Claim(t.Context(), Claim{Name: "n", Holder: "h"}); err != nil {
		t.Fatal(err)
	}
	changes := 0
	testenv.Within(t, "a name, and the first change of each watcher", func() {
		if err := r.Register(t.Context(), "m", conn.New(inmem.New(func(transport.Link) {}, inmem.Options{}), conn.Options{})); err != nil {
			t.Error(err)
		}
		for range r.Holders(t.Context()) {
			changes++
			break
		}
		for range r.Watch(t.Context()) {
			changes++
			break
		}
	})
	if changes != 2 {
		t.Errorf("%d changes were reported, want 2", changes)
	}
	if len(r.feeds) > 0 || len(names.feeds) > 0 {
		t.Errorf("%d and %d watchers are kept, want none", len(r.feeds), len(names.feeds))
	}
}
