package embedded

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/cluster"
)

// What was used stays used when the process with the server ends and another starts it again.
//
// Guarantees: G-0081.3
func TestSpentStatesSurviveTheServer(t *testing.T) {
	o := testOptions(t)
	var engines [2]cluster.Engine
	var nodes [2]*cluster.Node
	for i, name := range []string{"holder", "other"} {
		engines[i] = join(t, o)
		n := must[*cluster.Node](t)(cluster.Join(within(t), engines[i], cluster.Options{
			Cluster: "test", Node: name, Key: bytes.Repeat([]byte{1}, cluster.KeySize), Log: o.Log,
		}))
		t.Cleanup(func() { _ = n.Close(context.WithoutCancel(t.Context())) }) // the first is closed twice
		nodes[i] = n
	}
	until := time.Now().Add(10 * time.Minute)
	spends := map[string]func(n *cluster.Node) (first bool, err error){
		"state": func(n *cluster.Node) (bool, error) { return n.Spent().Spend(within(t), [16]byte{}, until) },
		"proof": func(n *cluster.Node) (bool, error) { return n.Proofs().Take(within(t), resource.ProofID{}, until) },
	}
	for name, spend := range spends {
		if first, err := spend(nodes[0]); !first || err != nil {
			t.Fatalf("%s: first is %v, %v", name, first, err)
		}
	}
	if err := nodes[0].Close(within(t)); err != nil {
		t.Fatal(err)
	}
	closeEngine(t, engines[0])
	for name, spend := range spends {
		first, err := spend(nodes[1])
		for ctx := within(t); errors.Is(err, cluster.ErrUnavailable); first, err = spend(nodes[1]) {
			rest(ctx, t, 10*time.Millisecond)
		}
		if first || err != nil {
			t.Errorf("a %s that was used before the server ended: first is %v, %v", name, first, err)
		}
	}
}
