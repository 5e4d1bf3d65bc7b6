package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/cluster/clustertest"
)

// A node whose write gets no answer finds out who has used a state: itself, or another node before it. It does not matter how the answer is lost.
//
// Guarantees: G-0081.3
func TestWhoHasUsedAStateAfterALostAnswer(t *testing.T) {
	for name, fault := range map[string]clustertest.Fault{"no answer": {LoseResult: true}, "a cut": {LoseResult: true, Cut: true}} {
		for _, used := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				nodes, engines, _ := threeNodes(t)
				state, until, lost := [16]byte{1}, time.Now().Add(10*time.Minute), false
				if used {
					if first, err := nodes[1].Spent().Spend(t.Context(), state, until); !first || err != nil {
						t.Fatalf("%s: before, first is %v: %v", name, first, err)
					}
				}
				engines[0].Faults(func(op clustertest.Operation) clustertest.Fault {
					if op.Name != "create" || op.Subject != "spent" || lost {
						return clustertest.Fault{}
					}
					lost = true
					if fault.Cut {
						time.AfterFunc(time.Second/2, engines[0].Heal)
					}
					return fault
				})
				if first, err := nodes[0].Spent().Spend(t.Context(), state, until); first == used || err != nil || !lost {
					t.Errorf("%s, used before: %v; first is %v: %v", name, used, first, err)
				}
			})
		}
	}
}

// A state whose time is over is used once nevertheless: the clock of who has made it may be behind.
//
// Guarantees: G-0081.3
func TestAStateThatIsOverIsUsedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _, _ := threeNodes(t)
		for n, want := range []bool{true, false} {
			if first, err := nodes[n].Spent().Spend(t.Context(), [16]byte{1}, time.Now().Add(-time.Hour)); first != want || err != nil {
				t.Errorf("at node %d, first is %v: %v", n, first, err)
			}
		}
	})
}
