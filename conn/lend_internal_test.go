package conn

import "testing"

// Work that comes together with the outcome of the call is done all the same, and the
// caller does not wait for it.
//
// Guarantees: G-0059.2
func TestWorkThatComesTooLate(t *testing.T) {
	var l lent
	for range 2 {
		l.offer()
		done, release := make(chan struct{}), make(chan struct{})
		if !l.Lend(func() { <-release; close(done) }) {
			t.Fatal("the goroutine was not lent")
		}
		if !l.withdraw() {
			t.Error("somebody may still ask")
		}
		close(release)
		<-done
	}
}

// A call whose goroutine nobody has asked for is not used for another: who knows of it
// might have that do its work.
//
// Guarantees: G-0059.2
func TestOfferThatNobodyHasTaken(t *testing.T) {
	var l lent
	if !l.withdraw() {
		t.Error("what was not offered is not forgotten")
	}
	if l.offer(); l.withdraw() {
		t.Error("an offer that nobody has taken is forgotten")
	}
	if l.Lend(func() {}) {
		t.Error("the goroutine of a caller who waits no longer was lent")
	}
}
