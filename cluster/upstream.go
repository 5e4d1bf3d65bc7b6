package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/bowline-mcp/bowline/cluster/internal/sharing"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// UpstreamOptions configure Node.Upstream.
type UpstreamOptions struct {
	// On are labels that a node must have to run the server, with their values; see
	// Options.Labels. Default: any node may run it.
	On map[string]string
}

// Upstream returns a transport to a server that runs on one node at a time, and that the clients of
// all nodes use (ADR-0079). Give each node's client such a transport with the same name. The name
// may be any string. Own starts the server on this node: usually a *stdio.Command.
//
// An Open claims the server if nobody has, starts it by own.Open, and returns a link to it. If
// another node has the claim, it returns a link to that node. If the claim is lost, because this
// node could not renew it for 17 s, the server is ended and all links to it are lost. The transport
// wakes the connections whose Open has failed when another Open may succeed.
//
// The nodes that fit wait before they claim, in an order that differs from server to server. A node
// that lacks the executable, or on which the server has failed three times in a row before it ran
// for 30 s, gives the claim up, and leaves the server to others that fit for 60 s. A node also gives
// the claim up if the server does not run and all connections of the node to it have ended, or none
// has opened a link for 40 s. Drain lets calls end and gives the claim up.
//
// If own is a *stdio.Command and Options.Guardian is set, the server and all that it started ends
// before another node can start it, even if this node is stopped or killed. Otherwise only the
// calls are exclusive: none is passed to the server when the claim is over, but its process may run
// on while this node is stopped, and on systems other than Linux and Windows also when this node is
// killed.
//
// All clients share one connection to the server, and with it what the server keeps for its client:
// one session, one set of capabilities, which must be the same for all, and one log level. A
// question of the server goes to the node that has calls under way, and is refused if several have.
func (n *Node) Upstream(name string, own transport.Transport, o UpstreamOptions) transport.Transport {
	u := &upstream{exclusive: n.exclusive(name), own: own, on: maps.Clone(o.On)}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.latest = u
	return u
}

// An upstream is one configuration of an exclusive server. If a program replaces one by another of
// the same name, the server of the old one must end before the new one is started.
type upstream struct {
	*exclusive
	own transport.Transport
	on  map[string]string
}

var _ interface {
	transport.Checked
	transport.Describer
} = (*upstream)(nil)

// Check implements transport.Checked.
func (u *upstream) Check() error {
	if checked, ok := transport.As[transport.Checked](u.own); ok {
		return checked.Check()
	}
	return nil
}

// Traits implements transport.Describer. Also a server on another node may have to start first.
func (u *upstream) Traits() transport.Traits {
	own := transport.TraitsOf(u.own)
	return transport.Traits{Name: cmp.Or(own.Name, u.name), StartsProcess: own.StartsProcess}
}

// Open implements transport.Transport.
func (u *upstream) Open(ctx context.Context) (transport.Link, error) {
	seen := u.wakers.asks(transport.WakerOf(ctx))
	link, err := u.open(ctx)
	if err != nil {
		u.wakers.failed(seen)
	}
	return link, err
}

func (u *upstream) open(ctx context.Context) (transport.Link, error) {
	for {
		in, changed := u.state()
		by, _, found := u.node.holder(u.key)
		self := u.node.self()
		var link transport.Link
		var err error
		switch {
		case in.closed:
			return nil, errClosed
		case in.stuck != nil:
			return nil, fmt.Errorf("cluster: server %q has run on this node and not ended: %w", u.name, in.stuck)
		case in.asked || in.run != nil && in.run.by != u: // it is drained, say, or was configured anew
			if err := await(ctx, in.run.over); err != nil {
				return nil, fmt.Errorf("cluster: server %q has to end first: %w", u.name, err)
			}
		case in.run != nil:
			link, err = in.run.join(ctx)
		case in.claimed || !found:
			link, err = u.takeTurn(ctx)
		case by.Node == self.Node && by.Epoch == self.Epoch: // the news that this node has given it up is late
			err = await(ctx, changed)
		case by.Node == self.Node:
			return nil, fmt.Errorf("cluster: server %q belongs to an earlier process of this node until its claim expires", u.name)
		default:
			return u.dial(ctx, by.Node)
		}
		if link != nil || err != nil {
			return link, err
		}
	}
}

// join returns a link for one more client of this process. It returns nil when the server has
// ended.
func (r *serverRun) join(ctx context.Context) (transport.Link, error) {
	if wait.IsClosed(r.shared.Done()) {
		return nil, await(ctx, r.over)
	}
	select {
	case <-r.shared.Ready():
		near, far := inmem.Pipe(inmem.Options{})
		r.shared.Serve(far)
		return near, nil
	case <-r.shared.Done():
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// takeTurn claims the server, unless this node has it, and starts it. It returns nil if that is
// not right any more.
func (u *upstream) takeTurn(ctx context.Context) (transport.Link, error) {
	ctx, cancel := u.withEnding(ctx)
	defer cancel()
	if err := u.lockTurn(ctx); err != nil {
		return nil, err
	}
	defer u.unlockTurn()
	in, changed := u.state() // somebody else may have had the turn
	if in.run != nil || in.closed {
		return nil, nil
	}
	if !in.claimed {
		if claimed, err := u.claimInTurn(ctx, changed); !claimed || err != nil {
			return nil, err
		}
	}
	return u.launch(ctx)
}

// claimInTurn claims the server, unless another node comes first.
func (u *upstream) claimInTurn(ctx context.Context, changed <-chan struct{}) (claimed bool, err error) {
	if _, _, found := u.node.holder(u.key); found {
		return false, nil
	}
	if err := u.mayClaim(u.on); err != nil {
		return false, err
	}
	if err := u.node.carrier.mount(u.path, u.exclusive); err != nil {
		return false, fmt.Errorf("cluster: other nodes cannot reach server %q here: %w", u.name, err)
	}
	if rank := u.rank(); rank > 0 {
		if passed, err := u.wait(ctx, changed, time.Duration(rank)*spreadStep); !passed {
			return false, err
		}
	}
	err = u.makeClaim(ctx)
	if !errors.Is(err, ErrExists) {
		return err == nil, err
	}
	if passed, err := u.wait(ctx, changed, retryEvery); !passed {
		return false, err
	}
	return false, fmt.Errorf("cluster: another node has claimed server %q: %w", u.name, err)
}

// rank returns how many nodes are preferred to this one, of those that fit. A person may have chosen this one.
func (u *upstream) rank() int {
	if u.node.holds(u.moveKey) {
		return 0
	}
	return rankOf(u.name, u.node.options.Node, u.node.Members(), u.on)
}

// wait reports whether the time has passed. It returns earlier when something changes, or ctx ends.
func (u *upstream) wait(ctx context.Context, changed <-chan struct{}, d time.Duration) (passed bool, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-changed:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// launch starts the server, whose claim this node has.
func (u *upstream) launch(ctx context.Context) (transport.Link, error) {
	link, err := u.start(ctx)
	if err != nil {
		if ctx.Err() == nil && err != errFailing {
			u.fail(err)
		}
		return nil, err
	}
	run := &serverRun{
		by: u, began: time.Now(), over: make(chan struct{}),
		shared: sharing.New(link, sharing.Options{Name: u.name, May: u.may, Log: u.node.log}),
	}
	if !u.enter(run) {
		return nil, errors.Join(errLeaseExpired, run.shared.Close(0))
	}
	u.node.running.Go(func() { u.follow(run) })
	return run.shared.Local(), nil
}

// enter notes what runs. It reports false if the claim was lost meanwhile.
func (e *exclusive) enter(run *serverRun) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.claim != nil {
		e.run = run
		e.changed.Announce()
	}
	return e.claim != nil
}

// minClaim is the time for which a claim must hold, so that a server is started. It is shorter
// only if renewals fail, and then the server would soon be ended again.
const minClaim = leaseHeld - 2*renewEvery

// errFailing says why a server is not started.
var errFailing = errors.New("cluster: the claim of the server cannot be renewed")

// start starts the server, which ends by itself at the end of the claim if it has a guardian.
func (u *upstream) start(ctx context.Context) (transport.Link, error) {
	until := u.node.heldUntil(u.key)
	if time.Until(until) < minClaim {
		return nil, errFailing
	}
	command, isCommand := u.own.(*stdio.Command)
	if !isCommand {
		return u.own.Open(ctx)
	}
	if u.node.options.Guardian == nil {
		u.node.log.Warn("cluster: the server has no guardian, and may run on beyond its claim", "server", u.name)
		return u.own.Open(ctx)
	}
	link, err := u.node.options.Guardian.Open(ctx, command, until)
	if err != nil {
		return nil, err
	}
	u.node.onRenewal(u.key, link.Renew)
	return link, nil
}
