package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// hooks are the functions that the parts of a Node have registered.
type hooks struct {
	mu       sync.Mutex
	leases   []func(key string)
	reports  []func(*Report)
	draining []func(context.Context) error
	closing  []func(context.Context)
}

// onLease registers a function that is called with the key of each lease or claim that has
// come, gone, or changed more than by a renewal: node.<name>, srv.<server> and so on. Calls
// may be concurrent, and must not block: the watch waits for them.
func (n *Node) onLease(f func(key string)) {
	n.hooks.mu.Lock()
	defer n.hooks.mu.Unlock()
	n.hooks.leases = append(n.hooks.leases, f)
}

// onReport registers a function that fills in its part of a Report. It must not block.
func (n *Node) onReport(f func(*Report)) {
	n.hooks.mu.Lock()
	defer n.hooks.mu.Unlock()
	n.hooks.reports = append(n.hooks.reports, f)
}

// onDrain registers a function that Drain calls. It returns when its work has ended, or soon
// after its context has.
func (n *Node) onDrain(f func(context.Context) error) {
	n.hooks.mu.Lock()
	defer n.hooks.mu.Unlock()
	n.hooks.draining = append(n.hooks.draining, f)
}

// onClose registers a function that Close calls first. It writes what is to be written, and ends
// what is to be ended, before the node leaves.
func (n *Node) onClose(f func(context.Context)) {
	n.hooks.mu.Lock()
	defer n.hooks.mu.Unlock()
	n.hooks.closing = append(n.hooks.closing, f)
}

// close calls all functions at the same time, and waits for them.
func (h *hooks) close(ctx context.Context) {
	h.mu.Lock()
	all := slices.Clone(h.closing)
	h.mu.Unlock()
	var group sync.WaitGroup
	for _, f := range all {
		group.Go(func() { f(ctx) })
	}
	group.Wait()
}

func (h *hooks) leaseChanged(key string) {
	h.mu.Lock()
	all := slices.Clone(h.leases)
	h.mu.Unlock()
	for _, f := range all {
		f(key)
	}
}

func (h *hooks) fill(r *Report) {
	h.mu.Lock()
	all := slices.Clone(h.reports)
	h.mu.Unlock()
	for _, f := range all {
		f(r)
	}
}

// drain calls all functions at the same time, and waits for them.
func (h *hooks) drain(ctx context.Context) error {
	h.mu.Lock()
	all := slices.Clone(h.draining)
	h.mu.Unlock()
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, f := range all {
		group.Go(func() { errs[i] = f(ctx) })
	}
	group.Wait()
	return errors.Join(errs...)
}
