package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
)

// An Observer sees the nodes of a cluster and steers them, without being one of them: it has
// no lease, and serves nothing. Its methods may be called from any goroutine.
type Observer struct{ node *Node }

// Observe returns an Observer of a cluster, when all its members are known. Of the options it
// uses Cluster, Key and Log. The Observer uses the Engine until Close, and does not close it.
func Observe(ctx context.Context, e Engine, o Options) (*Observer, error) {
	o.Node = "observer-" + rand.Text()
	o, err := o.check()
	if err != nil {
		return nil, err
	}
	n := newNode(e, o)
	n.observes = true
	if n.leases, err = n.openLeases(ctx); err == nil {
		n.running.Go(n.follow)
		err = await(ctx, n.current)
	}
	if err == nil {
		err = n.checkKey()
	}
	observer := &Observer{n}
	if err != nil {
		observer.Close()
		return nil, err
	}
	return observer, nil
}

// Member returns a living node by its name.
func (o *Observer) Member(name string) (Member, bool) { return o.node.Member(name) }

// Reports collects the Reports of all members, by name: until all have answered, for at most
// a second. An error says which have not.
func (o *Observer) Reports(ctx context.Context) ([]Report, error) {
	reports, err := o.node.collect(ctx)
	slices.SortFunc(reports, func(a, b Report) int { return cmp.Compare(a.Name, b.Name) })
	return reports, err
}

// DrainNode asks a node to drain, and asks again while the Engine cannot be reached, or while the
// node has a lease and does not answer, until ctx ends. It returns when the node has begun.
func (o *Observer) DrainNode(ctx context.Context, name string) error {
	return o.node.askUntilAnswered(ctx, name, opDrain, nil, nil)
}

// MoveServer has a node run an exclusive server, as that of Node does.
func (o *Observer) MoveServer(ctx context.Context, server, node string) error {
	return o.node.MoveServer(ctx, server, node)
}

// Close ends the Observer.
func (o *Observer) Close() {
	o.node.cancel(errClosed)
	o.node.running.Wait()
}
