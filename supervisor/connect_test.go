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
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/supervisor/registry"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

var errDown = errors.New("the peer is down")

var bubble = regexp.MustCompile(`synctest bubble \d+\]`)

// goroutines counts those of the bubble it is called in.
func goroutines() int {
	stacks := make([]byte, 1<<22)
	ours := bubble.Find(stacks[:runtime.Stack(stacks, false)])
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], ours)
}

// TestConnectCostsNoGoroutine counts goroutines of a hundred idle pairs.
//
// Guarantees: G-0002.10
func TestConnectCostsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := supervisor.New(supervisor.Options{}), &peer{}
		before := goroutines()
		for range 100 {
			c := conn.New(p.transport(t, s), conn.Options{})
			connect(t, s, c)
			await(t, c)
		}
		<-time.NewTimer(time.Minute).C // a Conn is idle 100 ms after the last event
		synctest.Wait()
		if got := goroutines() - before; got != 0 {
			t.Errorf("200 connections cost %d goroutines", got)
		}
		stop(t, s)
	})
}

// TestLostLinkCountsNoRestart loses ten links in a row. Each time a new
// incarnation comes about behind the same handle, the ids go on, and the
// supervisor counts no restart, although its intensity is three.
//
// Guarantees: G-0002.8, G-0002.9
func TestLostLinkCountsNoRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := supervisor.New(supervisor.Options{}), &peer{}
		c := conn.New(p.transport(t, s), conn.Options{Name: "weather"})
		child := connect(t, s, c)
		var lastID int64
		for lost := range uint64(10) {
			await(t, c)
			_, err := c.Call(t.Context(), conn.Request{Method: "nobody serves this"})
			var refused *conn.CallError
			if !errors.As(err, &refused) || refused.ID <= lastID || c.Status().Epoch != lost+1 {
				t.Fatalf("after %d losses the last id is %d, the epoch %d, and a call gives %v", lost, lastID, c.Status().Epoch, err)
			}
			lastID = refused.ID
			p.drop()
			pass(time.Minute)
		}
		if got := s.Report().Children[0]; got.ID != "weather" || got.State != supervisor.Running || got.Restarts != 0 || child.Err() != nil {
			t.Errorf("got %v", got)
		}
		stop(t, s)
	})
}

// TestBackoffIsNotDelayedTwice: a Conn that cannot open a link makes its
// attempts at the very times it would make them alone.
//
// Guarantees: G-0002.9
func TestBackoffIsNotDelayedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		attempts := make(chan time.Time)
		c := conn.New(dialer(func(context.Context) (transport.Link, error) {
			attempts <- time.Now()
			return nil, errDown
		}), conn.Options{Name: "down"})
		connect(t, s, c)
		<-attempts
		for range 8 {
			synctest.Wait()
			status := c.Status()
			if attempt := <-attempts; status.State != conn.Backoff || !attempt.Equal(status.NextAttempt) {
				t.Fatalf("the Conn was in %s until %v, the attempt came at %v", status.State, status.NextAttempt, attempt)
			}
		}
		synctest.Wait()
		if got := s.Report().Children[0]; got.Restarts != 0 {
			t.Errorf("got %v", got)
		}
		stop(t, s)
	})
}

// TestClosedForGoodIsNotRestarted: a Conn that closes by its own policy is
// over with its reason, and costs no restart, whatever the intensity.
//
// Guarantees: G-0002.9
func TestClosedForGoodIsNotRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{Intensity: -1})
		opened := 0
		down := dialer(func(context.Context) (transport.Link, error) { opened++; return nil, errDown })
		child := connect(t, s, conn.New(down, conn.Options{Name: "final", Final: func(conn.Reason) bool { return true }}))
		synctest.Wait()
		var reason conn.Reason
		if err := child.Err(); !errors.As(err, &reason) || reason.Kind != conn.OpenFailed || !errors.Is(err, errDown) || opened != 1 {
			t.Errorf("Err is %v after %d attempts", err, opened)
		}
		if got := states(s.Report().Children); got["final"] != supervisor.Failed {
			t.Errorf("got %v", got)
		}
		stop(t, s)
	})
}

// TestStoppedConnIsOver: Stop of the Conn itself ends its child, well.
func TestStoppedConnIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		c := conn.New(dialer(func(context.Context) (transport.Link, error) { return nil, errDown }), conn.Options{Name: "a"})
		child := connect(t, s, c)
		c.Stop()
		<-child.Done()
		if err := child.Err(); err != nil || s.Report().Children[0].State != supervisor.Stopped {
			t.Errorf("Err is %v, %v", err, s.Report().Children)
		}
		stop(t, s)
	})
}

// panicky makes an initiator whose loop panics that many times, in the links
// that it opens first.
func panicky(times int, opened *[]uint64) *conn.Conn {
	var c *conn.Conn
	open := func(context.Context) (transport.Link, error) {
		*opened = append(*opened, c.Status().Epoch)
		if times--; times >= 0 {
			return brokenLink{}, nil
		}
		return nil, errDown
	}
	c = conn.New(dialer(open), conn.Options{Name: "panicky"})
	return c
}

// TestPanicOfAConnIsARestart: the Conn runs again at once, and its epochs go on.
//
// Guarantees: G-0002.8, G-0002.9
func TestPanicOfAConnIsARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := supervisor.New(supervisor.Options{}), time.Now()
		var opened []uint64
		c := panicky(3, &opened)
		connect(t, s, c)
		synctest.Wait()
		got := s.Report().Children[0]
		if got.Restarts != 3 || !errors.As(got.LastFailure, new(*conn.PanicError)) || time.Since(began) != 0 {
			t.Errorf("got %v after %v", got, time.Since(began))
		}
		if len(opened) != 4 || opened[0] != 1 || opened[3] != 4 || c.State() != conn.Backoff {
			t.Errorf("links were opened in epochs %v; the Conn is %s", opened, c.State())
		}
		stop(t, s)
	})
}

// TestPanickingConnUsesUpTheIntensity: one panic too many, and the supervisor
// gives up, naming the Conn.
//
// Guarantees: G-0002.4, G-0002.9
func TestPanickingConnUsesUpTheIntensity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		var opened []uint64
		sibling := conn.New(dialer(func(context.Context) (transport.Link, error) { return nil, errDown }), conn.Options{Name: "sibling"})
		connect(t, s, sibling)
		c := panicky(4, &opened)
		connect(t, s, c)
		var gaveUp *supervisor.IntensityError
		if err := s.Wait(t.Context()); !errors.As(err, &gaveUp) || gaveUp.Child != "panicky" || len(opened) != 4 {
			t.Errorf("Wait returned %v after epochs %v", err, opened)
		}
		if sibling.State() != conn.Closing || !isClosed(sibling.Done()) {
			t.Errorf("the sibling is %s", sibling.State())
		}
		if err := c.AwaitReady(t.Context()); err == nil || !isClosed(c.Done()) {
			t.Errorf("the Conn is %s, and AwaitReady returned %v", c.State(), err)
		}
	})
}

// TestEachFailureCountsOnce: that a Conn, or a supervisor, is closed after the
// failure that was one too many is not another.
//
// Guarantees: G-0002.17
func TestEachFailureCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, opened := supervisor.New(supervisor.Options{Intensity: -1}), []uint64{}
		pool, _ := nested(t, root, supervisor.Options{Name: "pool"})
		c := panicky(4, &opened)
		connect(t, pool, c)
		if err := root.Wait(t.Context()); !errors.As(err, new(*conn.PanicError)) || !isClosed(c.Done()) {
			t.Errorf("Wait returned %v", err)
		}
		r := root.Report().Children[0]
		if below := r.Supervisor.Children[0]; r.Failures != 1 || below.Failures != 4 {
			t.Errorf("report:\n%s\n%s", r, below)
		}
	})
}

// TestGivesUpOnce: two Conns panic once too often at the same time, and take
// their time to close. The supervisor gives up because of one of them.
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
			connect(t, s, conn.New(dialer(func(context.Context) (transport.Link, error) { return brokenLink{}, nil }), conn.Options{
				Name:  name,
				Hooks: telemetry.Hooks{Transition: func(telemetry.Transition) { <-release }},
			}))
		}
		var result *supervisor.IntensityError
		if err := s.Wait(t.Context()); !errors.As(err, &result) || len(gaveUp) != 1 || gaveUp[0] != result.Child {
			t.Errorf("Wait returned %v, but OnEvent was told of %v", err, gaveUp)
		}
		close(release)
		synctest.Wait()
	})
}

// TestPanickingAcceptorIsOver: there is no link to go on with.
//
// Guarantees: G-0002.9
func TestPanickingAcceptorIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{Intensity: -1})
		child := connect(t, s, conn.Accept(brokenLink{}, conn.Options{}))
		<-child.Done()
		if !errors.As(child.Err(), new(*conn.PanicError)) {
			t.Errorf("Err is %v", child.Err())
		}
		stop(t, s)
	})
}

// A brokenLink panics in the loop that grants it credit.
type brokenLink struct{ transport.Link }

func (brokenLink) Bind(transport.Receiver)     {}
func (brokenLink) Grant(transport.Stream, int) { panic("boom") }

func (brokenLink) Close(time.Duration) error { return nil }

// TestConnectTwice refuses a Conn whose name is taken, and one that somebody
// else runs.
func TestConnectTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, other := supervisor.New(supervisor.Options{}), supervisor.New(supervisor.Options{})
		c := conn.New(dialer(func(context.Context) (transport.Link, error) { return nil, errDown }), conn.Options{Name: "a"})
		connect(t, s, c)
		synctest.Wait()
		if _, err := s.Connect(context.Background(), c); !errors.As(err, new(*supervisor.DuplicateError)) {
			t.Errorf("Connect returned %v", err)
		}
		child := connect(t, other, c)
		<-child.Done()
		if !errors.Is(child.Err(), conn.ErrRunning) || c.State() == conn.Closing {
			t.Errorf("Err is %v, the Conn is %s", child.Err(), c.State())
		}
		stop(t, other)
		stop(t, s)
	})
}

// A fickle store takes its one claim back, and gives no other.
type fickle struct{ lost func(error) }

func (s *fickle) Claim(_ context.Context, c registry.Claim) (registry.Release, error) {
	if s.lost != nil {
		return nil, &registry.TakenError{Name: c.Name, Holder: "another"}
	}
	s.lost = c.Lost
	return func(context.Context) error { return nil }, nil
}

func (*fickle) Watch(context.Context) iter.Seq2[map[string]string, error] {
	return func(func(map[string]string, error) bool) {}
}

// TestConnWithoutItsNameIsClosed: one that was to run again, and whose name is
// another's by then, is over; nobody waits for it.
//
// Guarantees: G-0002.18, G-0002.19
func TestConnWithoutItsNameIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, p, first := new(fickle), new(peer), newScript()
		s := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne, Registry: registry.New(registry.Options{Store: store})})
		servers := supervisor.New(supervisor.Options{})
		start(t, s, supervisor.ChildSpec{ID: "first", Run: first.run})
		c := conn.New(p.transport(t, servers), conn.Options{Name: "weather"})
		child := connect(t, s, c)
		await(t, c)
		store.lost(errors.New("the lease is over"))
		first.end(returns(errBroken))
		if err := child.Err(); !errors.As(err, new(*registry.TakenError)) || !isClosed(c.Done()) {
			t.Errorf("Err is %v, the Conn is %s", err, c.State())
		}
		if err := c.AwaitReady(t.Context()); err == nil {
			t.Error("somebody waits for it")
		}
		stop(t, s)
		stop(t, servers)
	})
}
