package stores_test

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/proptest/stores"
)

// A bus carries changes between nodes in one process. Each node has a queue of at most room
// changes; what does not fit is missed.
type bus struct {
	room  int // 0: 100
	flaws busFlaws
	loses atomic.Bool

	mu    sync.Mutex
	nodes []*busNode // those that have subscribed
}

// busFlaws break a bus; nil: it is right.
type busFlaws struct {
	publish func(n *busNode, c server.Change, deliver func(*busNode, server.Change)) // in place of: deliver to all others
	call    func(n *busNode, c server.Change)                                        // in place of: call f
	silent  bool                                                                     // what is lost is not reported
	stop    func(n *busNode, stop func())                                            // in place of: stop
}

type busNode struct {
	*bus
	f      func(server.Change)
	wake   chan struct{} // holds a token if there is something in the queue
	ended  chan struct{}
	queue  []server.Change // guarded by mu
	missed bool            // guarded by mu
}

func (b *bus) node() server.Changes { return &busNode{bus: b} }

// lose implements stores.Changes.Lose.
func (b *bus) lose() (restore func()) {
	b.loses.Store(true)
	return func() { b.loses.Store(false) }
}

func (n *busNode) Publish(c server.Change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.flaws.publish != nil {
		n.flaws.publish(n, c, (*busNode).enqueue)
		return
	}
	for _, other := range n.nodes {
		if other != n {
			other.enqueue(c)
		}
	}
}

// enqueue queues a change. The caller holds the mutex.
func (n *busNode) enqueue(c server.Change) {
	room := n.room
	if room == 0 {
		room = 100
	}
	if n.loses.Load() || len(n.queue) >= room {
		n.missed = !n.flaws.silent
	} else {
		n.queue = append(n.queue, c)
	}
	select {
	case n.wake <- struct{}{}:
	default: // it has a token
	}
}

func (n *busNode) Subscribe(f func(server.Change)) (stop func()) {
	n.f, n.wake, n.ended = f, make(chan struct{}, 1), make(chan struct{})
	n.mu.Lock()
	n.nodes = append(n.nodes, n)
	n.mu.Unlock()
	var running sync.WaitGroup
	running.Go(n.run)
	stop = func() {
		n.mu.Lock()
		n.nodes = slices.DeleteFunc(n.nodes, func(other *busNode) bool { return other == n })
		n.mu.Unlock()
		close(n.ended)
		running.Wait()
	}
	if n.flaws.stop != nil {
		return func() { n.flaws.stop(n, stop) }
	}
	return stop
}

func (n *busNode) run() {
	for {
		select {
		case <-n.wake:
		case <-n.ended:
			return
		}
		n.mu.Lock()
		all, missed := n.queue, n.missed
		n.queue, n.missed = nil, false
		n.mu.Unlock()
		if missed {
			all = append(all, server.Change{Missed: true})
		}
		for _, c := range all {
			if n.flaws.call != nil {
				n.flaws.call(n, c)
			} else {
				n.f(c)
			}
		}
	}
}

func changesContract(guard time.Duration, newBus func() *bus) func(*testing.T) {
	return func(t *testing.T) {
		stores.ChangesContract(t, func(*testing.T) stores.Changes {
			b := newBus()
			return stores.Changes{A: b.node(), B: b.node(), C: b.node(), Lose: b.lose}
		}, proptest.ContractOptions{Guard: guard})
	}
}

// Guarantees: G-0074.9
func TestChangesContract(t *testing.T) {
	changesContract(0, func() *bus { return new(bus) })(t)
	t.Run("nodes that miss most", changesContract(0, func() *bus { return &bus{room: 1} }))
	t.Run("nodes that lose nothing", func(t *testing.T) {
		stores.ChangesContract(t, func(*testing.T) stores.Changes {
			b := &bus{room: 1 << 20}
			return stores.Changes{A: b.node(), B: b.node(), C: b.node()}
		}, proptest.ContractOptions{})
	})
}

// The suite fails on Changes that break the contract.
//
// Guarantees: G-0074.9
func TestChangesContractSeesBreaches(t *testing.T) {
	const guard = 500 * time.Millisecond
	with := func(flaws busFlaws) func(*testing.T) {
		return changesContract(guard, func() *bus { return &bus{flaws: flaws} })
	}
	publish := func(publish func(*busNode, server.Change, func(*busNode, server.Change))) func(*testing.T) {
		return with(busFlaws{publish: publish})
	}
	toOthers := func(n *busNode, c server.Change, deliver func(*busNode, server.Change)) {
		for _, other := range n.nodes {
			if other != n {
				deliver(other, c)
			}
		}
	}
	changed := func(change func(*server.Change)) func(*testing.T) {
		return publish(func(n *busNode, c server.Change, deliver func(*busNode, server.Change)) {
			change(&c)
			toOthers(n, c, deliver)
		})
	}
	wantCaught(t, []violation{
		{"nothing arrives", publish(func(*busNode, server.Change, func(*busNode, server.Change)) {}), "and no Change with Missed"},
		{"everything is missed", changed(func(c *server.Change) { *c = server.Change{Missed: true} }), "was missed 100 times"},
		{"a node gets its own changes", publish(func(n *busNode, c server.Change, deliver func(*busNode, server.Change)) {
			for _, other := range n.nodes {
				deliver(other, c)
			}
		}), "which it has published itself"},
		{"one node gets nothing", publish(func(n *busNode, c server.Change, deliver func(*busNode, server.Change)) {
			for i, other := range n.nodes {
				if other != n && i != 2 {
					deliver(other, c)
				}
			}
		}), "node 2 did not get"},
		{"tasks are left out", changed(func(c *server.Change) { c.Task = "" }), "which was not published"},
		{"lists are left out", changed(func(c *server.Change) { c.Prompts = false }), "which was not published"},
		{"Missed is left out", changed(func(c *server.Change) { c.Missed = false }), "which was not published"},
		{"URIs are shortened", changed(func(c *server.Change) { c.URI = c.URI[:min(len(c.URI), 1000)] }), "which was not published"},
		{"URIs are cleaned", changed(func(c *server.Change) { c.URI = strings.ToLower(strings.TrimSpace(c.URI)) }), "which was not published"},
		{"changes come twice", publish(func(n *busNode, c server.Change, deliver func(*busNode, server.Change)) {
			toOthers(n, c, deliver)
			toOthers(n, c, deliver)
		}), "after number 0"},
		{"changes are reordered", publish(func(n *busNode, c server.Change, deliver func(*busNode, server.Change)) {
			toOthers(n, c, func(to *busNode, c server.Change) {
				deliver(to, c)
				if last := len(to.queue) - 1; last > 0 && !to.missed {
					to.queue[last], to.queue[last-1] = to.queue[last-1], to.queue[last]
				}
			})
		}), "after number"},
		{"calls overlap", with(busFlaws{call: func(n *busNode, c server.Change) {
			var both sync.WaitGroup
			both.Go(func() { n.f(c) })
			n.f(server.Change{Missed: true})
			both.Wait()
		}}), "in a call beside another"},
		{"Publish calls the receivers", publish(func(n *busNode, c server.Change, _ func(*busNode, server.Change)) {
			toOthers(n, c, func(to *busNode, c server.Change) { to.f(c) })
		}), "Publish waits for a receiver"},
		{"stop does nothing", with(busFlaws{stop: func(n *busNode, stop func()) { time.AfterFunc(guard, stop) }}), "after stop had returned"},
		{"what is lost is not reported", with(busFlaws{silent: true}), "and no Change with Missed after it"},
		{"Missed has other fields", with(busFlaws{call: func(n *busNode, c server.Change) {
			c.Tools = c.Tools || c.Missed
			n.f(c)
		}}), "with Missed and more"},
	})
}
