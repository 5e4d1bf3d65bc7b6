package server

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Changes carries changes between the nodes that serve one endpoint. Implementations must be
// safe for concurrent use; stores.ChangesContract of package proptest/stores checks one. A
// Server calls Subscribe once, in New, and stop when it has closed. It publishes each list,
// resource and task at most once in 10 ms, and what is left when it closes.
type Changes interface {
	// Publish tells all other nodes of a change. It must not block. The change may be lost
	// on the way; the nodes that may have missed it then receive a Change with Missed.
	Publish(c Change)

	// Subscribe calls f, one call at a time, with each change that another node has
	// published since Subscribe returned, in the order of each publisher. After stop has
	// returned, f is not called.
	Subscribe(f func(Change)) (stop func())
}

// A Change is what has changed on a node.
type Change struct {
	Tools, Prompts, Resources bool   // the lists that have changed
	URI                       string // the resource that has changed; "" for none
	Task                      string // the task whose status has changed; "" for none

	// Missed says that any changes may have been missed, so everything may have changed. The
	// other fields are zero. A Server publishes it in place of more than 1,024 changes.
	Missed bool
}

// changesOf returns the parts of a Change.
func changesOf(c Change) (parts []change) {
	for _, one := range []struct {
		is bool
		change
	}{
		{c.Tools, toolsChanged}, {c.Prompts, promptsChanged}, {c.Resources, resourcesChanged},
		{c.URI != "", updated(c.URI)}, {c.Task != "", change{task: c.Task}},
	} {
		if one.is {
			parts = append(parts, one.change)
		}
	}
	return parts
}

// messages returns a set of changes as it is published: the lists in one Change, and each
// resource and task in another.
func (s *changeSet) messages() (all []Change) {
	if s.lists != 0 {
		all = append(all, Change{Tools: s.has(toolsChanged), Prompts: s.has(promptsChanged), Resources: s.has(resourcesChanged)})
	}
	for uri := range s.uris {
		all = append(all, Change{URI: uri})
	}
	for id := range s.tasks {
		all = append(all, Change{Task: id})
	}
	return all
}

const (
	mostUnpublished = 1024 // how many changes wait for Publish; more are published as Missed

	// After a Change with Missed, the listeners are told within missedTime, some of them every
	// missedInterval, so that not all clients ask at the same time.
	missedTime     = 5 * time.Second
	missedInterval = 50 * time.Millisecond
	missedAtOnce   = 20 // so many at least, even if that takes less than missedTime
)

// nodes publishes the changes on this node, and passes those on other nodes to the listeners.
// The zero value does neither.
type nodes struct {
	server  *Server
	changes Changes
	stop    func()         // ends the subscription; nil if Subscribe has panicked
	closing chan struct{}  // closed when the server closes
	running sync.WaitGroup // counts timers of publish, and the goroutine of tellAll
	ending  sync.WaitGroup // counts the goroutine of close

	mu      sync.Mutex
	closed  bool
	pending changeSet   // what is published next
	tooMany bool        // there was more
	next    time.Time   // nothing is published before
	timer   *time.Timer // nil: nothing is scheduled
	tells   bool        // tellAll runs
	again   bool        // tellAll has to tell all listeners once more
}

func (n *nodes) init(s *Server) {
	if s.options.Changes == nil {
		return
	}
	n.server, n.changes, n.closing = s, s.options.Changes, make(chan struct{})
	s.guarded("Changes.Subscribe", func() { n.stop = n.changes.Subscribe(n.receive) })
}

// publish publishes a change on this node, at once if nothing was published in the last 10 ms,
// and otherwise when they are over, with all others until then.
func (n *nodes) publish(c change) {
	if n.changes == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	if n.pending.len() < mostUnpublished || n.pending.has(c) {
		n.pending.add(c)
	} else {
		n.tooMany = true
	}
	n.schedule()
}

// schedule sets the timer. The caller holds the mutex.
func (n *nodes) schedule() {
	if n.timer == nil && n.pending.len() > 0 {
		n.running.Add(1)
		n.timer = time.AfterFunc(time.Until(n.next), n.fire)
	}
}

func (n *nodes) fire() {
	defer n.running.Done()
	n.mu.Lock()
	messages := n.take()
	n.mu.Unlock()
	n.send(messages)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.timer, n.next = nil, time.Now().Add(changeInterval)
	if !n.closed {
		n.schedule()
	}
}

// take returns what is published next, and nothing if that is nothing. The caller holds the
// mutex.
func (n *nodes) take() []Change {
	pending, tooMany := n.pending, n.tooMany
	n.pending, n.tooMany = changeSet{}, false
	if tooMany {
		return []Change{{Missed: true}}
	}
	return pending.messages()
}

// send calls Publish. The caller holds no lock, since Publish may call receive of another
// server before it returns, and that one that of this server.
func (n *nodes) send(messages []Change) {
	for _, c := range messages {
		n.server.guarded("Changes.Publish", func() { n.changes.Publish(c) })
	}
}

// receive passes a change on another node to the listeners. It never blocks.
func (n *nodes) receive(c Change) {
	if !c.Missed {
		for _, one := range changesOf(c) {
			n.server.subscriptions.listeners.changed(one)
		}
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
	case n.tells:
		n.again = true
	default:
		n.tells = true
		n.running.Go(n.tellAll)
	}
}

// tellAll tells all listeners that everything may have changed. If more is missed meanwhile, it
// tells them once more, but at most once in missedTime.
func (n *nodes) tellAll() {
	for more := true; more; {
		over := time.NewTimer(missedTime)
		closing := !n.tellOnce() || !n.await(over.C)
		over.Stop()
		more = !closing && n.tellAgain()
	}
}

// tellOnce tells all listeners, some at a time. It reports false if the server closes first.
func (n *nodes) tellOnce() bool {
	step := time.NewTicker(missedInterval)
	defer step.Stop()
	all := n.server.subscriptions.everybody()
	atOnce := max(missedAtOnce, len(all)*int(missedInterval)/int(missedTime)+1)
	for some := range slices.Chunk(all, atOnce) {
		for _, listener := range some {
			listener.addAll()
		}
		if !n.await(step.C) {
			return false
		}
	}
	return true
}

// await waits for a time. It reports false if the server closes first.
func (n *nodes) await(over <-chan time.Time) bool {
	select {
	case <-over:
		return true
	case <-n.closing:
		return false
	}
}

// tellAgain reports whether tellAll has to go on.
func (n *nodes) tellAgain() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tells, n.again = n.again, false
	return n.tells
}

// close publishes what has changed until now, and ends the subscription. It waits as
// awaitHandlers does.
func (n *nodes) close(ctx context.Context, grace time.Duration) []string {
	if n.changes == nil {
		return nil
	}
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.closing)
		n.ending.Go(n.end)
	}
	n.mu.Unlock()
	return awaitHandlers(ctx, grace, &n.ending, func() []string { return []string{"Changes"} })
}

func (n *nodes) end() {
	n.mu.Lock()
	if n.timer != nil && n.timer.Stop() {
		n.running.Done()
	}
	n.mu.Unlock()
	n.running.Wait()
	n.mu.Lock()
	last := n.take()
	n.mu.Unlock()
	n.send(last)
	if n.stop != nil {
		n.server.guarded("Changes: stop", n.stop)
	}
}
