package cluster_test

import (
	"context"
	"fmt"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/cluster/guardian"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A server of files must not run twice. Each node of the cluster uses it this way, and one of them
// starts it.
func ExampleNode_Upstream() {
	guard := guardian.Start() // first in main: this process may be the one that ends the server
	ctx := context.Background()
	engine := clustertest.New(clustertest.Options{}).Engine() // a program uses package cluster/nats
	n, err := cluster.Join(ctx, engine, cluster.Options{
		Cluster: "demo", Node: "a", Key: []byte("32 random bytes, the same for all")[:cluster.KeySize], Guardian: guard,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		_ = n.Close(ctx) // the error says what another node gets only later
		_ = engine.Close()
	}()
	files := n.Upstream("files", &stdio.Command{Path: "files-server", Args: []string{"/srv"}}, cluster.UpstreamOptions{})
	session, err := client.New(protocol.Implementation{Name: "demo", Version: "1"}, client.Options{}).Connect(ctx, files)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Stop()
	for tool, err := range session.Tools(ctx) {
		fmt.Println(tool.Name, err)
	}
}
