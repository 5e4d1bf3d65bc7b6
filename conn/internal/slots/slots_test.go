package slots

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const length = 250 * time.Millisecond

// A member counts its ticks.
type member struct{ ticks atomic.Int64 }

func (m *member) taken() int { return int(m.ticks.Swap(0)) }

func tick(m *member, _ int64) { m.ticks.Add(1) }

func advance(d time.Duration) {
	<-time.NewTimer(d).C
	synctest.Wait()
}

// wantEmpty checks that no member and no timer is left.
func (s *Slots[M]) wantEmpty(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.used) != 0 || s.next != 0 || s.timer.Stop() {
		t.Errorf("%d slots are left, the next is %d; want none", len(s.used), s.next)
	}
}

// Each member is ticked once, at the end of the slot in which its time passes, which Add tells.
//
// Guarantees: G-0025.6
func TestEachMemberIsTickedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Slots[*member]
		var members [4]member
		for i, wait := range []time.Duration{1, length, length + 1, 5 * length} {
			number, until := s.Add(&members[i], wait, length, tick)
			if end := []int64{1, 1, 2, 5}[i]; number != end || until != time.Duration(end)*length {
				t.Errorf("member %d is in slot %d, which ends in %v; want %d", i, number, until, end)
			}
		}
		for turn, want := range [][]int{{1, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 0, 0}} {
			advance(length)
			for i := range members {
				if got := members[i].taken(); got != want[i] {
					t.Errorf("in turn %d member %d was ticked %d times, want %d", turn+1, i, got, want[i])
				}
			}
		}
		s.wantEmpty(t)
	})
}

// A member that was removed is not ticked, and keeps no timer.
//
// Guarantees: G-0025.6
func TestRemovedMemberIsNotTicked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Slots[*member]
		var first, second member
		number, _ := s.Add(&first, length, length, tick)
		s.Add(&second, 2*length, length, tick)
		s.Remove(&first, number)
		s.Remove(&first, number)
		advance(2 * length)
		if first, second := first.taken(), second.taken(); first != 0 || second != 1 {
			t.Errorf("the removed member was ticked %d times, the other %d times; want 0, 1", first, second)
		}
		number, _ = s.Add(&first, length, length, tick)
		s.Remove(&first, number)
		s.wantEmpty(t)
	})
}

// However many members there are, one timer is set, for the earliest slot.
//
// Guarantees: G-0025.6
func TestOneTimerForAllMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Slots[*member]
		var members [100]member
		for i := range members {
			s.Add(&members[i], time.Duration(100-i)*length, length, tick)
		}
		s.mu.Lock()
		if s.next != 1 {
			t.Errorf("the timer is set to slot %d, want 1", s.next)
		}
		s.mu.Unlock()
		advance(100 * length)
		for i := range members {
			if members[i].taken() != 1 {
				t.Errorf("member %d was not ticked exactly once", i)
			}
		}
	})
}
