package cluster_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"testing/synctest"
)

// A Report has what the program of its node says, unless that would keep it from being read.
//
// Guarantees: G-0104.8
func TestNodesDescribeTheirPrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _, _ := threeNodes(t)
		synctest.Wait() // until each knows the others
		long := append(append([]byte{'"'}, bytes.Repeat([]byte{'x'}, 32<<10)...), '"')
		for _, said := range []struct{ says, want string }{{`{"n":1}`, `{"n":1}`}, {"", ""}, {"no JSON", ""}, {string(long), ""}} {
			nodes[1].Describe(func() json.RawMessage { return json.RawMessage(said.says) })
			reports, err := nodes[0].Reports(t.Context())
			if err != nil || len(reports) != 3 {
				t.Fatalf("%d reports: %v", len(reports), err)
			}
			if got := string(reports[1].Program); got != said.want || reports[0].Program != nil {
				t.Errorf("%.20s: the report has %.20s", said.says, got)
			}
		}
	})
}
