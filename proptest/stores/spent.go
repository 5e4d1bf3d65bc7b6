package stores

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/proptest"
)

// SpentStates are the memories that SpentContract checks. No state was used yet.
type SpentStates struct {
	// A and B share what they remember, as two servers do. They may be the same.
	A, B server.Spent
}

// SpentContract checks the contract of server.Spent.
//
// Guarantees: G-0075.9
func SpentContract(t *testing.T, open func(t *testing.T) SpentStates, o proptest.ContractOptions) {
	with := func(t *testing.T, tb cleanupTB) *spent { return openSpent(t, tb, open, o) }
	contract(t, with, []clause[*spent]{
		{"states are told apart", (*spent).statesAreDistinct},
		{"one of many uses is the first", (*spent).oneIsFirst},
		{"a state is remembered while others expire", (*spent).othersExpire},
		{"a use whose context has ended is not a second first one", (*spent).contextsEnd},
	}, "uses agree with a map", (*spent).agreeWithMap)
}

// spent are the SpentStates under test.
type spent struct {
	SpentStates
	t     cleanupTB
	ctx   context.Context // ends the test if something hangs
	until time.Time       // later than the end of the test
}

func openSpent(t *testing.T, tb cleanupTB, open func(*testing.T) SpentStates, o proptest.ContractOptions) *spent {
	return &spent{open(t), tb, guarded(tb, o), time.Now().Add(time.Hour)}
}

func (s *spent) stores() []server.Spent { return []server.Spent{s.A, s.B} }

// want uses a state, and checks whether that is the first time.
func (s *spent) want(by server.Spent, state [16]byte, first bool) {
	s.t.Helper()
	if got, err := by.Spend(s.ctx, state, s.until); err != nil || got != first {
		s.t.Fatalf("Spend of %x returned %t, %v, want %t", state, got, err, first)
	}
}

func (s *spent) statesAreDistinct() {
	states := [][16]byte{{}, [16]byte([]byte("'; drop table --")), [16]byte([]byte("*.>.a.b.\x00\n\r\t \"%_"))}
	for i := range 16 {
		for _, b := range []byte{1, 0x20, 0x7f, 0x80, 0xff} {
			var one [16]byte
			one[i] = b
			states = append(states, one)
		}
	}
	for n, state := range states {
		s.want(s.stores()[n%2], state, true)
	}
	for _, state := range states {
		for _, store := range s.stores() {
			s.want(store, state, false)
		}
	}
}

func (s *spent) oneIsFirst() {
	for round := range 8 {
		state := [16]byte{0: byte(round + 1)}
		var firsts atomic.Int64
		var group sync.WaitGroup
		for n := range 16 {
			group.Go(func() {
				first, err := s.stores()[n%2].Spend(s.ctx, state, s.until)
				if err != nil {
					s.t.Errorf("a use among many got %v", err)
				}
				if first {
					firsts.Add(1)
				}
			})
		}
		group.Wait()
		if firsts.Load() != 1 {
			s.t.Fatalf("%d of 16 uses of a state were the first, want one", firsts.Load())
		}
	}
}

func (s *spent) othersExpire() {
	s.want(s.A, [16]byte{1}, true)
	for n := range 20 {
		if _, err := s.stores()[n%2].Spend(s.ctx, [16]byte{2, byte(n)}, time.Now().Add(-time.Second)); err != nil {
			s.t.Fatalf("Spend of a state that has expired got %v", err)
		}
	}
	s.want(s.B, [16]byte{3}, true)
	for _, state := range [][16]byte{{1}, {3}} {
		for _, store := range s.stores() {
			s.want(store, state, false)
		}
	}
}

func (s *spent) contextsEnd() {
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	for n := range 8 {
		state, firsts := [16]byte{byte(n + 1)}, 0
		for _, ctx := range []context.Context{ended, s.ctx, s.ctx, ended} {
			for _, store := range s.stores() {
				if first, err := store.Spend(ctx, state, s.until); err == nil && first {
					firsts++
				}
			}
		}
		if firsts > 1 { // none if the use counted whose context had ended
			s.t.Fatalf("%d uses of a state were the first, want at most one", firsts)
		}
	}
}

// agreeWithMap uses states at random.
func (s *spent) agreeWithMap(rt *rapid.T) {
	used := map[[16]byte]bool{}
	rt.Repeat(map[string]func(*rapid.T){
		"spend": func(rt *rapid.T) {
			state := [16]byte{rapid.Byte().Draw(rt, "first") % 4, 15: rapid.Byte().Draw(rt, "last") % 4}
			s.want(s.stores()[rapid.IntRange(0, 1).Draw(rt, "store")], state, !used[state])
			used[state] = true
		},
	})
}
