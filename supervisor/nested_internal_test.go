package supervisor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// nestedAndStopped is a supervisor whose child runs another, and has been stopped.
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

// A child that is forgotten in the middle of its Restart, because it is deleted
// or too many others are over, does not run its supervisor outside the tree.
//
// Guarantees: G-0002.15
func TestRestartDuringDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, pool, c := nestedAndStopped(t)
		if _, err := c.nest(); err != nil { // Restart, until here
			t.Fatal(err)
		}
		if err := c.Delete(t.Context()); err != nil { // somebody else
			t.Fatal(err)
		}
		if err := c.askToRestart(); !errors.Is(err, errForgotten) { // Restart goes on
			t.Fatal(err)
		}
		if err := c.Restart(t.Context()); err != nil { // and from the beginning
			t.Fatal(err)
		}
		synctest.Wait()
		if _, ok := root.Child("pool"); !ok {
			t.Error("it does not run")
		}
		if (subtree{pool}).above() != root {
			t.Error("pool runs in root, and belongs to nobody")
		}
		other := New(Options{Name: "other"})
		if _, err := other.Start(t.Context(), ChildSpec{Supervisor: pool}); err == nil {
			t.Error("two supervisors run pool")
		}
		_ = other.Stop(context.Background())
		_ = root.Stop(context.Background())
	})
}

// A child that is brought back has its supervisor in the tree.
//
// Guarantees: G-0002.15
func TestSupervisorStaysInTheTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, pool, c := nestedAndStopped(t)
		if err := c.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !(subtree{pool}).belongsTo(c) || pool.changes.parent != &root.changes {
			t.Error("it runs, and belongs to nobody")
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
