package supervisor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// nestedAndStopped returns a supervisor, one nested in it, and the child of that, which was stopped.
func nestedAndStopped(t *testing.T) (root, pool *Supervisor, c *Child) {
	root, pool = New(Options{Name: "root"}), New(Options{Name: "pool"})
	c, err := root.Start(t.Context(), ChildSpec{ID: "pool", Supervisor: pool})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return root, pool, c
}

// If a child is deleted during its Restart, its supervisor does not run outside of the tree.
//
// Guarantees: G-0002.15
func TestRestartDuringDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, pool, c := nestedAndStopped(t)
		if _, err := c.nest(); err != nil { // the first part of Restart
			t.Fatal(err)
		}
		if err := c.Delete(t.Context()); err != nil { // by another goroutine
			t.Fatal(err)
		}
		if err := c.askToRestart(); !errors.Is(err, errForgotten) { // the rest of Restart
			t.Fatal(err)
		}
		if err := c.Restart(t.Context()); err != nil { // a whole Restart
			t.Fatal(err)
		}
		synctest.Wait()
		if _, ok := root.Child("pool"); !ok {
			t.Error("child pool is not listed")
		}
		if (subtree{pool}).above() != root {
			t.Error("pool runs below root, but root is not its parent")
		}
		other := New(Options{Name: "other"})
		if _, err := other.Start(t.Context(), ChildSpec{Supervisor: pool}); err == nil {
			t.Error("pool was started below a second supervisor")
		}
		_ = other.Stop(context.Background())
		_ = root.Stop(context.Background())
	})
}

// After a Restart of its child, a supervisor is part of the tree again.
//
// Guarantees: G-0002.15
func TestSupervisorStaysInTheTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, pool, c := nestedAndStopped(t)
		if err := c.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !(subtree{pool}).belongsTo(c) || pool.changes.parent != &root.changes {
			t.Error("pool runs, but is not part of the tree")
		}
		if err := root.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What a Run does after it has begun a Conn does not affect the next Run, which may have
// been launched in the meantime.
func TestRunThatHasEndedIsNotBegun(t *testing.T) {
	c := &Child{supervisor: New(Options{}), restarts: 1}
	c.recordBegun(0)
	if c.begun {
		t.Error("the second Run has begun, want only the first")
	}
	if c.recordBegun(1); !c.begun {
		t.Error("the second Run has not begun")
	}
}
