//go:build cluster

package main

import "testing"

// Each of three nodes is killed in turn, so also the one whose server leads what the nodes share. A
// session goes on at the others each time, and each node comes back on its folder.
//
// Guarantees: G-0078.10
func TestEachNodeWithSeedsIsKilled(t *testing.T) {
	c := newThree(t)
	for n := range c.nodes {
		c.start(n)
	}
	for _, node := range c.nodes {
		node.await()
	}
	sessions := []string{c.session(0), c.session(1), c.session(2)}
	for n := range c.nodes {
		c.awaitSaved("--cluster", c.name)
		c.nodes[n].kill()
		c.nodes[n].ended()
		for _, session := range sessions {
			c.awaitCall((n+1)%3, session, "at the next node")
			c.awaitCall((n+2)%3, session, "at the one after it")
		}
		c.start(n).await()
	}
}
