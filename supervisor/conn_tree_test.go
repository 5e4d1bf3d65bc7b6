package supervisor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/supervisor/registry"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// refusedCall makes a call that the peer refuses, and returns its id.
func refusedCall(t *testing.T, c *conn.Conn) int64 {
	t.Helper()
	awaitReady(t, c)
	_, err := c.Call(t.Context(), conn.Request{Method: "nobody serves this"})
	var refused *conn.CallError
	if !errors.As(err, &refused) || refused.Cause != conn.PeerError {
		t.Fatalf("the call returned %v, want a PeerError", err)
	}
	return refused.ID
}

// When a sibling before it fails under RestForOne, a Conn is restarted at once: it continues with its ids
// and epochs, and this does not count as a failure.
//
// Guarantees: G-0002.18
func TestConnIsRestartedWithItsSiblings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, first := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne}), &peer{}, newScript()
		acceptors := supervisor.New(supervisor.Options{})
		start(t, s, supervisor.ChildSpec{ID: "first", Run: first.run})
		c := conn.New(p.transport(t, acceptors), conn.Options{Tuning: conn.Tuning{Name: "weather"}})
		child := connect(t, s, c)
		before, began := refusedCall(t, c), time.Now()
		first.end(returns(errBroken))
		if after := refusedCall(t, c); after <= before || c.Status().Epoch != 2 || time.Since(began) != 0 {
			t.Errorf("id %d after %d, epoch %d, after %v; want a higher id in epoch 2 at once",
				after, before, c.Status().Epoch, time.Since(began))
		}
		if got := s.Report().Children[1]; got.Restarts != 1 || got.LastFailure != nil || wait.IsClosed(child.Done()) {
			t.Errorf("got %v, want one restart and no failure", got)
		}
		stop(t, s)
		if c.State() != conn.Closing {
			t.Errorf("the Conn is %s, want closing", c.State())
		}
		stop(t, acceptors)
	})
}

// When its supervisor gives up and its parent restarts it, a Conn continues with its ids and epochs. It
// closes when the parent gives up.
//
// Guarantees: G-0002.15, G-0002.18
func TestConnIsRestartedWithItsSupervisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, p, failing := supervisor.New(supervisor.Options{Intensity: 2}), &peer{}, newScript()
		acceptors := supervisor.New(supervisor.Options{})
		pool, _ := nested(t, root, supervisor.Options{Name: "pool", Intensity: -1})
		c := conn.New(p.transport(t, acceptors), conn.Options{Tuning: conn.Tuning{Name: "weather"}})
		child := connect(t, pool, c)
		start(t, pool, supervisor.ChildSpec{ID: "failing", Run: failing.run})
		last := refusedCall(t, c)
		for epoch := range uint64(2) {
			failing.end(returns(errBroken))
			if id := refusedCall(t, c); id <= last || c.Status().Epoch != epoch+2 {
				t.Errorf("id %d after %d, epoch %d; want a higher id in epoch %d", id, last, c.Status().Epoch, epoch+2)
			}
		}
		failing.end(returns(errBroken))
		if err := root.Wait(t.Context()); !errors.As(err, new(*supervisor.IntensityError)) {
			t.Errorf("Wait returned %v, want an IntensityError", err)
		}
		if c.State() != conn.Closing || !wait.IsClosed(c.Done()) || !wait.IsClosed(child.Done()) {
			t.Errorf("the Conn is %s, want closing; its supervisor:\n%v", c.State(), pool.Report())
		}
		stop(t, acceptors)
	})
}

// A Conn may be restarted while it connects. Once it has closed, Restart returns ErrFinal.
//
// Guarantees: G-0002.14
func TestClosedConnCannotBeRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		c := conn.New(dialer(func(context.Context) (transport.Link, error) { return nil, errDown }), conn.Options{Tuning: conn.Tuning{Name: "a"}})
		child := connect(t, s, c)
		if err := child.Restart(t.Context()); err != nil {
			t.Errorf("Restart returned %v, want no error", err)
		}
		synctest.Wait()
		if c.State() != conn.Backoff || c.Status().Epoch != 2 {
			t.Errorf("the Conn is %s in epoch %d, want backoff in epoch 2", c.State(), c.Status().Epoch)
		}
		if err := child.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := child.Restart(t.Context()); !errors.Is(err, supervisor.ErrFinal) {
			t.Errorf("Restart returned %v, want ErrFinal", err)
		}
		stop(t, s)
	})
}

// A Conn's name is unique among all supervisors with one registry. The Conn keeps it over restarts, and it
// is free when the child is over, however that ends.
//
// Guarantees: G-0002.19
func TestRegistryHasTheNamesOfSupervisedConns(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *supervisor.Supervisor, *supervisor.Child, *conn.Conn, *script){
		"stopped": func(t *testing.T, _ *supervisor.Supervisor, child *supervisor.Child, _ *conn.Conn, _ *script) {
			child.Stop(t.Context())
		},
		"closed by itself": func(t *testing.T, _ *supervisor.Supervisor, _ *supervisor.Child, c *conn.Conn, _ *script) { c.Stop() },
		"drained": func(t *testing.T, root *supervisor.Supervisor, _ *supervisor.Child, _ *conn.Conn, _ *script) {
			root.Close(t.Context())
		},
		"given up": func(t *testing.T, _ *supervisor.Supervisor, _ *supervisor.Child, _ *conn.Conn, failing *script) {
			failing.end(returns(errBroken))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				names := registry.New(registry.Options{})
				root, failing := supervisor.New(supervisor.Options{Intensity: 1}), newScript()
				pool, _ := nested(t, root, supervisor.Options{Name: "pool", Intensity: -1, Registry: names})
				other := supervisor.New(supervisor.Options{Registry: names})
				down := dialer(func(context.Context) (transport.Link, error) { return nil, errDown })
				c, rival := conn.New(down, conn.Options{Tuning: conn.Tuning{Name: "weather"}}), conn.New(down, conn.Options{Tuning: conn.Tuning{Name: "weather"}})
				child := connect(t, pool, c)
				start(t, pool, supervisor.ChildSpec{ID: "failing", Run: failing.run})
				failing.end(returns(errBroken))
				if found, ok := names.Lookup("weather"); !ok || found != c || c.Status().Epoch != 2 {
					t.Errorf("found %v, %v in epoch %d; want the Conn in epoch 2", found, ok, c.Status().Epoch)
				}
				if _, err := other.Connect(t.Context(), rival); !errors.As(err, new(*registry.TakenError)) {
					t.Errorf("Connect returned %v, want a TakenError", err)
				}
				end(t, root, child, c, failing)
				synctest.Wait()
				connect(t, other, rival)
				if found, _ := names.Lookup("weather"); found != rival {
					t.Errorf("found %v, want the Conn that was connected later", found)
				}
				root.Stop(t.Context())
				stop(t, other)
				if names.Len() != 0 {
					t.Errorf("%d names are left, want none", names.Len())
				}
			})
		})
	}
}

// If a Conn is connected a second time, in another supervisor, the second child fails and the first keeps
// the name.
//
// Guarantees: G-0002.19
func TestSecondConnectOfAConnFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := registry.New(registry.Options{})
		one, two := supervisor.New(supervisor.Options{Registry: names}), supervisor.New(supervisor.Options{Registry: names})
		c := conn.New(dialer(func(context.Context) (transport.Link, error) { return nil, errDown }), conn.Options{Tuning: conn.Tuning{Name: "weather"}})
		connect(t, one, c)
		synctest.Wait() // the first supervisor has started the Conn
		child := connect(t, two, c)
		if <-child.Done(); !errors.Is(child.Err(), conn.ErrRunning) {
			t.Errorf("Err is %v, want ErrRunning", child.Err())
		}
		if found, _ := names.Lookup("weather"); found != c {
			t.Errorf("found %v, want the Conn", found)
		}
		stop(t, two)
		stop(t, one)
		if names.Len() != 0 {
			t.Errorf("%d names are left, want none", names.Len())
		}
	})
}

// With a registry, Connect refuses a Conn without a name.
//
// Guarantees: G-0002.19
func TestConnectRefusesAConnWithoutAName(t *testing.T) {
	s := supervisor.New(supervisor.Options{Registry: registry.New(registry.Options{})})
	c := conn.New(dialer(func(context.Context) (transport.Link, error) { return nil, errDown }), conn.Options{})
	if _, err := s.Connect(t.Context(), c); !errors.As(err, new(*registry.NameError)) || !strings.Contains(err.Error(), "conn.Tuning.Name") {
		t.Errorf("Connect returned %v, want a NameError that names conn.Tuning.Name", err)
	}
	stop(t, s)
}

// When a tree is closed, calls that end within the time are answered, and others end as shut down.
//
// Guarantees: G-0002.16
func TestCloseOfATreeAnswersPendingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, acceptors := supervisor.New(supervisor.Options{}), supervisor.New(supervisor.Options{})
		pool, _ := nested(t, root, supervisor.Options{Name: "pool"})
		took := map[string]time.Duration{"quick": 10 * time.Second, "slow": time.Hour}
		results := map[string]chan error{}
		for name, takes := range took {
			p := &peer{serve: func(ctx context.Context) {
				timer := time.NewTimer(takes)
				defer timer.Stop()
				select {
				case <-timer.C:
				case <-ctx.Done():
				}
			}}
			c := conn.New(p.transport(t, acceptors), conn.Options{Tuning: conn.Tuning{Name: name}})
			connect(t, pool, c)
			awaitReady(t, c)
			results[name] = make(chan error, 1)
			go func() {
				_, err := c.Call(t.Context(), conn.Request{Method: "work", Timeout: -1})
				results[name] <- err
			}()
		}
		synctest.Wait()
		took["all"], _ = closeInTime(t, root)
		if took["all"] > time.Minute {
			t.Errorf("Close took %v, want 1m at most", took["all"])
		}
		if err := <-results["quick"]; err != nil {
			t.Errorf("the quick call returned %v, want no error", err)
		}
		var cut *conn.CallError
		if err := <-results["slow"]; !errors.As(err, &cut) || cut.Cause != conn.ShutDown || cut.Delivery != conn.Unknown {
			t.Errorf("the slow call returned %v, want ShutDown, Unknown", err)
		}
		stop(t, acceptors)
	})
}

// A Conn keeps its name while it waits to be restarted.
//
// Guarantees: G-0002.19
func TestNameStaysOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names, first := registry.New(registry.Options{}), newScript()
		s := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne, Registry: names})
		start(t, s, supervisor.ChildSpec{ID: "first", Run: first.run})
		start(t, s, newMember("slow", new(eventLog)).spec())
		c := conn.New(dialer(func(context.Context) (transport.Link, error) { return nil, errDown }), conn.Options{Tuning: conn.Tuning{Name: "weather"}})
		connect(t, s, c)
		first.end(returns(errBroken))
		if found, _ := names.Lookup("weather"); found != c || states(s.Report().Children)["weather"] != supervisor.Waiting {
			t.Errorf("found %v, want the Conn, waiting; report:\n%v", found, s.Report())
		}
		advance(time.Minute)
		stop(t, s)
	})
}

// A deadStore accepts every claim, and blocks when a name is released.
type deadStore struct{}

func (deadStore) Claim(context.Context, registry.Claim) (registry.Release, error) {
	return func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, nil
}

func (deadStore) Watch(context.Context) iter.Seq2[map[string]string, error] {
	return func(func(map[string]string, error) bool) {}
}

// If the Store does not release a name, Stop returns no StuckError: the Conn itself has ended.
//
// Guarantees: G-0002.19
func TestDeadStoreMakesNoStuckChild(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := supervisor.New(supervisor.Options{Registry: registry.New(registry.Options{Store: deadStore{}})})
			p := &peer{}
			acceptors := supervisor.New(supervisor.Options{})
			for n := range 3 {
				c := conn.New(p.transport(t, acceptors), conn.Options{Tuning: conn.Tuning{Name: fmt.Sprintf("c%d", n)}})
				connect(t, s, c)
				awaitReady(t, c)
			}
			began := time.Now()
			if err := s.Stop(t.Context()); errors.As(err, new(*supervisor.StuckError)) {
				t.Errorf("Stop returned %v after %v, want no StuckError", err, time.Since(began))
			}
			synctest.Wait()
			stop(t, acceptors)
		})
		if t.Failed() {
			return
		}
	}
}

// A report says which Conns are queued at a gate.
//
// Guarantees: G-0002.17
func TestReportSaysWhichConnsAreQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, gate := supervisor.New(supervisor.Options{}), &conn.Gate{Places: 1}
		hangs := dialer(func(ctx context.Context) (transport.Link, error) { <-ctx.Done(); return nil, context.Cause(ctx) })
		for _, name := range []string{"first", "second", "third"} {
			connect(t, s, conn.New(hangs, conn.Options{Tuning: conn.Tuning{Name: name, Gate: gate}}))
			synctest.Wait()
		}
		for _, want := range []string{"3 children: 2 queued to start, 1 starting;", "─ first: transient connection, starting since", "─ second: transient connection, queued to start since"} {
			if text := s.Report().String(); !strings.Contains(text, want) {
				t.Errorf("%q is missing in\n%s", want, text)
			}
		}
		stop(t, s)
	})
}

// A countingStore counts the names that were claimed and not released.
type countingStore struct{ held atomic.Int64 }

func (c *countingStore) Claim(context.Context, registry.Claim) (registry.Release, error) {
	c.held.Add(1)
	return func(ctx context.Context) error {
		if ctx.Err() != nil { // as a Store does that needs the network
			return context.Cause(ctx)
		}
		c.held.Add(-1)
		return nil
	}, nil
}

func (*countingStore) Watch(context.Context) iter.Seq2[map[string]string, error] {
	return func(func(map[string]string, error) bool) {}
}

// A Conn that was restarted releases its name in the Store when it ends.
//
// Guarantees: G-0002.19
func TestRestartedConnReleasesItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(countingStore)
		s := supervisor.New(supervisor.Options{Registry: registry.New(registry.Options{Store: store})})
		down := dialer(func(context.Context) (transport.Link, error) { return nil, errors.New("down") })
		child := connect(t, s, conn.New(down, conn.Options{Tuning: conn.Tuning{Name: "weather"}}))
		if err := child.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop(t, s)
		if held := store.held.Load(); held != 0 {
			t.Errorf("%d names are held, want none", held)
		}
	})
}

// A dialer is a transport whose links are opened by a function.
type dialer func(ctx context.Context) (transport.Link, error)

func (d dialer) Open(ctx context.Context) (transport.Link, error) { return d(ctx) }

// A peer is the other side of every link that is opened to it: one acceptor for each, run by the given
// supervisor.
type peer struct {
	serve func(context.Context) // serves each request; nil: requests are refused
	mu    sync.Mutex
	conns []*conn.Conn
}

func (p *peer) transport(t *testing.T, s *supervisor.Supervisor) transport.Transport {
	return inmem.New(func(link transport.Link) {
		var o conn.Options
		if p.serve != nil {
			o.Handler = handler(func(ctx context.Context, _ *conn.Incoming) { p.serve(ctx) })
		}
		c := conn.Accept(link, o)
		p.mu.Lock()
		p.conns = append(p.conns, c)
		p.mu.Unlock()
		if _, err := s.Connect(context.Background(), c); err != nil {
			t.Error(err)
		}
	}, inmem.Options{})
}

// drop ends the present link from the peer's side.
func (p *peer) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[len(p.conns)-1].Stop()
}

func connect(t testing.TB, s *supervisor.Supervisor, c *conn.Conn) *supervisor.Child {
	t.Helper()
	child, err := s.Connect(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return child
}

func awaitReady(t *testing.T, c *conn.Conn) {
	t.Helper()
	if err := c.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A handler serves requests with a function.
type handler func(ctx context.Context, in *conn.Incoming)

func (h handler) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	h(ctx, in)
	return nil, nil
}

func (handler) ServeNotification(context.Context, *conn.Incoming) {}

// An incarnation behaves like a RestForOne group: when its link is lost, the handshake and handlers that
// began on it end before the next link is opened.
//
// Guarantees: G-0002.8
func TestIncarnationIsRestForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var log []string
		note := func(format string, args ...any) { // logs what happens
			mu.Lock()
			defer mu.Unlock()
			log = append(log, fmt.Sprintf(format, args...))
		}
		s, p := supervisor.New(supervisor.Options{}), &peer{}
		links := p.transport(t, s)
		c := conn.New(dialer(func(ctx context.Context) (transport.Link, error) {
			note("open")
			return links.Open(ctx)
		}), conn.Options{
			Handler: handler(func(ctx context.Context, in *conn.Incoming) {
				note("serve %d", in.Epoch)
				<-ctx.Done()
				note("task %d ended", in.Epoch)
			}),
			Handshake: func(ctx context.Context, in *conn.Incarnation) error {
				note("handshake %d", in.Epoch())
				if in.Epoch() > 1 {
					return nil
				}
				go p.call(ctx)
				<-ctx.Done()
				note("task %d ended", in.Epoch())
				return ctx.Err()
			},
			Tuning: conn.Tuning{
				Name: "weather",
			},
		})
		connect(t, s, c)
		synctest.Wait()
		p.drop()
		awaitReady(t, c)
		stop(t, s)
		want := []string{"open", "handshake 1", "serve 1", "task 1 ended", "task 1 ended", "open", "handshake 2"}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

// call makes a request from the peer's side, and ignores how it ends.
func (p *peer) call(ctx context.Context) {
	p.mu.Lock()
	c := p.conns[len(p.conns)-1]
	p.mu.Unlock()
	c.Call(ctx, conn.Request{Method: "sampling", Timeout: -1, WaitForReady: true})
}

// A panic of a handler is answered with an error. The link stays, and nothing is restarted.
//
// Guarantees: G-0002.8, G-0002.9
func TestPanicOfAHandlerAffectsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := supervisor.New(supervisor.Options{Intensity: -1}), &peer{}
		c := conn.New(p.transport(t, s), conn.Options{
			Handler: handler(func(context.Context, *conn.Incoming) { panic("boom") }),
			Tuning: conn.Tuning{
				Name: "weather",
			},
		})
		connect(t, s, c)
		awaitReady(t, c)
		for range 5 {
			p.call(t.Context())
		}
		if got := s.Report().Children[0]; got.Restarts != 0 || c.Status().Epoch != 1 || c.State() != conn.Ready {
			t.Errorf("got %v, want no restart, and ready in epoch 1", got)
		}
		stop(t, s)
	})
}

// Stop returns the StuckError of a Conn, with the names of its handlers.
//
// Guarantees: G-0002.6
func TestStopNamesTheHandlersOfAConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s, p := supervisor.New(supervisor.Options{}), &peer{}
		c := conn.New(p.transport(t, s), conn.Options{
			Handler: handler(func(context.Context, *conn.Incoming) { <-release }),
			Tuning: conn.Tuning{
				Name: "weather",
			},
		})
		connect(t, s, c)
		awaitReady(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		go p.call(ctx)
		synctest.Wait()
		var stuck *conn.StuckError
		if err := s.Stop(t.Context()); !errors.As(err, &stuck) || !slices.Equal(stuck.Tasks, []string{"sampling"}) {
			t.Errorf("Stop returned %v, want a StuckError with \"sampling\"", err)
		}
		cancel()
		close(release)
		synctest.Wait()
	})
}
