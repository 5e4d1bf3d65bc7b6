package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
)

// Options configure a Registry. The zero value of each field means the default
// stated beside it.
type Options struct {
	// Store says who has a name. Nil: a Local of this Registry's own.
	Store Store

	// Holder tells the others that share the Store who has a name: the address
	// of this process, for instance. "local", which is read as this process, so
	// it is not for a Store that several share.
	Holder string

	// OnLost is told that a Conn has lost its name to the Store, and somebody
	// else may have it: the place to stop the Conn. It runs on a goroutine of the
	// Store's, when the Conn is not found any more. It must not block; what it
	// may do is Stop the Conn, and use the Registry but for Register and
	// Unregister. Nil: the Conn goes on without the name.
	OnLost func(*conn.Conn, *LostError)
}

const thisProcess = "local"

// A Registry, made by New, knows Conns by their names. Its methods may be called
// from any goroutine. It has none of its own, and needs no closing.
type Registry struct {
	options Options

	mu      sync.Mutex
	entries map[string]*entry
	feeds   feeds[*conn.Conn] // of watchers
}

// An entry is a name's, from the time that its Conn asks for it until it is
// free again. So for each name there is one thing under way with the Store.
type entry struct {
	conn    *conn.Conn
	phase   phase
	settled chan struct{} // closed when claiming, or releasing, is over
	release Release
	lost    *LostError // while it was being claimed
	failed  error      // why it could not be released; set before settled is closed
}

type phase uint8

const (
	claiming phase = iota
	held
	releasing
	lost
)

// New returns a Registry without names.
func New(o Options) *Registry {
	o.Holder = cmp.Or(o.Holder, thisProcess)
	if o.Store == nil {
		o.Store = new(Local)
	}
	return &Registry{options: o, entries: map[string]*entry{}}
}

// Register gives a Conn a name. It returns nil when the Conn has it, also when
// it has it already, and otherwise:
//
//   - a *NameError: it is no name. ErrClosed: the Conn is closed for good
//   - a *TakenError: another Conn has it, here or elsewhere
//   - a *LostError: the Store has given it and taken it back meanwhile
//   - the cause of ctx, which bounds what it waits for: the Store, and what is
//     under way with that name here
//   - what the Store says
//
// A Conn need not run yet. One that has closed for good makes way. Register
// panics without a Conn.
func (r *Registry) Register(ctx context.Context, name string, c *conn.Conn) error {
	if c == nil {
		panic("registry: Register needs a Conn")
	}
	if err := checkName(name); err != nil {
		return err
	}
	if over(c) {
		return ErrClosed
	}
	e := &entry{conn: c, settled: make(chan struct{})}
	for {
		holder, busy := r.reserve(name, e)
		var err error
		switch {
		case busy != nil:
			err = await(ctx, busy)
		case holder == nil:
			return r.claim(ctx, name, e)
		case holder == c:
			return nil
		case over(holder):
			err = r.Unregister(ctx, name, holder)
		default:
			return &TakenError{Name: name, Holder: r.options.Holder}
		}
		if err != nil {
			return fmt.Errorf("registry: register %q: %w", name, err)
		}
	}
}

// reserve makes e the entry of a name that has none. Otherwise it returns who
// has the name, or what to wait for before that can be said.
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
	err = errBroken
	defer func() { err = r.claimed(name, e, release, err) }() // also when the Store panics
	given, refused := r.options.Store.Claim(ctx, Claim{
		Name: name, Holder: r.options.Holder, Lost: func(cause error) { r.lose(name, e, cause) },
	})
	errors.As(refused, new(*TakenError)) // here, should its methods panic
	release, err = given, refused
	return err
}

// claimed settles an entry by what the Store has answered.
func (r *Registry) claimed(name string, e *entry, release Release, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(e.settled)
	switch {
	case err == nil && e.lost == nil:
		e.phase, e.release = held, release
		r.feeds.tell(name, e.conn, nil)
		return nil
	case err == nil:
		err = e.lost
	case !errors.As(err, new(*TakenError)):
		err = fmt.Errorf("registry: register %q: %w", name, err)
	}
	delete(r.entries, name)
	return err
}

// Unregister gives a name up, if that Conn has it; otherwise it does nothing.
// From its beginning on nobody finds the Conn by that name, and when it has
// returned nil the name is free.
//
// It fails with what the Store says, and at the end of ctx. Then the Store may
// hold the name for as long as a claim lasts that nobody renews. A ctx that has
// ended already, as that of a child that was stopped, is of no use to a Store
// that has to tell others.
func (r *Registry) Unregister(ctx context.Context, name string, c *conn.Conn) error {
	e, busy := r.withdraw(name, c)
	for busy != nil {
		err := await(ctx, busy)
		if err == nil {
			err = e.failed // of a release, which is this one's too
		}
		if err != nil {
			return fmt.Errorf("registry: unregister %q: %w", name, err)
		}
		e, busy = r.withdraw(name, c)
	}
	if e == nil {
		return nil
	}
	if err := r.release(ctx, name, e); err != nil {
		return fmt.Errorf("registry: unregister %q: %w", name, err)
	}
	return nil
}

func (r *Registry) release(ctx context.Context, name string, e *entry) (err error) {
	err = errBroken
	defer func() { r.released(name, e, err) }() // also when the Store panics
	err = e.release(ctx)
	return err
}

// withdraw takes the entry of a Conn out of sight, so that it can be released.
// It returns none if the name is not the Conn's, and what to wait for as well
// while something else is under way with it.
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
	r.feeds.tell(name, nil, nil)
	return e, nil
}

func (r *Registry) released(name string, e *entry, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.failed = err
	delete(r.entries, name)
	close(e.settled)
}

// lose takes a name from its Conn, as the Store says. What is being released
// has been given up already.
func (r *Registry) lose(name string, e *entry, cause error) {
	why := &LostError{Name: name, Err: cause}
	if r.strip(name, e, why) && r.options.OnLost != nil {
		r.options.OnLost(e.conn, why)
	}
}

// strip reports whether the Conn had the name in the eyes of others.
func (r *Registry) strip(name string, e *entry, why *LostError) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.phase {
	case claiming:
		e.lost = why // Register says so
	case held:
		e.phase = lost
		delete(r.entries, name)
		r.feeds.tell(name, nil, why)
		return true
	}
	return false
}

func over(c *conn.Conn) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

func await(ctx context.Context, settled <-chan struct{}) error {
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
