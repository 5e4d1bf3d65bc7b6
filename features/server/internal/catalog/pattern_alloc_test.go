//go:build !race

package catalog

import (
	"strings"
	"testing"
)

// Matching allocates no more for a long list than for a short one: it keeps nothing for
// each element. The race detector makes a sync.Pool, as package regexp has one, forget what it is
// given at random, so the test does not run with it.
//
// Guarantees: G-0029.12
func TestLongURIsAreMatchedAsCheaplyAsShortOnes(t *testing.T) {
	for _, text := range []string{"users://{id}", "users://{a,b}", "users://a{/b*}", "users://a{?b*}"} {
		p, err := NewPattern(text)
		if err != nil {
			t.Fatal(err)
		}
		uri := "users://" + strings.Repeat("a,", LongestURI/2)
		if got := testing.AllocsPerRun(10, func() { p.Variables(uri) }); got > 20 {
			t.Errorf("%s: matching %d bytes allocates %v times, want at most 20", text, len(uri), got)
		}
	}
}
