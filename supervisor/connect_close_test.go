package supervisor_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/supervisor/registry"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A heldStore accepts every claim, and does not release a name until its channel is closed.
type heldStore struct {
	deadStore
	until chan struct{}
}

func (h heldStore) Claim(context.Context, registry.Claim) (registry.Release, error) {
	return func(context.Context) error { <-h.until; return nil }, nil
}

// Close of a Conn does not wait for the Store, which is code of the program.
//
// Guarantees: G-0054.4
func TestCloseDoesNotWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := heldStore{until: make(chan struct{})}
		s := supervisor.New(supervisor.Options{Registry: registry.New(registry.Options{Store: store})})
		var accepted sync.WaitGroup
		c := conn.New(inmem.New(func(link transport.Link) {
			accepted.Go(func() { _ = conn.Accept(link, conn.Options{}).Run(t.Context()) })
		}, inmem.Options{}), conn.Options{Tuning: conn.Tuning{Name: "c"}})
		connect(t, s, c)
		awaitReady(t, c)
		synctest.Wait()
		began := time.Now()
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("Close returned after %v, want at once", took)
		}
		close(store.until)
		stop(t, s)
		accepted.Wait()
	})
}

// A bindingLink does not return from Bind before free is closed.
type bindingLink struct {
	transport.Link
	binds, free chan struct{}
}

func (l *bindingLink) Bind(r transport.Receiver) {
	close(l.binds)
	<-l.free
	l.Link.Bind(r)
}

// A Conn that is stopped while Connect still starts it ends as soon as it has started.
//
// Guarantees: G-0002.6
func TestStopDuringConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := inmem.Pipe(inmem.Options{})
		link := &bindingLink{ours, make(chan struct{}), make(chan struct{})}
		c, s := conn.Accept(link, conn.Options{}), supervisor.New(supervisor.Options{})
		var calls sync.WaitGroup
		calls.Go(func() {
			if _, err := s.Connect(t.Context(), c); err != nil {
				t.Errorf("Connect: %v", err)
			}
		})
		<-link.binds
		began := time.Now()
		calls.Go(func() { stop(t, s) })
		synctest.Wait()
		close(link.free)
		calls.Wait()
		<-c.Done()
		if took := time.Since(began); took != 0 {
			t.Errorf("Stop took %v", took)
		}
		if err := theirs.Close(0); err != nil {
			t.Error(err)
		}
	})
}

// Where children depend on each other, Connect starts its Conn once, after the Inits of the
// children before it.
//
// Guarantees: G-0002.12
func TestConnectWaitsForEarlierInits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{Strategy: supervisor.OneForAll})
		free := make(chan struct{})
		var starts sync.WaitGroup
		starts.Go(func() {
			_, err := s.Start(t.Context(), supervisor.ChildSpec{
				Init: func(context.Context) error { <-free; return nil },
				Run:  func(ctx context.Context) error { <-ctx.Done(); return nil },
			})
			if err != nil {
				t.Errorf("Start: %v", err)
			}
		})
		synctest.Wait()
		ours, theirs := inmem.Pipe(inmem.Options{})
		link := &bindingLink{ours, make(chan struct{}), free}
		starts.Go(func() {
			if _, err := s.Connect(t.Context(), conn.Accept(link, conn.Options{})); err != nil {
				t.Errorf("Connect: %v", err)
			}
		})
		synctest.Wait()
		if wait.IsClosed(link.binds) {
			t.Error("the Conn was started while an earlier Init ran")
		}
		close(free)
		starts.Wait()
		synctest.Wait()
		if children := s.Report().Children; len(children) != 2 || children[1].State != supervisor.Running || children[1].Restarts != 0 {
			t.Errorf("got the children %v, want two that run and were not restarted", children)
		}
		stop(t, s)
		if err := theirs.Close(0); err != nil {
			t.Error(err)
		}
	})
}

// A slowStore answers a claim when its channel is closed, and not before.
type slowStore struct {
	deadStore
	until chan struct{}
}

func (s slowStore) Claim(context.Context, registry.Claim) (registry.Release, error) {
	<-s.until
	return func(context.Context) error { return nil }, nil
}

// A Conn that is restarted while Connect still registers its name is interrupted, and not stopped for good.
//
// Guarantees: G-0002.12, G-0002.14
func TestRestartDuringConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slowStore{until: make(chan struct{})}
		s := supervisor.New(supervisor.Options{Registry: registry.New(registry.Options{Store: store})})
		var others sync.WaitGroup
		c := conn.New(inmem.New(func(link transport.Link) {
			others.Go(func() { _ = conn.Accept(link, conn.Options{}).Run(t.Context()) })
		}, inmem.Options{}), conn.Options{Tuning: conn.Tuning{Name: "c"}})
		others.Go(func() {
			if _, err := s.Connect(t.Context(), c); err != nil {
				t.Errorf("Connect: %v", err)
			}
		})
		synctest.Wait()
		child, _ := s.Child("c")
		others.Go(func() {
			if err := child.Restart(t.Context()); err != nil {
				t.Errorf("Restart: %v", err)
			}
		})
		synctest.Wait()
		close(store.until)
		awaitReady(t, c)
		stop(t, s)
		others.Wait()
	})
}
