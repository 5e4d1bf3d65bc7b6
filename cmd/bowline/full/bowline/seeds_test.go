package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// three are nodes of one cluster, each with a server of NATS in it.
type three struct {
	t     *testing.T
	flags []string // of all
	seeds []string
	nodes [3]*serve
	name  string // of the cluster
}

// newThree returns three nodes that were not started.
func newThree(t *testing.T) *three {
	t.Helper()
	c := &three{t: t, name: "three" + strings.ToLower(t.Name())}
	key := newKey(t)
	for len(c.seeds) < 3 { // ports below those that connections get, so that they stay free
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(22_000)))
		if err != nil {
			continue
		}
		defer l.Close()
		c.seeds = append(c.seeds, l.Addr().String())
	}
	c.flags = []string{"--cluster", c.name, "--cluster-key", key, "--seed", strings.Join(c.seeds, ",")}
	return c
}

func (c *three) start(n int) *serve {
	c.t.Helper()
	c.nodes[n] = startServe(c.t, append(c.flags, "--node", "n"+string(rune('0'+n)), "--cluster-listen", c.seeds[n])...)
	c.t.Cleanup(c.nodes[n].kill) // the last two have no majority to leave
	return c.nodes[n]
}

// session begins a session at a node.
func (c *three) session(n int) string {
	c.t.Helper()
	_, header, body := ask(c.t, c.nodes[n].url, "", initialize)
	session := header.Get("Mcp-Session-Id")
	if session == "" {
		c.t.Fatalf("no session: %s", body)
	}
	if status, _, body := ask(c.t, c.nodes[n].url, session, initialized); status != http.StatusAccepted {
		c.t.Fatalf("initialized: %d %s", status, body)
	}
	return session
}

// awaitCall calls a tool at a node in a session, until it succeeds. While servers elect a leader the
// session cannot be taken, and the answer is 503.
func (c *three) awaitCall(n int, session, when string) {
	c.t.Helper()
	began := time.Now()
	for {
		status, _, body := ask(c.t, c.nodes[n].url, session, echo)
		if status == http.StatusOK && strings.Contains(body, `"hi"`) {
			c.t.Logf("%s: an answer after %v", when, time.Since(began).Round(time.Millisecond))
			return
		}
		// 502: the first request may be on its way to the node that was killed, and nobody knows whether it was executed there.
		again := status == http.StatusServiceUnavailable || status == http.StatusBadGateway
		if !again || time.Since(began) > hangGuard {
			c.t.Fatalf("%s: after %v: %d %s", when, time.Since(began), status, body)
		}
		if err := wait.Sleep(c.t.Context(), 50*time.Millisecond); err != nil {
			c.t.Fatal(err)
		}
	}
}

// awaitSaved waits until three nodes are there, and what they know of their sessions is where the others
// find it. A node that was started again may not answer at first, which the command reports as a failure. The flags
// say which cluster is meant.
func (c *three) awaitSaved(flags ...string) {
	c.t.Helper()
	for began := time.Now(); ; {
		var stderr bytes.Buffer
		command := bowline(c.t, append([]string{"nodes", "--json"}, flags...)...)
		command.Stderr = &stderr
		said, err := command.Output()
		var reports []cluster.Report
		if err := json.Unmarshal(said, &reports); err != nil {
			c.t.Fatalf("nodes: %v: %s%s", err, said, &stderr)
		}
		if err == nil && len(reports) == 3 && !slices.ContainsFunc(reports, func(r cluster.Report) bool { return r.Unsaved > 0 }) {
			return
		}
		if time.Since(began) > hangGuard {
			c.t.Fatalf("not all sessions of three nodes are saved within %v: %v: %s%s", hangGuard, err, said, &stderr)
		}
		if err := wait.Sleep(c.t.Context(), 50*time.Millisecond); err != nil {
			c.t.Fatal(err)
		}
	}
}

// Three nodes with --seed need nothing else. They say what they wait for, each serves the sessions of
// the others, and two go on with those of the third when it is killed.
//
// Guarantees: G-0078.10
func TestThreeNodesWithSeeds(t *testing.T) {
	t.Parallel()
	c := newThree(t)
	c.start(0).awaitLine("waiting for 1 more of 3 nodes: " + c.seeds[1] + ", " + c.seeds[2])
	c.start(1)
	c.start(2)
	for _, node := range c.nodes {
		node.await()
	}
	session := c.session(0)
	c.awaitCall(1, session, "at another node")
	c.awaitSaved("--cluster", c.name)
	c.awaitSaved(append(c.flags, "--cluster-listen", c.seeds[0])...)
	c.nodes[0].kill()
	c.nodes[0].ended()
	c.awaitCall(2, session, "after its node was killed")
	c.start(0).await()
	c.awaitCall(0, session, "at the node that is back")
	if said, err := bowline(t, "drain", "n1", "--cluster", c.name).CombinedOutput(); err != nil {
		t.Errorf("drain: %v: %s", err, said)
	}
	if status, rest := c.nodes[1].ended(); status != 0 {
		t.Errorf("the drained node has ended with status %d: %s", status, rest)
	}
	c.awaitCall(0, session, "with two nodes")
}

// A node that waits for others ends at once when it is interrupted, as one that serves does.
func TestInterruptWhileWaiting(t *testing.T) {
	t.Parallel()
	c := newThree(t)
	c.start(0).awaitLine("waiting for 1 more of 3 nodes")
	began := time.Now()
	c.nodes[0].interrupt()
	if status, rest := c.nodes[0].ended(); status != 0 {
		t.Errorf("it has ended with status %d: %s", status, rest)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it has ended after %v", took)
	}
}
