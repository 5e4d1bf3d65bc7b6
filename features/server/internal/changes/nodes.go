package changes

import (
	"slices"
	"sync"
	"time"
)

// A Message is what one node tells the others.
type Message struct {
	Tools, Prompts, Resources bool   // the lists that have changed
	URI                       string // the resource that has changed; "" for none
	Task                      string // the task whose status has changed; "" for none
	Missed                    bool   // everything may have changed; the other fields are zero
}

// A Network carries messages to the hubs of other nodes, and theirs to this one. Its functions run code of the
// program, without a lock.
type Network struct {
	Publish   func(Message) // must not block
	Subscribe func(receive func(Message)) (stop func())
	Guard     func(where string, f func()) // runs f, and reports its panic
}

// changes returns the parts of a message.
func (m Message) changes() (parts []Change) {
	for _, one := range []struct {
		is bool
		Change
	}{
		{m.Tools, Tools()}, {m.Prompts, Prompts()}, {m.Resources, Resources()},
		{m.URI != "", Resource(m.URI)}, {m.Task != "", Task(m.Task)},
	} {
		if one.is {
			parts = append(parts, one.Change)
		}
	}
	return parts
}

// A message with several resources would save a little, and would make every carrier bound its size.

// messages returns a set of changes as it is published: the lists in one message, and each
// resource and task in another.
func (s *set) messages() (all []Message) {
	if s.lists != 0 {
		all = append(all, Message{Tools: s.has(Tools()), Prompts: s.has(Prompts()), Resources: s.has(Resources())})
	}
	for uri := range s.uris {
		all = append(all, Message{URI: uri})
	}
	for id := range s.tasks {
		all = append(all, Message{Task: id})
	}
	return all
}

const (
	mostUnpublished = 1024 // how many changes wait for Publish; more are published as Missed

	// After a message with Missed, the listeners are told within missedTime, some of them every
	// missedInterval, so that not all clients ask at the same time.
	missedTime     = 5 * time.Second
	missedInterval = 50 * time.Millisecond
	missedAtOnce   = 20 // so many at least, even if that takes less than missedTime
)

// nodes publishes the changes on this node, and passes those on other nodes to the listeners.
//
// What is pending is bounded by mostUnpublished, so a carrier that is slow, or a program that changes everything at
// once, costs no more memory than that; what does not fit becomes Missed, which is always true. The order of
// messages does not matter: each says only that something is no longer what it was.
type nodes struct {
	hub     *Hub
	network Network
	stop    func()         // ends the subscription; nil if Subscribe has panicked
	closing chan struct{}  // closed by Leave
	running sync.WaitGroup // counts timers of publish, and the goroutine of tellAll
	ending  sync.WaitGroup // counts the goroutine of Leave

	mu      sync.Mutex
	closed  bool
	pending set         // what is published next
	tooMany bool        // there was more
	next    time.Time   // nothing is published before
	timer   *time.Timer // nil: nothing is scheduled
	tells   bool        // tellAll runs
	again   bool        // tellAll has to tell all listeners once more
}

// Join connects the hub with those of other nodes, before anybody uses it. If Subscribe panics, this node
// publishes all the same: others need not suffer from what is broken here.
func (h *Hub) Join(n Network) {
	h.nodes = &nodes{hub: h, network: n, closing: make(chan struct{})}
	n.Guard("Changes.Subscribe", func() { h.nodes.stop = n.Subscribe(h.nodes.receive) })
}

// Leave publishes what has changed until now, and ends the subscription. It returns what to wait for, or nil for
// a hub that has joined nothing. It may be called again.
func (h *Hub) Leave() *sync.WaitGroup {
	n := h.nodes
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		n.closed = true
		close(n.closing)
		n.ending.Go(n.end)
	}
	return &n.ending
}

// publish publishes a change on this node, at once if nothing was published in the last 10 ms,
// and otherwise when they are over, with all others until then.
func (n *nodes) publish(c Change) {
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

// fire publishes what is pending. The timer stays set until that has ended, so that no two publish at a time, and
// messages about one thing keep their order.
func (n *nodes) fire() {
	defer n.running.Done()
	n.mu.Lock()
	messages := n.take()
	n.mu.Unlock()
	n.send(messages)
	n.mu.Lock()
	defer n.mu.Unlock()
	// The interval begins when the last message has gone out: a slow carrier gets fewer of them, and not a queue.
	n.timer, n.next = nil, time.Now().Add(Interval)
	if !n.closed {
		n.schedule()
	}
}

// take empties what is pending, whether it is published then or not: what a carrier loses it reports as Missed.
// It returns what is published next, and nothing if that is nothing. The caller holds the
// mutex.
func (n *nodes) take() []Message {
	pending, tooMany := n.pending, n.tooMany
	n.pending, n.tooMany = set{}, false
	if tooMany {
		return []Message{{Missed: true}}
	}
	return pending.messages()
}

// send calls Publish. The caller holds no lock, since Publish may call receive of another
// server before it returns, and that one that of this server.
func (n *nodes) send(messages []Message) {
	for _, m := range messages {
		n.network.Guard("Changes.Publish", func() { n.network.Publish(m) })
	}
}

// receive passes a change on another node to the listeners. It never blocks. It publishes nothing, or two
// nodes would tell each other for ever.
func (n *nodes) receive(m Message) {
	if !m.Missed {
		for _, one := range m.changes() {
			n.hub.TellHere(one)
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

// A program may report Missed for each message that it loses. So the time between two rounds bounds what that costs,
// and a mark is enough to remember that there has to be another one.

// tellOnce tells all listeners, some at a time. It reports false if the server closes first.
func (n *nodes) tellOnce() bool {
	step := time.NewTicker(missedInterval)
	defer step.Stop()
	all := n.hub.everybody()
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
// The two marks change in one step, so a message that comes in now either sets again before this, or starts another
// tellAll.
func (n *nodes) tellAgain() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tells, n.again = n.again, false
	return n.tells
}

// end runs once, on a goroutine of its own: Publish and stop are code of the program, and may hang. What is pending is
// published after the last timer, and before the subscription ends: the other nodes' clients must not miss
// what this one changed in its last 10 ms.
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
		n.network.Guard("Changes: stop", n.stop)
	}
}
