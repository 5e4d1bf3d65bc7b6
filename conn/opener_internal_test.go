package conn

import "testing"

// A caller who has come and found nothing to do does not come again.
//
// Guarantees: G-0054.1
func TestNothingIsLeftToACallerWhoHasGone(t *testing.T) {
	var o openingCaller
	first := new(job)
	if !o.offer(first) || o.offer(new(job)) {
		t.Fatal("a caller is left one job, and no other before it has taken that")
	}
	if o.take() != first || !o.offer(new(job)) {
		t.Fatal("a caller who may come again is left the next job")
	}
	o.take()
	if o.take() != nil || o.offer(new(job)) {
		t.Fatal("a job is left to a caller who has gone")
	}
	var stopped openingCaller
	stopped.takeLast(true)
	if stopped.offer(new(job)) {
		t.Fatal("a job is left to a caller after the incarnation has ended")
	}
}
