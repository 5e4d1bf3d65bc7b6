package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/spf13/cobra"
)

// memberFlags are the flags of a process that is a node of a cluster.
type memberFlags struct {
	clusterFlags
	node string
	hop  string

	advertise string
}

func (m *memberFlags) addFlags(command *cobra.Command) {
	m.clusterFlags.addFlags(command)
	flags := command.Flags()
	flags.StringVar(&m.node, "node", "", "the `NAME` of this node in the cluster (default: the name of this machine and four letters)")
	flags.StringVar(&m.hop, "hop", "", "where the other nodes reach this one: an `ADDRESS` such as 0.0.0.0:7777 (default: a free port)")
	flags.StringVar(&m.advertise, "advertise", "", "the `ADDRESS` that other nodes use for this machine (default: its host in --seed, or the address by which it reaches NATS)")
}

// check refuses flags that do not fit. Named says that --cluster was given.
func (m *memberFlags) check(overHTTP, named bool, with Extras) error {
	switch {
	case m.name == "" && named:
		return usageFailure(errors.New("--cluster has no name: is a variable empty?"))
	case m.name == "" && (m.node+m.hop+m.credentials+m.keyFile+m.advertise+m.listen != "" || len(m.urls)+len(m.seeds) > 0):
		return usageFailure(errors.New("name the cluster with --cluster"))
	case m.name == "":
		return nil
	case !overHTTP:
		return usageFailure(errors.New("--cluster needs --http: a process has one client on its standard input and output"))
	case m.node != "" && !clusterName.MatchString(m.node):
		return usageFailure(fmt.Errorf("--node %.80q: the name of a node has 1 to 64 letters, digits, \"-\" and \"_\"", m.node))
	case m.hop != "" && !isAddress(m.hop):
		return usageFailure(fmt.Errorf("--hop: %.100q is no address with a port, such as 0.0.0.0:7777", m.hop))
	case m.advertise != "" && !isAddress(m.advertise) && !isAddress(net.JoinHostPort(m.advertise, "0")):
		return usageFailure(fmt.Errorf("--advertise: %.100q is no host, with or without a port", m.advertise))
	}
	return m.clusterFlags.check(with)
}

// isAddress reports whether a text is a host, perhaps none, and a port.
func isAddress(text string) bool {
	_, _, err := splitAddress(text)
	return err == nil
}

// A servingNode is this process, perhaps as a node of a cluster.
type servingNode struct {
	serving context.Context // ends when the process or its node shall end
	stop    context.CancelFunc

	engine cluster.Engine
	node   *cluster.Node // nil: it is in no cluster
	name   io.Closer     // the lock of its name; nil with --node
	left   chan struct{} // closed when nothing waits for the end of serving any more
	log    *slog.Logger  // nil: it is in no cluster
}

// joinTimeout limits how long a process waits for its cluster.
const joinTimeout = 40 * time.Second

// join joins the cluster, if the flags name one.
func (m *memberFlags) join(cmd *cobra.Command, with Extras) (*servingNode, error) {
	p := &servingNode{}
	p.serving, p.stop = context.WithCancel(cmd.Context())
	if m.name == "" {
		return p, nil
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	ctx, cancel := cmd.Context(), context.CancelFunc(func() {})
	if len(m.seeds) == 0 { // otherwise it waits for other machines, and says so
		ctx, cancel = context.WithTimeout(ctx, joinTimeout)
	}
	defer cancel()
	p.log = log
	err := m.enter(ctx, p, with, log)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.left = make(chan struct{})
	go p.follow()
	return p, nil
}

func (m *memberFlags) enter(ctx context.Context, p *servingNode, with Extras, log *slog.Logger) error {
	name, hop, advertise := m.node, m.hop, m.advertise
	key, err := m.given()
	if err != nil {
		return err
	}
	var folder string
	if name == "" || len(m.urls) == 0 { // otherwise this machine keeps nothing
		if folder, err = nodeFolder(m.clusterFlags.name); err != nil {
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
		Cluster: m.clusterFlags.name, Node: name, Key: key, Version: version(), Hop: hop, Advertise: advertise, Log: log,
	})
	if err != nil {
		return m.explain(err)
	}
	return nil
}

// follow makes the process end when its node drains, and the node drain when the process ends.
func (p *servingNode) follow() {
	defer close(p.left)
	select {
	case <-p.node.Draining():
		p.stop()
	case <-p.serving.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), finishGrace)
	defer cancel()
	_ = p.node.Drain(ctx) // what is left ends with the process
}

// state says for /readyz how the process is.
func (p *servingNode) state() string {
	if p.node == nil {
		return "ready"
	}
	state, _ := p.node.State()
	return string(state)
}

// apply makes a server and its endpoint share with the other nodes what they have to.
func (p *servingNode) apply(o *server.Options, h *streamable.HandlerOptions) {
	if p.node == nil {
		return
	}
	o.Node, o.Changes = p.node.Name(), p.node.Changes()
	o.Asking = server.AskingOptions{Fleet: true, Secrets: p.node.Keys("asking"), Spent: p.node.Spent()}
	o.Tasks = &server.TaskOptions{Store: p.node.Tasks(), Gone: p.node.Gone}
	h.Router, h.Sessions = p.node.Router(), p.node.Sessions()
}

// protect makes the nodes accept each other's nonces, and each proof once.
func (p *servingNode) protect(o *resource.Options) {
	if p.node != nil {
		o.DPoPSecrets, o.DPoPProofs = p.node.Keys("dpop"), p.node.Proofs()
	}
}

// serve serves what other nodes forward.
func (p *servingNode) serve(h http.Handler) error {
	if p.node == nil {
		return nil
	}
	return p.node.Serve(h)
}

// close leaves the cluster.
func (p *servingNode) close() error {
	p.stop()
	if p.left != nil {
		<-p.left
	}
	var errs []error
	if p.node != nil {
		ctx, cancel := context.WithTimeout(context.Background(), finishGrace)
		defer cancel()
		err := p.node.Close(ctx)
		if errors.Is(err, cluster.ErrUnavailable) { // the others notice by themselves
			p.log.Warn("the node could not tell the others that it has ended", "err", err)
			err = nil
		}
		errs = append(errs, err)
	}
	if p.engine != nil {
		errs = append(errs, p.engine.Close())
	}
	if p.name != nil {
		errs = append(errs, p.name.Close())
	}
	return errors.Join(errs...)
}
