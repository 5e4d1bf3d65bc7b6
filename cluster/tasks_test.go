package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/features/server"
)

// Nothing is left of a task whose deletion was broken off when its time has passed.
func TestATaskWhoseDeletionIsBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, _ := threeNodes(t)
		tasks := nodes[0].Tasks()
		for _, id := range []string{"a.1", "a.2"} {
			if err := tasks.Save(t.Context(), record(id, "ada", time.Now())); err != nil {
				t.Fatal(err)
			}
		}
		deleted := 0
		engines[0].Faults(func(op clustertest.Operation) clustertest.Fault {
			if op.Name == "delete" && op.Subject == "task" {
				deleted++
			}
			return clustertest.Fault{Lose: op.Name == "delete" && op.Subject == "task" && deleted > 1}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := tasks.Delete(ctx, "a.1"); err == nil || deleted < 2 {
			t.Fatalf("after %d deletions, Delete returns %v", deleted, err)
		}
		engines[0].Faults(nil)
		rest(t, 2*time.Hour)
		bucket, err := engines[2].Bucket(t.Context(), cluster.BucketOptions{Name: "task", MaxBytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		for key, err := range bucket.Keys(t.Context(), "") {
			t.Errorf("%s is left, %v", key, err)
		}
	})
}

// A task that another node saves while it is deleted is deleted all the same.
//
// Guarantees: G-0081.4
func TestATaskThatIsSavedWhileItIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, _ := threeNodes(t)
		here, there := nodes[0].Tasks(), nodes[1].Tasks()
		task := record("a.1", "ada", time.Now())
		if err := here.Save(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		first := true
		engines[0].Faults(func(op clustertest.Operation) (f clustertest.Fault) {
			if op.Name == "delete" && op.Subject == "task" && first {
				first, f.Delay = false, time.Second
			}
			return f
		})
		deleted := make(chan error, 1)
		go func() { deleted <- here.Delete(t.Context(), "a.1") }()
		rest(t, 500*time.Millisecond)
		task.Task.StatusMessage = "goes on"
		if err := there.Save(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		if err := <-deleted; err != nil {
			t.Errorf("Delete: %v", err)
		}
		rest(t, time.Second)
		if page, err := there.List(t.Context(), "ada", "", 10); len(page) != 0 || err != nil {
			t.Errorf("%d tasks are left, %v", len(page), err)
		}
	})
}

// There is nothing after a task that has expired, although it was not swept yet.
//
// Guarantees: G-0081.4
func TestNoTaskComesAfterOneThatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _, _ := threeNodes(t)
		tasks, short := nodes[0].Tasks(), record("a.1", "ada", time.Now())
		short.Expires = short.Created.Add(time.Minute)
		if err := errors.Join(tasks.Save(t.Context(), short), tasks.Save(t.Context(), record("a.2", "ada", time.Now()))); err != nil {
			t.Fatal(err)
		}
		if page, err := tasks.List(t.Context(), "ada", "a.1", 10); len(page) != 1 || err != nil {
			t.Errorf("got %d tasks after it, %v, want one", len(page), err)
		}
		rest(t, 2*time.Minute)
		if page, err := tasks.List(t.Context(), "ada", "a.1", 10); !errors.Is(err, server.ErrNotFound) {
			t.Errorf("got %d tasks after it, %v, want %v", len(page), err, server.ErrNotFound)
		}
	})
}

// Places that a client has at one node are free again when another node deletes its tasks.
//
// Guarantees: G-0083.1
func TestTasksThatAnotherNodeDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _, _ := threeNodes(t, func(o *cluster.Options) { o.MaxTasks = 100 })
		here, there := nodes[0].Tasks(), nodes[1].Tasks()
		saved := 0
		for here.Save(t.Context(), record(fmt.Sprint(saved), "ada", time.Now())) == nil {
			saved++
		}
		if saved < 10 {
			t.Fatalf("only %d tasks are saved", saved)
		}
		for i := range saved {
			if err := there.Delete(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		rest(t, time.Second)
		if err := here.Save(t.Context(), record("again", "ada", time.Now())); err != nil {
			t.Errorf("after all were deleted: %v", err)
		}
	})
}
