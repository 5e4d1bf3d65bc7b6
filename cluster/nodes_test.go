package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/cluster/guardian"
	"github.com/bowline-mcp/bowline/internal/testenv"
)

// TestMain discards the logs of losses that tests cause.
func TestMain(m *testing.M) {
	guardian.Start()
	playRole()
	testenv.SideBySide(4)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

var key = bytes.Repeat([]byte{7}, cluster.KeySize)

// A testNode is a Node, its Engine and its clock.
type testNode struct {
	*cluster.Node
	engine *clustertest.Engine
	clock  *cluster.Clock
}

func options(name string) cluster.Options {
	return cluster.Options{Cluster: "test", Node: name, Key: key, Version: "1.0", Labels: map[string]string{"zone": "x"}}
}

// join joins a node, and closes it at the end of the test.
func join(t testing.TB, s *clustertest.Service, name string) testNode {
	t.Helper()
	return joinWithClock(t, s, name, &cluster.Clock{})
}

func joinWithClock(t testing.TB, s *clustertest.Service, name string, c *cluster.Clock) testNode {
	t.Helper()
	return joinWith(t, s, options(name), c)
}

func joinWith(t testing.TB, s *clustertest.Service, o cluster.Options, c *cluster.Clock) testNode {
	t.Helper()
	e := s.Engine()
	n, err := cluster.JoinWithClock(context.Background(), e, o, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closeNode(t, n)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return testNode{n, e, c}
}

func closeNode(t testing.TB, n *cluster.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.Close(ctx); err != nil && !errors.Is(err, cluster.ErrUnavailable) {
		t.Error(err)
	}
}

// kill ends a node as kill -9 does: nothing is given up.
func (n testNode) kill(t testing.TB) {
	t.Helper()
	n.engine.Cut()
	closeNode(t, n.Node)
	if err := n.engine.Close(); err != nil {
		t.Error(err)
	}
}

// advance lets virtual time pass.
func advance(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

// names returns the names of members.
func names(members []cluster.Member) (all []string) {
	for _, m := range members {
		all = append(all, m.Name)
	}
	return all
}

// A loss records what a claim is told of its end.
type loss struct{ calls atomic.Int64 }

func (l *loss) lost(error) { l.calls.Add(1) }

// claim claims a key that must be free.
func (n testNode) claim(t testing.TB, key string) (release func(context.Context) error, l *loss) {
	t.Helper()
	l = new(loss)
	release, err := n.Claim(context.Background(), key, []byte("value of "+n.Name()), l.lost)
	if err != nil {
		t.Fatalf("node %s claims %s: %v", n.Name(), key, err)
	}
	return release, l
}

// state checks the state of a node.
func (n testNode) state(t testing.TB, want cluster.State) {
	t.Helper()
	if is, _ := n.State(); is != want {
		t.Errorf("node %s is %s, want %s", n.Name(), is, want)
	}
}

// lag delays everything that a node receives, or sends, or both.
func (n testNode) lag(up, down time.Duration, ops ...string) {
	n.engine.Faults(func(op clustertest.Operation) clustertest.Fault {
		if len(ops) > 0 && !contains(ops, op.Name) {
			return clustertest.Fault{}
		}
		return clustertest.Fault{Delay: up, DelayResult: down}
	})
}

func contains(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}
