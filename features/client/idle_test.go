//go:build !race

package client_test

import (
	"testing"
	"testing/synctest"
)

// An idle pair takes no more of the heap than its kind's ceiling, which leaves
// the runtime some 7 % to differ by from run to run, and has no other goroutine
// than those that wait for its end. The race detector keeps much beside it, so
// it is not asked.
//
// Guarantees: G-0001.16
func TestIdlePairTakes(t *testing.T) {
	for _, kind := range idlePairKinds {
		t.Run(kind.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keepIdle(t, 300, kind.version, kind.accept) // what the runtime keeps for the busiest time is there now
				got := keepIdle(t, 300, kind.version, kind.accept)
				if got.heap > kind.heap || got.goroutines != kind.goroutines {
					t.Errorf("%d bytes, of %d at most, and %d goroutines", got.heap, kind.heap, got.goroutines)
				}
				t.Log(got)
			})
		})
	}
}
