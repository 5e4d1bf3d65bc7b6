//go:build unix && cluster

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/cluster/guardian"
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/locked"
	"github.com/bowline-mcp/bowline/protocol"
)

// A lockedSite is a cluster in this process whose server is a real process that locks a file, and
// whose nodes reach each other by their hops.
type lockedSite struct {
	t     *testing.T
	file  string
	nodes map[string]*lockedNode
}

type lockedNode struct {
	testNode
	session *client.Session
}

func newLockedSite(t *testing.T, names ...string) *lockedSite {
	t.Helper()
	s := &lockedSite{t, t.TempDir() + "/lock", map[string]*lockedNode{}}
	if err := os.WriteFile(s.file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	service := clustertest.New(clustertest.Options{})
	for _, name := range names {
		o := options(name)
		o.Guardian = guardian.Start()
		n := &lockedNode{testNode: joinWith(t, service, o, &cluster.Clock{})}
		s.nodes[name] = n
		upstream := n.Upstream("locked", locked.Command(s.file), cluster.UpstreamOptions{})
		c := client.Options{}
		c.Conn.RequestTimeout = 2 * time.Minute
		c.Conn.Log = slog.New(slog.DiscardHandler)
		session, err := client.New(protocol.Implementation{Name: name, Version: "1"}, c).Start(context.Background(), name, upstream)
		if err != nil {
			t.Fatal(err)
		}
		n.session = session
		t.Cleanup(func() {
			session.Stop()
			<-session.Conn().Done()
		})
	}
	return s
}

// who returns the process of the server, as a node reaches it, within the time.
func (s *lockedSite) who(node string, within time.Duration) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	session := s.nodes[node].session.With(client.CallOptions{WaitForReady: true, Retries: 1000})
	pid, err := client.Call[string](ctx, session, "who", locked.Mark{Text: "who"})
	if err != nil {
		s.t.Fatalf("node %s: %v", node, err)
	}
	return pid
}

func (s *lockedSite) holder() string {
	for name, n := range s.nodes {
		if len(n.Report().Exclusive) > 0 {
			return name
		}
	}
	return ""
}

// mustAgree checks that all nodes reach the same process, which is not the one before.
func (s *lockedSite) mustAgree(before string, within time.Duration, nodes ...string) (pid string) {
	s.t.Helper()
	for _, node := range nodes {
		got := s.who(node, within)
		if got == before || pid != "" && got != pid {
			s.t.Fatalf("node %s reaches process %s, want one that is not %q, and that the others reach: %q", node, got, before, pid)
		}
		pid = got
	}
	return pid
}

func (s *lockedSite) mustNotHaveRunTwice() {
	s.t.Helper()
	marks, err := locked.Read(s.file)
	if err != nil {
		s.t.Error(err)
	}
	for text, times := range marks {
		if text != "who" && times > 1 {
			s.t.Errorf("call %q was executed %d times", text, times)
		}
	}
}

// startTime is how long the server may take to start on a busy machine.
const startTime = 30 * time.Second

// Three nodes use one process. It moves with a drain, when a person wants that, and when its node cannot reach the Engine,
// and never runs twice, although it leaves a child behind that holds its lock.
//
// Guarantees: G-0079.6, G-0079.7, G-0079.8, G-0079.11
func TestAProcessRunsOnce(t *testing.T) {
	s := newLockedSite(t, "a", "b", "c")
	pid := s.mustAgree("", startTime, "a", "b", "c")

	drained := s.holder()
	if err := s.nodes[drained].Drain(t.Context()); err != nil {
		t.Error(err)
	}
	pid = s.mustAgree(pid, startTime+time.Second, "a", "b", "c")
	if s.holder() == drained {
		t.Error("the server runs on the node that was drained")
	}

	for name := range s.nodes {
		if name == drained || name == s.holder() {
			continue
		}
		if err := s.nodes[drained].MoveServer(t.Context(), "locked", name); err != nil || s.holder() != name {
			t.Errorf("a move to %s left the server on %q: %v", name, s.holder(), err)
		}
		pid = s.mustAgree(pid, startTime, "a", "b", "c")
	}

	cut := s.holder()
	var calls sync.WaitGroup
	for name, n := range s.nodes {
		for i := range 10 {
			calls.Go(func() {
				_, err := client.Call[string](t.Context(), n.session, "wait", locked.Mark{Text: fmt.Sprint(name, i)})
				var call *conn.CallError
				if !errors.As(err, &call) || call.Cause != conn.LinkLost || call.Delivery != conn.Unknown {
					t.Errorf("a call in flight ended with %v, want that the link was lost and the delivery is unknown", err)
				}
			})
		}
	}
	s.awaitMarks(30)
	s.nodes[cut].engine.Cut()
	began := time.Now()
	var others []string
	for name := range s.nodes {
		if name != cut {
			others = append(others, name)
		}
	}
	if err := locked.AwaitFree(s.file, cluster.LeaseHeld+startTime); err != nil {
		t.Errorf("the server runs on after its node was cut off: %v", err)
	}
	calls.Wait()
	s.mustAgree(pid, cluster.LeaseTTL+startTime, others...)
	if took := time.Since(began); took > cluster.LeaseTTL+startTime {
		t.Errorf("the server was away for %v", took)
	}
	s.nodes[cut].engine.Heal()
	s.mustAgree(pid, startTime, "a", "b", "c")
	s.mustNotHaveRunTwice()
}

// awaitMarks waits until so many calls of "wait" have reached the server.
func (s *lockedSite) awaitMarks(n int) {
	s.t.Helper()
	for {
		marks, err := locked.Read(s.file)
		if err != nil {
			s.t.Fatal(err)
		}
		if len(marks) > n { // one is "who"
			return
		}
		s.who("a", startTime)
	}
}
