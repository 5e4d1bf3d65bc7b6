package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/nats"
	"github.com/bowline-mcp/bowline/cluster/nats/embedded"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/member"
)

// joinEngine returns what the nodes of a cluster share: NATS servers of the user's, a server in one
// of the processes of this machine, or one in each node.
func joinEngine(ctx context.Context, o member.EngineOptions) (cluster.Engine, error) {
	own := embedded.Options{Folder: o.Folder, Cluster: o.Cluster, Seeds: o.Seeds, Self: o.Self, Listen: o.Listen, Key: o.Key, Log: o.Log}
	var engine cluster.Engine
	var err error
	switch {
	case len(o.URLs) > 0:
		engine, err = nats.Connect(ctx, nats.Options{
			URLs: o.URLs, Cluster: o.Cluster, Existing: o.Observe, User: o.User, Password: o.Password, Token: o.Token, Credentials: o.Credentials, Log: o.Log,
		})
	case o.Observe:
		engine, err = embedded.Attach(ctx, own)
	default:
		engine, err = embedded.Join(ctx, own)
	}
	switch {
	case errors.As(err, new(*nats.ServerError)):
		err = &member.UnfitError{Err: err}
	case errors.Is(err, embedded.ErrNotRunning):
		err = &member.UnfitError{Err: fmt.Errorf("%w; if it uses NATS servers of yours, give --nats and --cluster-key", err)}
	}
	return engine, err
}
