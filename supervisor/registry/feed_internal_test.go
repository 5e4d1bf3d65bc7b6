package registry

import (
	"context"
	"fmt"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// What waits for a watcher is bounded by the names there are and those it was
// told of, whatever happens meanwhile.
//
// Guarantees: G-0013.5
func TestFeedIsBounded(t *testing.T) {
	f := newFeed[int]()
	for n := range 10 {
		f.set(fmt.Sprint("told ", n), 1, nil)
	}
	for range 10 {
		f.next()
	}
	for n := range 10_000 {
		name := fmt.Sprint("passing ", n)
		f.set(name, 1, nil)
		f.set(name, 2, nil)
		f.set(name, 0, nil)
		f.set(fmt.Sprint("told ", n%10), n%3, nil)
		if len(f.pending) > 10 || f.order.Len() != len(f.pending) || len(f.seen) != 10 {
			t.Fatalf("after %d changes of 10 names %d wait, %d in order, of %d told", n, len(f.pending), f.order.Len(), len(f.seen))
		}
	}
	for _, ok := f.next(); ok; _, ok = f.next() {
	}
	for n := range 10 {
		f.set(fmt.Sprint("told ", n), 0, nil)
		f.next()
	}
	if len(f.seen) > 0 || len(f.pending) > 0 {
		t.Errorf("%d names are kept as told, %d as due, and there is none", len(f.seen), len(f.pending))
	}
}

// A watcher that is busy when something happens finds it when it waits.
//
// Guarantees: G-0013.4
func TestFeedKeepsItsWake(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	f := newFeed[int]()
	if f.await(ended) {
		t.Error("nothing has happened, and it was awake")
	}
	f.set("n", 1, nil)
	f.set("m", 1, nil)
	if !f.await(t.Context()) || f.await(ended) {
		t.Error("it was not awake once")
	}
}

// A Registry keeps nothing of watchers that have left.
//
// Guarantees: G-0013.6
func TestWatchersLeave(t *testing.T) {
	names := new(Local)
	r := New(Options{Store: names})
	if _, err := names.Claim(t.Context(), Claim{Name: "n", Holder: "h"}); err != nil {
		t.Fatal(err)
	}
	if err := r.Register(t.Context(), "m", conn.New(inmem.New(func(transport.Link) {}, inmem.Options{}), conn.Options{})); err != nil {
		t.Fatal(err)
	}
	told := 0
	for range r.Holders(t.Context()) {
		told++
		break
	}
	for range r.Watch(t.Context()) {
		told++
		break
	}
	if told != 2 {
		t.Errorf("told %d times", told)
	}
	if len(r.feeds) > 0 || len(names.feeds) > 0 {
		t.Errorf("%d and %d watchers are kept", len(r.feeds), len(names.feeds))
	}
}
