package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
)

// A keyUser is a node that makes things with shared keys, and accepts those of others.
type keyUser func() [][]byte

func keyUsers(nodes ...*cluster.Node) (all []keyUser) {
	for _, n := range nodes {
		all = append(all, n.Keys("asking"))
	}
	return all
}

func (u keyUser) accepts(key []byte) bool {
	return slices.ContainsFunc(u(), func(k []byte) bool { return bytes.Equal(k, key) })
}

// mustAccept checks that each node accepts what any makes now.
func mustAccept(t *testing.T, users []keyUser) {
	t.Helper()
	for i, by := range users {
		for j, at := range users {
			if !at.accepts(by()[0]) {
				t.Errorf("node %d does not accept what node %d makes", j, i)
			}
		}
	}
}

// observer returns an Observer of the nodes of a service.
func observer(t *testing.T, s *clustertest.Service) *cluster.Observer {
	t.Helper()
	o, err := cluster.Observe(t.Context(), s.Engine(), options(""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

// A node counts how long a replaced key is accepted from when it has seen that it was replaced: its clock may be another one.
//
// Guarantees: G-0081.7
func TestAReplacedKeyIsAcceptedFromWhenThatWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := join(t, s, "a")
		early := a.Keys("asking")
		if err := a.RotateKeys(t.Context(), "ada"); err != nil {
			t.Fatal(err)
		}
		advance(time.Hour)
		late := join(t, s, "b").Keys("asking")
		for _, want := range []struct{ early, late int }{{2, 2}, {1, 2}, {1, 1}} {
			if got := len(early()); got != want.early {
				t.Errorf("who has seen it at once accepts %d keys, want %d", got, want.early)
			}
			if got := len(late()); got != want.late {
				t.Errorf("who has seen it later accepts %d keys, want %d", got, want.late)
			}
			advance(time.Hour + 10*time.Minute)
		}
	})
}

// During a rotation each node accepts what any makes, although news reach them at different times. Then the new key is used, and the old one is accepted for two hours. An engine that
// has lost the record gets it back, and a node that joins uses the new key from the beginning. Each node hears once who has done it.
//
// Guarantees: G-0081.7, G-0099.20
func TestKeysAreRotated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, service := threeNodes(t)
		users, o := keyUsers(nodes[:]...), observer(t, service)
		heard := make(chan cluster.KeysStatus, 2*len(nodes))
		for _, n := range nodes {
			n.OnRotate(func(s cluster.KeysStatus) { heard <- s })
		}
		if status, err := o.KeysStatus(t.Context()); !status.Rotated.IsZero() || err != nil {
			t.Errorf("before: %+v, %v", status, err)
		}
		for i, e := range engines { // news are late by up to 2 s
			e.Faults(func(op clustertest.Operation) clustertest.Fault {
				if op.Name == "change" && op.Subject == "shared" {
					return clustertest.Fault{Delay: time.Duration(i) * time.Second}
				}
				return clustertest.Fault{}
			})
		}
		first := users[0]()[0]
		done := make(chan error, 1)
		go func() { done <- o.RotateKeys(t.Context(), "ada") }()
		for over := false; !over; {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				over = true
			default:
				mustAccept(t, users)
				advance(50 * time.Millisecond)
			}
		}
		for range 100 {
			mustAccept(t, users)
			advance(50 * time.Millisecond)
		}
		for i, u := range users {
			if now := u(); bytes.Equal(now[0], first) || !bytes.Equal(now[0], users[0]()[0]) || !u.accepts(first) || len(now) != 2 {
				t.Errorf("node %d has %x after the rotation, before %x", i, now, first)
			}
		}
		status, err := o.KeysStatus(t.Context())
		if time.Since(status.Rotated) > time.Minute || status.By != "ada" || status.IsRotating || err != nil {
			t.Errorf("after: %+v, %v", status, err)
		}
		if len(heard) != len(nodes) {
			t.Errorf("%d nodes have heard of the rotation", len(heard))
		}
		for range len(heard) {
			if got := <-heard; got != status {
				t.Errorf("a node has heard %+v, want %+v", got, status)
			}
		}
		service.Wipe()
		advance(time.Minute)
		late := joinWith(t, service, options("late"), &cluster.Clock{})
		users = append(users, keyUsers(late.Node)...)
		mustAccept(t, users)
		if !bytes.Equal(users[3]()[0], users[0]()[0]) || bytes.Equal(users[3]()[0], first) {
			t.Error("a node that joins later uses another key")
		}
		advance(2*time.Hour - 10*time.Minute)
		if !users[0].accepts(first) {
			t.Error("the old key is forgotten early")
		}
		advance(20 * time.Minute)
		for i, u := range users[:3] {
			if u.accepts(first) || len(u()) != 1 {
				t.Errorf("node %d has not forgotten the old key", i)
			}
		}
	})
}

// Each rotation is heard once, when its key is used, and by who joins later not at all.
//
// Guarantees: G-0081.7
func TestEachRotationIsHeardOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := join(t, s, "a")
		a.Keys("asking") // from when on it watches them
		heard := 0
		a.OnRotate(func(status cluster.KeysStatus) {
			if heard++; status.IsRotating {
				t.Error("a rotation is heard while it goes on")
			}
		})
		for n := range 3 {
			if err := a.RotateKeys(t.Context(), "ada"); err != nil {
				t.Fatal(err)
			}
			if advance(time.Minute); heard != n+1 {
				t.Errorf("after %d rotations %d were heard", n+1, heard)
			}
		}
		late := options("late")
		late.Log = slog.New(onRecord(func(r slog.Record) {
			if strings.Contains(r.Message, "were rotated") {
				t.Errorf("a node that joins later logs: %s", r.Message)
			}
		}))
		joinWith(t, s, late, &cluster.Clock{}).Keys("asking")
		advance(time.Minute)
	})
}

// Rotations at the same time are one, and the next is another one, up to a bound.
//
// Guarantees: G-0081.8
func TestRotationsAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, _ := threeNodes(t)
		users := keyUsers(nodes[:]...)
		advance(time.Second)
		for _, e := range engines { // otherwise one rotation may be over before the next begins
			e.Faults(func(clustertest.Operation) clustertest.Fault { return clustertest.Fault{Delay: 10 * time.Millisecond} })
		}
		for i := range 9 {
			var errs [3]error
			var group sync.WaitGroup
			for j, n := range nodes {
				group.Go(func() { errs[j] = n.RotateKeys(t.Context(), "ada") })
			}
			group.Wait()
			advance(time.Second)
			err := errors.Join(errs[:]...)
			if i < 8 && (err != nil || len(users[0]()) != i+2) || i == 8 && (err == nil || !strings.Contains(err.Error(), "wait for some hours")) {
				t.Errorf("after rotation %d there are %d keys: %v", i+1, len(users[0]()), err)
			}
			mustAccept(t, users)
		}
		advance(5 * time.Hour)
		if err := nodes[0].RotateKeys(t.Context(), "ada"); err != nil {
			t.Error(err)
		}
	})
}

// A node that was killed is waited for while its lease lasts. One that is cut off accepts the new key when it is back. One that lives and does not see
// the new key keeps it from being used, and the next rotation goes on with it.
//
// Guarantees: G-0081.8
func TestANodeThatIsAwayDuringARotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, _ := threeNodes(t)
		lose := true
		engines[2].Faults(func(op clustertest.Operation) clustertest.Fault {
			return clustertest.Fault{Lose: lose && op.Name == "bucket" && op.Subject == "shared"}
		})
		users := keyUsers(nodes[:]...)
		advance(time.Second)
		old := users[0]()[0]
		if err := nodes[0].RotateKeys(t.Context(), "ada"); err == nil || !strings.Contains(err.Error(), `["c"]`) || !strings.Contains(err.Error(), "the new keys are not used") {
			t.Errorf("a node does not see the new key: %v", err)
		}
		for _, u := range users {
			if !bytes.Equal(u()[0], old) {
				t.Error("the new key is used")
			}
		}
		engines[2].Cut()
		began := time.Now()
		if err := nodes[1].RotateKeys(t.Context(), "ada"); err != nil {
			t.Errorf("a node is cut off: %v", err)
		}
		if took := time.Since(began); took > cluster.LeaseTTL+2*time.Second {
			t.Errorf("it took %v", took)
		}
		synctest.Wait()
		mustAccept(t, users[:2])
		if len(users[0]()) != 2 || bytes.Equal(users[0]()[0], old) {
			t.Errorf("the rotation that was broken off left %d keys", len(users[0]()))
		}
		lose = false
		engines[2].Heal()
		advance(10 * time.Second)
		mustAccept(t, users)
		if !bytes.Equal(users[2]()[0], users[0]()[0]) {
			t.Error("the node that is back uses the old key")
		}
	})
}

// A rotation that loses any one of its answers is one rotation.
//
// Guarantees: G-0081.8
func TestARotationThatLosesAnswers(t *testing.T) {
	for lost := range 4 {
		synctest.Test(t, func(t *testing.T) {
			nodes, engines, _ := threeNodes(t)
			users := keyUsers(nodes[:]...)
			advance(time.Second)
			n := 0
			engines[0].Faults(func(op clustertest.Operation) clustertest.Fault {
				if op.Subject != "shared" || op.Name != "create" && op.Name != "update" && op.Name != "get" {
					return clustertest.Fault{}
				}
				n++
				return clustertest.Fault{LoseResult: n == lost+1}
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := nodes[0].RotateKeys(ctx, "ada"); err != nil {
				t.Errorf("answer %d was lost: %v", lost, err)
			}
			advance(time.Second)
			if len(users[0]()) != 2 {
				t.Errorf("answer %d was lost: %d keys", lost, len(users[0]()))
			}
			mustAccept(t, users)
		})
	}
}
