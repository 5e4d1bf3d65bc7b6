package cluster_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/proptest/stores"
	"github.com/bowline-mcp/bowline/protocol"
)

// threeNodes returns nodes of one cluster, with the Engines that they use. They are closed at the
// end of the test.
func threeNodes(t *testing.T, change ...func(*cluster.Options)) (nodes [3]*cluster.Node, engines [3]*clustertest.Engine, service *clustertest.Service) {
	t.Helper()
	service = clustertest.New(clustertest.Options{})
	for i, name := range []string{"a", "b", "c"} {
		engines[i] = service.Engine()
		o := options(name)
		for _, f := range change {
			f(&o)
		}
		n, err := cluster.Join(t.Context(), engines[i], o)
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = n
		t.Cleanup(func() {
			if err := errors.Join(n.Close(context.WithoutCancel(t.Context())), engines[i].Close()); err != nil {
				t.Error(err)
			}
		})
	}
	return nodes, engines, service
}

// Guarantees: G-0075.8, G-0081.4
func TestTaskStoreOfACluster(t *testing.T) {
	stores.TaskStoreContract(t, func(t *testing.T) stores.Tasks {
		nodes, _, _ := threeNodes(t)
		return stores.Tasks{A: nodes[0].Tasks(), B: nodes[1].Tasks()}
	}, proptest.ContractOptions{})
}

// Guarantees: G-0075.9, G-0081.3
func TestSpentStatesOfACluster(t *testing.T) {
	stores.SpentContract(t, func(t *testing.T) stores.SpentStates {
		nodes, _, _ := threeNodes(t)
		return stores.SpentStates{A: nodes[0].Spent(), B: nodes[1].Spent()}
	}, proptest.ContractOptions{})
}

// A subscriber that has heard of more processes than it remembers forgets them, and says once that it may have missed something.
//
// Guarantees: G-0081.2
func TestChangesOfManyProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, _ := threeNodes(t)
		missed, others := 0, 0
		stop := nodes[0].Changes().Subscribe(func(c server.Change) {
			if c.Missed {
				missed++
			} else {
				others++
			}
		})
		const most, more = 10_000, 100
		for i := range most + more {
			plain := fmt.Appendf(nil, `{"v":1,"node":"x","epoch":"e%d","seq":1,"change":{}}`, i)
			if err := engines[1].Publish("ev", nodes[1].Seal("change", "ev", plain)); err != nil {
				t.Fatal(err)
			}
			if i%500 == 0 {
				synctest.Wait() // a thousand may wait
			}
		}
		synctest.Wait()
		stop()
		if missed != 1 || others != most+more {
			t.Errorf("of %d changes the subscriber has heard %d, and %d times that it may have missed something", most+more, others, missed)
		}
	})
}

// Who subscribes while the engine is away hears changes when it is back, and that there may have been others.
//
// Guarantees: G-0081.2
func TestASubscriptionWithoutTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, _ := threeNodes(t)
		engines[0].Cut()
		var heard []server.Change
		stop := nodes[0].Changes().Subscribe(func(c server.Change) { heard = append(heard, c) })
		rest(t, 10*time.Second)
		engines[0].Heal()
		rest(t, 5*time.Second)
		synctest.Wait()
		if len(heard) == 0 || !heard[0].Missed {
			t.Errorf("it has heard %+v, want that it may have missed something", heard)
		}
		before := len(heard)
		nodes[1].Changes().Publish(server.Change{})
		synctest.Wait()
		stop()
		if len(heard) != before+1 {
			t.Errorf("it has heard %+v, want another change", heard)
		}
	})
}

// Guarantees: G-0081.2
func TestChangesOfACluster(t *testing.T) {
	stores.ChangesContract(t, func(t *testing.T) stores.Changes {
		nodes, engines, _ := threeNodes(t)
		return stores.Changes{
			A: nodes[0].Changes(), B: nodes[1].Changes(), C: nodes[2].Changes(),
			Lose: func() (restore func()) {
				for _, e := range engines {
					e.Cut()
				}
				return func() {
					for _, e := range engines {
						e.Heal()
					}
				}
			},
		}
	}, proptest.ContractOptions{})
}

// A change that was lost on the way is noticed with the next one.
//
// Guarantees: G-0081.2
func TestLostChangeIsNoticed(t *testing.T) {
	nodes, engines, _ := threeNodes(t)
	got := make(chan server.Change, 10)
	defer nodes[1].Changes().Subscribe(func(c server.Change) { got <- c })()
	publish := func(uri string) { nodes[0].Changes().Publish(server.Change{URI: uri}) }
	publish("a")
	if c := <-got; c.URI != "a" {
		t.Fatalf("the change is %+v", c)
	}
	engines[1].Faults(func(op clustertest.Operation) clustertest.Fault { return clustertest.Fault{Lose: op.Name == "message"} })
	publish("b")
	engines[1].Faults(nil)
	publish("c")
	if c := <-got; !c.Missed && c.URI == "c" {
		t.Errorf("after a lost change the next one is %+v", c)
	} else if next := <-got; c.URI == "b" || next.URI != "c" {
		t.Errorf("the changes are %+v and %+v", c, next)
	}
}

// A state or a proof is used once, by whichever node, also if the answer of the engine was lost.
// While the engine is away it is refused, after three seconds.
//
// Guarantees: G-0081.3
func TestSpentOnceInTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, _ := threeNodes(t)
		until := time.Now().Add(10 * time.Minute)
		for round := range 20 {
			var first atomic.Int32
			var spending sync.WaitGroup
			for _, n := range nodes {
				spending.Go(func() {
					ok, err := n.Spent().Spend(t.Context(), [16]byte{byte(round)}, until)
					if err != nil {
						t.Error(err)
					}
					if ok {
						first.Add(1)
					}
				})
			}
			spending.Wait()
			if first.Load() != 1 {
				t.Fatalf("a state was used %d times", first.Load())
			}
			if fresh, err := nodes[round%3].Proofs().Take(t.Context(), [16]byte{byte(round)}, until); !fresh || err != nil {
				t.Fatalf("a proof with the number of a state: fresh is %v: %v", fresh, err)
			}
		}
		var lost atomic.Bool
		engines[0].Faults(func(op clustertest.Operation) clustertest.Fault {
			return clustertest.Fault{LoseResult: op.Name == "create" && lost.CompareAndSwap(false, true)}
		})
		if first, err := nodes[0].Spent().Spend(t.Context(), [16]byte{100}, until); !first || err != nil || !lost.Load() {
			t.Errorf("after a lost answer, first is %v: %v", first, err)
		}
		if first, err := nodes[1].Spent().Spend(t.Context(), [16]byte{100}, until); first || err != nil {
			t.Errorf("after that it is used again: %v", err)
		}
		engines[2].Cut()
		since := time.Now()
		first, err := nodes[2].Spent().Spend(t.Context(), [16]byte{101}, until)
		if took := time.Since(since); first || err == nil || took > 4*time.Second {
			t.Errorf("without the engine, first is %v after %v: %v", first, took, err)
		}
		engines[2].Heal()
		rest(t, time.Until(until)+30*time.Second) // the clock of the engine may be ahead
		if first, err := nodes[1].Spent().Spend(t.Context(), [16]byte{1}, time.Now()); first || err != nil {
			t.Errorf("just after its end a state is used again: %v", err)
		}
		rest(t, 90*time.Second) // until the keys have expired
		if first, err := nodes[1].Spent().Spend(t.Context(), [16]byte{1}, time.Now().Add(time.Minute)); !first || err != nil {
			t.Errorf("an expired key is remembered: %v", err)
		}
	})
}

// rest lets virtual time pass.
func rest(t *testing.T, d time.Duration) {
	t.Helper()
	if err := wait.Sleep(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// Keys are the same on all nodes, and differ by name and by key of the cluster.
func TestKeysOfACluster(t *testing.T) {
	nodes, _, _ := threeNodes(t)
	a, b := nodes[0].Keys("asking")(), nodes[1].Keys("asking")()
	if len(a) != 1 || len(a[0]) != cluster.KeySize || !bytes.Equal(a[0], b[0]) {
		t.Errorf("two nodes have the keys %x and %x", a, b)
	}
	if bytes.Equal(a[0], nodes[0].Keys("dpop")()[0]) || bytes.Equal(a[0], key) {
		t.Error("two purposes have one key")
	}
}

// record returns a task. Times are rounded as JSON keeps them.
func record(id, owner string, created time.Time) *server.TaskRecord {
	return &server.TaskRecord{
		Task: protocol.DetailedTask{Task: protocol.Task{TaskID: id, Status: protocol.TaskWorking, StatusMessage: "begun"}, FinalResult: []byte(`{"a":1}`)},
		Tool: "tool", Owner: owner, Client: "client", Node: "a", Created: created, Expires: created.Add(time.Hour),
	}
}

// Tasks are seen by all nodes, in order, by their owner alone, until they expire.
//
// Guarantees: G-0081.4
func TestTasksOfACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _, _ := threeNodes(t)
		one, two := nodes[0].Tasks(), nodes[1].Tasks()
		now := time.Now()
		var want []string
		for i := range 10 { // two at a time are created at the same instant
			r := record(fmt.Sprintf("a.%d", i), "ada", now.Add(time.Duration(i/2)*time.Second))
			if err := one.Save(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			want = append(want, r.Task.TaskID)
		}
		if err := one.Save(t.Context(), record("other", "bob", now)); err != nil {
			t.Fatal(err)
		}
		ended := record("a.3", "ada", now.Add(time.Second))
		ended.Task.Status = protocol.TaskCompleted
		if err := two.Save(t.Context(), ended); err != nil {
			t.Fatal(err)
		}
		got, err := one.Load(t.Context(), "a.3")
		if err != nil || got.Task.Status != protocol.TaskCompleted || string(got.Task.FinalResult) != `{"a":1}` || got.Node != "a" ||
			got.Client != "client" || got.Tool != "tool" || got.Owner != "ada" || !got.Created.Equal(ended.Created) || !got.Expires.Equal(ended.Expires) {
			t.Errorf("the task is %+v: %v", got, err)
		}
		for _, limit := range []int{1, 3, 100} {
			var listed []string
			for after := ""; ; {
				page, err := two.List(t.Context(), "ada", after, limit)
				if err != nil {
					t.Fatal(err)
				}
				if len(page) == 0 {
					break
				}
				for _, r := range page {
					listed = append(listed, r.Task.TaskID)
				}
				after = listed[len(listed)-1]
			}
			if !slices.Equal(listed, want) {
				t.Errorf("with %d a page: %q", limit, listed)
			}
		}
		if err := errors.Join(two.Delete(t.Context(), "a.0"), two.Delete(t.Context(), "a.0"), two.Delete(t.Context(), "never")); err != nil {
			t.Error(err)
		}
		for _, id := range []string{"a.0", "never", "", strings.Repeat("x", 10_000), "o.*.>"} {
			if _, err := one.Load(t.Context(), id); !errors.Is(err, server.ErrNotFound) {
				t.Errorf("%.20q: %v", id, err)
			}
			if _, err := one.List(t.Context(), "bob", id, 1); id != "" && !errors.Is(err, server.ErrNotFound) {
				t.Errorf("after %.20q: %v", id, err)
			}
		}
		rest(t, 2*time.Hour) // until the tasks have expired and were swept
		synctest.Wait()
		if page, err := one.List(t.Context(), "ada", "", 100); len(page) != 0 || err != nil {
			t.Errorf("%d tasks after they have expired: %v", len(page), err)
		}
	})
}

// A client may have 38 % of the tasks, of which none is too large, and others then have a part of the rest.
//
// Guarantees: G-0081.4, G-0083.1
func TestTasksOfAClusterAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _, service := threeNodes(t, func(o *cluster.Options) { o.MaxTasks = 4_000 })
		all := nodes[0].Tasks()
		now := time.Now()
		for i := range 1_527 { // (4,000 - 1,527)² / 4,000
			if err := all.Save(t.Context(), record(fmt.Sprint(i), "ada", now)); err != nil {
				t.Fatal(err)
			}
		}
		refused := func(err error, why string) bool {
			return errors.Is(err, server.ErrTaskStoreFull) && strings.Contains(err.Error(), why)
		}
		if err := all.Save(t.Context(), record("more", "ada", now)); !refused(err, "this client has its share") {
			t.Errorf("one more: %v", err)
		}
		if err := nodes[1].Tasks().Save(t.Context(), record("bob", "bob", now)); err != nil {
			t.Errorf("another client: %v", err)
		}
		large := record("0", "ada", now)
		large.Task.FinalResult = []byte(`"` + strings.Repeat("x", cluster.MaxMessage) + `"`)
		if err := all.Save(t.Context(), large); !errors.Is(err, server.ErrTaskStoreFull) {
			t.Errorf("a large one: %v", err)
		}
		if err := all.Save(t.Context(), record("0", "ada", now)); err != nil {
			t.Errorf("one that is there already: %v", err)
		}
		service.Full(true)
		if err := all.Save(t.Context(), record("b", "bob", now)); !errors.Is(err, server.ErrTaskStoreFull) {
			t.Errorf("without room: %v", err)
		}
		service.Full(false)
		rest(t, time.Until(record("", "", now).Expires)+time.Second) // before they are swept
		if err := all.Save(t.Context(), record("more", "ada", time.Now())); err != nil {
			t.Errorf("when the others have expired: %v", err)
		}
	})
}

// A task for which there is no room leaves nothing, although its key for lists has had some.
//
// Guarantees: G-0081.4
func TestATaskThatDoesNotFitLeavesNothing(t *testing.T) {
	const most = 100
	nodes, engines, _ := threeNodes(t, func(o *cluster.Options) { o.MaxTasks = most })
	bucket, err := engines[2].Bucket(t.Context(), cluster.BucketOptions{Name: "task", MaxBytes: most * (1 << 30) / 32_000})
	if err != nil {
		t.Fatal(err)
	}
	for i, size := 0, 200<<10; size > 10<<10; i++ {
		switch _, err := bucket.Put(t.Context(), fmt.Sprint("fill", i), make([]byte, size)); {
		case errors.Is(err, cluster.ErrFull):
			size /= 2
		case err != nil:
			t.Fatal(err)
		}
	}
	large := record("large", "ada", time.Now())
	large.Task.FinalResult = []byte(`"` + strings.Repeat("x", 24<<10) + `"`)
	if err := nodes[0].Tasks().Save(t.Context(), large); !errors.Is(err, server.ErrTaskStoreFull) || !errors.Is(err, cluster.ErrFull) {
		t.Fatalf("it is saved: %v", err)
	}
	for key, err := range bucket.Keys(t.Context(), "") {
		if err != nil || !strings.HasPrefix(key, "fill") {
			t.Errorf("%s is left, %v", key, err)
		}
	}
}

// The clients of one /48 have together what one client may, and four places in any case. Each of them may have a quarter.
//
// Guarantees: G-0081.4, G-0083.7
func TestTasksOfANetworkAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _, _ := threeNodes(t, func(o *cluster.Options) { o.MaxTasks = 1_000 })
		stores := []server.TaskStore{nodes[0].Tasks(), nodes[1].Tasks()}
		saved := 0
		save := func(client string) bool {
			r := record(fmt.Sprint(saved), "", time.Now())
			r.Client = client
			err := stores[saved%2].Save(t.Context(), r)
			if err != nil && !errors.Is(err, server.ErrTaskStoreFull) {
				t.Fatal(err)
			}
			if err == nil {
				saved++
			}
			synctest.Wait() // until the other node has seen it
			return err == nil
		}
		for save("2001:db8:0:ffff::/64") {
		}
		if one := saved; one < 160 || one > 180 { // 4·x = (1-x)²
			t.Errorf("one client of a /48 has %d of 1,000 tasks, want about 171", one)
		}
		for i := range 1_000 {
			save(fmt.Sprintf("2001:db8:0:%x::/64", i))
		}
		if saved < 370 || saved > 390 {
			t.Errorf("the clients of a /48 have %d of 1,000 tasks, want about 382", saved)
		}
		for _, other := range []string{"2001:db8:1::/64", "192.0.2.1"} {
			before := saved
			for range 50 {
				save(other)
			}
			if saved-before < 50 {
				t.Errorf("%s got %d tasks beside them, want 50", other, saved-before)
			}
		}
		for i := range 1_000 { // nothing is left beyond a share
			for save(fmt.Sprint("10.0.", i/200, ".", i%200)) && saved < 990 {
			}
		}
		before := saved
		for i := range 100 {
			save(fmt.Sprintf("2001:db8:2:%x::/64", i))
		}
		if saved-before > 4 {
			t.Errorf("%d clients of another /48 took what is left, want at most 4", saved-before)
		}
		if err := stores[0].Delete(t.Context(), "0"); err != nil {
			t.Fatal(err)
		}
		if page, err := stores[0].List(t.Context(), "", "", 1); err != nil || len(page) != 1 || page[0].Task.TaskID == "0" {
			t.Errorf("after Delete the first task is %v: %v", page, err)
		}
	})
}

// A large result takes more places than one, as far as there are any. One that finds none is refused, and a short failure
// is not.
//
// Guarantees: G-0081.4
func TestLargeTasksTakeMorePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _, _ := threeNodes(t, func(o *cluster.Options) { o.MaxTasks = 100 })
		here, there := nodes[0].Tasks(), nodes[1].Tasks()
		now, saved := time.Now(), 0
		save := func(store server.TaskStore, id, owner string, size int) error {
			r := record(id, owner, now)
			r.Task.FinalResult = []byte(`"` + strings.Repeat("x", size) + `"`)
			defer synctest.Wait()
			return store.Save(t.Context(), r)
		}
		for ; save(here, fmt.Sprint(saved), "ada", 10) == nil; saved++ {
		}
		if saved < 35 || saved > 40 {
			t.Errorf("a client has %d of 100 tasks, want about 38", saved)
		}
		grown := 0
		for i := range saved {
			switch err := save(here, fmt.Sprint(i), "ada", 200<<10); { // 7 places
			case err == nil:
				grown++
			case !errors.Is(err, server.ErrTaskStoreFull):
				t.Fatal(err)
			default:
				if err := save(here, fmt.Sprint(i), "ada", 100); err != nil {
					t.Errorf("a short failure in place of a result without room: %v", err)
				}
			}
		}
		if places := saved + 6*grown; places < 80 || places > 88 {
			t.Errorf("results take %d of 100 places, want that an eighth is left", places)
		}
		if err := save(there, "bob", "bob", 10); err != nil {
			t.Errorf("another client at another node: %v", err)
		}
		if err := save(there, "bob2", "bob", 10); !errors.Is(err, server.ErrTaskStoreFull) {
			t.Errorf("its second task: %v, want that large results count", err)
		}
	})
}

// Neither a save nor one that is refused lists the tasks of all clients. What this node deletes is free at once, before the
// watch shows it.
//
// Guarantees: G-0081.4
func TestTasksAreCountedWithoutAListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, service := threeNodes(t, func(o *cluster.Options) { o.MaxTasks = 100 })
		var listings, operations atomic.Int64
		engines[0].Faults(func(op clustertest.Operation) (f clustertest.Fault) {
			switch {
			case op.Subject != "task":
			case op.Name == "change":
				f.Delay = time.Second
			case op.Name == "keys":
				listings.Add(1)
			default:
				operations.Add(1)
			}
			return f
		})
		store := nodes[0].Tasks()
		saved := 0
		for ; store.Save(t.Context(), record(fmt.Sprint(saved), "ada", time.Now())) == nil; saved++ {
		}
		for range 100 {
			if err := store.Save(t.Context(), record("more", "ada", time.Now())); !errors.Is(err, server.ErrTaskStoreFull) {
				t.Fatalf("beyond its share a client got %v", err)
			}
		}
		if got, most := operations.Load(), int64(3*saved+101+10); listings.Load() > 0 || got > most {
			t.Errorf("%d saves and 101 refusals cost %d listings and %d other operations, want 0 and at most %d", saved, listings.Load(), got, most)
		}
		if err := store.Delete(t.Context(), "0"); err != nil {
			t.Fatal(err)
		}
		service.Full(true)
		if err := store.Save(t.Context(), record("full", "ada", time.Now())); !errors.Is(err, server.ErrTaskStoreFull) {
			t.Errorf("without room: %v", err)
		}
		service.Full(false)
		if err := store.Save(t.Context(), record("more", "ada", time.Now())); err != nil {
			t.Errorf("after one was deleted, and another found no room: %v", err)
		}
	})
}

// Nothing that the stores keep can be read in the engine.
//
// Guarantees: G-0081.5
func TestEngineLearnsNothing(t *testing.T) {
	nodes, engines, service := threeNodes(t)
	n := nodes[0]
	k := auth.Key{Resource: "https://resource.example", Principal: "principal-of-ada"}
	err := n.Logins().Locked(t.Context(), k, func(*auth.Entry) (*auth.Entry, error) {
		return &auth.Entry{Access: auth.NewSecret("secret-token"), Issuer: "https://issuer.example"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Tasks().Save(t.Context(), record("id-of-the-task", "owner-of-the-task", time.Now())); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Spent().Spend(t.Context(), [16]byte([]byte("id-of-the-state!")), time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var heard []byte
	got := make(chan struct{})
	stop, err := engines[1].Subscribe(t.Context(), "ev", func(m cluster.Message) {
		heard = m.Body
		close(got)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	n.Changes().Publish(server.Change{URI: "file:///uri-of-the-resource"})
	<-got
	all := bytes.NewBuffer(heard)
	entries, buckets := 0, map[string]bool{}
	for key, value := range service.Values() {
		entries++
		bucket, _, _ := strings.Cut(key, "/")
		buckets[bucket] = true
		all.WriteString(key)
		all.Write(value)
	}
	if entries < 7 || len(buckets) < 4 {
		t.Errorf("the engine has %d entries in %d buckets, so this test sees too little", entries, len(buckets))
	}
	for _, secret := range []string{"resource.example", "principal-of-ada", "secret-token", "issuer.example", "id-of-the-task", "owner-of-the-task", "id-of-the-state", "uri-of-the-resource", "begun", `"v":1`} {
		if bytes.Contains(all.Bytes(), []byte(secret)) {
			t.Errorf("the engine can read %q", secret)
		}
		for _, sum := range [][]byte{sha256Of(secret), sha256Of("cluster " + secret)} { // what can be guessed cannot be looked up
			for _, text := range []string{base32.StdEncoding.EncodeToString(sum)[:52], hex.EncodeToString(sum), string(sum)} {
				if bytes.Contains(all.Bytes(), []byte(text)) {
					t.Errorf("the engine can find out whether %q is there", secret)
				}
			}
		}
	}
}

func sha256Of(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// While the engine is away, nothing is said of a task: not that it was deleted, and not that there is none.
func TestTasksWithoutTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, _ := threeNodes(t)
		now := time.Now()
		r := &server.TaskRecord{
			Task:  protocol.DetailedTask{Task: protocol.Task{TaskID: "a", Status: protocol.TaskWorking, CreatedAt: now.Format(time.RFC3339), LastUpdatedAt: now.Format(time.RFC3339)}},
			Owner: "ada", Client: "ada", Created: now, Expires: now.Add(time.Hour),
		}
		if err := nodes[0].Tasks().Save(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		store := nodes[1].Tasks()
		if _, err := store.Load(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		engines[1].Cut()
		for name, ask := range map[string]func() error{
			"Delete": func() error { return store.Delete(t.Context(), "a") },
			"Load":   func() error { _, err := store.Load(t.Context(), "a"); return err },
			"Save":   func() error { return store.Save(t.Context(), r) },
		} {
			if err := ask(); err == nil || errors.Is(err, server.ErrNotFound) {
				t.Errorf("%s: got %v, want that the engine is away", name, err)
			}
		}
		engines[1].Heal()
		if _, err := nodes[2].Tasks().Load(t.Context(), "a"); err != nil {
			t.Errorf("the task is gone: %v", err)
		}
	})
}
