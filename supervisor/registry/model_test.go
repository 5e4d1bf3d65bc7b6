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

// A model is two Registries that share their names, and what they should be.
type model struct {
	registries [2]*registry.Registry
	lose       func(string) // nil: the Store loses nothing
	losses     int
	conns      []*conn.Conn
	holder     map[string]held // also of Conns that are closed
	watching   [2]*fold
}

type held struct {
	by int // which of the registries
	c  *conn.Conn
}

// A fold adds up what a watcher is told, of which each change must follow from
// what it was told before.
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

// TestRegistryAgainstModel registers, unregisters, closes and loses at random
// and compares, after every step, two Registries that share a Store, and what
// their watchers were told, with a plain map.
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

// draw picks a name, a Conn, and the Registry it is for.
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
			t.Fatalf("a closed Conn got %v", err)
		}
	case taken && has.c == c, !taken, isOver(has.c) && has.by == by: // another process cannot see it
		if err != nil {
			t.Fatalf("%q is free or its own, and Register got %v", name, err)
		}
		m.holder[name] = held{by, c}
	default:
		if !errors.As(err, new(*registry.TakenError)) {
			t.Fatalf("%q is taken, and Register got %v", name, err)
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

// close closes a Conn for good, and puts another in its place some time.
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
	if told := m.losses - before; told > 1 || (told == 1) != taken {
		t.Fatalf("%q was taken: %t, and OnLost was told %d times", name, taken, told)
	}
	delete(m.holder, name)
}

// check compares both Registries with the model. All comes across Conns that
// are closed; watchers know of them after that.
func (m *model) check(t *rapid.T) {
	for by, r := range m.registries {
		want := map[string]*conn.Conn{}
		for name, has := range m.holder {
			if has.by == by && !isOver(has.c) {
				want[name] = has.c
			}
		}
		if got := maps.Collect(r.All()); !maps.Equal(got, want) || r.Len() != len(want) {
			t.Fatalf("All has %v, Len is %d; want %v", got, r.Len(), want)
		}
		for _, name := range []string{"k", "l", "m"} {
			if c, found := r.Lookup(name); c != want[name] || found != (c != nil) {
				t.Fatalf("Lookup(%q) is %p, %t; want %p", name, c, found, want[name])
			}
		}
		m.watching[by].add(t)
		if got := m.watching[by].now; !maps.Equal(got, want) {
			t.Fatalf("what was told adds up to %v; want %v", got, want)
		}
	}
}

// add takes what has been told.
func (f *fold) add(t *rapid.T) {
	synctest.Wait()
	for _, change := range f.told() {
		was := f.now[change.Name]
		follows := map[registry.ChangeKind]bool{
			registry.Added:    was == nil && change.Conn != nil,
			registry.Removed:  was != nil && was == change.Conn,
			registry.Replaced: was != nil && change.Conn != nil && was != change.Conn,
		}
		if !follows[change.Kind] {
			t.Fatalf("%v, and it was %p before: %+v", change, was, change)
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

// Goroutines register, unregister and close at once, while watchers look on:
// when all is still, what each was told adds up to what there is.
//
// Guarantees: G-0013.4
func TestWatchersAgreeInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
			for _, change := range m.watching[by].told() {
				if got[change.Name] = change.Conn; change.Kind == registry.Removed {
					delete(got, change.Name)
				}
			}
			if want := maps.Collect(r.All()); !maps.Equal(got, want) {
				t.Errorf("what was told adds up to %v; want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
			}
		}
	})
}

func (m *model) churn(n int) error {
	r, names := m.registries[n%2], []string{"k", "l", "m", "n", "o"}
	for turn := range 20 {
		c, name := open(), names[(n+turn)%len(names)]
		err := r.Register(context.Background(), name, c)
		if err != nil && !errors.As(err, new(*registry.TakenError)) {
			return err
		}
		if turn == 19 {
			return nil // and leaves it
		}
		if err := r.Unregister(context.Background(), name, c); err != nil {
			return err
		}
	}
	return nil
}
