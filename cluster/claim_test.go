package cluster_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/proptest"
)

// TestClaims checks that a key is one node's at a time, and who that is.
func TestClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		release, l := a.claim(t, "srv.x")
		for range 2 {
			for _, n := range []testNode{a, b} {
				if _, err := n.Claim(t.Context(), "srv.x", nil, l.lost); !errors.Is(err, cluster.ErrExists) {
					t.Errorf("node %s: %v, want ErrExists", n.Name(), err)
				}
			}
		}
		synctest.Wait()
		by, value, found := b.Holder("srv.x")
		if !found || by.Node != "a" || by.Epoch != a.Self().Epoch || string(value) != "value of a" {
			t.Errorf("the holder is %v with %q", by, value)
		}
		if err := errors.Join(release(t.Context()), release(t.Context())); err != nil {
			t.Error(err)
		}
		if a.Holds("srv.x") || l.calls.Load() != 0 {
			t.Error("a key that was released is held, or was reported as lost")
		}
		b.claim(t, "srv.x")
		if err := release(t.Context()); err != nil || !b.Holds("srv.x") {
			t.Errorf("a second release has ended another claim: %v", err)
		}
	})
}

// TestManyClaimOneKey lets many claim one key at the same time, on two nodes.
//
// Guarantees: G-0076.2
func TestManyClaimOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		nodes := []testNode{join(t, s, "a"), join(t, s, "b")}
		for _, n := range nodes {
			n.lag(time.Millisecond, time.Millisecond)
		}
		for range 20 {
			var won atomic.Int64
			var releases sync.Map
			var group sync.WaitGroup
			for i := range 16 {
				group.Go(func() {
					release, err := nodes[i%2].Claim(t.Context(), "srv.x", nil, func(error) { t.Error("lost") })
					if err == nil {
						won.Add(1)
						releases.Store(i, release)
					} else if !errors.Is(err, cluster.ErrExists) {
						t.Error(err)
					}
				})
			}
			group.Wait()
			if won.Load() != 1 || nodes[0].Holds("srv.x") == nodes[1].Holds("srv.x") {
				t.Fatalf("%d have the key", won.Load())
			}
			releases.Range(func(_, release any) bool {
				if err := release.(func(context.Context) error)(t.Context()); err != nil {
					t.Error(err)
				}
				return true
			})
		}
	})
}

// TestCloseGivesUpTheLeaseLast checks that the end of a lease says that nothing of its process is left, and that a node that is closed asks the Engine nothing.
func TestCloseGivesUpTheLeaseLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := join(t, s, "a")
		a.claim(t, "srv.x")
		a.claim(t, "lock.y")
		var deleted []string
		a.engine.Faults(func(op clustertest.Operation) clustertest.Fault {
			if op.Name == "delete" {
				deleted = append(deleted, op.Key)
			}
			return clustertest.Fault{}
		})
		closeNode(t, a.Node)
		if len(deleted) != 3 || deleted[2] != "node.a" {
			t.Errorf("given up were %q, in this order", deleted)
		}
		before, _ := a.engine.Messages()
		if _, err := a.Claim(t.Context(), "srv.x", nil, func(error) {}); err == nil {
			t.Error("a node that is closed has claimed something")
		}
		if now, _ := a.engine.Messages(); now != before {
			t.Errorf("a node that is closed has asked the engine %d times", now-before)
		}
	})
}

// TestClaimThatIsNotWanted checks that a claim whose caller leaves when it is made keeps nobody else from the key.
func TestClaimThatIsNotWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		e := &leavingEngine{Engine: s.Engine()}
		a, err := cluster.Join(t.Context(), e, options("a"))
		if err != nil {
			t.Fatal(err)
		}
		b := join(t, s, "b")
		ctx, leave := context.WithCancel(t.Context())
		e.leave = leave
		if _, err := a.Claim(ctx, "srv.x", nil, func(error) {}); !errors.Is(err, context.Canceled) {
			t.Errorf("the claim has ended with %v", err)
		}
		b.claim(t, "srv.x")
		closeNode(t, a)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A leavingEngine calls leave when something was created.
type leavingEngine struct {
	cluster.Engine
	leave func()
}

func (e *leavingEngine) Bucket(ctx context.Context, o cluster.BucketOptions) (cluster.Bucket, error) {
	b, err := e.Engine.Bucket(ctx, o)
	return leavingBucket{b, e}, err
}

type leavingBucket struct {
	cluster.Bucket
	engine *leavingEngine
}

func (b leavingBucket) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	revision, err := b.Bucket.Create(ctx, key, value, ttl)
	if b.engine.leave != nil {
		b.engine.leave()
	}
	return revision, err
}

// TestClaimIsRemoved checks that a claim that somebody removes, or replaces, is lost at once.
func TestClaimIsRemoved(t *testing.T) {
	for name, remove := range map[string]func(context.Context, cluster.Bucket, cluster.Entry) error{
		"deleted": func(ctx context.Context, b cluster.Bucket, e cluster.Entry) error {
			return b.Delete(ctx, e.Key, e.Revision)
		},
		"replaced": func(ctx context.Context, b cluster.Bucket, e cluster.Entry) error {
			_, err := b.Put(ctx, e.Key, []byte("x"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := clustertest.New(clustertest.Options{})
				a := join(t, s, "a")
				_, l := a.claim(t, "srv.x")
				advance(time.Minute)
				bucket := leases(t, a.engine)
				got, err := bucket.Get(t.Context(), "srv.x")
				if err != nil {
					t.Fatal(err)
				}
				if err := remove(t.Context(), bucket, got); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if a.Holds("srv.x") || l.calls.Load() != 1 {
					t.Errorf("held %v, reported %d times", a.Holds("srv.x"), l.calls.Load())
				}
				a.state(t, cluster.Ready)
			})
		})
	}
}

// leases returns the bucket of leases.
func leases(t testing.TB, e cluster.Engine) cluster.Bucket {
	t.Helper()
	bucket, err := e.Bucket(context.Background(), cluster.BucketOptions{Name: cluster.LeaseBucket, TTL: cluster.LeaseTTL, MaxValue: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return bucket
}

// TestClaimLosesItsAnswer checks that a claim that was made, and whose answer was lost, does not
// keep its own node from claiming again, but others until it has expired.
func TestClaimLosesItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		fail := func() {
			a.engine.Faults(func(op clustertest.Operation) clustertest.Fault {
				return clustertest.Fault{LoseResult: op.Name == "create", Cut: op.Name == "create"}
			})
			if _, err := a.Claim(t.Context(), "srv.x", nil, func(error) {}); !errors.Is(err, cluster.ErrUnavailable) {
				t.Errorf("%v, want ErrUnavailable", err)
			}
			a.engine.Faults(nil)
			a.engine.Heal()
			synctest.Wait()
		}
		fail()
		if a.Holds("srv.x") {
			t.Error("a claim that failed is held")
		}
		if _, err := b.Claim(t.Context(), "srv.x", nil, func(error) {}); !errors.Is(err, cluster.ErrExists) {
			t.Errorf("%v, want ErrExists", err)
		}
		release, l := a.claim(t, "srv.x")
		advance(time.Minute)
		if !a.Holds("srv.x") || l.calls.Load() != 0 {
			t.Error("the second claim was lost")
		}
		if err := release(t.Context()); err != nil {
			t.Error(err)
		}
		fail()
		advance(cluster.LeaseTTL)
		b.claim(t, "srv.x")
	})
}

// TestReleaseFails checks that a key whose release has failed is not renewed.
func TestReleaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		release, l := a.claim(t, "srv.x")
		a.engine.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := release(ctx); !errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
		a.engine.Heal()
		advance(cluster.LeaseTTL)
		b.claim(t, "srv.x")
		if l.calls.Load() != 0 {
			t.Error("a claim that was released was reported as lost")
		}
	})
}

// TestReleaseDuringRenewal releases a claim while a renewal is under way, at each moment of it.
func TestReleaseDuringRenewal(t *testing.T) {
	for delay := time.Duration(0); delay <= 6*time.Millisecond; delay += time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			s := clustertest.New(clustertest.Options{})
			a, b := join(t, s, "a"), join(t, s, "b")
			release, _ := a.claim(t, "srv.x")
			a.lag(2*time.Millisecond, 2*time.Millisecond)
			advance(5*time.Second + delay)
			if err := release(t.Context()); err != nil {
				t.Error(err)
			}
			b.claim(t, "srv.x")
		})
	}
}

// TestRegistry checks the store of the names of a cluster.
func TestRegistry(t *testing.T) {
	proptest.StoreContract(t, func(t *testing.T) proptest.Stores {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		bucket := leases(t, a.engine)
		return proptest.Stores{A: a.Registry(), B: b.Registry(), Lose: func(name string) {
			for key, err := range bucket.Keys(context.Background(), "name.") {
				if err != nil {
					t.Fatal(err)
				}
				got, err := bucket.Get(context.Background(), key)
				if err == nil {
					err = bucket.Delete(context.Background(), key, got.Revision)
				}
				if err != nil && !errors.Is(err, cluster.ErrNotFound) && !errors.Is(err, cluster.ErrConflict) {
					t.Fatal(err)
				}
			}
		}}
	}, proptest.ContractOptions{})
}

// TestRegistryOfACutOffNode checks that a name is lost before another node can have it, and
// that watchers see it.
//
// Guarantees: G-0076.2
func TestRegistryOfACutOffNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		registryLosesNames(t, a, b)
	})
}

// TestCloseEndsAWaitForClaims checks that who waits with a claim, because the engine has lost those of others, is told at once that the node is closed.
func TestCloseEndsAWaitForClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := join(t, s, "a")
		advance(time.Minute)
		s.Wipe()
		advance(time.Second)
		result := make(chan error, 1)
		go func() {
			_, err := a.Claim(t.Context(), "srv.x", nil, func(error) {})
			result <- err
		}()
		synctest.Wait()
		if len(result) > 0 {
			t.Fatalf("the claim does not wait: %v", <-result)
		}
		began := time.Now()
		closeNode(t, a.Node)
		if err := <-result; err == nil || time.Since(began) > time.Second {
			t.Errorf("the claim ended %v after Close with %v", time.Since(began), err)
		}
	})
}
