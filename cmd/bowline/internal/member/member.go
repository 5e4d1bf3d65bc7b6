// Package member makes a process of bowline serve a node of a cluster, and finds a cluster for the
// commands that steer one: its flags, its key and its folder on this machine, and what the nodes
// share.
//
// Join starts one goroutine, which waits for the end of the process or of the node; Close waits for it.
package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/private"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/spf13/cobra"
)

// A Node is this process, perhaps as a node of a cluster.
type Node struct {
	Serving context.Context // ends when the process or its node shall end
	stop    context.CancelFunc

	engine cluster.Engine
	node   *cluster.Node // nil: it is in no cluster
	name   *os.File      // the lock of its name; nil with --node
	left   chan struct{} // closed when nothing waits for the end of serving any more
	log    *slog.Logger  // nil: it is in no cluster
}

// joinTimeout limits how long a process waits for its cluster.
const joinTimeout = 40 * time.Second

// Join joins the cluster, if the flags name one.
func (m *Flags) Join(cmd *cobra.Command, with Engines) (*Node, error) {
	p := &Node{}
	p.Serving, p.stop = context.WithCancel(cmd.Context())
	if m.Name == "" {
		return p, nil
	}
	log := slog.New(process.LogAt(cmd, m.Level))
	ctx, cancel := cmd.Context(), context.CancelFunc(func() {})
	if len(m.seeds) == 0 { // otherwise it waits for other machines, and says so
		ctx, cancel = context.WithTimeout(ctx, joinTimeout)
	}
	defer cancel()
	p.log = log
	err := m.enter(ctx, p, with, log)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.left = make(chan struct{})
	go p.follow()
	return p, nil
}

func (m *Flags) enter(ctx context.Context, p *Node, with Engines, log *slog.Logger) error {
	name, hop, advertise := m.node, m.hop, m.advertise
	key, err := m.given()
	if err != nil {
		return err
	}
	var folder string
	if name == "" || len(m.urls) == 0 { // otherwise this machine keeps nothing
		if folder, err = nodeFolder(m.ClusterFlags.Name); err != nil {
			return fmt.Errorf("the folder of the cluster on this machine: %w", err)
		}
		if key, err = m.keep(key, folder); err != nil {
			return err
		}
	}
	if name == "" {
		if name, p.name, err = takeName(folder); err != nil {
			return err
		}
	}
	o := m.options(folder, log)
	o.Key = key
	if len(m.seeds) > 0 {
		if o.Self, err = m.self(ctx, m.advertise); err != nil {
			return err
		}
		hop, advertise = m.reach(o.Self, hop, advertise)
	}
	if p.engine, err = m.open(ctx, with, o); err != nil {
		return err
	}
	p.node, err = cluster.Join(ctx, p.engine, cluster.Options{
		Cluster: m.ClusterFlags.Name, Node: name, Key: key, Version: process.Version(), Hop: hop, Advertise: advertise, Log: log, Guardian: with.Guardian,
	})
	if err != nil {
		return m.explain(err)
	}
	return nil
}

// follow makes the process end when its node drains, and the node drain when the process ends.
func (p *Node) follow() {
	defer close(p.left)
	select {
	case <-p.node.Draining():
		p.stop()
	case <-p.Serving.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), process.FinishGrace)
	defer cancel()
	_ = p.node.Drain(ctx) // what is left ends with the process
}

// State says for /readyz how the process is.
func (p *Node) State() string {
	if p.node == nil {
		return "ready"
	}
	state, _ := p.node.State()
	return string(state)
}

// Apply makes a server and its endpoint share with the other nodes what they have to.
func (p *Node) Apply(o *server.Options, h *streamable.HandlerOptions) {
	if p.node == nil {
		return
	}
	o.Node, o.Changes = p.node.Name(), p.node.Changes()
	o.Asking = server.AskingOptions{Fleet: true, Secrets: p.node.Keys("asking"), Spent: p.node.Spent()}
	o.Tasks = &server.TaskOptions{Store: p.node.Tasks(), Gone: p.node.Gone}
	h.Router, h.Sessions = p.node.Router(), p.node.Sessions()
}

// Name returns the name of the node; "" in no cluster.
func (p *Node) Name() string {
	if p.node == nil {
		return ""
	}
	return p.node.Name()
}

// Exclusive returns a transport to a server that one node of the cluster runs at a time; in no cluster it is the server's own.
func (p *Node) Exclusive(name string, own transport.Transport) transport.Transport {
	if p.node == nil {
		return own
	}
	return p.node.Upstream(name, own, cluster.UpstreamOptions{})
}

// OnMove says what to do when such servers are moved; see cluster.Node.OnMove.
func (p *Node) OnMove(prepare func(ctx context.Context, server string) error, moved func(server, to string, err error)) {
	if p.node != nil {
		p.node.OnMove(prepare, moved)
	}
}

// OnRotate says who hears that shared keys were rotated; see cluster.Node.OnRotate.
func (p *Node) OnRotate(rotated func(cluster.KeysStatus)) {
	if p.node != nil {
		p.node.OnRotate(rotated)
	}
}

// MoveServer has a node run such a server; see cluster.Node.MoveServer.
func (p *Node) MoveServer(ctx context.Context, server, to string) error {
	return p.node.MoveServer(ctx, server, to)
}

// Values returns a store of values that all nodes share; nil in no cluster.
func (p *Node) Values() *cluster.Values {
	if p.node == nil {
		return nil
	}
	return p.node.Values()
}

// Logins returns where all nodes keep logins; nil in no cluster.
func (p *Node) Logins() auth.Store {
	if p.node == nil {
		return nil
	}
	return p.node.Logins()
}

// Reach returns what forwards a request to a node of the cluster; nil if that is not there, or this one.
func (p *Node) Reach(node string) http.Handler {
	if p.node == nil {
		return nil
	}
	return p.node.Router().ReachNode(node)
}

// Protect makes the nodes accept each other's nonces, and each proof once.
func (p *Node) Protect(o *resource.Options) {
	if p.node != nil {
		o.DPoPSecrets, o.DPoPProofs = p.node.Keys("dpop"), p.node.Proofs()
	}
}

// Serve serves what other nodes forward.
func (p *Node) Serve(h http.Handler) error {
	if p.node == nil {
		return nil
	}
	return p.node.Serve(h)
}

// Close leaves the cluster.
func (p *Node) Close() error {
	p.stop()
	if p.left != nil {
		<-p.left
	}
	var errs []error
	if p.node != nil {
		errs = append(errs, p.leave())
	}
	if p.engine != nil {
		errs = append(errs, p.engine.Close())
	}
	if p.name != nil {
		errs = append(errs, private.Unlock(p.name))
	}
	return errors.Join(errs...)
}

// leave ends the node. If it cannot tell the others, they notice by themselves.
func (p *Node) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), process.FinishGrace)
	defer cancel()
	err := p.node.Close(ctx)
	if errors.Is(err, cluster.ErrUnavailable) {
		p.log.Warn("the node could not tell the others that it has ended", "err", err)
		return nil
	}
	return err
}
