package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// Options configure a Registry. The zero value of a field means the default that
// its comment states.
type Options struct {
	// Store decides who has a name. Default: a Local of this Registry's own.
	Store Store

	// Holder identifies this process to others that share the Store, for example
	// by its address. Default: "local", which means nothing to other processes;
	// set Holder when the Store is shared.
	Holder string

	// OnLost is called when the Store has taken a name away from a Conn, so that
	// somebody else may have it. Stop the Conn here if it must not run without
	// its name. OnLost runs on a goroutine of the Store, after the name was
	// removed. It must not block, and must not call Register or Unregister.
	// Default: the Conn continues without the name.
	OnLost func(*conn.Conn, *LostError)
}

const thisProcess = "local"

// A Registry finds Conns by their names. Create one with New. Its methods may be
// called from any goroutine. It has no goroutine, and needs no closing.
type Registry struct {
	options Options

	mu      sync.Mutex
	entries map[string]*entry
	feeds   feeds[*conn.Conn] // the feeds of all watchers
}

// An entry exists from the moment that a Conn asks for a name until the name is
// free again. So at most one operation per name is under way at the Store.
type entry struct {
	conn    *conn.Conn
	phase   phase
	settled chan struct{} // closed when claiming, or releasing, is over
	release Release
	lost    *LostError // the name was lost while it was being claimed
	failed  error      // why the release failed; set before settled is closed
}

type phase uint8

const (
	claiming phase = iota
	held
	releasing
)

// New returns an empty Registry.
func New(o Options) *Registry {
	o.Holder = cmp.Or(o.Holder, thisProcess)
	if o.Store == nil {
		o.Store = new(Local)
	}
	return &Registry{options: o, entries: map[string]*entry{}}
}

// Register gives a name to a Conn, which need not be running yet. It returns nil
// when the Conn has the name, also if it had it before. It waits for the Store,
// and for another operation under way with that name in this Registry. A Conn
// that has the name and has closed for good gives it up first.
//
// Register fails with
//
//   - a *NameError when the name is not valid,
//   - ErrClosed when the Conn has closed for good,
//   - a *TakenError when another Conn has the name, in this process or elsewhere,
//   - a *LostError when the Store has immediately taken the name away again,
//   - the cause of ctx when ctx ends first,
//   - any error of the Store.
//
// It panics when the Conn is nil.
func (r *Registry) Register(ctx context.Context, name string, c *conn.Conn) error {
	if c == nil {
		panic("registry: Register needs a Conn")
	}
	if err := checkName(name); err != nil {
		return err
	}
	if hasClosed(c) {
		return ErrClosed
	}
	e := &entry{conn: c, settled: make(chan struct{})}
	for {
		switch holder, busy := r.reserve(name, e); {
		case busy != nil:
			if err := await(ctx, busy); err != nil {
				return fmt.Errorf("registry: register %q: %w", name, err)
			}
		case holder == nil:
			return r.claim(ctx, name, e)
		case holder == c:
			return nil
		case !hasClosed(holder):
			return &TakenError{Name: name, Holder: r.options.Holder}
		default:
			if err := r.Unregister(ctx, name, holder); err != nil {
				return fmt.Errorf("registry: register %q: %w", name, err)
			}
		}
	}
}

// reserve makes e the entry of the name if it has none. Otherwise it returns who
// has the name, or the channel of the operation to wait for.
func (r *Registry) reserve(name string, e *entry) (holder *conn.Conn, busy <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch other := r.entries[name]; {
	case other == nil:
		r.entries[name] = e
		return nil, nil
	case other.phase == held:
		return other.conn, nil
	default:
		return nil, other.settled
	}
}

func (r *Registry) claim(ctx context.Context, name string, e *entry) (err error) {
	var release Release
	err = errStorePanicked
	defer func() { err = r.claimed(name, e, release, err) }() // deferred, so that the name is free even after a panic
	release, err = r.options.Store.Claim(ctx, Claim{
		Name: name, Holder: r.options.Holder, Lost: func(cause error) { r.lose(name, e, cause) },
	})
	return err
}

// claimed ends the claiming of an entry.
func (r *Registry) claimed(name string, e *entry, release Release, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(e.settled)
	switch {
	case err == nil && e.lost == nil:
		e.phase, e.release = held, release
		r.feeds.publish(name, e.conn, nil)
		return nil
	case err == nil:
		err = e.lost
	case !errors.As(err, new(*TakenError)):
		err = fmt.Errorf("registry: register %q: %w", name, err)
	}
	delete(r.entries, name)
	return err
}

// Unregister takes a name away from a Conn, and does nothing if the Conn does
// not have it. The Conn is not found by that name from the call on. When
// Unregister returns nil, the name is free.
//
// It fails with the error of the Store, or with the cause of ctx. A shared Store
// may then hold the name until its lease expires. Pass a context that has not
// ended: a shared Store needs time to inform others.
func (r *Registry) Unregister(ctx context.Context, name string, c *conn.Conn) error {
	if err := r.unregister(ctx, name, c); err != nil {
		return fmt.Errorf("registry: unregister %q: %w", name, err)
	}
	return nil
}

func (r *Registry) unregister(ctx context.Context, name string, c *conn.Conn) error {
	for e, busy := r.withdraw(name, c); e != nil; e, busy = r.withdraw(name, c) {
		if busy == nil {
			return r.release(ctx, name, e)
		}
		if err := await(ctx, busy); err != nil {
			return err
		}
		if e.failed != nil {
			return e.failed // somebody else has released the name, and this is the error
		}
	}
	return nil
}

// withdraw hides the entry of a Conn, so that it can be released. It returns
// none if the Conn does not have the name, and also a channel to wait for while
// another operation is under way.
func (r *Registry) withdraw(name string, c *conn.Conn) (e *entry, busy <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e = r.entries[name]
	switch {
	case e == nil || e.conn != c:
		return nil, nil
	case e.phase != held:
		return e, e.settled
	}
	e.phase, e.settled = releasing, make(chan struct{})
	r.feeds.publish(name, nil, nil)
	return e, nil
}

func (r *Registry) release(ctx context.Context, name string, e *entry) (err error) {
	err = errStorePanicked
	defer func() { r.released(name, e, err) }() // deferred, so that it runs even after a panic
	err = e.release(ctx)
	return err
}

func (r *Registry) released(name string, e *entry, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.failed = err
	delete(r.entries, name)
	close(e.settled)
}

// lose takes a name away from its Conn because the Store says so. A name that is
// being released is given up already.
func (r *Registry) lose(name string, e *entry, cause error) {
	why := &LostError{Name: name, Err: cause}
	if r.remove(name, e, why) && r.options.OnLost != nil {
		r.options.OnLost(e.conn, why)
	}
}

// remove reports whether the Conn could be found by the name before.
func (r *Registry) remove(name string, e *entry, why *LostError) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case e.phase == claiming:
		e.lost = why // Register returns this error
	case e.phase == held && r.entries[name] == e: // otherwise it was removed before
		delete(r.entries, name)
		r.feeds.publish(name, nil, why)
		return true
	}
	return false
}

// Lookup finds the Conn that was registered with this Registry under a name. It
// never finds a Conn that has closed for good, but may find one that is closing.
// It does not ask the Store; use Holders to find names of other processes.
func (r *Registry) Lookup(name string) (*conn.Conn, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.find(name)
	return c, c != nil
}

// All yields the names that Lookup finds and their Conns, in order of the names,
// as of the beginning of the loop. The loop may call the Registry.
func (r *Registry) All() iter.Seq2[string, *conn.Conn] {
	return func(yield func(string, *conn.Conn) bool) {
		r.mu.Lock()
		all := r.present()
		r.mu.Unlock()
		for _, named := range sorted(all) {
			if !yield(named.name, named.conn) {
				return
			}
		}
	}
}

// Len counts the names that Lookup finds. It looks at every name.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.present())
}

// find returns the Conn of a name, or nil. If the Conn has closed for good, find
// informs the watchers. The mutex is held.
func (r *Registry) find(name string) *conn.Conn {
	e := r.entries[name]
	switch {
	case e == nil || e.phase != held:
		return nil
	case hasClosed(e.conn):
		r.feeds.publish(name, nil, nil)
		return nil
	}
	return e.conn
}

type named struct {
	name string
	conn *conn.Conn
}

// present returns what Lookup finds. The mutex is held.
func (r *Registry) present() []named {
	all := make([]named, 0, len(r.entries))
	for name := range r.entries {
		if c := r.find(name); c != nil {
			all = append(all, named{name, c})
		}
	}
	return all
}

func sorted(all []named) []named {
	slices.SortFunc(all, func(a, b named) int { return cmp.Compare(a.name, b.name) })
	return all
}

func hasClosed(c *conn.Conn) bool { return wait.IsClosed(c.Done()) }

func await(ctx context.Context, settled <-chan struct{}) error {
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
