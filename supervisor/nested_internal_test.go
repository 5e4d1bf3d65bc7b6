package supervisor

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
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

// A countingTransport counts how often it is asked for a link.
type countingTransport struct{ opens int }

func (t *countingTransport) Open(context.Context) (transport.Link, error) {
	t.opens++
	return nil, errors.New("no peer")
}

// A Conn that is stopped between its launch and its begin opens no link.
//
// Guarantees: G-0002.6
func TestStopBeforeBeginOpensNoLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, over := New(Options{}), new(countingTransport)
		c := newChild(s, (&connection{Conn: conn.New(over, conn.Options{})}).spec())
		key, err := s.add(c) // the first part of Start
		if err != nil {
			t.Fatal(err)
		}
		s.post(&message{kind: haltAsked, child: key})
		c.run(context.Background(), 0) // the rest of Start
		<-c.Done()
		synctest.Wait()
		if over.opens != 0 {
			t.Errorf("the transport was asked for %d links, want none", over.opens)
		}
	})
}

// A supervisor does not keep deleted children in memory, although its core handed them to the
// shell and had them in its queue.
func TestDeletedChildrenAreNotKept(t *testing.T) {
	s := New(Options{Strategy: OneForAll})
	defer s.Stop(context.Background())
	start := func(run func(context.Context) error) *Child {
		c, err := s.Start(t.Context(), ChildSpec{Run: run})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	idle := func(ctx context.Context) error { <-ctx.Done(); return nil }
	var failed atomic.Bool
	oldest, next := start(idle), start(idle)
	failing := start(func(ctx context.Context) error { // once, so that all are restarted
		if !failed.Swap(true) {
			return errors.New("failed")
		}
		return idle(ctx)
	})
	for s.Report().Children[2].Restarts == 0 {
		runtime.Gosched()
	}
	if err := failing.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	var deleted []weak.Pointer[Child]
	for range 20 { // the oldest of two or three
		latest := start(idle)
		deleted = append(deleted, weak.Make(oldest))
		if err := oldest.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		oldest, next = next, latest
	}
	for range 5 {
		runtime.GC()
	}
	kept := 0
	for _, p := range deleted {
		if p.Value() != nil {
			kept++
		}
	}
	if kept > 0 {
		t.Errorf("%d of %d deleted children are in memory, want none", kept, len(deleted))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.core.stopQueue[:cap(s.core.stopQueue)] {
		if m != nil {
			t.Errorf("the queue keeps the member %d, want none", m.key)
		}
	}
	runtime.KeepAlive(next)
}
