package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/proptest/stores"
)

// Guarantees: G-0081.1
func TestLoginsOfACluster(t *testing.T) {
	stores.LoginStoreContract(t, func(t *testing.T) stores.Logins {
		nodes, _, _ := threeNodes(t)
		return stores.Logins{A: nodes[0].Logins(), B: nodes[1].Logins()}
	}, proptest.ContractOptions{})
}

// The same with an engine that answers late, and delivers some things twice.
//
// Guarantees: G-0081.1
func TestLoginsOfAClusterWithFaults(t *testing.T) {
	stores.LoginStoreContract(t, func(t *testing.T) stores.Logins {
		nodes, engines, _ := threeNodes(t)
		for i, e := range engines[:2] {
			n := i // decide is called by one goroutine at a time
			e.Faults(func(clustertest.Operation) clustertest.Fault {
				n++
				f := clustertest.Fault{Double: n%7 == 0}
				if n%50 == 0 {
					f.Delay, f.DelayResult = 100*time.Microsecond, 50*time.Microsecond
				}
				return f
			})
		}
		return stores.Logins{A: nodes[0].Logins(), B: nodes[1].Logins()}
	}, proptest.ContractOptions{})
}

// A change is saved although the answer to a write was lost, or the engine was away for ten
// seconds, before the change was asked for or after it.
//
// Guarantees: G-0081.1
func TestLoginsSurviveInterruptions(t *testing.T) {
	k := auth.Key{Resource: "https://example.com"}
	for _, operation := range []string{"create", "update", "get"} {
		for number := range 8 { // which of them, and whether the connection is lost, too
			lost, cut := number/2, number%2 == 1
			synctest.Test(t, func(t *testing.T) {
				nodes, engines, _ := threeNodes(t)
				counted := 0
				engines[0].Faults(func(op clustertest.Operation) clustertest.Fault {
					if op.Name != operation {
						return clustertest.Fault{}
					}
					if counted++; counted != lost+1 {
						return clustertest.Fault{}
					}
					if cut {
						time.AfterFunc(time.Second/2, engines[0].Heal)
					}
					return clustertest.Fault{LoseResult: true, Cut: cut}
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for _, token := range []string{"first", "second"} {
					e := &auth.Entry{Access: auth.NewSecret(token)}
					if err := nodes[0].Logins().Locked(ctx, k, func(*auth.Entry) (*auth.Entry, error) { return e, nil }); err != nil {
						t.Errorf("after the answer to %s %d was lost: %v", operation, lost, err)
					}
					if got, err := nodes[1].Logins().Load(ctx, k); err != nil || got == nil || got.Access.Reveal() != token {
						t.Errorf("after the answer to %s %d was lost, the entry is %v, %v", operation, lost, got, err)
					}
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, _ := threeNodes(t)
		away := func() {
			engines[0].Cut()
			time.AfterFunc(10*time.Second, engines[0].Heal)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		away()
		err := nodes[0].Logins().Locked(ctx, k, func(*auth.Entry) (*auth.Entry, error) {
			away()
			return &auth.Entry{Access: auth.NewSecret("refreshed")}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := nodes[1].Logins().Load(ctx, k); err != nil || got == nil || got.Access.Reveal() != "refreshed" {
			t.Errorf("the entry is %v, %v", got, err)
		}
	})
}

// After an answer was lost, an older view does not tell whether the write succeeded. A change waits
// for a newer view.
//
// Guarantees: G-0081.1
func TestLoginsAreSavedWithAnOldView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, _ := threeNodes(t)
		k := auth.Key{Resource: "https://example.com"}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := nodes[0].Logins().Locked(ctx, k, func(*auth.Entry) (*auth.Entry, error) {
			engines[0].Freeze()
			time.AfterFunc(10*time.Second, engines[0].Thaw)
			lost := false
			engines[0].Faults(func(op clustertest.Operation) clustertest.Fault {
				if op.Name != "update" || op.Subject != "login" || lost {
					return clustertest.Fault{}
				}
				lost = true
				return clustertest.Fault{LoseResult: true}
			})
			return &auth.Entry{Access: auth.NewSecret("saved")}, nil
		})
		if err != nil {
			t.Error(err)
		}
		if got, err := nodes[1].Logins().Load(ctx, k); err != nil || got == nil || got.Access.Reveal() != "saved" {
			t.Errorf("the entry is %v, %v", got, err)
		}
	})
}

// A node that could not save before its lock expired replaces nothing that another one has saved
// since, and says so.
//
// Guarantees: G-0081.1
func TestLoginsOfAnotherNodeAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, _ := threeNodes(t)
		k := auth.Key{Resource: "https://example.com"}
		put := func(n *cluster.Node, token string, first func()) error {
			return n.Logins().Locked(t.Context(), k, func(*auth.Entry) (*auth.Entry, error) {
				first()
				return &auth.Entry{Access: auth.NewSecret(token)}, nil
			})
		}
		saved := make(chan error, 1)
		err := put(nodes[0], "late", func() {
			engines[0].Cut()
			go func() {
				saved <- put(nodes[1], "in time", func() {}) // when the lock has expired
				engines[0].Heal()
			}()
		})
		if other := <-saved; other != nil {
			t.Fatal(other)
		}
		if !errors.As(err, new(*auth.StoreError)) || !errors.Is(err, cluster.ErrConflict) {
			t.Errorf("Locked returned %v", err)
		}
		if got, err := nodes[2].Logins().Load(t.Context(), k); err != nil || got == nil || got.Access.Reveal() != "in time" {
			t.Errorf("the entry is %v, %v", got, err)
		}
	})
}

// When the engine has lost everything, a change waits until no other node can believe in a lock.
//
// Guarantees: G-0081.1
func TestLoginsAfterTheEngineWasEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _, service := threeNodes(t)
		k := auth.Key{Resource: "https://example.com"}
		put := func(*auth.Entry) (*auth.Entry, error) { return &auth.Entry{Access: auth.NewSecret("token")}, nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := nodes[0].Logins().Locked(ctx, k, put); err != nil {
			t.Fatal(err)
		}
		service.Wipe()
		rest(t, time.Second)
		if err := nodes[0].Logins().Locked(ctx, k, put); err != nil {
			t.Error(err)
		}
		if got, err := nodes[1].Logins().Load(ctx, k); err != nil || got == nil {
			t.Errorf("the entry is %v, %v", got, err)
		}
	})
}

// A value that somebody has changed in the engine is an error that says what to do, and no login.
//
// Guarantees: G-0081.1
func TestLoginsThatWereChanged(t *testing.T) {
	nodes, engines, service := threeNodes(t)
	logins, k := nodes[0].Logins(), auth.Key{Resource: "https://example.com"}
	put := func(*auth.Entry) (*auth.Entry, error) { return &auth.Entry{Access: auth.NewSecret("token")}, nil }
	if err := logins.Locked(t.Context(), k, put); err != nil {
		t.Fatal(err)
	}
	bucket, err := engines[2].Bucket(t.Context(), cluster.BucketOptions{Name: "login"})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := (&auth.Entry{Access: auth.NewSecret("false")}).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for key := range service.Values() {
		key, is := strings.CutPrefix(key, "login/")
		if !is {
			continue
		}
		for _, value := range [][]byte{[]byte("garbage"), plain, {0}} {
			if _, err := bucket.Put(t.Context(), key, value); err != nil {
				t.Fatal(err)
			}
			e, err := logins.Load(t.Context(), k)
			if !errors.As(err, new(*auth.StoreError)) || !strings.Contains(err.Error(), "log in again") {
				t.Errorf("%q: got %v, %v", value, e, err)
			}
			if err := logins.Locked(t.Context(), k, put); !errors.As(err, new(*auth.StoreError)) {
				t.Errorf("%q: Locked returned %v", value, err)
			}
		}
	}
}

// Whoever gives up while a login is locked keeps nobody else waiting.
//
// Guarantees: G-0081.1
func TestALockIsGivenBackByWhoHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _, _ := threeNodes(t)
		k := auth.Key{Resource: "https://example.com"}
		ctx, leave := context.WithCancel(t.Context())
		same := func(e *auth.Entry) (*auth.Entry, error) { leave(); return e, nil }
		if err := nodes[0].Logins().Locked(ctx, k, same); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := nodes[1].Logins().Locked(t.Context(), k, same); err != nil || time.Since(began) > time.Second {
			t.Errorf("the next one got the lock after %v: %v", time.Since(began), err)
		}
	})
}

// Whoever waits for a login that is locked for long gets it within half a second.
//
// Guarantees: G-0081.1
func TestALongLockIsNoticedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _, _ := threeNodes(t)
		k, got := auth.Key{Resource: "https://example.com"}, make(chan error, 1)
		var free, taken time.Time
		err := nodes[0].Logins().Locked(t.Context(), k, func(e *auth.Entry) (*auth.Entry, error) {
			go func() {
				got <- nodes[1].Logins().Locked(t.Context(), k, func(e *auth.Entry) (*auth.Entry, error) { taken = time.Now(); return e, nil })
			}()
			rest(t, time.Minute)
			free = time.Now()
			return e, nil
		})
		if other := <-got; err != nil || other != nil || taken.Sub(free) > 600*time.Millisecond {
			t.Errorf("%v, %v; the other one got it after %v", err, other, taken.Sub(free))
		}
	})
}

// An error of the store names the cluster and the server, or the issuer where there is no server, and keeps what the engine says. That of the
// caller's function is returned as it is.
//
// Guarantees: G-0081.1
func TestErrorsOfLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, _ := threeNodes(t)
		logins, own := nodes[0].Logins(), errors.New("the program's own")
		of := auth.Key{Resource: "https://mcp.example", Issuer: "https://as.example"}
		if err := logins.Locked(t.Context(), of, func(*auth.Entry) (*auth.Entry, error) { return nil, own }); !errors.Is(err, own) || errors.As(err, new(*auth.StoreError)) {
			t.Errorf("the function's error became %v", err)
		}
		if _, err := logins.Load(t.Context(), of); err != nil {
			t.Error(err)
		}
		engines[0].Cut()
		for k, path := range map[auth.Key]string{of: "cluster test: https://mcp.example", {Issuer: "https://as.example"}: "cluster test: https://as.example"} {
			for name, call := range map[string]func(context.Context) error{
				"Load": func(ctx context.Context) error { _, err := logins.Load(ctx, k); return err },
				"Locked": func(ctx context.Context) error {
					return logins.Locked(ctx, k, func(e *auth.Entry) (*auth.Entry, error) { return e, nil })
				},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond) // between two attempts
				err := call(ctx)
				cancel()
				var store *auth.StoreError
				if !errors.As(err, &store) || store.Path != path || !errors.Is(err, cluster.ErrUnavailable) {
					t.Errorf("%s without the engine: %v, want that %s is unavailable", name, err, path)
				}
			}
		}
		engines[0].Heal()
		rest(t, 5*time.Second)
	})
}

// An older view of an entry is never what the next holder of a lock decides by.
//
// Guarantees: G-0081.1
func TestLoginsAreNotDecidedByOldViews(t *testing.T) {
	for name, unseen := range map[string]bool{"the second change is not seen": false, "no change is seen": true} {
		t.Run(name, func(t *testing.T) { decideByAnOldView(t, unseen) })
	}
}

func decideByAnOldView(t *testing.T, unseen bool) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, _ := threeNodes(t)
		k := auth.Key{Resource: "https://example.com"}
		set := func(n *cluster.Node, token string) (before string) {
			err := n.Logins().Locked(t.Context(), k, func(e *auth.Entry) (*auth.Entry, error) {
				if e != nil {
					before = e.Access.Reveal()
				}
				return &auth.Entry{Access: auth.NewSecret(token)}, nil
			})
			if err != nil {
				t.Error(err)
			}
			return before
		}
		if unseen {
			if e, err := nodes[0].Logins().Load(t.Context(), k); e != nil || err != nil { // which makes the bucket
				t.Fatal(e, err)
			}
			engines[1].Freeze()
		}
		set(nodes[0], "first")
		engines[1].Freeze()
		set(nodes[0], "second")
		before := make(chan string, 1)
		go func() { before <- set(nodes[1], "third") }()
		rest(t, 5*time.Second)
		select {
		case got := <-before:
			t.Errorf("with an old view, the entry was %q", got)
		default:
		}
		engines[1].Thaw()
		if got := <-before; got != "second" {
			t.Errorf("the entry was %q, want that of the last writer", got)
		}
		if got := set(nodes[2], "fourth"); got != "third" {
			t.Errorf("the entry was %q", got)
		}
	})
}
