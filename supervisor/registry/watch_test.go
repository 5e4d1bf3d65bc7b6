package registry_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/supervisor/registry"
)

// A watcher keeps the changes that it gets.
type watcher struct {
	changes chan registry.Change
	ended   chan struct{}
	stop    context.CancelFunc
}

// watch starts a watcher. It must be called in a bubble.
func watch(r *registry.Registry) *watcher {
	ctx, stop := context.WithCancel(context.Background())
	w := &watcher{changes: make(chan registry.Change, 1024), ended: make(chan struct{}), stop: stop}
	go func() {
		defer close(w.ended)
		for change := range r.Watch(ctx) {
			w.changes <- change
		}
	}()
	synctest.Wait()
	return w
}

// received returns the changes since the last call.
func (w *watcher) received() (changes []registry.Change) {
	synctest.Wait()
	for len(w.changes) > 0 {
		changes = append(changes, <-w.changes)
	}
	return changes
}

func (w *watcher) end() {
	w.stop()
	<-w.ended
}

func wantChanges(t *testing.T, got, want []registry.Change) {
	t.Helper()
	same := cmp.Comparer(func(a, b *conn.Conn) bool { return a == b })
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// A watcher gets the names that exist, in order, and then each change once. It gets the end of a Conn when a
// Lookup has found that.
//
// Guarantees: G-0013.4
func TestWatcherGetsNamesAndChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := registry.New(registry.Options{})
		a, b, c := open(), open(), open()
		register(t, r, "2", b)
		register(t, r, "1", a)
		w := watch(r)
		defer w.end()
		wantChanges(t, w.received(), []registry.Change{{registry.Added, "1", a, nil}, {registry.Added, "2", b, nil}})

		register(t, r, "3", c)
		wantChanges(t, w.received(), []registry.Change{{registry.Added, "3", c, nil}})
		unregister(t, r, "1", a)
		wantChanges(t, w.received(), []registry.Change{{registry.Removed, "1", a, nil}})
		register(t, r, "1", a)
		wantChanges(t, w.received(), []registry.Change{{registry.Added, "1", a, nil}})

		unregister(t, r, "1", a)
		register(t, r, "1", c) // the watcher gets this in one step or in two
		changes := w.received()
		if len(changes) == 1 {
			wantChanges(t, changes, []registry.Change{{registry.Replaced, "1", c, nil}})
		} else {
			wantChanges(t, changes, []registry.Change{{registry.Removed, "1", a, nil}, {registry.Added, "1", c, nil}})
		}

		finish(t, b)
		wantChanges(t, w.received(), nil)
		wantFound(t, r, "2", nil) // notices that the Conn is closed
		wantChanges(t, w.received(), []registry.Change{{registry.Removed, "2", b, nil}})
		unregister(t, r, "2", b)
		wantChanges(t, w.received(), nil)
	})
}

// A slow watcher delays no call, and gets only the newest change of each name.
//
// Guarantees: G-0013.4, G-0013.5
func TestSlowWatcherGetsTheNewestChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, losses := new(scripted), make(map[string]func(error))
		s.claim = func(_ context.Context, c registry.Claim) (registry.Release, error) {
			losses[c.Name] = c.Lost
			return func(context.Context) error { return nil }, nil
		}
		r := registry.New(registry.Options{Store: s})
		old, gone, same, fresh := open(), open(), open(), open()
		register(t, r, "0", same)
		register(t, r, "lost", old)
		register(t, r, "replaced", old)
		register(t, r, "removed", gone)
		register(t, r, "same", same)
		var changes []registry.Change
		held, release := make(chan struct{}, 1), make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for change := range r.Watch(ctx) {
				switch changes = append(changes, change); len(changes) {
				case 5:
					held <- struct{}{}
					<-release
				case 100: // it yields without end
					return
				}
			}
		}()
		<-held

		for n := range 1000 {
			name := fmt.Sprint("passing ", n)
			register(t, r, name, fresh)
			unregister(t, r, name, fresh)
		}
		unregister(t, r, "same", same)
		register(t, r, "same", same)
		register(t, r, "added", old)
		unregister(t, r, "replaced", old)
		register(t, r, "replaced", fresh)
		unregister(t, r, "removed", gone)
		unregister(t, r, "added", old)
		register(t, r, "added", fresh)
		losses["lost"](errDown)
		register(t, r, "lost", fresh)
		unregister(t, r, "lost", fresh) // this change is none of the Store
		close(release)
		synctest.Wait()
		stop()
		<-ended
		wantChanges(t, changes[5:], []registry.Change{
			{registry.Replaced, "replaced", fresh, nil}, {registry.Removed, "removed", gone, nil}, {registry.Added, "added", fresh, nil},
			{registry.Removed, "lost", old, nil},
		})
	})
}

// The body of a watch may use the Registry. The watch then yields its changes, too.
func TestWatchersMayUseTheRegistry(t *testing.T) {
	r := registry.New(registry.Options{})
	c := open()
	register(t, r, "0", c)
	var names []string
	testenv.Within(t, "the watch yields five names, and ends", func() {
		for change := range r.Watch(t.Context()) {
			names = append(names, change.Name)
			if len(names) == 5 {
				break
			}
			register(t, r, fmt.Sprint(len(names)), c)
		}
	})
	if want := []string{"0", "1", "2", "3", "4"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	testenv.Within(t, "all names are unregistered", func() {
		for name := range r.All() {
			unregister(t, r, name, c)
		}
		if r.Len() != 0 {
			t.Errorf("%d names are left, want none", r.Len())
		}
	})
}

// A watch that begins while names are registered misses none of them.
//
// Guarantees: G-0013.4
func TestAWatchBegunBesideRegistrations(t *testing.T) {
	r, c := registry.New(registry.Options{}), open()
	for i := range 500 { // so that to begin a watch takes a while
		register(t, r, fmt.Sprint(i), c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var registering sync.WaitGroup
	begun := make(chan bool, 1)
	registering.Go(func() {
		for i := 500; len(begun) == 0; i++ {
			register(t, r, fmt.Sprint(i), c)
		}
	})
	var all []func() (registry.Change, bool)
	for range 20 {
		next, stop := iter.Pull(r.Watch(ctx))
		defer stop()
		next() // begins
		all = append(all, next)
	}
	begun <- true
	registering.Wait()
	register(t, r, "last", c)
	for _, next := range all {
		seen := 1
		for change, ok := next(); ok && change.Name != "last"; change, ok = next() {
			seen++
		}
		if want := r.Len() - 1; seen != want {
			t.Errorf("a watch has yielded %d names, want %d", seen, want)
		}
	}
	for name := range r.All() {
		unregister(t, r, name, c)
	}
}

// A watch ends with its context, even if changes wait. If the context has ended before, it yields nothing.
//
// Guarantees: G-0013.6
func TestWatchEndsWithItsContext(t *testing.T) {
	r := registry.New(registry.Options{})
	register(t, r, "a", open())
	register(t, r, "b", open())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	yielded := 0
	for range r.Watch(ctx) {
		yielded++
		cancel()
	}
	for range r.Watch(ctx) {
		yielded++
	}
	if yielded != 1 {
		t.Errorf("%d names were yielded, want 1", yielded)
	}
}

// Neither names nor watches have a goroutine of their own.
//
// Guarantees: G-0013.6
func TestRegistryHasNoGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		r := registry.New(registry.Options{})
		var watchers []*watcher
		for n := range 100 {
			register(t, r, fmt.Sprint(n), open())
			if n%10 == 0 {
				watchers = append(watchers, watch(r))
			}
		}
		synctest.Wait()
		if now := runtime.NumGoroutine(); now > before+len(watchers) {
			t.Errorf("%d goroutines besides those of the watchers, want none", now-before-len(watchers))
		}
		for _, w := range watchers {
			w.end()
		}
	})
}
