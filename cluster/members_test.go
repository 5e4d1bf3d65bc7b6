package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
)

// TestOwnersThatDie checks when a node calls the owner of something dead that was killed.
//
// Guarantees: G-0076.3, G-0076.4
func TestOwnersThatDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		synctest.Wait()
		was := a.Self()
		a.kill(t)
		for b.Judge(was) == cluster.Alive {
			advance(100 * time.Millisecond)
		}
		if after := time.Since(start()); b.Judge(was) != cluster.Dead || after > cluster.LeaseTTL+time.Second {
			t.Errorf("after %v: %v", after, b.Judge(was))
		}
		if _, found := b.Member("a"); found || !b.Gone("a") {
			t.Error("a counts as a member")
		}
	})
}

// start is when a synctest bubble begins.
func start() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

// TestOwnersThatWereNeverSeen checks that a node waits for as long as a lease lasts before it
// calls an owner dead whose lease it has never seen, and longer if what it sees is old.
//
// Guarantees: G-0076.4
func TestOwnersThatWereNeverSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		b := join(t, s, "b")
		before := cluster.Owner{Node: "a", Epoch: "before", Term: 1}
		advance(time.Hour)
		if b.Judge(before) != cluster.Unsure || b.Gone("a") {
			t.Error("an owner that was never seen counts as dead at once")
		}
		advance(cluster.LeaseTTL - time.Second)
		if b.Judge(before) != cluster.Unsure || b.Gone("a") {
			t.Error("an owner that was never seen counts as dead before the time of a lease")
		}
		advance(6 * time.Second)
		if b.Judge(before) != cluster.Dead || !b.Gone("a") {
			t.Error("an owner that was never seen does not count as dead after the time of a lease")
		}
		old := cluster.Owner{Node: "a", Epoch: "old", Term: 1}
		b.engine.Freeze()
		if b.Judge(old) != cluster.Unsure {
			t.Error("an owner that was never seen counts as dead at once")
		}
		advance(time.Hour)
		if b.Judge(old) != cluster.Unsure {
			t.Error("an owner counts as dead because an old view does not show it")
		}
		b.engine.Thaw()
		advance(6 * time.Second)
		if b.Judge(old) != cluster.Dead {
			t.Error("an owner does not count as dead although the view is current")
		}
	})
}

// TestOldViews shows a node an old state in which the owner of a session is another epoch, or
// has no lease yet. Neither makes the owner dead.
//
// Guarantees: G-0076.4
func TestOldViews(t *testing.T) {
	for _, before := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := clustertest.New(clustertest.Options{})
			b := join(t, s, "b")
			if before {
				a := join(t, s, "a")
				synctest.Wait()
				b.engine.Freeze()
				closeNode(t, a.Node)
			} else {
				b.engine.Freeze()
			}
			again := join(t, s, "a")
			advance(time.Hour)
			if b.Judge(again.Self()) == cluster.Dead {
				t.Error("an owner that lives counts as dead")
			}
			b.engine.Thaw()
			advance(time.Second)
			if b.Judge(again.Self()) != cluster.Alive {
				t.Error("an owner that lives does not count as alive")
			}
		})
	}
}

// TestIsolatedNodesTakeNothing checks that a node that does not hold its own lease calls nobody
// dead.
//
// Guarantees: G-0076.3
func TestIsolatedNodesTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		synctest.Wait()
		was := a.Self()
		closeNode(t, a.Node)
		synctest.Wait()
		if b.Judge(was) != cluster.Dead || !b.Gone("a") {
			t.Fatal("a does not count as dead")
		}
		b.engine.Cut()
		advance(cluster.LeaseHeld)
		if b.Judge(was) != cluster.Unsure || b.Gone("a") || b.Judge(b.Self()) != cluster.Alive {
			t.Error("an isolated node calls others dead")
		}
	})
}

// TestDoorIsRefused checks that a node counts as dead whose door refuses connections, if its
// control requests are not answered either, and that a renewal refutes that.
//
// Guarantees: G-0076.4
func TestDoorIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		synctest.Wait()
		if b.DoorRefused(t.Context(), a.Self()) != cluster.Alive {
			t.Error("a node that answers control requests counts as dead")
		}
		var changed []string
		b.OnLease(func(key string) { changed = append(changed, key) })
		a.engine.Cut() // it lives, and can reach nobody
		if b.DoorRefused(t.Context(), a.Self()) != cluster.Dead || !b.Gone("a") {
			t.Error("a node that nobody reaches counts as alive")
		}
		if _, found := b.Member("a"); found || len(changed) != 1 || changed[0] != "node.a" {
			t.Errorf("a counts as a member, after changes of %v", changed)
		}
		a.engine.Heal()
		advance(6 * time.Second)
		if _, found := b.Member("a"); !found || b.Judge(a.Self()) != cluster.Alive || b.Gone("a") {
			t.Error("a renewal does not refute it")
		}
	})
}

// TestWatchBeginsAnew checks that members are kept while a watch begins anew, since it may show
// an old state, and go if they do not come back.
func TestWatchBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		synctest.Wait()
		b.engine.Faults(func(op clustertest.Operation) clustertest.Fault {
			return clustertest.Fault{Lose: op.Name == "update"} // nothing confirms what b sees
		})
		s.Wipe()
		synctest.Wait()
		if _, found := b.Member("a"); !found || b.Judge(a.Self()) == cluster.Dead || b.Gone("a") {
			t.Error("a node counts as gone because a list does not show it")
		}
		b.engine.Faults(nil)
		advance(10 * time.Second)
		if b.Judge(a.Self()) != cluster.Alive {
			t.Error("a does not count as alive")
		}
		was := a.Self()
		a.kill(t)
		s.Wipe()
		advance(10 * time.Second)
		if b.Judge(was) != cluster.Unsure {
			t.Errorf("10 s after a wipe: %v", b.Judge(was))
		}
		advance(20 * time.Second)
		if b.Judge(was) != cluster.Dead || !b.Gone("a") {
			t.Error("a does not count as dead 30 s after a wipe")
		}
	})
}

// TestRollingUpgrade checks that a lease of another version, or with another key, is left alone
// and counted, and that its owner does not count as dead.
//
// Guarantees: G-0076.8
func TestRollingUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		b := join(t, s, "b")
		bucket := leases(t, b.engine)
		for name, value := range map[string][]byte{
			"newer":   b.SealLease("newer", []byte(`{"v":2,"epoch":"e","since":"then"}`)),
			"foreign": []byte("\x01anything"),
			"future":  []byte("\x02anything"),
			"moved":   b.SealLease("b", []byte(`{"v":1,"epoch":"e"}`)),
			"empty":   nil,
			"none":    b.SealLease("none", []byte(`{"v":1}`)),
		} {
			before := b.Report().RefusedRecords
			revision, err := bucket.Create(t.Context(), "node."+name, value, 0)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if _, found := b.Member(name); found || b.Report().RefusedRecords != before+1 {
				t.Errorf("%s: a member %v, counted %d", name, found, b.Report().RefusedRecords-before)
			}
			of := cluster.Owner{Node: name, Epoch: "e", Term: 1}
			b.Judge(of)
			b.Gone(name)
			for range 8 {
				advance(5 * time.Second)
				if revision, err = bucket.Update(t.Context(), "node."+name, value, revision); err != nil {
					t.Fatalf("%s was not left alone: %v", name, err)
				}
			}
			if b.Judge(of) == cluster.Dead || b.Gone(name) {
				t.Errorf("%s counts as dead", name)
			}
			advance(25 * time.Second)
			if !b.Gone(name) {
				t.Errorf("%s does not count as gone after its lease has expired", name)
			}
		}
	})
}

// TestNothingIsReadable looks for what a cluster keeps and carries in plain text.
//
// Guarantees: G-0076.10
func TestNothingIsReadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := join(t, s, "a")
		a.Announce("10.9.8.7:7777")
		a.claim(t, "srv.x")
		synctest.Wait()
		bucket := leases(t, a.engine)
		for k, err := range bucket.Keys(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			got, err := bucket.Get(t.Context(), k)
			if err != nil {
				t.Fatal(err)
			}
			wantSealed(t, got.Value, "10.9.8.7", "value of a", a.Self().Epoch, "zone", `"v"`)
		}
		_, request := a.Request("a", "echo", echo{"secret text"})
		wantSealed(t, request, "echo", "secret")
		wantSealed(t, a.Answer(t.Context(), request), "operation", "unknown", `"ok"`)
	})
}
