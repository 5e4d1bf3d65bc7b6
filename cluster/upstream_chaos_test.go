package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/features/client"
)

// Whatever happens to nodes, connections, engine and server, in any order, the server never runs
// twice, and no call is executed twice. When it is over, all nodes reach the server.
//
// Guarantees: G-0079.6, G-0079.7, G-0079.8
func TestAServerRunsOnceWhateverHappens(t *testing.T) {
	for seed := range uint64(chaosRuns) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site) {
				c := &chaos{site: s, random: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // a test has to do the same again
				s.join("a", "b", "c")
				for range 40 {
					c.step()
				}
				c.settle()
			})
		})
	}
}

const chaosRuns = 30

// A chaos does things to a site.
type chaos struct {
	*site
	random *rand.Rand
	joined int
	made   int // calls
	calls  sync.WaitGroup
}

// one returns one of the nodes.
func (c *chaos) one() string {
	var names []string
	for name := range c.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names[c.random.IntN(len(names))]
}

func (c *chaos) step() {
	name := c.one()
	n := c.nodes[name]
	switch c.random.IntN(12) {
	case 0:
		n.engine.Cut()
	case 1, 2:
		n.engine.Heal()
	case 3:
		c.doors.shut(name, true)
	case 4, 5:
		c.doors.shut(name, false)
	case 6:
		n.stop()
		if c.random.IntN(2) == 0 {
			advance(time.Duration(c.random.IntN(5000)) * time.Millisecond)
		}
		n.start(c.site)
	case 7:
		c.machine.fail(errBroken, c.some(), c.some())
	case 8:
		n.lag(time.Duration(c.random.IntN(1500))*time.Millisecond, time.Duration(c.random.IntN(1500))*time.Millisecond)
	case 9:
		n.engine.Faults(func(clustertest.Operation) clustertest.Fault { return clustertest.Fault{} })
	case 10:
		c.replace(name)
	case 11:
		c.machine.mu.Lock()
		c.machine.slow = time.Duration(c.random.IntN(3000)) * time.Millisecond
		c.machine.mu.Unlock()
	}
	for name := range c.nodes {
		c.call(name)
	}
	advance(time.Duration(c.random.IntN(8000)) * time.Millisecond)
}

// some returns some of the nodes, often none.
func (c *chaos) some() (all []string) {
	for range c.random.IntN(3) {
		all = append(all, c.one())
	}
	return all
}

// replace ends a node, in one way or the other, and adds another one.
func (c *chaos) replace(name string) {
	c.joined++
	c.join(fmt.Sprint("n", c.joined))
	if c.random.IntN(2) == 0 {
		c.kill(name)
		return
	}
	n := c.nodes[name]
	delete(c.nodes, name)
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	_ = n.Drain(ctx) // some calls may be cut short
	n.stop()
	closeNode(c.t, n.Node)
}

// call makes a call that nobody waits for.
func (c *chaos) call(node string) {
	c.made++
	session, text := c.nodes[node].session, fmt.Sprint("call ", c.made)
	c.calls.Go(func() {
		_, _ = client.Call[string](c.t.Context(), session.With(client.CallOptions{Timeout: 10 * time.Second}), "who", map[string]string{"text": text})
	})
}

// settle ends what is wrong, and looks whether all is well.
func (c *chaos) settle() {
	c.machine.fail(nil, nil, nil)
	c.machine.mu.Lock()
	c.machine.slow = 0
	c.machine.mu.Unlock()
	var names []string
	for name, n := range c.nodes {
		n.engine.Heal()
		n.engine.Faults(func(clustertest.Operation) clustertest.Fault { return clustertest.Fault{} })
		c.doors.shut(name, false)
		names = append(names, name)
	}
	c.calls.Wait()
	if took := c.awaitReady(names...); took > 2*cluster.LeaseTTL+time.Minute {
		c.t.Errorf("the server is back after %v", took)
	}
	c.mustReach(names...)
	c.mustNotHaveExecutedTwice()
}
