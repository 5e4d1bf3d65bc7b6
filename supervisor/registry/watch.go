package registry

import (
	"container/list"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/bowline-mcp/bowline/conn"
)

// A ChangeKind says what happened to a name.
type ChangeKind string

const (
	Added    ChangeKind = "added"    // the name has a Conn
	Removed  ChangeKind = "removed"  // the name has no Conn any more
	Replaced ChangeKind = "replaced" // the name has another Conn
)

// A Change is one change of one name.
type Change struct {
	Kind ChangeKind
	Name string
	Conn *conn.Conn // the Conn that has the name; for Removed, the one that had it
	Err  error      // a *LostError if the Store took the name away; otherwise nil
}

// String formats the change on one line.
func (c Change) String() string {
	if c.Err == nil {
		return fmt.Sprintf("%s %s", c.Name, c.Kind)
	}
	return fmt.Sprintf("%s %s: %v", c.Name, c.Kind, c.Err)
}

// Watch yields the names that Lookup finds: first all of them, in order, as
// Added, and then every change, until ctx ends or the loop is left. It runs on
// the goroutine of the loop and begins when the loop does.
//
// A slow loop delays nobody. While it is busy, Watch keeps only the newest state
// of each name, and skips changes that were undone in the meantime. What it
// keeps is bounded by the number of names. The changes that were yielded always
// add up to the content of the Registry. The changes of one name come in order.
//
// When a Conn has closed for good, Watch yields that change as soon as the Conn
// is unregistered or the Registry notices it; see the package comment.
func (r *Registry) Watch(ctx context.Context) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		f := r.subscribe()
		defer r.unsubscribe(f)
		for ctx.Err() == nil {
			u, ok := r.next(f)
			if ok && !yield(newChange(u)) {
				return
			}
			if !ok && !f.await(ctx) {
				return
			}
		}
	}
}

// subscribe returns a feed that begins with all names.
func (r *Registry) subscribe() *feed[*conn.Conn] {
	f := newFeed[*conn.Conn]()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, named := range sorted(r.present()) {
		f.set(named.name, named.conn, nil)
	}
	r.feeds.add(f)
	return f
}

func (r *Registry) unsubscribe(f *feed[*conn.Conn]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.feeds, f)
}

func (r *Registry) next(f *feed[*conn.Conn]) (update[*conn.Conn], bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return f.next()
}

func newChange(u update[*conn.Conn]) Change {
	switch {
	case u.was == nil:
		return Change{Kind: Added, Name: u.name, Conn: u.now}
	case u.now == nil:
		return Change{Kind: Removed, Name: u.name, Conn: u.was, Err: u.reason}
	default:
		return Change{Kind: Replaced, Name: u.name, Conn: u.now}
	}
}

// A Holding says who has a name: the Options.Holder of a Registry, or "" when
// the name became free.
type Holding struct {
	Name   string
	Holder string
}

// Holders yields who has which name, in all processes that share the Store:
// first all names, and then every change, until ctx ends or the loop is left. It
// runs on the goroutine of the loop.
//
// When the Store may have missed a change, Holders yields its error and no
// Holding. The loop may end there. If it goes on, after a pause of its choice,
// Holders asks the Store again and yields what is different by then. So the
// Holdings that were yielded always add up to the content of the Store.
func (r *Registry) Holders(ctx context.Context) iter.Seq2[Holding, error] {
	return func(yield func(Holding, error) bool) {
		seen := map[string]string{}
		for ctx.Err() == nil {
			err := r.watchStore(ctx, seen, func(h Holding) bool { return yield(h, nil) })
			if err == nil || ctx.Err() != nil || !yield(Holding{}, err) {
				return
			}
		}
	}
}

// watchStore yields what differs from what was seen, until the Store's watch
// ends. It returns nil when the loop was left.
func (r *Registry) watchStore(ctx context.Context, seen map[string]string, yield func(Holding) bool) error {
	first := true
	for changed, err := range r.options.Store.Watch(ctx) {
		if err != nil {
			return err
		}
		if first { // the first map has all names, so a name that is missing from it is free
			for name := range seen {
				if _, exists := changed[name]; !exists {
					changed[name] = ""
				}
			}
			first = false
		}
		for _, name := range slices.Sorted(maps.Keys(changed)) {
			holder := changed[name]
			if seen[name] == holder {
				continue
			}
			if seen[name] = holder; holder == "" {
				delete(seen, name)
			}
			if !yield(Holding{name, holder}) {
				return nil
			}
		}
	}
	return errWatchEnded
}

// A feed holds what one watcher has not seen yet: the newest state of each name
// that has changed, in the order of the first change that was not seen. The zero
// V means that the name is free. The owner of the feed locks it.
//
// It grows with the names that exist and those that the watcher has seen. A name
// that came and went in the meantime leaves nothing behind.
type feed[V comparable] struct {
	seen    map[string]V // the state of each name as the watcher has seen it
	pending map[string]*list.Element
	order   list.List     // elements are *update[V]
	wake    chan struct{} // capacity one: a token while something may be pending
}

// An update is the newest state of one name.
type update[V comparable] struct {
	name     string
	was, now V
	reason   error // why the name became free; may be nil
}

func newFeed[V comparable]() *feed[V] {
	return &feed[V]{seen: map[string]V{}, pending: map[string]*list.Element{}, wake: make(chan struct{}, 1)}
}

// set notes the state of a name.
func (f *feed[V]) set(name string, now V, reason error) {
	at, waits := f.pending[name]
	switch {
	case now == f.seen[name]:
		f.drop(name)
	case waits:
		u := at.Value.(*update[V])
		u.now, u.reason = now, reason
	default:
		f.pending[name] = f.order.PushBack(&update[V]{name: name, was: f.seen[name], now: now, reason: reason})
		select {
		case f.wake <- struct{}{}:
		default: // the channel has a token already
		}
	}
}

// next takes the oldest update.
func (f *feed[V]) next() (u update[V], ok bool) {
	first := f.order.Front()
	if first == nil {
		return u, false
	}
	u = *first.Value.(*update[V])
	f.drop(u.name)
	var free V
	if f.seen[u.name] = u.now; u.now == free {
		delete(f.seen, u.name)
	}
	return u, true
}

func (f *feed[V]) drop(name string) {
	if at, waits := f.pending[name]; waits {
		f.order.Remove(at)
		delete(f.pending, name)
	}
}

// await waits until something may be pending, and returns false when ctx ends
// first.
func (f *feed[V]) await(ctx context.Context) bool {
	select {
	case <-f.wake:
		return true
	case <-ctx.Done():
		return false
	}
}

// feeds is the set of all watchers. nil is the empty set.
type feeds[V comparable] map[*feed[V]]struct{}

func (all *feeds[V]) add(f *feed[V]) {
	if *all == nil {
		*all = feeds[V]{}
	}
	(*all)[f] = struct{}{}
}

func (all feeds[V]) publish(name string, now V, reason error) {
	for f := range all {
		f.set(name, now, reason)
	}
}
