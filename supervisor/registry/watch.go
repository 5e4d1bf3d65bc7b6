package registry

import (
	"context"
	"fmt"
	"iter"

	"github.com/bowline-mcp/bowline/conn"
)

// A ChangeKind is what has happened to a name, as a value to switch on.
type ChangeKind string

const (
	Added    ChangeKind = "added"    // it has a Conn
	Removed  ChangeKind = "removed"  // it has none any more
	Replaced ChangeKind = "replaced" // it has another Conn
)

// A Change is the news of one name.
type Change struct {
	Kind ChangeKind
	Name string
	Conn *conn.Conn // that has the name; for Removed, that had it
	Err  error      // Removed by the Store: a *LostError; nil otherwise
}

func (c Change) String() string {
	if c.Err == nil {
		return fmt.Sprintf("%s %s", c.Name, c.Kind)
	}
	return fmt.Sprintf("%s %s: %v", c.Name, c.Kind, c.Err)
}

// Watch tells what Lookup finds: first every name there is, in order, as Added,
// then what changes, until ctx ends or the loop is left. It begins when the loop
// does, and runs on its goroutine alone.
//
// It delays nobody. A loop that is slow misses what was undone meanwhile: it is
// told of each name the newest state, if that is not what it was told last. So
// what waits for it is bounded by the names there are and those it was told of,
// and what it was told adds up to what there is. The changes of one name come in
// order. Those of several come in the order of the first that was not told.
//
// That a Conn has closed for good is told when it is unregistered, or when the
// Registry comes across it: see the package comment.
func (r *Registry) Watch(ctx context.Context) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		f := r.follow()
		defer r.leave(f)
		for ctx.Err() == nil {
			n, ok := r.next(f)
			if ok && !yield(change(n)) {
				return
			}
			if !ok && !f.await(ctx) {
				return
			}
		}
	}
}

// follow gives a new watcher a feed of all there is.
func (r *Registry) follow() *feed[*conn.Conn] {
	f := newFeed[*conn.Conn]()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, named := range ordered(r.present()) {
		f.set(named.name, named.conn, nil)
	}
	r.feeds.join(f)
	return f
}

func (r *Registry) leave(f *feed[*conn.Conn]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.feeds.leave(f)
}

func (r *Registry) next(f *feed[*conn.Conn]) (news[*conn.Conn], bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return f.next()
}

func change(n news[*conn.Conn]) Change {
	switch {
	case n.was == nil:
		return Change{Kind: Added, Name: n.name, Conn: n.now}
	case n.now == nil:
		return Change{Kind: Removed, Name: n.name, Conn: n.was, Err: n.why}
	default:
		return Change{Kind: Replaced, Name: n.name, Conn: n.now}
	}
}
