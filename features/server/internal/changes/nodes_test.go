package changes

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

// When changes were missed, 10,000 listeners are told within 5 s, and no more than 101 of them
// in 50 ms. Twenty are told at once.
//
// Guarantees: G-0074.7
func TestListenersAreNotToldOfMissedChangesTogether(t *testing.T) {
	for _, many := range []int{1, 20, 10_000} {
		testenv.Bubble(t, func(t *testing.T) {
			var receive func(Message)
			h := NewHub(nil)
			h.Join(Network{
				Publish: func(Message) {}, Guard: func(_ string, f func()) { f() },
				Subscribe: func(f func(Message)) (stop func()) {
					receive = f
					return func() {}
				},
			})
			began, told := time.Now(), make(chan time.Duration, 2*many)
			for range many {
				l := new(Listener)
				l.Use(func([]Change) ([]Change, time.Duration) {
					told <- time.Since(began)
					return nil, 0
				})
				l.Want(Tools())
				l.Begin()
				h.Add(l)
			}
			receive(Message{Missed: true})
			<-time.NewTimer(missedTime + time.Second).C
			synctest.Wait()
			if len(told) != many {
				t.Fatalf("%d of %d listeners were told", len(told), many)
			}
			at := make(map[time.Duration]int) // how many were told in 50 ms
			for range many {
				after := <-told
				at[after/missedInterval]++
				if after > missedTime+Interval {
					t.Fatalf("a listener was told after %v", after)
				}
			}
			for when, n := range at {
				if n > max(missedAtOnce, many/100+1) {
					t.Errorf("%d listeners were told within 50 ms, %v after the change", n, when*missedInterval)
				}
			}
			if many <= missedAtOnce && at[0] != many {
				t.Errorf("%d of %d listeners were told at once", at[0], many)
			}
			h.Leave().Wait()
			receive(Message{Missed: true})
			<-time.NewTimer(missedTime).C
			synctest.Wait()
			if len(told) > 0 {
				t.Errorf("%d listeners were told after Leave", len(told))
			}
		})
	}
}
