package cluster_test

import (
	"context"
	"fmt"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
)

// Two nodes share an engine. A program uses that of package cluster/nats.
func ExampleJoin() {
	ctx := context.Background()
	shared := clustertest.New(clustertest.Options{})
	secret := []byte("32 random bytes, the same for all")[:cluster.KeySize]
	for _, name := range []string{"a", "b"} {
		engine := shared.Engine()
		n, err := cluster.Join(ctx, engine, cluster.Options{Cluster: "demo", Node: name, Key: secret})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() {
			if err := n.Close(ctx); err != nil {
				fmt.Println(err)
			}
			_ = engine.Close() // this one cannot fail
		}()
		for _, m := range n.Members() {
			fmt.Println(name, "knows", m.Name)
		}
		state, _ := n.State()
		fmt.Println(name, "is", state)
	}
	// Output:
	// a knows a
	// a is ready
	// b knows a
	// b knows b
	// b is ready
}
