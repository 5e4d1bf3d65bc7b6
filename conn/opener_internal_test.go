package conn

import "testing"

// The loop leaves a job to the caller of Open only if that caller will still come for it.
//
// Guarantees: G-0054.1
func TestNoJobIsLeftToACallerThatHasReturned(t *testing.T) {
	var o openingCaller
	first := new(job)
	if !o.offer(first) || o.offer(new(job)) {
		t.Fatal("want exactly one job accepted before the caller takes it")
	}
	if o.take() != first || !o.offer(new(job)) {
		t.Fatal("want the job taken and the next one accepted")
	}
	o.take()
	if o.take() != nil || o.offer(new(job)) {
		t.Fatal("want no job accepted after the caller found none")
	}
	var stopped openingCaller
	stopped.takeLast(true)
	if stopped.offer(new(job)) {
		t.Fatal("want no job accepted after the incarnation has ended")
	}
}
