package stores

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/proptest"
)

// Changes are what ChangesContract checks.
type Changes struct {
	// A, B and C are those of three nodes that serve one endpoint. None is in use yet.
	A, B, C server.Changes

	// Lose makes everything that is published be lost, until restore is called. Nil: nothing
	// can be lost.
	Lose func() (restore func())
}

// ChangesContract checks the contract of server.Changes. A change that did not arrive must be
// followed by a Change with Missed, at each node that did not receive it.
//
// Guarantees: G-0074.9
func ChangesContract(t *testing.T, open func(t *testing.T) Changes, o proptest.ContractOptions) {
	with := func(t *testing.T, tb cleanupTB) *changes { return openChanges(t, tb, open, o) }
	contract(t, with, []clause[*changes]{
		{"a change reaches all other nodes as it is", (*changes).areUnchanged},
		{"changes of a node come once and in order", (*changes).areInOrder},
		{"a node that does not subscribe may publish", (*changes).needNoSubscription},
		{"Publish does not wait for a receiver", (*changes).publishReturns},
		{"nothing comes after stop", (*changes).stopEnds},
		{"what is lost is reported as missed", (*changes).lossIsReported},
	}, "random changes are received or reported as missed", (*changes).arriveOrAreMissed)
}

// changes are the Changes under test, and what was published.
type changes struct {
	Changes
	t     cleanupTB
	ctx   context.Context // ends the test if something hangs
	nodes []*changeNode

	mu        sync.Mutex
	time      int                               // counts what has happened
	breach    string                            // the first breach of the contract; "" for none
	published map[server.Change]publishedChange // by the change, which is published once
	arrived   chan struct{}                     // closed and replaced when a node has received something
}

// A publishedChange says who has published a change, and when Publish was called.
type publishedChange struct{ node, number, time int }

// A changeNode is one of the nodes.
type changeNode struct {
	server.Changes
	number int
	s      *changes
	stop   func()
	held   chan struct{} // calls wait until it is closed; nil: they do not. Set before Subscribe
	since  int           // the time when Subscribe returned

	// Guarded by changes.mu.
	sent     int // how many changes it has published
	calling  int // how many calls are running
	stopped  bool
	received []server.Change
	last     [3]int // the number of the change that came last, by publisher
	has      map[server.Change]bool
	missed   int // the time of the last Change with Missed; -1 before the first
}

func openChanges(t *testing.T, tb cleanupTB, open func(*testing.T) Changes, o proptest.ContractOptions) *changes {
	s := &changes{Changes: open(t), t: tb, ctx: guarded(tb, o), published: make(map[server.Change]publishedChange), arrived: make(chan struct{})}
	for i, c := range []server.Changes{s.A, s.B, s.C} {
		s.nodes = append(s.nodes, &changeNode{Changes: c, number: i, s: s, last: [3]int{-1, -1, -1}, has: make(map[server.Change]bool), missed: -1})
	}
	return s
}

// subscribe subscribes some nodes until the end of the test.
func (s *changes) subscribe(nodes ...*changeNode) {
	for _, n := range nodes {
		n.stop = sync.OnceFunc(n.Subscribe(n.receive))
		s.t.Cleanup(n.stop)
		s.mu.Lock()
		n.since = s.time
		s.mu.Unlock()
	}
}

// breaks records a breach of the contract. The caller holds the mutex.
func (s *changes) breaks(format string, args ...any) {
	if s.breach == "" {
		s.breach = fmt.Sprintf(format, args...)
	}
}

// receive records a change. It is what the node subscribes with.
func (n *changeNode) receive(c server.Change) {
	s := n.s
	s.mu.Lock()
	s.time++
	n.calling++
	switch sent, known := s.published[c]; {
	case n.stopped:
		s.breaks("node %d got %+v after stop had returned", n.number, c)
	case n.calling > 1:
		s.breaks("node %d got %+v in a call beside another", n.number, c)
	case c.Missed:
		if n.missed = s.time; c != (server.Change{Missed: true}) {
			s.breaks("node %d got a Change with Missed and more: %+v", n.number, c)
		}
	case !known:
		s.breaks("node %d got %+.80v, which was not published", n.number, c)
	case sent.node == n.number:
		s.breaks("node %d got %+.80v, which it has published itself", n.number, c)
	case sent.number <= n.last[sent.node]:
		s.breaks("node %d got number %d of node %d after number %d", n.number, sent.number, sent.node, n.last[sent.node])
	default:
		n.last[sent.node] = sent.number
		n.has[c] = true
	}
	n.received = append(n.received, c)
	close(s.arrived)
	s.arrived = make(chan struct{})
	s.mu.Unlock()
	runtime.Gosched() // so that a call beside this one is seen
	if n.held != nil {
		select {
		case <-n.held:
		case <-s.ctx.Done():
		}
	}
	s.mu.Lock()
	n.calling--
	s.mu.Unlock()
}

// publish publishes a change that nobody else publishes.
func (n *changeNode) publish(c server.Change) {
	n.s.mu.Lock()
	n.s.time++
	n.s.published[c] = publishedChange{n.number, n.sent, n.s.time}
	n.sent++
	n.s.mu.Unlock()
	n.Publish(c)
}

// next returns a change that differs from all others: of a resource and of a task in turn.
func (n *changeNode) next() server.Change {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	name := fmt.Sprintf("node %d, number %d", n.number, n.sent)
	if n.sent%2 == 0 {
		return server.Change{URI: name, Tools: n.sent%4 == 0}
	}
	return server.Change{Task: name}
}

// await waits until a condition holds. Missing says what is missing, or returns "".
func (s *changes) await(missing func() string) {
	s.t.Helper()
	for {
		s.mu.Lock()
		what, arrived, breach := missing(), s.arrived, s.breach
		s.mu.Unlock()
		switch {
		case breach != "":
			s.t.Fatal(breach)
		case what == "":
			return
		}
		select {
		case <-arrived:
		case <-s.ctx.Done():
			s.t.Fatal(what)
		}
	}
}

// settle waits until some nodes have received everything that others have published, or know
// that they have missed it.
func (s *changes) settle(nodes ...*changeNode) {
	s.t.Helper()
	s.await(func() string {
		for _, n := range nodes {
			for c, sent := range s.published {
				if sent.node != n.number && sent.time > n.since && !n.has[c] && n.missed < sent.time {
					return fmt.Sprintf("node %d did not get number %d of node %d, and no Change with Missed after it", n.number, sent.number, sent.node)
				}
			}
		}
		return ""
	})
}

// areUnchanged publishes changes one after the other. Since some of them are the same, it does
// not record what is published, and compares what comes next.
func (s *changes) areUnchanged() {
	s.subscribe(s.nodes...)
	for _, c := range []server.Change{
		{Tools: true}, {Prompts: true}, {Resources: true}, {Tools: true, Prompts: true, Resources: true},
		{URI: "file:///a"}, {Task: "a"}, {Tools: true, URI: "x://b", Task: "c"}, {Missed: true},
		{URI: "x://é\u2028\x00\n\"\\<>&*?{id}#."}, {URI: "x://" + strings.Repeat("é", 4<<10)}, {Task: "n.1:ABC"}, {Task: strings.Repeat("x", 256)},
	} {
		for from, n := range s.nodes {
			for tries := 100; !s.comes(n, c); tries-- {
				if tries == 0 {
					s.t.Fatalf("%+.80v of node %d was missed 100 times", c, from)
				}
			}
		}
	}
}

// comes publishes a change, and reports whether all other nodes have received it. It may be
// missed.
func (s *changes) comes(n *changeNode, c server.Change) (all bool) {
	s.mu.Lock()
	s.published = map[server.Change]publishedChange{c: {node: n.number}}
	before := make([]int, len(s.nodes))
	for i, other := range s.nodes {
		before[i], other.last = len(other.received), [3]int{-1, -1, -1}
	}
	s.mu.Unlock()
	n.Publish(c)
	s.await(func() string {
		all = true
		for i, other := range s.nodes {
			got := other.received[before[i]:]
			if i == n.number {
				continue
			}
			if len(got) == 0 {
				return fmt.Sprintf("node %d did not get %+.80v of node %d, and no Change with Missed", i, c, n.number)
			}
			all = all && got[len(got)-1] == c
		}
		return ""
	})
	return all
}

// areInOrder publishes on all nodes at the same time.
func (s *changes) areInOrder() {
	s.subscribe(s.nodes...)
	var group sync.WaitGroup
	for _, n := range s.nodes {
		group.Go(func() {
			for range 300 {
				n.publish(n.next())
			}
		})
	}
	group.Wait()
	s.settle(s.nodes...)
}

func (s *changes) needNoSubscription() {
	s.nodes[0].publish(s.nodes[0].next()) // perhaps nobody receives it
	s.subscribe(s.nodes[1:]...)
	for range 10 {
		s.nodes[0].publish(s.nodes[0].next())
	}
	s.settle(s.nodes[1:]...)
	s.nodes[1].stop()
	for range 10 {
		s.nodes[1].publish(s.nodes[1].next())
	}
	s.settle(s.nodes[2])
}

// publishReturns publishes while a receiver does not return.
func (s *changes) publishReturns() {
	const many = 2000
	busy := s.nodes[1]
	busy.held = make(chan struct{})
	s.subscribe(s.nodes...)
	s.nodes[0].publish(s.nodes[0].next())
	s.settle(busy) // it is called, and does not return
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		for range many {
			s.nodes[0].publish(s.nodes[0].next())
			busy.publish(busy.next())
		}
	}()
	select {
	case <-returned:
	case <-s.ctx.Done():
		s.t.Fatal("Publish waits for a receiver")
	}
	close(busy.held)
	s.settle(s.nodes...)
}

// stopEnds stops a node while another one publishes.
func (s *changes) stopEnds() {
	s.subscribe(s.nodes...)
	publisher, stopped, third := s.nodes[0], s.nodes[1], s.nodes[2]
	begun := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for i := range 1000 {
			if i == 100 {
				close(begun)
			}
			publisher.publish(publisher.next())
		}
	})
	<-begun
	stopped.stop()
	s.mu.Lock()
	stopped.stopped = true
	s.mu.Unlock()
	group.Wait()
	s.settle(third)
}

// lossIsReported loses changes.
func (s *changes) lossIsReported() {
	if s.Lose == nil {
		return
	}
	s.subscribe(s.nodes...)
	for _, lost := range []int{1, 100} {
		restore := s.Lose()
		for range lost {
			for _, n := range s.nodes {
				n.publish(n.next())
			}
		}
		restore()
		for _, n := range s.nodes {
			n.publish(n.next())
		}
		s.settle(s.nodes...)
	}
}

// arriveOrAreMissed publishes at random. If changes can be lost, some are.
func (s *changes) arriveOrAreMissed(rt *rapid.T) {
	s.subscribe(s.nodes...)
	restore := func() {}
	actions := map[string]func(*rapid.T){
		"publish": func(rt *rapid.T) {
			n := s.nodes[rapid.IntRange(0, 2).Draw(rt, "node")]
			c := n.next()
			c.Prompts, c.Resources = rapid.Bool().Draw(rt, "prompts"), rapid.Bool().Draw(rt, "resources")
			c.URI += rapid.String().Draw(rt, "uri")
			n.publish(c)
		},
		"settle": func(*rapid.T) {
			restore()
			restore = func() {}
			s.nodes[0].publish(s.nodes[0].next()) // so that a loss is noticed
			s.nodes[1].publish(s.nodes[1].next())
			s.settle(s.nodes...)
		},
	}
	if s.Lose != nil {
		actions["lose"] = func(*rapid.T) {
			restore()
			restore = s.Lose()
		}
	}
	rt.Repeat(actions)
	actions["settle"](rt)
}
