package cluster_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
)

// TestObserver checks that an Observer sees and drains nodes, and is none.
func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		e := s.Engine()
		synctest.Wait() // until a has heard of b
		o, err := cluster.Observe(t.Context(), e, options(""))
		if err != nil {
			t.Fatal(err)
		}
		if m, found := o.Member("b"); !found || m.Epoch != b.Self().Epoch {
			t.Errorf("the member b is %+v", m)
		}
		reports, err := o.Reports(t.Context())
		if err != nil || len(reports) != 2 || reports[0].Name != "a" || reports[1].Name != "b" {
			t.Errorf("%+v, %v", reports, err)
		}
		if err := o.DrainNode(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		<-b.Draining()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := o.DrainNode(ctx, "nobody"); !errors.Is(err, cluster.ErrNoResponder) || time.Since(began) > time.Second {
			t.Errorf("a node that does not live is asked for %v: %v", time.Since(began), err)
		}
		if len(a.Members()) != 2 {
			t.Errorf("the members are %v", names(a.Members()))
		}
		o.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		wrong := options("")
		wrong.Key = nil
		if _, err := cluster.Observe(t.Context(), e, wrong); !errors.As(err, new(*cluster.KeyError)) {
			t.Errorf("%v, want a KeyError", err)
		}
	})
}

// A node, or the Observer, may be looking for the Engine while it is asked to drain.
func TestObserverDrainsANodeThatIsAwayForAMoment(t *testing.T) {
	for name, away := range map[string]func(observer, node *clustertest.Engine) *clustertest.Engine{
		"the node":     func(_, node *clustertest.Engine) *clustertest.Engine { return node },
		"the observer": func(observer, _ *clustertest.Engine) *clustertest.Engine { return observer },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := clustertest.New(clustertest.Options{})
				b := join(t, s, "b")
				e := s.Engine()
				o, err := cluster.Observe(t.Context(), e, options(""))
				if err != nil {
					t.Fatal(err)
				}
				cut := away(e, b.engine)
				cut.Cut()
				time.AfterFunc(3*time.Second, cut.Heal)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if err := o.DrainNode(ctx, "b"); err != nil {
					t.Error(err)
				}
				select {
				case <-b.Draining():
				case <-ctx.Done():
					t.Error("the node does not drain")
				}
				o.Close()
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
