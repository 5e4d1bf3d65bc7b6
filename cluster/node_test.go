package cluster_test

import (
	"bytes"
	"context"
	"encoding/base32"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// TestJoinChecksOptions.
//
// Guarantees: G-0076.8
func TestJoinChecksOptions(t *testing.T) {
	e := clustertest.New(clustertest.Options{}).Engine()
	defer func() { _ = e.Close() }() // it has nothing to fail with
	for _, c := range []struct {
		change func(*cluster.Options)
		want   string
	}{
		{func(o *cluster.Options) { o.Key = nil }, "there is no key: give all nodes of the cluster the same 32 random bytes"},
		{func(o *cluster.Options) { o.Key = key[:31] }, "the key has 31 bytes: give all nodes of the cluster the same 32 random bytes"},
		{func(o *cluster.Options) { o.Key = append(slices.Clone(key), 0) }, "the key has 33 bytes"},
		{func(o *cluster.Options) { o.Cluster = "" }, `the name "" of the cluster is not valid`},
		{func(o *cluster.Options) { o.Cluster = "a.b" }, `use 1 to 64 letters, digits, "-" and "_"`},
		{func(o *cluster.Options) { o.Node = "ä" }, `the name "ä" of the node is not valid`},
		{func(o *cluster.Options) { o.Node = strings.Repeat("x", 65) }, "of the node is not valid"},
		{func(o *cluster.Options) { o.Node = "a\n" }, "of the node is not valid"},
		{func(o *cluster.Options) { o.Labels = map[string]string{"l": strings.Repeat("x", 4096)} }, "more than 4 KiB"},
		{func(o *cluster.Options) { o.Version = strings.Repeat("x", 257) }, "256 bytes"},
	} {
		o := options("a")
		c.change(&o)
		n, err := cluster.Join(t.Context(), e, o)
		if n != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	var keyError *cluster.KeyError
	o := options("a")
	o.Key = key[:31]
	if _, err := cluster.Join(t.Context(), e, o); !errors.As(err, &keyError) || keyError.Bytes != 31 {
		t.Errorf("%v, want a KeyError", err)
	}
	var nameError *cluster.NameError
	o = options("a b")
	if _, err := cluster.Join(t.Context(), e, o); !errors.As(err, &nameError) || nameError.Kind != "node" || nameError.Name != "a b" {
		t.Errorf("%v, want a NameError", err)
	}
}

// TestOptionsAreCopied checks that a node goes on to describe itself as it was joined.
func TestOptionsAreCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options("a")
		a := joinWith(t, clustertest.New(clustertest.Options{}), o, &cluster.Clock{})
		o.Labels["zone"] = "y"
		if zone := a.Report().Labels["zone"]; zone != "x" {
			t.Errorf("its label is %q now", zone)
		}
	})
}

// TestOtherKey checks that a node does not join a cluster whose nodes have another key.
//
// Guarantees: G-0076.8
func TestOtherKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := join(t, s, "a")
		e := s.Engine()
		var shown atomic.Int64
		e.Faults(func(op clustertest.Operation) clustertest.Fault {
			if op.Name == "change" {
				shown.Add(1)
			}
			return clustertest.Fault{}
		})
		for name, node := range map[string]string{"another node": "b", "the same node": "a", "an observer": ""} {
			o := options(node)
			o.Key = bytes.Repeat([]byte{8}, cluster.KeySize)
			var err error
			if node == "" {
				_, err = cluster.Observe(t.Context(), e, o)
			} else {
				_, err = cluster.Join(t.Context(), e, o)
			}
			var keyError *cluster.KeyError
			if !errors.As(err, &keyError) || !slices.Equal(keyError.Nodes, []string{"a"}) || !strings.Contains(err.Error(), `nodes ["a"] have another key`) {
				t.Errorf("%s: %v, want a KeyError", name, err)
			}
		}
		synctest.Wait()
		if all := names(a.Members()); len(all) != 1 {
			t.Errorf("the members are %v", all)
		}
		before := shown.Load()
		if advance(time.Minute); shown.Load() != before {
			t.Error("who was refused goes on to watch the nodes")
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestNameOfALaterVersion checks that a lease that this version cannot read is that of another process, and not one
// with another key.
//
// Guarantees: G-0076.5
func TestNameOfALaterVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.New(clustertest.Options{}).Engine()
		bucket, later := leases(t, e), []byte{255, 1}
		revision, err := bucket.Create(t.Context(), "node.a", later, 0)
		stop, stopped := make(chan bool), make(chan bool)
		go func() { // the other process renews it
			defer close(stopped)
			renew := time.NewTicker(time.Second)
			defer renew.Stop()
			for err == nil {
				select {
				case <-renew.C:
					revision, err = bucket.Update(t.Context(), "node.a", later, revision)
				case <-stop:
					return
				}
			}
			t.Error(err)
		}()
		var taken *cluster.NameTakenError
		if _, err := cluster.Join(t.Context(), e, options("a")); !errors.As(err, &taken) {
			t.Errorf("%v, want a NameTakenError", err)
		}
		close(stop)
		<-stopped
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestMembersAreKnown checks that each node knows the others when Join returns, and learns who
// comes and goes.
func TestMembersAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := join(t, s, "a")
		a.Announce("10.0.0.1:7777")
		b := join(t, s, "b")
		if all := names(b.Members()); !slices.Equal(all, []string{"a", "b"}) {
			t.Fatalf("the second node knows %v when it has joined", all)
		}
		synctest.Wait()
		if all := names(a.Members()); !slices.Equal(all, []string{"a", "b"}) {
			t.Fatalf("the first node knows %v", all)
		}
		m, found := b.Member("a")
		if !found || m.Address != "10.0.0.1:7777" || string(m.Certificate) != string(a.Report().Certificate) || m.Version != "1.0" || m.Labels["zone"] != "x" || m.Epoch != a.Self().Epoch || m.Draining {
			t.Errorf("b knows a as %+v", m)
		}
		if _, found := b.Member("c"); found {
			t.Error("b knows a node that does not exist")
		}
		if b.Gone("a") || b.Gone("b") {
			t.Error("a node is gone that is there")
		}
		closeNode(t, a.Node)
		synctest.Wait()
		if _, found := b.Member("a"); found || !b.Gone("a") {
			t.Error("b still knows a, which is closed")
		}
	})
}

// TestNameIsTaken checks that Join waits one TTL for a name, and fails if its process lives.
//
// Guarantees: G-0076.5
func TestNameIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := join(t, s, "a")
		a.Announce("10.0.0.1:7777")
		e := s.Engine()
		began := time.Now()
		_, err := cluster.Join(t.Context(), e, options("a"))
		var taken *cluster.NameTakenError
		if !errors.As(err, &taken) || taken.Node != "a" || taken.Address != "10.0.0.1:7777" {
			t.Errorf("%v, want a NameTakenError", err)
		}
		if waited := time.Since(began); waited < cluster.LeaseTTL || waited > cluster.LeaseTTL+5*time.Second {
			t.Errorf("Join waited %v", waited)
		}
		a.state(t, cluster.Ready)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSameNameTwice checks that of two processes that begin with one name at the same time,
// one has it.
//
// Guarantees: G-0076.5
func TestSameNameTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		results := make(chan error, 2)
		nodes := make(chan *cluster.Node, 2)
		for range 2 {
			go func() {
				e := s.Engine()
				n, err := cluster.Join(context.Background(), e, options("a"))
				nodes <- n
				results <- err
			}()
		}
		first, second := <-results, <-results
		if (first == nil) == (second == nil) {
			t.Errorf("one of two processes must have the name: %v, %v", first, second)
		}
		for range 2 {
			if n := <-nodes; n != nil {
				closeNode(t, n)
			}
		}
	})
}

// TestEpochIsReused checks that a copy of a process, as from a snapshot of its machine, is not
// taken for the process itself.
//
// Guarantees: G-0076.5
func TestEpochIsReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := join(t, s, "a")
		_, l := a.claim(t, "srv.x")
		e := s.Engine()
		copied := &cluster.Clock{Epoch: a.Self().Epoch}
		var taken *cluster.NameTakenError
		if _, err := cluster.JoinWithClock(t.Context(), e, options("a"), copied); !errors.As(err, &taken) {
			t.Errorf("%v, want a NameTakenError", err)
		}
		b := joinWithClock(t, s, "b", copied)
		if _, err := b.Claim(t.Context(), "srv.x", nil, func(error) {}); !errors.Is(err, cluster.ErrExists) {
			t.Errorf("%v, want ErrExists", err)
		}
		advance(time.Minute)
		if !a.Holds("srv.x") || l.calls.Load() != 0 {
			t.Error("the claim was lost to a copy")
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestRestartAfterKill checks that a process gets the name of one that was killed when its lease
// has expired, and that what the old one owned may be taken then.
func TestRestartAfterKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		was := a.Self()
		a.kill(t)
		began := time.Now()
		again := join(t, s, "a")
		if waited := time.Since(began); waited > cluster.LeaseTTL+time.Second {
			t.Errorf("the restart took %v", waited)
		}
		synctest.Wait()
		if again.Judge(was) != cluster.Dead || b.Judge(was) != cluster.Dead {
			t.Error("the old process counts as alive")
		}
		if b.Judge(again.Self()) != cluster.Alive || again.Judge(again.Self()) != cluster.Alive {
			t.Error("the new process does not count as alive")
		}
		if b.Gone("a") {
			t.Error("the name is gone")
		}
	})
}

// TestRestartNeedNotWait checks that a process gets the name of one that was killed at once, if
// the door of that one refuses connections and nobody answers its control requests.
func TestRestartNeedNotWait(t *testing.T) {
	s := clustertest.New(clustertest.Options{})
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a, b := join(t, s, "a"), join(t, s, "b")
	a.claim(t, "srv."+base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte("x")))
	changed := make(chan string, 16)
	b.OnLease(func(key string) { changed <- key })
	a.Announce(door.Addr().String())
	for m, _ := b.Member("a"); m.Address == ""; m, _ = b.Member("a") {
		<-changed
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	e := s.Engine()
	if _, err := cluster.Join(ctx, e, options("a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Join of a name that is in use: %v", err)
	}
	a.kill(t)
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := cluster.Join(ctx, e, options("a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Join of a name whose door is open: %v", err)
	}
	if err := door.Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	again := join(t, s, "a")
	if waited := time.Since(began); waited > 10*time.Second {
		t.Errorf("the restart took %v", waited)
	}
	again.state(t, cluster.Ready)
	if _, err := again.Upstream("x", &stdio.Command{Path: "/bin/true"}, cluster.UpstreamOptions{}).Open(t.Context()); err == nil || !strings.Contains(err.Error(), `server "x" belongs to an earlier process of this node until its claim expires`) {
		t.Errorf("a server of the process before: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestJoinWithoutEngine checks that Join waits for the Engine, and no longer than its context.
func TestJoinWithoutEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		e := s.Engine()
		e.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := cluster.Join(ctx, e, options("a")); !errors.Is(err, cluster.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		time.AfterFunc(30*time.Second, e.Heal)
		n, err := cluster.Join(t.Context(), e, options("a"))
		if err != nil {
			t.Fatal(err)
		}
		closeNode(t, n)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestJoinIsRefused checks errors that waiting does not mend.
func TestJoinIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		e := s.Engine()
		e.Deny(true)
		if _, err := cluster.Join(t.Context(), e, options("a")); !errors.Is(err, cluster.ErrDenied) {
			t.Errorf("%v, want ErrDenied", err)
		}
		e.Deny(false)
		if _, err := e.Bucket(t.Context(), cluster.BucketOptions{Name: cluster.LeaseBucket, TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		var settings *cluster.SettingsError
		if _, err := cluster.Join(t.Context(), e, options("a")); !errors.As(err, &settings) {
			t.Errorf("%v, want a SettingsError", err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestJoinLosesAnswers checks that a lease whose answer was lost does not keep its own process
// out.
func TestJoinLosesAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		e, creates := s.Engine(), 0
		e.Faults(func(op clustertest.Operation) clustertest.Fault {
			if op.Name == "create" {
				creates++
				return clustertest.Fault{LoseResult: creates == 1, Cut: creates == 1}
			}
			return clustertest.Fault{}
		})
		time.AfterFunc(3*time.Second, e.Heal)
		began := time.Now()
		n, err := cluster.Join(t.Context(), e, options("a"))
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited > 10*time.Second || creates < 2 {
			t.Errorf("Join took %v, with %d attempts", waited, creates)
		}
		closeNode(t, n)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestCloseLeavesNothing checks that Close gives up all keys, and that a node that is closed
// does nothing.
func TestCloseLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		release, l := a.claim(t, "srv.x")
		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.state(t, cluster.Closed)
		synctest.Wait()
		if _, _, found := b.Holder("srv.x"); found || !b.Gone("a") {
			t.Error("something of a is left")
		}
		b.claim(t, "srv.x")
		if err := errors.Join(a.Close(t.Context()), release(t.Context())); err != nil {
			t.Errorf("after Close: %v", err)
		}
		if _, err := a.Claim(t.Context(), "srv.y", nil, l.lost); err == nil {
			t.Error("a node that is closed claims a key")
		}
		if a.Holds("srv.x") || !b.Holds("srv.x") || l.calls.Load() != 0 {
			t.Error("a claim was lost by Close, or taken from b")
		}
	})
}

// TestASecondCloseWaits checks that Close does not return before what the first one has to end has ended.
func TestASecondCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := join(t, clustertest.New(clustertest.Options{}), "a")
		begun, end, closed := make(chan struct{}), make(chan struct{}), make(chan error, 2)
		if err := a.Go(func() {
			close(begun)
			<-end
		}); err != nil {
			t.Fatal(err)
		}
		<-begun
		for range 2 {
			go func() { closed <- a.Close(context.Background()) }()
			synctest.Wait()
		}
		if len(closed) != 0 {
			t.Errorf("%d of two calls of Close have returned before the end", len(closed))
		}
		close(end)
		for range 2 {
			if err := <-closed; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestCloseSaysWhatIsLeft checks the error if the Engine is away, and that Close returns all the
// same.
func TestCloseSaysWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := join(t, s, "a")
		a.claim(t, "srv.x")
		a.engine.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Close(ctx); !errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
	})
}
