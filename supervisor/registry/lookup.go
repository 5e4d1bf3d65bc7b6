package registry

import (
	"cmp"
	"iter"
	"slices"

	"github.com/bowline-mcp/bowline/conn"
)

// Lookup finds the Conn of a name that was registered with this Registry. It
// never finds one that is closed for good; one that is closing it may. It asks
// no Store: Holders tells of other processes.
func (r *Registry) Lookup(name string) (*conn.Conn, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.find(name)
	return c, c != nil
}

// All yields the names that Lookup finds, in order, as they are when the loop
// begins. The loop may use the Registry.
func (r *Registry) All() iter.Seq2[string, *conn.Conn] {
	return func(yield func(string, *conn.Conn) bool) {
		for _, named := range r.all() {
			if !yield(named.name, named.conn) {
				return
			}
		}
	}
}

// Len counts the names that Lookup finds. It looks at each.
func (r *Registry) Len() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.entries {
		if r.find(name) != nil {
			n++
		}
	}
	return n
}

type named struct {
	name string
	conn *conn.Conn
}

// all is what is present, in order.
func (r *Registry) all() []named {
	r.mu.Lock()
	all := r.present()
	r.mu.Unlock()
	return ordered(all)
}

func ordered(all []named) []named {
	slices.SortFunc(all, func(a, b named) int { return cmp.Compare(a.name, b.name) })
	return all
}

// present is what there is to find. The lock is held.
func (r *Registry) present() []named {
	all := make([]named, 0, len(r.entries))
	for name := range r.entries {
		if c := r.find(name); c != nil {
			all = append(all, named{name, c})
		}
	}
	return all
}

// find is the Conn of a name, or nil. That a Conn has closed for good shows
// here, and watchers are told. The lock is held.
func (r *Registry) find(name string) *conn.Conn {
	e := r.entries[name]
	switch {
	case e == nil || e.phase != held:
		return nil
	case over(e.conn):
		r.feeds.tell(name, nil, nil)
		return nil
	}
	return e.conn
}
