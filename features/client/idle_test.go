//go:build !race

package client_test

import (
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

// The heap of an idle pair stays below the ceiling of its kind, which leaves about 7 %
// for differences between runs. A pair has no goroutines but those that wait for its
// end. The race detector adds memory for each pair, so the test does not run with it.
//
// Guarantees: G-0001.16
func TestMemoryOfAnIdlePair(t *testing.T) {
	testenv.Crowd(t)
	for _, kind := range idlePairKinds {
		t.Run(kind.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keepIdle(t, 300, kind.version, kind.accept) // allocates what the runtime keeps after the busiest time
				got := keepIdle(t, 300, kind.version, kind.accept)
				if got.heap > kind.heap || got.goroutines != kind.goroutines {
					t.Errorf("%d bytes and %d goroutines, want %d bytes at most", got.heap, got.goroutines, kind.heap)
				}
				t.Log(got)
			})
		})
	}
}
