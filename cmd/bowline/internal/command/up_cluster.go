package command

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/member"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/spf13/cobra"
)

// A joining is what up was told of a cluster, and its node once it has joined.
type joining struct {
	flags member.Flags
	node  *member.Node

	others *member.Others // nil: there are none
}

// check refuses flags that do not fit, before anything is opened.
func (j *joining) check(cmd *cobra.Command, forHosts bool, with member.Engines) error {
	named := cmd.Flags().Changed("cluster")
	if named && forHosts {
		return process.Usage(errors.New("--cluster needs a gateway that serves over HTTP: leave --stdio out"))
	}
	return j.flags.Check(true, named, with)
}

// join makes this process a node, if the flags name a cluster. The context of the command ends with the node, until the function that join returns is
// called.
func (j *joining) join(cmd *cobra.Command, with member.Engines) (leave func() error, err error) {
	if j.node, err = j.flags.Join(cmd, with); err != nil {
		return nil, err
	}
	whole := cmd.Context()
	cmd.SetContext(j.node.Serving)
	return func() error {
		cmd.SetContext(whole)
		if j.others != nil {
			j.others.Close()
		}
		return j.node.Close()
	}, nil
}

// unlessEnded returns why a node could not join, unless it was told to end while it waited: that is an end like any other.
func unlessEnded(cmd *cobra.Command, err error) error {
	if cmd.Context().Err() != nil {
		return nil
	}
	return err
}

// logins returns where the logins of users at servers are: in the cluster, so that they hold at each node, or on this machine.
func (j *joining) logins(cmd *cobra.Command, path string) auth.Store {
	if store := j.node.Logins(); store != nil {
		return store
	}
	return userLogins(cmd, path)
}

// share makes a gateway and its endpoint share with those at other nodes what they have to. Its tasks are its own.
func (j *joining) share(o *gateway.Options, endpoint *streamable.HandlerOptions) {
	j.node.Apply(&o.Server, endpoint)
	o.Server.Tasks = nil
	o.Exclusive = j.node.Exclusive
	if values := j.node.Values(); values != nil {
		o.Shared = values
	}
}

// shown returns what the doors show of a gateway: in a cluster the others, too, who are told how this one is.
func (j *joining) shown(of *operated) admin.Gateway {
	j.others = j.node.Others(func() json.RawMessage { return of.Report().Told() }, of.Notify)
	if j.others == nil {
		return of
	}
	j.node.OnMove(of.PrepareMove, func(server, to string, err error) { of.Moved(context.Background(), server, to, err) })
	j.node.OnRotate(of.keysRotated)
	return &clustered{of, j.node, j.others}
}
