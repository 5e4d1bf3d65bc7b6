package proptest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/supervisor/registry"
)

// Stores are the stores that StoreContract checks. No name may be taken in them yet.
type Stores struct {
	// A and B share their names, as two processes do. They may be the same.
	A, B registry.Store

	// Lose ends A's claim to a name, as if the lease had expired or somebody had
	// removed the claim. It does nothing if the name is free. Nil: the Store never
	// loses a claim.
	Lose func(name string)
}

// StoreContract checks the contract of registry.Store.
//
// StoreContract may call open hundreds of times; release resources in clean-ups of the
// test. The Stores must be able to reach their servers: an unexpected error of Claim or
// Release fails the test. The suite runs in real time.
//
// Guarantees: G-0013.8, G-0013.9, G-0013.10, G-0013.11, G-0013.12
func StoreContract(t *testing.T, open func(t *testing.T) Stores, o ContractOptions) {
	for _, clause := range []struct {
		name  string
		check func(s *stores)
	}{
		{"one of many claims has the name", (*stores).oneClaimWins},
		{"names are compared byte by byte", (*stores).namesAreDistinct},
		{"a release ends only its own claim", (*stores).releaseIsOfItsOwn},
		{"a claim whose context has ended claims nothing", (*stores).claimWithoutTime},
		{"a watch begins with all names", (*stores).watchBegins},
		{"a watch ends with its context and its loop", (*stores).watchEnds},
		{"a loss is reported, and leaves the name free", (*stores).lossIsReported},
	} {
		t.Run(clause.name, func(t *testing.T) { clause.check(openStores(t, t, open, o)) })
	}
	t.Run("claims, releases and watches agree with a map", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) { agreesWithMap(rt, openStores(t, rt, open, o)) })
	})
}

// stores are the Stores under test.
type stores struct {
	Stores
	t   cleanupTB
	ctx context.Context // ends the test if something hangs
}

func openStores(t *testing.T, tb cleanupTB, open func(*testing.T) Stores, o ContractOptions) *stores {
	ctx, cancel := context.WithTimeoutCause(context.Background(), o.Wait(), errors.New("the store does not answer"))
	tb.Cleanup(cancel)
	return &stores{open(t), tb, ctx}
}

// alternate returns A or B in turn.
func (s *stores) alternate(n int) registry.Store {
	if n%2 == 0 {
		return s.A
	}
	return s.B
}

// claim claims a name that must be free.
func (s *stores) claim(from registry.Store, c registry.Claim) registry.Release {
	s.t.Helper()
	if c.Lost == nil {
		c.Lost = func(error) {}
	}
	release, err := from.Claim(s.ctx, c)
	if err != nil {
		s.t.Fatalf("%q is free, and a claim by %s got %v", c.Name, c.Holder, err)
	}
	return release
}

func (s *stores) release(release registry.Release) {
	s.t.Helper()
	if err := release(s.ctx); err != nil {
		s.t.Fatalf("a release got %v", err)
	}
}

// wantTaken checks that a claim fails because holder has the name.
func (s *stores) wantTaken(name, holder string) {
	s.t.Helper()
	for n := range 2 {
		_, err := s.alternate(n).Claim(s.ctx, registry.Claim{Name: name, Holder: "another", Lost: func(error) {}})
		var taken *registry.TakenError
		if !errors.As(err, &taken) || taken.Name != name || taken.Holder != holder {
			s.t.Fatalf("%q is %s's, and a claim by another got %v", name, holder, err)
		}
	}
}

func (s *stores) oneClaimWins() {
	for round := range 8 {
		name := fmt.Sprintf("name %d", round)
		var winners atomic.Int64
		var group sync.WaitGroup
		for n := range 16 {
			group.Go(func() {
				_, err := s.alternate(n).Claim(s.ctx, registry.Claim{Name: name, Holder: "h", Lost: func(error) {}})
				if err == nil {
					winners.Add(1)
				} else if !errors.As(err, new(*registry.TakenError)) {
					s.t.Errorf("a claim among many got %v", err)
				}
			})
		}
		group.Wait()
		if winners.Load() != 1 {
			s.t.Fatalf("%d of 16 claims have the name", winners.Load())
		}
		s.wantTaken(name, "h")
	}
}

func (s *stores) namesAreDistinct() {
	names := []string{
		"a", "A", "a ", " a", "a/b", "a/", "/a", "a*", "*", "?", "{a}", "'", `"`, `\`, "%61", "é", "e\u0301", "\u2028", "..",
		strings.Repeat("x", registry.MaxName), strings.Repeat("x", registry.MaxName-1),
	}
	all := map[string]string{}
	for n, name := range names {
		all[name] = fmt.Sprintf("holder %d", n)
		s.claim(s.alternate(n), registry.Claim{Name: name, Holder: all[name]})
	}
	for name, holder := range all {
		s.wantTaken(name, holder)
	}
	for n := range 2 {
		s.watch(s.alternate(n)).await(all)
	}
}

func (s *stores) releaseIsOfItsOwn() {
	for n := range 4 {
		first := s.claim(s.A, registry.Claim{Name: "n", Holder: "first"})
		s.release(first)
		second := s.claim(s.alternate(n), registry.Claim{Name: "n", Holder: "first"})
		s.release(first)
		s.wantTaken("n", "first")
		s.release(second)
	}
}

func (s *stores) claimWithoutTime() {
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	for range 16 { // repeated, because a wrong Store may pass by chance
		if _, err := s.A.Claim(ended, registry.Claim{Name: "n", Holder: "late", Lost: func(error) {}}); err == nil {
			s.t.Fatalf("a claim was made after its context had ended")
		}
	}
	s.claim(s.B, registry.Claim{Name: "n", Holder: "in time"})
	s.wantTaken("n", "in time")
}

func (s *stores) watchBegins() {
	for _, want := range []map[string]string{{}, {"n": "a"}, {"n": "a", "m": "b"}} {
		for name, holder := range want {
			if release, err := s.A.Claim(s.ctx, registry.Claim{Name: name, Holder: holder, Lost: func(error) {}}); err == nil {
				defer s.release(release)
			}
		}
		for n := range 2 {
			if first := s.first(s.alternate(n)); !maps.Equal(first, want) {
				s.t.Fatalf("the names are %v, and a watch began with %v", want, first)
			}
		}
	}
}

// first returns the first map of a new watch.
func (s *stores) first(from registry.Store) map[string]string {
	for s.ctx.Err() == nil {
		for all, err := range from.Watch(s.ctx) {
			if err != nil {
				break // the watch may have missed something before it began
			}
			return all
		}
	}
	s.t.Fatalf("a watch did not begin: %v", context.Cause(s.ctx))
	return nil
}

func (s *stores) watchEnds() {
	s.first(s.A) // the loop is left after the first map
	f := s.watch(s.A)
	s.claim(s.B, registry.Claim{Name: "n", Holder: "h"})
	f.await(map[string]string{"n": "h"})
	f.stop()
}

func (s *stores) lossIsReported() {
	if s.Lose == nil {
		return
	}
	f := s.watch(s.B)
	for range 4 {
		reported := make(chan struct{}, 1)
		release := s.claim(s.A, registry.Claim{Name: "n", Holder: "a", Lost: func(error) {
			select {
			case reported <- struct{}{}:
			default: // the loss was reported before
			}
		}})
		f.await(map[string]string{"n": "a"})
		s.Lose("n")
		select {
		case <-reported:
		case <-s.ctx.Done():
			s.t.Fatalf("a claim was lost, and Lost was not called")
		}
		f.await(map[string]string{})
		other := s.claim(s.B, registry.Claim{Name: "n", Holder: "b"})
		s.release(release)
		s.wantTaken("n", "b")
		f.await(map[string]string{"n": "b"})
		s.release(other)
		f.await(map[string]string{})
	}
}

// agreesWithMap claims and releases at random, with a watch of each store.
func agreesWithMap(rt *rapid.T, s *stores) {
	watchers := []*watcher{s.watch(s.A), s.watch(s.B)}
	model, releases, claims := map[string]string{}, map[string]registry.Release{}, 0
	rt.Repeat(map[string]func(*rapid.T){
		"claim": func(rt *rapid.T) {
			name := rapid.SampledFrom([]string{"k", "l", "m", "n"}).Draw(rt, "name")
			if holder, taken := model[name]; taken {
				s.wantTaken(name, holder)
				return
			}
			model[name] = fmt.Sprintf("%06d", claims)
			claims++
			from := s.alternate(rapid.IntRange(0, 1).Draw(rt, "store"))
			releases[name] = s.claim(from, registry.Claim{Name: name, Holder: model[name]})
		},
		"release": func(rt *rapid.T) {
			name := rapid.SampledFrom([]string{"k", "l", "m", "n"}).Draw(rt, "name")
			if release := releases[name]; release != nil {
				s.release(release) // the name may be released twice
				delete(model, name)
			}
		},
		"settle": func(*rapid.T) {
			for _, f := range watchers {
				f.await(model)
			}
		},
	})
	for _, f := range watchers {
		f.await(model)
		f.stop()
		for name, holders := range f.reported { // the holders of a name have rising numbers
			if !slices.IsSorted(holders) {
				rt.Fatalf("the holders of %q were reported as %v", name, holders)
			}
		}
	}
}

// watcher adds up the changes that a Store reports.
type watcher struct {
	t       rapid.TB
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}
	changed chan struct{} // capacity one: a token when something has changed

	mu       sync.Mutex
	current  map[string]string
	reported map[string][]string // all holders of each name, in the order in which the Store reported them
}

// watch watches a Store until stop is called or the test ends.
func (s *stores) watch(from registry.Store) *watcher {
	f := &watcher{t: s.t, done: make(chan struct{}), changed: make(chan struct{}, 1), current: map[string]string{}, reported: map[string][]string{}}
	f.ctx, f.cancel = context.WithCancel(s.ctx)
	s.t.Cleanup(f.stop)
	go f.run(registry.New(registry.Options{Store: from}))
	return f
}

func (f *watcher) run(r *registry.Registry) {
	defer close(f.done)
	for holding, err := range r.Holders(f.ctx) {
		if err == nil {
			f.record(holding)
		}
	}
}

func (f *watcher) record(h registry.Holding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.Holder == "" {
		delete(f.current, h.Name)
	} else {
		f.current[h.Name] = h.Holder
		f.reported[h.Name] = append(f.reported[h.Name], h.Holder)
	}
	select {
	case f.changed <- struct{}{}:
	default: // the channel has a token already
	}
}

// await waits until the reported changes add up to want.
func (f *watcher) await(want map[string]string) {
	f.t.Helper()
	for {
		f.mu.Lock()
		now := maps.Clone(f.current)
		f.mu.Unlock()
		if maps.Equal(now, want) {
			return
		}
		select {
		case <-f.changed:
		case <-f.done:
			f.t.Fatalf("the names are %v, and a watch ended with %v", want, now)
		}
	}
}

// stop ends the watch and waits for its end.
func (f *watcher) stop() {
	f.cancel()
	<-f.done
}
