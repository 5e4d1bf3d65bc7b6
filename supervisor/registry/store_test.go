package registry_test

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/supervisor/registry"
)

var errDown = errors.New("the store is down")

// A scripted Store does what the test sets, and otherwise what a Local does.
type scripted struct {
	registry.Local
	claim   func(context.Context, registry.Claim) (registry.Release, error)
	release registry.Release
	watches [][]any // what each watch yields: maps and errors
}

func (s *scripted) Claim(ctx context.Context, c registry.Claim) (registry.Release, error) {
	if s.claim != nil {
		return s.claim(ctx, c)
	}
	release, err := s.Local.Claim(ctx, c)
	if s.release == nil || err != nil {
		return release, err
	}
	return func(ctx context.Context) error { return errors.Join(s.release(ctx), release(ctx)) }, nil
}

func (s *scripted) Watch(ctx context.Context) iter.Seq2[map[string]string, error] {
	return func(yield func(map[string]string, error) bool) {
		script := s.watches[0]
		s.watches = s.watches[1:]
		for _, step := range script {
			err, _ := step.(error)
			all, _ := step.(map[string]string)
			if !yield(maps.Clone(all), err) {
				return
			}
		}
	}
}

// hang waits for the end of a context.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// Register and Unregister wait for the Store, and for each other, until their contexts end.
//
// Guarantees: G-0013.13
func TestRegisterAndUnregisterEndWithTheirContexts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{claim: func(ctx context.Context, _ registry.Claim) (registry.Release, error) { return nil, hang(ctx) }}
		r := registry.New(registry.Options{Store: s})
		began := time.Now()
		within := func(d time.Duration, do func(context.Context) error) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			if err := do(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want DeadlineExceeded", err)
			}
		}
		c, ended := open(), make(chan struct{})
		go func() {
			defer close(ended)
			within(3*time.Second, func(ctx context.Context) error { return r.Register(ctx, "n", c) })
		}()
		synctest.Wait()
		within(time.Second, func(ctx context.Context) error { return r.Register(ctx, "n", open()) })
		within(time.Second, func(ctx context.Context) error { return r.Unregister(ctx, "n", c) })
		wantFound(t, r, "n", nil)
		<-ended

		s.claim, s.release = nil, hang
		register(t, r, "n", c)
		within(time.Second, func(ctx context.Context) error { return r.Unregister(ctx, "n", c) })
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("all calls took %s, want 4s", took)
		}
		register(t, r, "n", open()) // the failed release has left the name free here
	})
}

// Register of a name that is being unregistered waits, for as long as the Store takes, and then succeeds.
//
// Guarantees: G-0013.13
func TestRegisterWaitsForUnregister(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &scripted{release: func(context.Context) error { <-release; return nil }}
		r := registry.New(registry.Options{Store: s})
		first, second := open(), open()
		register(t, r, "n", first)
		results := make(chan error, 3)
		for range 2 {
			go func() { results <- r.Unregister(t.Context(), "n", first) }()
		}
		synctest.Wait()
		wantFound(t, r, "n", nil)
		go func() { results <- r.Register(t.Context(), "n", second) }()
		synctest.Wait()
		if len(results) > 0 {
			t.Errorf("a call returned %v before the Store had released the name", <-results)
		}
		time.AfterFunc(time.Hour, func() { close(release) })
		for range 3 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		wantFound(t, r, "n", second)
	})
}

// Errors and panics of the Store reach the caller of Register and Unregister, and leave the name free in this
// process.
func TestErrorsOfTheStoreReachTheCaller(t *testing.T) {
	s := &scripted{claim: func(context.Context, registry.Claim) (registry.Release, error) { return nil, errDown }}
	r := registry.New(registry.Options{Store: s})
	c := open()
	if err := r.Register(t.Context(), "n", c); !errors.Is(err, errDown) {
		t.Errorf("Register returned %v, want errDown", err)
	}
	s.claim = func(context.Context, registry.Claim) (registry.Release, error) { panic(errDown) }
	func() {
		defer func() {
			if recover() != errDown {
				t.Error("Register did not panic with errDown")
			}
		}()
		r.Register(t.Context(), "n", c)
	}()
	s.claim, s.release = nil, func(context.Context) error { return errDown }
	register(t, r, "n", c)
	if err := r.Unregister(t.Context(), "n", c); !errors.Is(err, errDown) {
		t.Errorf("Unregister returned %v, want errDown", err)
	}
	wantFound(t, r, "n", nil)
	register(t, r, "n", c)
	finish(t, c)
	if err := r.Register(t.Context(), "n", open()); !errors.Is(err, errDown) {
		t.Errorf("Register in place of a closed Conn returned %v, want errDown", err)
	}
}

// A name that the Store has lost is not found. Watchers and OnLost get the reason, once, and OnLost may stop the
// Conn.
//
// Guarantees: G-0013.7
func TestLostNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shared := newCluster(1)
		var r *registry.Registry
		var reported []*registry.LostError
		r = registry.New(registry.Options{Store: shared.member(), OnLost: func(c *conn.Conn, why *registry.LostError) {
			wantFound(t, r, why.Name, nil)
			reported = append(reported, why)
			c.Stop()
		}})
		c := open()
		register(t, r, "n", c)
		register(t, r, "m", c)
		unregister(t, r, "m", c)
		shared.expire("m") // nobody has it
		w := watch(r)
		defer w.end()
		wantChanges(t, w.received(), []registry.Change{{registry.Added, "n", c, nil}})

		shared.expire("n")
		changes := w.received()
		if len(changes) != 1 || changes[0].Kind != registry.Removed || changes[0].Conn != c || !errors.Is(changes[0].Err, errExpired) {
			t.Errorf("watchers got %v, want one removal with errExpired", changes)
		}
		if len(reported) != 1 || reported[0].Name != "n" || !errors.Is(reported[0], errExpired) {
			t.Errorf("OnLost got %v, want n with errExpired", reported)
		}
		unregister(t, r, "n", c)
		if err := c.Run(t.Context()); err != nil { // OnLost has stopped it
			t.Error(err)
		}
		register(t, r, "n", open())
	})
}

// Without OnLost, a Conn whose name is lost continues without it.
//
// Guarantees: G-0013.7
func TestLostNamesWithoutOnLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shared := newCluster(1)
		r, c := registry.New(registry.Options{Store: shared.member()}), open()
		register(t, r, "n", c)
		shared.expire("n")
		wantFound(t, r, "n", nil)
		if isOver(c) {
			t.Error("the Conn has ended, want it to continue")
		}
		register(t, r, "n", c)
		wantFound(t, r, "n", c)
	})
}

// The Store may call Lost at any time, and more than once. OnLost is called once, and not after a release.
//
// Guarantees: G-0013.7
func TestLossAtAnyTime(t *testing.T) {
	losses := 0
	var claims []registry.Claim
	s := new(scripted)
	r := registry.New(registry.Options{Store: s, OnLost: func(*conn.Conn, *registry.LostError) { losses++ }})
	s.claim = func(ctx context.Context, c registry.Claim) (registry.Release, error) {
		claims = append(claims, c)
		return s.Local.Claim(ctx, c)
	}
	first, second := open(), open()
	register(t, r, "n", first)
	unregister(t, r, "n", first)
	claims[0].Lost(errDown) // after its release
	register(t, r, "n", second)
	claims[0].Lost(errDown) // when another Conn has the name
	wantFound(t, r, "n", second)
	if losses != 0 {
		t.Errorf("OnLost was called %d times after a release, want none", losses)
	}
	claims[1].Lost(nil)
	claims[1].Lost(errDown)
	wantFound(t, r, "n", nil)
	if losses != 1 {
		t.Errorf("OnLost was called %d times, want once", losses)
	}

	s.claim = func(ctx context.Context, c registry.Claim) (registry.Release, error) {
		release, err := s.Local.Claim(ctx, c)
		return func(ctx context.Context) error { c.Lost(errDown); return release(ctx) }, err // before the release is over
	}
	register(t, r, "k", first)
	unregister(t, r, "k", first)
	if losses != 1 {
		t.Error("OnLost was called for a name that was being released")
	}

	s.claim = func(ctx context.Context, c registry.Claim) (registry.Release, error) {
		c.Lost(errDown) // before the claim is returned
		return s.Local.Claim(ctx, c)
	}
	var lost *registry.LostError
	if err := r.Register(t.Context(), "m", first); !errors.As(err, &lost) || lost.Name != "m" || !errors.Is(err, errDown) || err.Error() != lost.Error() {
		t.Errorf("Register returned %v, want a LostError for m, and no more", err)
	}
	wantFound(t, r, "m", nil)
	if losses != 1 {
		t.Errorf("OnLost was called for a loss that Register has returned")
	}
}

// If a watch of the Store breaks off, Holders begins another, and yields only what differs then. Each change is
// yielded once.
//
// Guarantees: G-0013.16
func TestHoldersResumeAfterGaps(t *testing.T) {
	type names = map[string]string
	s := &scripted{watches: [][]any{
		{names{"a": "1", "b": "1", "c": "1"}, names{"b": "", "d": "2"}, errGap},
		{errDown},
		{names{"a": "1", "c": "2", "e": "1"}, names{"a": ""}},
		{names{"c": "2"}, names{"f": "1"}, names{"never": "1"}},
	}}
	var holdings []registry.Holding
	var failures []error
	for h, err := range registry.New(registry.Options{Store: s}).Holders(t.Context()) {
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if holdings = append(holdings, h); h.Name == "f" {
			break
		}
	}
	want := []registry.Holding{
		{"a", "1"}, {"b", "1"}, {"c", "1"}, {"b", ""}, {"d", "2"},
		{"c", "2"}, {"d", ""}, {"e", "1"}, {"a", ""},
		{"e", ""}, {"f", "1"},
	}
	if !slices.Equal(holdings, want) {
		t.Errorf("got %v, want %v", holdings, want)
	}
	if len(failures) != 3 || !errors.Is(failures[0], errGap) || !errors.Is(failures[1], errDown) || failures[2].Error() != "registry: the store ended a watch without an error" {
		t.Errorf("got the errors %v, want errGap, errDown and that a watch has ended without one", failures)
	}
	if len(s.watches) > 0 {
		t.Errorf("%d watches were not begun, want all", len(s.watches))
	}
}

// Holders ends with its context, and yields no error for that.
func TestHoldersEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &scripted{watches: [][]any{{map[string]string{"a": "1"}, errGap}}}
	yielded := 0
	for range 2 { // the second time the context has already ended
		for h, err := range registry.New(registry.Options{Store: s}).Holders(ctx) {
			if yielded++; err != nil || h.Name != "a" {
				t.Errorf("got %v, %v; want a", h, err)
			}
			cancel()
		}
	}
	if yielded != 1 {
		t.Errorf("%d holdings were yielded, want 1", yielded)
	}
}

// An unreachable Store accepts one claim, and never releases it.
type unreachable struct{ holder string }

func (u *unreachable) Claim(_ context.Context, c registry.Claim) (registry.Release, error) {
	if u.holder != "" {
		return nil, &registry.TakenError{Name: c.Name, Holder: u.holder}
	}
	u.holder = c.Holder
	return func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, nil
}

func (*unreachable) Watch(context.Context) iter.Seq2[map[string]string, error] {
	return func(func(map[string]string, error) bool) {}
}

// If two calls of Unregister wait for a Store that does not release the name, both return an error.
//
// Guarantees: G-0013.13
func TestConcurrentUnregistersBothFail(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, c := registry.New(registry.Options{Store: new(unreachable)}), open()
		register(t, r, "n", c)
		ctx, cancel := context.WithCancelCause(t.Context())
		errs := make(chan error, 2)
		go func() { errs <- r.Unregister(ctx, "n", c) }()
		synctest.Wait()
		go func() { errs <- r.Unregister(t.Context(), "n", c) }()
		synctest.Wait()
		cancel(errors.New("no more time"))
		for range 2 {
			if <-errs == nil {
				t.Errorf("Unregister returned nil, want an error; a Register returns %v",
					r.Register(t.Context(), "n", open()))
			}
		}
	})
}

// A panickingStore panics in its first Claim.
type panickingStore struct{ asked *int }

func (p panickingStore) Claim(context.Context, registry.Claim) (registry.Release, error) {
	if *p.asked++; *p.asked == 1 {
		panic("boom")
	}
	return func(context.Context) error { return nil }, nil
}

func (panickingStore) Watch(context.Context) iter.Seq2[map[string]string, error] {
	return func(func(map[string]string, error) bool) {}
}

// A name whose Claim has panicked is free. Otherwise it would stay taken in a program that recovers, as a
// supervisor does.
//
// Guarantees: G-0013.13
func TestNameIsFreeAfterAPanicOfTheStore(t *testing.T) {
	names := registry.New(registry.Options{Store: panickingStore{new(int)}})
	func() {
		defer func() { _ = recover() }()
		_ = names.Register(t.Context(), "n", open())
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := names.Register(ctx, "n", open()); err != nil {
		t.Errorf("the second Register returned %v, want no error", err)
	}
}

// A change of a Local that was undone before a watcher could get it is no change: the watcher gets no empty map, except as the first.
func TestLocalReportsNothingThatWasUndone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		names := new(registry.Local)
		ctx, stop := context.WithCancel(t.Context())
		var got []map[string]string
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for changed, err := range names.Watch(ctx) {
				if err != nil {
					t.Error(err)
				}
				if got = append(got, changed); len(got) > 1 {
					continue
				}
				release, err := names.Claim(t.Context(), registry.Claim{Name: "n", Holder: "h"})
				if err != nil {
					t.Error(err)
				}
				if err := release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}()
		synctest.Wait()
		if len(got) != 1 || len(got[0]) > 0 {
			t.Errorf("got %v, want one empty map", got)
		}
		if _, err := names.Claim(t.Context(), registry.Claim{Name: "n", Holder: "h"}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(got) != 2 || got[1]["n"] != "h" {
			t.Errorf("got %v, want the name behind it", got)
		}
		stop()
		<-ended
	})
}

// Local keeps the contract of a Store.
func TestLocalContract(t *testing.T) {
	proptest.StoreContract(t, func(*testing.T) proptest.Stores {
		names := new(registry.Local)
		return proptest.Stores{A: names, B: names}
	}, proptest.ContractOptions{})

}

// The cluster, a Store that is slow and loses answers and watches, keeps the contract, too. So the contract can
// be kept in spite of faults.
func TestClusterContract(t *testing.T) {
	seed := uint64(0)
	proptest.StoreContract(t, func(*testing.T) proptest.Stores {
		seed++
		c := newCluster(seed)
		return proptest.Stores{A: c.member(), B: c.member(), Lose: c.expire}
	}, proptest.ContractOptions{})

}
