package registry_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/supervisor/registry"
)

// A model is two Registries that share their names, and their expected state.
type model struct {
	registries [2]*registry.Registry
	lose       func(string) // ends a claim; nil: the Store loses none
	losses     int
	conns      []*conn.Conn
	holder     map[string]held // includes closed Conns
	watching   [2]*fold
}

type held struct {
	by int // which of the registries
	c  *conn.Conn
}

// A fold adds up the changes that a watcher gets. Each must follow from those before.
type fold struct {
	*watcher
	now map[string]*conn.Conn
}

func newModel(store [2]registry.Store, lose func(string)) *model {
	m := &model{lose: lose, holder: map[string]held{}}
	for n := range m.registries {
		m.registries[n] = registry.New(registry.Options{Store: store[n], OnLost: func(*conn.Conn, *registry.LostError) { m.losses++ }})
		m.watching[n] = &fold{watch(m.registries[n]), map[string]*conn.Conn{}}
	}
	for range 4 {
		m.conns = append(m.conns, open())
	}
	return m
}

// Two Registries that share a Store, and their watchers, behave like a map when names are registered,
// unregistered and lost and Conns closed at random. The test compares them after every step.
//
// Guarantees: G-0013.2, G-0013.3, G-0013.4, G-0013.7
func TestRegistryAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			names := new(registry.Local)
			m := newModel([2]registry.Store{names, names}, nil)
			if rapid.Bool().Draw(t, "cluster") {
				m.end()
				c := newCluster(rapid.Uint64().Draw(t, "seed"))
				m = newModel([2]registry.Store{c.member(), c.member()}, c.expire)
			}
			defer m.end()
			t.Repeat(map[string]func(*rapid.T){
				"register":   m.register,
				"unregister": m.unregister,
				"close":      m.close,
				"lose":       m.loses,
				"":           m.check,
			})
		})
	})
}

func (m *model) end() {
	for _, w := range m.watching {
		w.end()
	}
}

// draw draws a name, a Conn, and the Registry that the Conn belongs to.
func (m *model) draw(t *rapid.T) (name string, c *conn.Conn, by int) {
	name = rapid.SampledFrom([]string{"k", "l", "m"}).Draw(t, "name")
	n := rapid.IntRange(0, len(m.conns)-1).Draw(t, "conn")
	return name, m.conns[n], n % 2
}

func (m *model) register(t *rapid.T) {
	name, c, by := m.draw(t)
	err := m.registries[by].Register(context.Background(), name, c)
	has, taken := m.holder[name]
	switch {
	case isOver(c):
		if !errors.Is(err, registry.ErrClosed) {
			t.Fatalf("Register of a closed Conn returned %v, want ErrClosed", err)
		}
	case taken && has.c == c, !taken, isOver(has.c) && has.by == by: // another process does not know that it is closed
		if err != nil {
			t.Fatalf("Register of %q returned %v, want no error", name, err)
		}
		m.holder[name] = held{by, c}
	default:
		if !errors.As(err, new(*registry.TakenError)) {
			t.Fatalf("Register of %q returned %v, want a TakenError", name, err)
		}
	}
}

func (m *model) unregister(t *rapid.T) {
	name, c, by := m.draw(t)
	if err := m.registries[by].Unregister(context.Background(), name, c); err != nil {
		t.Fatal(err)
	}
	if m.holder[name].c == c {
		delete(m.holder, name)
	}
}

// close closes a Conn, or replaces one that is already closed.
func (m *model) close(t *rapid.T) {
	n := rapid.IntRange(0, len(m.conns)-1).Draw(t, "conn")
	if isOver(m.conns[n]) {
		m.conns[n] = open()
		return
	}
	finish(t, m.conns[n])
}

func (m *model) loses(t *rapid.T) {
	name, _, _ := m.draw(t)
	if m.lose == nil {
		return
	}
	_, taken := m.holder[name]
	before := m.losses
	m.lose(name)
	if reported := m.losses - before; reported > 1 || (reported == 1) != taken {
		t.Fatalf("OnLost was called %d times for %q, which was taken: %t", reported, name, taken)
	}
	delete(m.holder, name)
}

// check compares both Registries with the model. All finds Conns that are closed, and watchers get them after
// that.
func (m *model) check(t *rapid.T) {
	for by, r := range m.registries {
		want := map[string]*conn.Conn{}
		for name, has := range m.holder {
			if has.by == by && !isOver(has.c) {
				want[name] = has.c
			}
		}
		if got := maps.Collect(r.All()); !maps.Equal(got, want) || r.Len() != len(want) {
			t.Fatalf("All yields %v, Len is %d; want %v", got, r.Len(), want)
		}
		for _, name := range []string{"k", "l", "m"} {
			if c, found := r.Lookup(name); c != want[name] || found != (c != nil) {
				t.Fatalf("Lookup(%q) returned %p, %t; want %p", name, c, found, want[name])
			}
		}
		m.watching[by].add(t)
		if got := m.watching[by].now; !maps.Equal(got, want) {
			t.Fatalf("the changes add up to %v, want %v", got, want)
		}
	}
}

// add adds the changes since the last call.
func (f *fold) add(t *rapid.T) {
	synctest.Wait()
	for _, change := range f.received() {
		was := f.now[change.Name]
		follows := map[registry.ChangeKind]bool{
			registry.Added:    was == nil && change.Conn != nil,
			registry.Removed:  was != nil && was == change.Conn,
			registry.Replaced: was != nil && change.Conn != nil && was != change.Conn,
		}
		if !follows[change.Kind] {
			t.Fatalf("%v does not follow, because the Conn was %p: %+v", change, was, change)
		}
		if f.now[change.Name] = change.Conn; change.Kind == registry.Removed {
			delete(f.now, change.Name)
		}
	}
}

func isOver(c *conn.Conn) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// When goroutines register and unregister names concurrently, the changes that each watcher gets add up to what
// is registered in the end.
//
// Guarantees: G-0013.4
func TestChangesOfWatchersAddUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		names := new(registry.Local)
		m := newModel([2]registry.Store{names, names}, nil)
		defer m.end()
		results := make(chan error)
		for n := range 16 {
			go func() { results <- m.churn(n) }()
		}
		for range 16 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		for by, r := range m.registries {
			got := map[string]*conn.Conn{}
			for _, change := range m.watching[by].received() {
				if got[change.Name] = change.Conn; change.Kind == registry.Removed {
					delete(got, change.Name)
				}
			}
			if want := maps.Collect(r.All()); !maps.Equal(got, want) {
				t.Errorf("the changes add up to %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
			}
		}
	})
}

// churn registers and unregisters names. It keeps the last one.
func (m *model) churn(n int) error {
	r, names := m.registries[n%2], []string{"k", "l", "m", "n", "o"}
	for turn := range 20 {
		c, name := open(), names[(n+turn)%len(names)]
		err := r.Register(context.Background(), name, c)
		if err != nil && !errors.As(err, new(*registry.TakenError)) {
			return err
		}
		if turn == 19 {
			return nil // keeps it registered
		}
		if err := r.Unregister(context.Background(), name, c); err != nil {
			return err
		}
	}
	return nil
}
