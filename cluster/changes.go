package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
)

const (
	changesSubject = "ev"
	sealChange     = "change"

	// maxChange is the size of the longest change that is sent, in bytes. A longer one is sent
	// as Missed.
	maxChange = 64 << 10

	// maxPublishers is how many processes a subscriber remembers. Beyond that it forgets all,
	// and says that it may have missed something.
	maxPublishers = 10_000
)

// A changeRecord is a message about a change.
type changeRecord struct {
	Version int           `json:"v"`
	Node    string        `json:"node"`
	Epoch   string        `json:"epoch"`
	Number  uint64        `json:"seq"` // of this process, from 1 without gaps
	Change  server.Change `json:"change"`
}

// Changes returns a server.Changes for the servers of the cluster. Changes are numbered and not
// stored: a server that may have missed some, also because a node or the Engine could not be
// reached, is told so.
func (n *Node) Changes() server.Changes { return &n.changes }

// changes carries the changes of a node. The zero value is ready after its node is set.
type changes struct {
	node *Node

	mu      sync.Mutex
	number  uint64
	failing bool // a change could not be published, and a goroutine waits for the Engine
}

// Publish implements server.Changes.
func (c *changes) Publish(change server.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failing {
		return // Missed says it, too
	}
	if c.send(change) == nil {
		return
	}
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx.Err() == nil {
		c.failing = true
		n.running.Go(c.recover)
	}
}

// send publishes a change under the next number. The caller holds c.mu.
func (c *changes) send(change server.Change) error {
	n := c.node
	c.number++
	record := changeRecord{Version: recordVersion, Node: n.options.Node, Epoch: n.epoch, Number: c.number, Change: change}
	sealed := n.seal(sealChange, changesSubject, encode(record))
	if len(sealed) > maxChange {
		record.Change = server.Change{Missed: true}
		sealed = n.seal(sealChange, changesSubject, encode(record))
	}
	return n.engine.Publish(changesSubject, sealed)
}

// recover tells the other nodes that they have missed something, as soon as they can be reached.
func (c *changes) recover() {
	for {
		connected, changed := c.node.engine.Connected()
		if connected {
			c.mu.Lock()
			err := c.send(server.Change{Missed: true})
			if c.failing = err != nil; err == nil {
				c.mu.Unlock()
				return
			}
			c.mu.Unlock()
			changed = nil
		}
		if !tryLater(c.node.ctx, changed) {
			return
		}
	}
}

// tryLater waits for a second, or until changed is closed. It reports false if ctx has ended.
func tryLater(ctx context.Context, changed <-chan struct{}) bool {
	timer := time.NewTimer(retryEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// Subscribe implements server.Changes. If the Engine cannot be reached within a second, it goes
// on trying; f then learns that it may have missed something.
func (c *changes) Subscribe(f func(server.Change)) (stop func()) {
	s := &changeSubscriber{node: c.node, f: f, last: make(map[string]uint64)}
	ctx, cancel := context.WithCancel(c.node.ctx)
	unsubscribe, err := s.subscribe(ctx)
	var trying sync.WaitGroup
	if err != nil {
		trying.Go(func() {
			for err != nil && tryLater(ctx, nil) {
				unsubscribe, err = s.subscribe(ctx)
			}
			if err == nil {
				s.receive(Message{Missed: true})
			}
		})
	}
	return sync.OnceFunc(func() {
		cancel()
		trying.Wait()
		if err == nil {
			unsubscribe()
		}
	})
}

func (s *changeSubscriber) subscribe(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, retryEvery)
	defer cancel()
	return s.node.engine.Subscribe(ctx, changesSubject, s.receive)
}

// A changeSubscriber passes on what other processes publish.
type changeSubscriber struct {
	node *Node
	f    func(server.Change)

	mu   sync.Mutex // one call of f at a time
	last map[string]uint64
}

func (s *changeSubscriber) receive(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Missed {
		s.f(server.Change{Missed: true})
		return
	}
	plain, err := s.node.open(sealChange, changesSubject, m.Body)
	if err != nil {
		return // it is counted
	}
	var r changeRecord
	if err := decodeRecord(plain, &r); err != nil {
		s.node.sealer.refused.Add(1)
		return
	}
	publisher := r.Node + "/" + r.Epoch
	last, known := s.last[publisher]
	switch {
	case known && r.Number <= last:
		return // it came twice
	case known && r.Number != last+1:
		s.f(server.Change{Missed: true})
	case !known && len(s.last) >= maxPublishers:
		clear(s.last)
		s.f(server.Change{Missed: true})
	}
	s.last[publisher] = r.Number
	s.f(r.Change)
}
