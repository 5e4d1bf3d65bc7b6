package supervisor_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"regexp"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/supervisor/registry"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

var errDown = errors.New("the peer is down")

var bubble = regexp.MustCompile(`synctest bubble \d+\]`)

// goroutines returns how many goroutines the bubble of its caller has.
func goroutines() int {
	stacks := make([]byte, 1<<22)
	ours := bubble.Find(stacks[:runtime.Stack(stacks, false)])
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], ours)
}

// Idle connections under a supervisor have no goroutine.
//
// Guarantees: G-0002.10
func TestConnectCostsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := supervisor.New(supervisor.Options{}), &peer{}
		before := goroutines()
		for range 100 {
			c := conn.New(p.transport(t, s), conn.Options{})
			connect(t, s, c)
			awaitReady(t, c)
		}
		<-time.NewTimer(time.Minute).C // a Conn is idle 100 ms after the last event
		synctest.Wait()
		if got := goroutines() - before; got != 0 {
			t.Errorf("200 connections have %d goroutines, want none", got)
		}
		stop(t, s)
	})
}

// A Conn that loses its link reconnects by itself, and continues with its ids. The supervisor counts no
// restart.
//
// Guarantees: G-0002.8, G-0002.9
func TestLostLinkCountsNoRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := supervisor.New(supervisor.Options{}), &peer{}
		c := conn.New(p.transport(t, s), conn.Options{Tuning: conn.Tuning{Name: "weather"}})
		child := connect(t, s, c)
		var lastID int64
		for lost := range uint64(10) {
			awaitReady(t, c)
			_, err := c.Call(t.Context(), conn.Request{Method: "nobody serves this"})
			var refused *conn.CallError
			if !errors.As(err, &refused) || refused.ID <= lastID || c.Status().Epoch != lost+1 {
				t.Fatalf("after %d losses: last id %d, epoch %d, a call returned %v; want a higher id in epoch %d",
					lost, lastID, c.Status().Epoch, err, lost+1)
			}
			lastID = refused.ID
			p.drop()
			advance(time.Minute)
		}
		if got := s.Report().Children[0]; got.ID != "weather" || got.State != supervisor.Running || got.Restarts != 0 || child.Err() != nil {
			t.Errorf("got %v, want weather running without restarts", got)
		}
		stop(t, s)
	})
}

// A Conn that cannot open a link makes its attempts exactly at the times that its Status announces.
//
// Guarantees: G-0002.9
func TestBackoffIsNotDelayedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		attempts := make(chan time.Time)
		c := conn.New(dialer(func(context.Context) (transport.Link, error) {
			attempts <- time.Now()
			return nil, errDown
		}), conn.Options{Tuning: conn.Tuning{Name: "down"}})
		connect(t, s, c)
		<-attempts
		for range 8 {
			synctest.Wait()
			status := c.Status()
			if attempt := <-attempts; status.State != conn.Backoff || !attempt.Equal(status.NextAttempt) {
				t.Fatalf("in %s, the next attempt was due at %v and came at %v", status.State, status.NextAttempt, attempt)
			}
		}
		synctest.Wait()
		if got := s.Report().Children[0]; got.Restarts != 0 {
			t.Errorf("got %v, want no restart", got)
		}
		stop(t, s)
	})
}

// A Conn that closes because of Options.Final is not restarted. Its child is over with that reason.
//
// Guarantees: G-0002.9
func TestFinalConnIsNotRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{Intensity: -1})
		opened := 0
		down := dialer(func(context.Context) (transport.Link, error) { opened++; return nil, errDown })
		child := connect(t, s, conn.New(down, conn.Options{Tuning: conn.Tuning{Name: "final", Final: func(conn.Reason) bool { return true }}}))
		synctest.Wait()
		var reason conn.Reason
		if err := child.Err(); !errors.As(err, &reason) || reason.Kind != conn.OpenFailed || !errors.Is(err, errDown) || opened != 1 {
			t.Errorf("Err is %v after %d attempts, want OpenFailed after 1", err, opened)
		}
		if got := states(s.Report().Children); got["final"] != supervisor.Failed {
			t.Errorf("got %v, want failed", got)
		}
		stop(t, s)
	})
}

// If a Conn is stopped directly, its child is over without an error.
func TestStoppedConnIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		c := conn.New(dialer(func(context.Context) (transport.Link, error) { return nil, errDown }), conn.Options{Tuning: conn.Tuning{Name: "a"}})
		child := connect(t, s, c)
		c.Stop()
		<-child.Done()
		if err := child.Err(); err != nil || s.Report().Children[0].State != supervisor.Stopped {
			t.Errorf("Err is %v, want none; %v", err, s.Report().Children)
		}
		stop(t, s)
	})
}

// panickingConn returns an initiator whose loop panics as many times, once on each of its first links. It
// notes the epochs in which it opens links.
func panickingConn(times int, opened *[]uint64) *conn.Conn {
	var c *conn.Conn
	open := func(context.Context) (transport.Link, error) {
		*opened = append(*opened, c.Status().Epoch)
		if times--; times >= 0 {
			return brokenLink{}, nil
		}
		return nil, errDown
	}
	c = conn.New(dialer(open), conn.Options{Tuning: conn.Tuning{Name: "panicky"}})
	return c
}

// A Conn whose loop panics is restarted at once, and continues with its epochs.
//
// Guarantees: G-0002.8, G-0002.9
func TestPanicOfAConnIsARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := supervisor.New(supervisor.Options{}), time.Now()
		var opened []uint64
		c := panickingConn(3, &opened)
		connect(t, s, c)
		synctest.Wait()
		got := s.Report().Children[0]
		if got.Restarts != 3 || !errors.As(got.LastFailure, new(*conn.PanicError)) || time.Since(began) != 0 {
			t.Errorf("got %v after %v, want 3 restarts and a PanicError at once", got, time.Since(began))
		}
		if len(opened) != 4 || opened[0] != 1 || opened[3] != 4 || c.State() != conn.Backoff {
			t.Errorf("links were opened in epochs %v, the Conn is %s; want 1 to 4, backoff", opened, c.State())
		}
		stop(t, s)
	})
}

// If a Conn panics more often than the intensity allows, the supervisor gives up and names it. All its Conns
// are closed.
//
// Guarantees: G-0002.4, G-0002.9
func TestPanickingConnUsesUpTheIntensity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		var opened []uint64
		sibling := conn.New(dialer(func(context.Context) (transport.Link, error) { return nil, errDown }), conn.Options{Tuning: conn.Tuning{Name: "sibling"}})
		connect(t, s, sibling)
		c := panickingConn(4, &opened)
		connect(t, s, c)
		var gaveUp *supervisor.IntensityError
		if err := s.Wait(t.Context()); !errors.As(err, &gaveUp) || gaveUp.Child != "panicky" || len(opened) != 4 {
			t.Errorf("Wait returned %v after epochs %v, want an IntensityError that names panicky after 4", err, opened)
		}
		if sibling.State() != conn.Closing || !wait.IsClosed(sibling.Done()) {
			t.Errorf("the sibling is %s, want closing", sibling.State())
		}
		if err := c.AwaitReady(t.Context()); err == nil || !wait.IsClosed(c.Done()) {
			t.Errorf("the Conn is %s, AwaitReady returned %v; want it done, and an error", c.State(), err)
		}
	})
}

// When a supervisor gives up, closing its children is not counted as another failure.
//
// Guarantees: G-0002.17
func TestEachFailureCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, opened := supervisor.New(supervisor.Options{Intensity: -1}), []uint64{}
		pool, _ := nested(t, root, supervisor.Options{Name: "pool"})
		c := panickingConn(4, &opened)
		connect(t, pool, c)
		if err := root.Wait(t.Context()); !errors.As(err, new(*conn.PanicError)) || !wait.IsClosed(c.Done()) {
			t.Errorf("Wait returned %v, want a PanicError and the Conn done", err)
		}
		r := root.Report().Children[0]
		if below := r.Supervisor.Children[0]; r.Failures != 1 || below.Failures != 4 {
			t.Errorf("want 1 failure of pool and 4 of the Conn, report:\n%s\n%s", r, below)
		}
	})
}

// If two Conns exceed the intensity at the same time, the supervisor gives up once, because of one of them.
//
// Guarantees: G-0002.4
func TestGivesUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gaveUp []string
		s := supervisor.New(supervisor.Options{Intensity: -1, OnEvent: func(e supervisor.Event) {
			if e.Kind == supervisor.GaveUp {
				gaveUp = append(gaveUp, e.Child)
			}
		}})
		release := make(chan struct{})
		for _, name := range []string{"a", "b"} {
			connect(t, s, conn.New(dialer(func(context.Context) (transport.Link, error) { return brokenLink{}, nil }), conn.Options{Tuning: conn.Tuning{
				Name:  name,
				Hooks: telemetry.Hooks{Transition: func(telemetry.Transition) { <-release }},
			}}))
		}
		var result *supervisor.IntensityError
		if err := s.Wait(t.Context()); !errors.As(err, &result) || len(gaveUp) != 1 || gaveUp[0] != result.Child {
			t.Errorf("Wait returned %v, OnEvent reported %v; want one that gave up, the same in both", err, gaveUp)
		}
		close(release)
		synctest.Wait()
	})
}

// An acceptor whose loop panics is not restarted, because it has no other link.
//
// Guarantees: G-0002.9
func TestPanickingAcceptorIsNotRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{Intensity: -1})
		child := connect(t, s, conn.Accept(brokenLink{}, conn.Options{}))
		<-child.Done()
		if !errors.As(child.Err(), new(*conn.PanicError)) {
			t.Errorf("Err is %v, want a PanicError", child.Err())
		}
		stop(t, s)
	})
}

// A brokenLink panics in the loop that grants it credit.
type brokenLink struct{ transport.Link }

func (brokenLink) Bind(transport.Receiver)     {}
func (brokenLink) Grant(transport.Stream, int) { panic("boom") }

func (brokenLink) Close(time.Duration) error { return nil }

// Connect refuses a Conn whose name is taken. The child of one that another supervisor runs fails,
// and can be restarted.
func TestConnectTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, other := supervisor.New(supervisor.Options{}), supervisor.New(supervisor.Options{})
		c := conn.New(dialer(func(context.Context) (transport.Link, error) { return nil, errDown }), conn.Options{Tuning: conn.Tuning{Name: "a"}})
		connect(t, s, c)
		synctest.Wait()
		if _, err := s.Connect(context.Background(), c); !errors.As(err, new(*supervisor.DuplicateError)) {
			t.Errorf("Connect returned %v, want a DuplicateError", err)
		}
		child := connect(t, other, c)
		<-child.Done()
		if !errors.Is(child.Err(), conn.ErrRunning) || c.State() == conn.Closing {
			t.Errorf("Err is %v, the Conn is %s; want ErrRunning, and not closing", child.Err(), c.State())
		}
		if err := child.Restart(t.Context()); err != nil { // the Conn is not closed
			t.Errorf("Restart returned %v, want no error", err)
		}
		<-child.Done()
		stop(t, other)
		stop(t, s)
	})
}

// A oneClaimStore accepts one claim, which the test can revoke, and refuses all others.
type oneClaimStore struct{ lost func(error) }

func (s *oneClaimStore) Claim(_ context.Context, c registry.Claim) (registry.Release, error) {
	if s.lost != nil {
		return nil, &registry.TakenError{Name: c.Name, Holder: "another"}
	}
	s.lost = c.Lost
	return func(context.Context) error { return nil }, nil
}

func (*oneClaimStore) Watch(context.Context) iter.Seq2[map[string]string, error] {
	return func(func(map[string]string, error) bool) {}
}

// A Conn that is to be restarted, and whose name belongs to another by then, is closed.
//
// Guarantees: G-0002.18, G-0002.19
func TestConnWithoutItsNameIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, p, first := new(oneClaimStore), new(peer), newScript()
		s := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne, Registry: registry.New(registry.Options{Store: store})})
		servers := supervisor.New(supervisor.Options{})
		start(t, s, supervisor.ChildSpec{ID: "first", Run: first.run})
		c := conn.New(p.transport(t, servers), conn.Options{Tuning: conn.Tuning{Name: "weather"}})
		child := connect(t, s, c)
		awaitReady(t, c)
		store.lost(errors.New("the lease is over"))
		first.end(returns(errBroken))
		if err := child.Err(); !errors.As(err, new(*registry.TakenError)) || !wait.IsClosed(c.Done()) {
			t.Errorf("Err is %v, the Conn is %s; want a TakenError, done", err, c.State())
		}
		if err := c.AwaitReady(t.Context()); err == nil {
			t.Error("AwaitReady returned no error, want one for a closed Conn")
		}
		stop(t, s)
		stop(t, servers)
	})
}
