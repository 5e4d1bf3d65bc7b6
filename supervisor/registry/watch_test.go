package registry_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/supervisor/registry"
)

// A watcher keeps what it was told.
type watcher struct {
	changes chan registry.Change
	over    chan struct{}
	stop    context.CancelFunc
}

// watch begins to watch, in a bubble.
func watch(r *registry.Registry) *watcher {
	ctx, stop := context.WithCancel(context.Background())
	w := &watcher{changes: make(chan registry.Change, 1024), over: make(chan struct{}), stop: stop}
	go func() {
		defer close(w.over)
		for change := range r.Watch(ctx) {
			w.changes <- change
		}
	}()
	synctest.Wait()
	return w
}

// told is what has been told since it was asked last.
func (w *watcher) told() (changes []registry.Change) {
	synctest.Wait()
	for len(w.changes) > 0 {
		changes = append(changes, <-w.changes)
	}
	return changes
}

func (w *watcher) end() {
	w.stop()
	<-w.over
}

func wantTold(t *testing.T, got, want []registry.Change) {
	t.Helper()
	same := cmp.Comparer(func(a, b *conn.Conn) bool { return a == b })
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// Guarantees: G-0013.4
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(registry.Options{})
		a, b, c := open(), open(), open()
		register(t, r, "2", b)
		register(t, r, "1", a)
		w := watch(r)
		defer w.end()
		wantTold(t, w.told(), []registry.Change{{registry.Added, "1", a, nil}, {registry.Added, "2", b, nil}})

		register(t, r, "3", c)
		wantTold(t, w.told(), []registry.Change{{registry.Added, "3", c, nil}})
		unregister(t, r, "1", a)
		wantTold(t, w.told(), []registry.Change{{registry.Removed, "1", a, nil}})
		register(t, r, "1", a)
		wantTold(t, w.told(), []registry.Change{{registry.Added, "1", a, nil}})

		unregister(t, r, "1", a)
		register(t, r, "1", c) // before anything of it was told, or in two steps
		told := w.told()
		if len(told) == 1 {
			wantTold(t, told, []registry.Change{{registry.Replaced, "1", c, nil}})
		} else {
			wantTold(t, told, []registry.Change{{registry.Removed, "1", a, nil}, {registry.Added, "1", c, nil}})
		}

		finish(t, b)
		wantTold(t, w.told(), nil)
		wantFound(t, r, "2", nil) // comes across it
		wantTold(t, w.told(), []registry.Change{{registry.Removed, "2", b, nil}})
		unregister(t, r, "2", b)
		wantTold(t, w.told(), nil)
	})
}

// A watcher that is held up delays nobody, and is told what is new in the end.
//
// Guarantees: G-0013.4, G-0013.5
func TestSlowWatcherGetsTheNewestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(registry.Options{})
		old, gone, same, fresh := open(), open(), open(), open()
		register(t, r, "0", same)
		register(t, r, "replaced", old)
		register(t, r, "removed", gone)
		register(t, r, "same", same)
		var told []registry.Change
		held, release := make(chan struct{}, 1), make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			for change := range r.Watch(ctx) {
				if told = append(told, change); len(told) == 4 {
					held <- struct{}{}
					<-release
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
		close(release)
		synctest.Wait()
		stop()
		<-over
		wantTold(t, told[4:], []registry.Change{
			{registry.Replaced, "replaced", fresh, nil}, {registry.Removed, "removed", gone, nil}, {registry.Added, "added", fresh, nil},
		})
	})
}

// The loop may use the Registry, and see what it does itself.
func TestWatchersMayUseTheRegistry(t *testing.T) {
	r := registry.New(registry.Options{})
	c := open()
	register(t, r, "0", c)
	var names []string
	for change := range r.Watch(t.Context()) {
		names = append(names, change.Name)
		if len(names) == 5 {
			break
		}
		register(t, r, fmt.Sprint(len(names)), c)
	}
	if want := []string{"0", "1", "2", "3", "4"}; !slices.Equal(names, want) {
		t.Errorf("told of %q", names)
	}
	for name := range r.All() {
		unregister(t, r, name, c)
	}
	if r.Len() != 0 {
		t.Errorf("%d names are left", r.Len())
	}
}

// A watch ends with its context, also one that has ended before, and with many
// things yet to tell.
//
// Guarantees: G-0013.6
func TestWatchEndsWithItsContext(t *testing.T) {
	r := registry.New(registry.Options{})
	register(t, r, "a", open())
	register(t, r, "b", open())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := 0
	for range r.Watch(ctx) {
		told++
		cancel()
	}
	for range r.Watch(ctx) {
		told++
	}
	if told != 1 {
		t.Errorf("told of %d names after the end", told-1)
	}
}

// Neither names nor watches cost a goroutine.
//
// Guarantees: G-0013.6
func TestNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
			t.Errorf("there are %d goroutines more than the watchers' own", now-before-len(watchers))
		}
		for _, w := range watchers {
			w.end()
		}
	})
}
