package main

import (
	"context"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/nats"
	"github.com/bowline-mcp/bowline/cluster/nats/embedded"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/command"
)

// joinEngine returns what the nodes of a cluster share: NATS servers of the user's, a server in one
// of the processes of this machine, or one in each node.
func joinEngine(ctx context.Context, o command.EngineOptions) (cluster.Engine, error) {
	if len(o.URLs) > 0 {
		return nats.Connect(ctx, nats.Options{URLs: o.URLs, Cluster: o.Cluster, Credentials: o.Credentials, Log: o.Log})
	}
	own := embedded.Options{Folder: o.Folder, Cluster: o.Cluster, Seeds: o.Seeds, Self: o.Self, Listen: o.Listen, Key: o.Key, Log: o.Log}
	if o.Observe {
		return embedded.Attach(ctx, own)
	}
	return embedded.Join(ctx, own)
}
