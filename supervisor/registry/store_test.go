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

// A scripted Store does what the test says, and otherwise what a Local does.
type scripted struct {
	registry.Local
	claim   func(context.Context, registry.Claim) (registry.Release, error)
	release registry.Release
	watches [][]any // of each watch what it yields: maps, and errors
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

// Register and Unregister wait for the Store, and for each other, as long as
// their contexts last.
//
// Guarantees: G-0013.13
func TestContextsBoundTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{claim: func(ctx context.Context, _ registry.Claim) (registry.Release, error) { return nil, hang(ctx) }}
		r := registry.New(registry.Options{Store: s})
		began := time.Now()
		within := func(d time.Duration, do func(context.Context) error) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			if err := do(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
		c, over := open(), make(chan struct{})
		go func() {
			defer close(over)
			within(3*time.Second, func(ctx context.Context) error { return r.Register(ctx, "n", c) })
		}()
		synctest.Wait()
		within(time.Second, func(ctx context.Context) error { return r.Register(ctx, "n", open()) })
		within(time.Second, func(ctx context.Context) error { return r.Unregister(ctx, "n", c) })
		wantFound(t, r, "n", nil)
		<-over

		s.claim, s.release = nil, hang
		register(t, r, "n", c)
		within(time.Second, func(ctx context.Context) error { return r.Unregister(ctx, "n", c) })
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("all of it took %s", took)
		}
		register(t, r, "n", open()) // the release that has failed left nothing here
	})
}

// A Conn that is registered while the name is being given up gets it: that is no
// reason to be refused.
//
// Guarantees: G-0013.13
func TestRegisterWaitsForUnregister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		going := make(chan struct{})
		s := &scripted{release: func(context.Context) error { <-going; return nil }}
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
			t.Errorf("something did not wait: %v", <-results)
		}
		close(going)
		for range 3 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		wantFound(t, r, "n", second)
	})
}

// What a Store says when it fails comes through, and leaves the name free here.
func TestStoreFails(t *testing.T) {
	s := &scripted{claim: func(context.Context, registry.Claim) (registry.Release, error) { return nil, errDown }}
	r := registry.New(registry.Options{Store: s})
	c := open()
	if err := r.Register(t.Context(), "n", c); !errors.Is(err, errDown) {
		t.Errorf("Register got %v", err)
	}
	s.claim = func(context.Context, registry.Claim) (registry.Release, error) { panic(errDown) }
	func() {
		defer func() {
			if recover() != errDown {
				t.Error("the panic was lost")
			}
		}()
		r.Register(t.Context(), "n", c)
	}()
	s.claim, s.release = nil, func(context.Context) error { return errDown }
	register(t, r, "n", c)
	if err := r.Unregister(t.Context(), "n", c); !errors.Is(err, errDown) {
		t.Errorf("Unregister got %v", err)
	}
	wantFound(t, r, "n", nil)
	register(t, r, "n", c)
	finish(t, c)
	if err := r.Register(t.Context(), "n", open()); !errors.Is(err, errDown) {
		t.Errorf("Register in place of a closed Conn got %v", err)
	}
}

// A name that the Store takes away is found no more, watchers are told why, and
// so is OnLost, once, which can stop the Conn.
//
// Guarantees: G-0013.7
func TestLostNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newCluster(1)
		var r *registry.Registry
		var told []*registry.LostError
		r = registry.New(registry.Options{Store: shared.member(), OnLost: func(c *conn.Conn, why *registry.LostError) {
			wantFound(t, r, why.Name, nil)
			told = append(told, why)
			c.Stop()
		}})
		c := open()
		register(t, r, "n", c)
		register(t, r, "m", c)
		unregister(t, r, "m", c)
		shared.expire("m") // nobody's
		w := watch(r)
		defer w.end()
		wantTold(t, w.told(), []registry.Change{{registry.Added, "n", c, nil}})

		shared.expire("n")
		changes := w.told()
		if len(changes) != 1 || changes[0].Kind != registry.Removed || changes[0].Conn != c || !errors.Is(changes[0].Err, errExpired) {
			t.Errorf("watchers were told %v", changes)
		}
		if len(told) != 1 || told[0].Name != "n" || !errors.Is(told[0], errExpired) {
			t.Errorf("OnLost was told %v", told)
		}
		unregister(t, r, "n", c)
		if err := c.Run(t.Context()); err != nil { // it was stopped
			t.Error(err)
		}
		register(t, r, "n", open())
	})
}

// The Store may say that a claim is lost at any time, and more than once.
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
	claims[0].Lost(errDown) // when the name is another's
	wantFound(t, r, "n", second)
	if losses != 0 {
		t.Errorf("%d losses of what had been released", losses)
	}
	claims[1].Lost(nil)
	claims[1].Lost(errDown)
	wantFound(t, r, "n", nil)
	if losses != 1 {
		t.Errorf("one loss was told %d times", losses)
	}

	s.claim = func(ctx context.Context, c registry.Claim) (registry.Release, error) {
		c.Lost(errDown) // before it is returned
		return s.Local.Claim(ctx, c)
	}
	var lost *registry.LostError
	if err := r.Register(t.Context(), "m", first); !errors.As(err, &lost) || lost.Name != "m" || !errors.Is(err, errDown) {
		t.Errorf("Register got %v", err)
	}
	wantFound(t, r, "m", nil)
	if losses != 1 {
		t.Errorf("a loss was told to OnLost and to Register")
	}
}

// What Holders tells adds up though the Store misses something: what differs
// afterwards is told, and nothing twice.
//
// Guarantees: G-0013.16
func TestHoldersMakeUpForGaps(t *testing.T) {
	type names = map[string]string
	s := &scripted{watches: [][]any{
		{names{"a": "1", "b": "1", "c": "1"}, names{"b": "", "d": "2"}, errGap},
		{errDown},
		{names{"a": "1", "c": "2", "e": "1"}, names{"a": ""}},
		{names{"c": "2"}, names{"f": "1"}, names{"never": "1"}},
	}}
	var told []registry.Holding
	var failures []error
	for h, err := range registry.New(registry.Options{Store: s}).Holders(t.Context()) {
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if told = append(told, h); h.Name == "f" {
			break
		}
	}
	want := []registry.Holding{
		{"a", "1"}, {"b", "1"}, {"c", "1"}, {"b", ""}, {"d", "2"},
		{"c", "2"}, {"d", ""}, {"e", "1"}, {"a", ""},
		{"e", ""}, {"f", "1"},
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	if len(failures) != 3 || !errors.Is(failures[0], errGap) || !errors.Is(failures[1], errDown) {
		t.Errorf("failures were %v", failures)
	}
	if len(s.watches) > 0 {
		t.Errorf("%d watches were not begun", len(s.watches))
	}
}

// The end of the context is no failure to be told.
func TestHoldersEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &scripted{watches: [][]any{{map[string]string{"a": "1"}, errGap}}}
	told := 0
	for range 2 { // the second has ended before it begins
		for h, err := range registry.New(registry.Options{Store: s}).Holders(ctx) {
			if told++; err != nil || h.Name != "a" {
				t.Errorf("told %v, %v", h, err)
			}
			cancel()
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

// unreachable gives each name once, and never gets it back.
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

// Of two at once neither says that the name is free when it is not.
//
// Guarantees: G-0013.13
func TestUnregisterThatWaitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
				t.Errorf("Unregister returned nil, and a Register gets: %v", r.Register(t.Context(), "n", open()))
			}
		}
	})
}

// panicky is a Store whose first Claim panics.
type panicky struct{ asked *int }

func (p panicky) Claim(context.Context, registry.Claim) (registry.Release, error) {
	if *p.asked++; *p.asked == 1 {
		panic("boom")
	}
	return func(context.Context) error { return nil }, nil
}

func (panicky) Watch(context.Context) iter.Seq2[map[string]string, error] {
	return func(func(map[string]string, error) bool) {}
}

// A name whose claim has panicked is free: otherwise it would be claimed forever
// in a program that recovers, as a supervisor does.
//
// Guarantees: G-0013.13
func TestStoreThatPanics(t *testing.T) {
	names := registry.New(registry.Options{Store: panicky{new(int)}})
	func() {
		defer func() { _ = recover() }()
		_ = names.Register(t.Context(), "n", open())
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := names.Register(ctx, "n", open()); err != nil {
		t.Errorf("the second Register: %v", err)
	}
}

func TestLocalContract(t *testing.T) {
	proptest.StoreContract(t, func(*testing.T) proptest.Stores {
		names := new(registry.Local)
		return proptest.Stores{A: names, B: names}
	}, proptest.ContractOptions{})

}

// A store that is slow and whose answers and watches break off keeps the
// contract as well, if it is made for it.
func TestClusterContract(t *testing.T) {
	seed := uint64(0)
	proptest.StoreContract(t, func(*testing.T) proptest.Stores {
		seed++
		c := newCluster(seed)
		return proptest.Stores{A: c.member(), B: c.member(), Lose: c.expire}
	}, proptest.ContractOptions{})

}
