package member

import (
	"context"
	"log/slog"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/guardian"
)

// Engines are what the nodes of a cluster share. It needs large libraries; the zero value says that
// this command was built without them.
type Engines struct {
	// Open returns the engine of a cluster.
	Open func(context.Context, EngineOptions) (cluster.Engine, error)

	// Guardian ends servers that one node runs at a time, whatever becomes of that node; see guardian.Start. Nil: a server may outlive its node for a while.
	Guardian *guardian.Guardian

	// Running reports whether a process of this machine runs the engine of a folder.
	Running func(folder string) bool
}

// An EngineOptions says how to reach what the nodes of a cluster share.
type EngineOptions struct {
	Cluster string
	Key     []byte // of the cluster
	Folder  string // of the cluster on this machine; it exists, and is private

	Observe bool // do not become a node: connect to what runs already

	// NATS servers of the user's.
	URLs                  []string // none: a server in one of the processes of this machine
	User, Password, Token string   // "" for none
	Credentials           string   // a file; "" for none

	// Servers in the nodes of several machines.
	Seeds        []string // where they listen for each other; none: only this machine has nodes
	Self, Listen string   // which of Seeds is this node, and the address on which it listens

	Log *slog.Logger
}

// An UnfitError says that the engine of a cluster cannot be used as it is, and what to do.
type UnfitError struct{ Err error }

func (e *UnfitError) Error() string { return e.Err.Error() }

func (e *UnfitError) Unwrap() error { return e.Err }
