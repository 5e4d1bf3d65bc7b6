package stores_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/proptest/stores"
)

// spentMap is a server.Spent that remembers everything, and may be broken in one way.
type spentMap struct {
	flaws spentFlaws

	mu   sync.Mutex
	used map[[16]byte]time.Time
}

// spentFlaws are ways to break a memory of used states.
type spentFlaws struct {
	key      func([16]byte) [16]byte // what it takes for the state
	racy     bool                    // it looks and writes in two steps
	forgets  bool                    // it forgets everything when one state has expired
	opens    bool                    // a use whose context has ended is always the first
	inverted bool                    // it reports whether the state was used
}

func (s *spentMap) Spend(ctx context.Context, state [16]byte, until time.Time) (first bool, err error) {
	if s.flaws.opens && ctx.Err() != nil {
		return true, nil
	}
	if s.flaws.key != nil {
		state = s.flaws.key(state)
	}
	s.mu.Lock()
	_, known := s.used[state]
	if s.flaws.racy {
		s.mu.Unlock()
		timer := time.NewTimer(time.Millisecond)
		<-timer.C
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if s.flaws.forgets && until.Before(time.Now()) {
		clear(s.used)
	}
	s.used[state] = until
	return known == s.flaws.inverted, nil
}

func openSpent(flaws spentFlaws) func(*testing.T) stores.SpentStates {
	return func(*testing.T) stores.SpentStates {
		s := &spentMap{flaws: flaws, used: map[[16]byte]time.Time{}}
		return stores.SpentStates{A: s, B: s}
	}
}

// Guarantees: G-0075.9
func TestSpentContract(t *testing.T) {
	stores.SpentContract(t, openSpent(spentFlaws{}), proptest.ContractOptions{})
}

// The suite fails on a memory that breaks the contract.
//
// Guarantees: G-0075.9
func TestSpentContractSeesBreaches(t *testing.T) {
	with := func(flaws spentFlaws) func(*testing.T) {
		return func(t *testing.T) {
			stores.SpentContract(t, openSpent(flaws), proptest.ContractOptions{Guard: 5 * time.Second})
		}
	}
	wantCaught(t, []violation{
		{"the last byte is ignored", with(spentFlaws{key: func(s [16]byte) [16]byte { s[15] = 0; return s }}), "want true"},
		{"bytes are taken for text", with(spentFlaws{key: func(s [16]byte) [16]byte {
			for i := range s {
				s[i] &= 0x7f
			}
			return s
		}}), "want true"},
		{"two uses at once are the first", with(spentFlaws{racy: true}), "of 16 uses of a state were the first"},
		{"states are forgotten with others", with(spentFlaws{forgets: true}), "want false"},
		{"a context that has ended opens it", with(spentFlaws{opens: true}), "want at most one"},
		{"the result is the opposite", with(spentFlaws{inverted: true}), "want true"},
		{"two servers do not share", func(t *testing.T) {
			stores.SpentContract(t, func(t *testing.T) stores.SpentStates {
				return stores.SpentStates{A: openSpent(spentFlaws{})(t).A, B: openSpent(spentFlaws{})(t).A}
			}, proptest.ContractOptions{Guard: 5 * time.Second})
		}, "want false"},
	})
}
