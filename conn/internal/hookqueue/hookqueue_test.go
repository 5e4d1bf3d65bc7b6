package hookqueue

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Calls are made in order, and no more than bound wait for one that is slow.
func TestCallsAreBoundedAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &Queue{Make: func(call func()) { call() }}
		release, made := make(chan struct{}), 0
		q.Submit(func() { <-release })
		synctest.Wait()
		for i := range bound {
			if !q.Submit(func() {
				if made != i {
					t.Errorf("call %d was made after %d others", i, made)
				}
				made++
			}) {
				t.Fatalf("call %d was lost", i)
			}
		}
		if q.Submit(func() { t.Error("a call was made for which there was no room") }) {
			t.Error("Submit reported true although bound calls wait")
		}
		close(release)
		if !q.Settle(time.Hour) || made != bound {
			t.Errorf("%d calls were made, want %d", made, bound)
		}
	})
}

// A call that does not return is given up when it has lasted for the grace, and those behind it are lost.
func TestSettleGivesUpAStuckCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &Queue{Make: func(call func()) { call() }}
		release, began := make(chan struct{}), time.Now()
		q.Submit(func() { <-release })
		q.Submit(func() { t.Error("a call was made that was dropped") })
		if q.Settle(time.Second) || time.Since(began) != time.Second {
			t.Errorf("it settled after %v, want none within 1s", time.Since(began))
		}
		close(release)
		synctest.Wait()
		if !q.Settle(0) {
			t.Error("it does not settle when the call has returned")
		}
	})
}
