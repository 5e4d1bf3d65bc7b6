package registry

import (
	"container/list"
	"context"
)

// A feed is what one watcher has yet to be told: of each name that has changed
// the newest state, in the order of the changes that were not told. The zero V
// is the state of a name that is not there. Whoever owns a feed locks it.
//
// It grows with the names that are there and those that the watcher believes to
// be there: one that came and went meanwhile leaves nothing.
type feed[V comparable] struct {
	told  map[string]V // what the watcher believes to be there
	due   map[string]*list.Element
	order list.List     // of *news[V]
	wake  chan struct{} // capacity one: a token while something may be due
}

// news is one thing to tell.
type news[V comparable] struct {
	name     string
	was, now V
	why      error // it is not there: who is to blame, if anybody
}

func newFeed[V comparable]() *feed[V] {
	return &feed[V]{told: map[string]V{}, due: map[string]*list.Element{}, wake: make(chan struct{}, 1)}
}

// set notes the state of a name.
func (f *feed[V]) set(name string, now V, why error) {
	at, waits := f.due[name]
	switch {
	case now == f.told[name]:
		f.drop(name)
	case waits:
		n := at.Value.(*news[V])
		n.now, n.why = now, why
	default:
		f.due[name] = f.order.PushBack(&news[V]{name: name, was: f.told[name], now: now, why: why})
		select {
		case f.wake <- struct{}{}:
		default: // it is awake already
		}
	}
}

// next takes what is to be told first.
func (f *feed[V]) next() (n news[V], ok bool) {
	first := f.order.Front()
	if first == nil {
		return n, false
	}
	n = *first.Value.(*news[V])
	f.drop(n.name)
	var none V
	if n.now == none {
		delete(f.told, n.name)
	} else {
		f.told[n.name] = n.now
	}
	return n, true
}

func (f *feed[V]) drop(name string) {
	if at, waits := f.due[name]; waits {
		f.order.Remove(at)
		delete(f.due, name)
	}
}

// await waits for something that may be due, and reports whether it came before
// the end of ctx.
func (f *feed[V]) await(ctx context.Context) bool {
	select {
	case <-f.wake:
		return true
	case <-ctx.Done():
		return false
	}
}

// feeds are those of all watchers of one thing; nil is none.
type feeds[V comparable] map[*feed[V]]struct{}

func (all *feeds[V]) join(f *feed[V]) {
	if *all == nil {
		*all = feeds[V]{}
	}
	(*all)[f] = struct{}{}
}

func (all feeds[V]) leave(f *feed[V]) { delete(all, f) }

func (all feeds[V]) tell(name string, now V, why error) {
	for f := range all {
		f.set(name, now, why)
	}
}
