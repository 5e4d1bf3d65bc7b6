package conn_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
)

// handshakeTaking returns a handshake that takes the given time.
func handshakeTaking(d time.Duration) func(context.Context, *conn.Incarnation) error {
	return func(ctx context.Context, _ *conn.Incarnation) error { return wait.Sleep(ctx, d) }
}

// A fleet is a set of Conns that share a gate.
type fleet struct {
	t    *testing.T
	gate *conn.Gate
	runs []run
}

// join runs one more Conn, and returns when it has asked for its place.
func (f *fleet) join(open opening, o conn.Options) run {
	o.Gate = f.gate
	r := start(conn.New(open, o))
	f.runs = append(f.runs, r)
	synctest.Wait()
	return r
}

func (f *fleet) stop() {
	for _, r := range f.runs {
		r.Stop()
	}
	for _, r := range f.runs {
		if err := <-r.ended; err != nil {
			f.t.Error(err)
		}
	}
}

// ready returns how many Conns are ready.
func (f *fleet) ready() (n int) {
	for _, r := range f.runs {
		if r.State() == conn.Ready {
			n++
		}
	}
	return n
}

// A startCounter counts how many Conns are between the call of Open and the end of the handshake.
type startCounter struct {
	mu        sync.Mutex
	now, most int
}

func (c *startCounter) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	c.most = max(c.most, c.now)
}

func (c *startCounter) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
}

// At most Places Conns open a link or run a handshake at the same time.
//
// Guarantees: G-0027.1
func TestGateLimitsConcurrentStarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const many, places, open, shake = 1000, 50, 10 * time.Millisecond, 20 * time.Millisecond
		began, count, f := time.Now(), new(startCounter), &fleet{t: t, gate: &conn.Gate{Places: places}}
		for range many {
			f.runs = append(f.runs, start(conn.New(opening(func(ctx context.Context) (transport.Link, error) {
				count.begin()
				return new(script), wait.Sleep(ctx, open)
			}), conn.Options{
				Handshake: func(ctx context.Context, _ *conn.Incarnation) error {
					defer count.end()
					return wait.Sleep(ctx, shake)
				},
				Tuning: conn.Tuning{
					Gate: f.gate,
				},
			})))
		}
		for _, r := range f.runs {
			if err := r.AwaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if count.most != places || time.Since(began) != many/places*(open+shake) {
			t.Errorf("%d started at once, all were ready after %v; want %d, %v",
				count.most, time.Since(began), places, many/places*(open+shake))
		}
		f.stop()
	})
}

// A server that hangs holds one of four places, and the others start without a delay.
//
// Guarantees: G-0027.1, G-0027.2
func TestOneHangingServerDelaysNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		began, f := time.Now(), &fleet{t: t, gate: &conn.Gate{Places: 4}}
		f.join(fresh, conn.Options{Handshake: hanging})
		for range 100 {
			f.join(fresh, conn.Options{Handshake: handshakeTaking(0)})
		}
		if n := f.ready(); n != 100 || !time.Now().Equal(began) {
			t.Errorf("%d are ready after %v, want 100 at once", n, time.Since(began))
		}
		f.stop()
	})
}

// Each of many servers that hang delays the Conns behind it by no more than the hold of its place.
//
// Guarantees: G-0027.2, G-0027.3
func TestManyHangingServersCostTheirHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const bad, good, places, hold = 100, 100, 4, time.Second
		began, f := time.Now(), &fleet{t: t, gate: &conn.Gate{Places: places, Hold: hold}}
		for range bad {
			f.join(fresh, conn.Options{Handshake: hanging})
		}
		for range good {
			f.join(fresh, conn.Options{Handshake: handshakeTaking(0)})
		}
		advance(bad/places*hold - time.Nanosecond)
		if n := f.ready(); n != 0 {
			t.Errorf("%d are ready after %v, want none", n, time.Since(began))
		}
		advance(time.Nanosecond)
		if n := f.ready(); n != good {
			t.Errorf("%d are ready after %v, want %d", n, time.Since(began), good)
		}
		f.stop()
	})
}

// Conns get their places in the order in which they asked.
//
// Guarantees: G-0027.2
func TestPlacesAreGivenInTheOrderOfAsking(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var order []int
		f := &fleet{t: t, gate: &conn.Gate{Places: 1}}
		for i := range 10 {
			f.join(func(context.Context) (transport.Link, error) {
				order = append(order, i)
				return new(script), nil
			}, conn.Options{Handshake: handshakeTaking(time.Second / 2)})
		}
		advance(5 * time.Second)
		if len(order) != 10 || !slices.IsSorted(order) {
			t.Errorf("they started in the order %v, want 0 to 9", order)
		}
		f.stop()
	})
}

// A Conn that is stopped or closed while it waits ends at once, opens no link, and holds up no other.
//
// Guarantees: G-0027.5
func TestConnThatIsStoppedLeavesTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		began, opened := time.Now(), 0
		f := &fleet{t: t, gate: &conn.Gate{Places: 1, Hold: time.Hour}}
		first := f.join(fresh, conn.Options{Handshake: hanging})
		counted := func(context.Context) (transport.Link, error) { opened++; return new(script), nil }
		stopped, closed := f.join(counted, conn.Options{}), f.join(counted, conn.Options{})
		last := f.join(fresh, conn.Options{})
		stopped.Stop()
		<-stopped.Done()
		if err := closed.Close(t.Context()); err != nil {
			t.Error(err)
		}
		first.Stop()
		synctest.Wait()
		if last.State() != conn.Ready || opened != 0 || !time.Now().Equal(began) {
			t.Errorf("the last Conn is %s after %v, %d links were opened; want ready at once, none",
				last.State(), time.Since(began), opened)
		}
		f.stop()
	})
}

// InitTimeout does not run while a Conn waits at the gate, and begins with its place. Its Status and
// the errors of calls say that it is queued.
//
// Guarantees: G-0001.3, G-0027.4
func TestConnThatWaitsForAPlaceDoesNotTimeOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fleet{t: t, gate: &conn.Gate{Places: 1, Hold: 24 * time.Hour}}
		first := f.join(fresh, conn.Options{Handshake: hanging, Tuning: conn.Tuning{InitTimeout: 12 * time.Hour}})
		c := f.join(fresh, conn.Options{Handshake: hanging, Tuning: conn.Tuning{InitTimeout: 10 * time.Second}})
		advance(time.Hour)
		status := c.Status()
		if status.State != conn.Starting || status.Reason.Kind != conn.Queued || status.Epoch != 1 {
			t.Errorf("after an hour: %s, %v, epoch %d; want starting, Queued, 1", status.State, status.Reason, status.Epoch)
		}
		_, err := c.Call(t.Context(), conn.Request{Method: "m"})
		var refused *conn.StateError
		if !errors.As(err, &refused) || refused.Reason.Kind != conn.Queued || !conn.NotExecuted(err) {
			t.Errorf("a call: %v, want a StateError with Queued", err)
		}
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(enough)
		if err := c.AwaitReady(ctx); !errors.Is(err, enough) || err.Error() != "conn: not ready, starting (queued): enough" {
			t.Errorf("AwaitReady: %v, want an error with \"queued\"", err)
		}
		first.Stop()
		<-status.Changed()
		synctest.Wait()
		if status := c.Status(); status.State != conn.Initializing {
			t.Errorf("with a place: %s, %v; want initializing", status.State, status.Reason)
		}
		advance(10*time.Second - 1)
		if state := c.State(); state != conn.Initializing {
			t.Errorf("before InitTimeout: %s, want initializing", state)
		}
		advance(1)
		if status := c.Status(); status.State != conn.Backoff || status.Reason.Kind != conn.InitTimedOut {
			t.Errorf("after InitTimeout: %s, %v; want backoff, InitTimedOut", status.State, status.Reason)
		}
		f.stop()
	})
}

// While its transport opens a link, the Status of a Conn says that it was admitted.
//
// Guarantees: G-0027.4
func TestStatusOfAnAdmittedConn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fleet{t: t, gate: new(conn.Gate)}
		c := f.join(func(ctx context.Context) (transport.Link, error) { return nil, wait.Sleep(ctx, time.Hour) }, conn.Options{})
		if status := c.Status(); status.State != conn.Starting || status.Reason.Kind != conn.Admitted {
			t.Errorf("%s, %v; want starting, Admitted", status.State, status.Reason)
		}
		f.stop()
	})
}

// A failed attempt gives its place back, and the next one asks again, behind the other Conns. So does
// the first attempt after a loss.
//
// Guarantees: G-0027.1, G-0027.2, G-0027.5
func TestEachAttemptTakesAPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fleet{t: t, gate: &conn.Gate{Places: 1, Hold: time.Hour}}
		refused, links := 0, []*script{}
		c := f.join(func(context.Context) (transport.Link, error) {
			if refused++; refused <= 1 {
				return nil, errors.New("refused")
			}
			links = append(links, new(script))
			return links[len(links)-1], nil
		}, conn.Options{Tuning: conn.Tuning{BackoffMin: time.Second, BackoffMax: time.Second}})
		other := f.join(fresh, conn.Options{Handshake: handshakeTaking(time.Minute), Tuning: conn.Tuning{InitTimeout: time.Hour}})
		if c.State() != conn.Backoff || other.State() != conn.Initializing {
			t.Fatalf("%s, the other %s; want backoff, initializing", c.State(), other.State())
		}
		advance(time.Second)
		if status := c.Status(); status.Reason.Kind != conn.Queued || status.Epoch != 2 {
			t.Errorf("%s: %v in epoch %d, want Queued in epoch 2", status.State, status.Reason, status.Epoch)
		}
		c.Wake() // it still has to wait for a place
		advance(time.Minute)
		if f.ready() != 2 {
			t.Errorf("%s, the other %s; want both ready", c.State(), other.State())
		}
		f.join(fresh, conn.Options{Handshake: hanging, Tuning: conn.Tuning{InitTimeout: time.Hour}})
		links[0].lose(transport.Loss{Reason: errors.New("lost")})
		advance(time.Second)
		if status := c.Status(); status.Reason.Kind != conn.Queued || status.Epoch != 3 || refused != 2 {
			t.Errorf("%s: %v in epoch %d, opened %d times; want Queued in epoch 3, twice",
				status.State, status.Reason, status.Epoch, refused)
		}
		f.stop()
	})
}

// When the loop of a Conn with a place ends, the next Conn gets the place at once, even if the link
// takes long to close.
//
// Guarantees: G-0027.5
func TestLoopThatEndsGivesItsPlaceBack(t *testing.T) {
	refused := func(context.Context) (transport.Link, error) { return nil, errors.New("refused") }
	slow := func(context.Context) (transport.Link, error) {
		return &script{
			onSend:  func(*script, transport.Outbound) error { panic("send") },
			onClose: func() error { return wait.Sleep(context.Background(), 100*time.Millisecond) },
		}, nil
	}
	calls := func(ctx context.Context, i *conn.Incarnation) error {
		_, err := i.Call(ctx, conn.Request{Method: "m"})
		return err
	}
	for name, end := range map[string]struct {
		open    opening
		options conn.Options
	}{
		"a panic during the handshake": {slow, conn.Options{Handshake: calls}},
		"a reason that is final":       {refused, conn.Options{Tuning: conn.Tuning{Final: func(conn.Reason) bool { return true }}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				gate := &conn.Gate{Places: 1, Hold: time.Hour}
				began, next := time.Now(), conn.New(opening(fresh), conn.Options{Tuning: conn.Tuning{Gate: gate}})
				end.options.Gate = gate
				bad := conn.New(opening(func(ctx context.Context) (transport.Link, error) {
					return end.open(ctx)
				}), end.options)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					bad.Run(t.Context())
				}()
				synctest.Wait()
				r := start(next)
				synctest.Wait()
				if state := r.State(); state != conn.Ready || !time.Now().Equal(began) {
					t.Errorf("the next Conn is %s after %v, want ready at once", state, time.Since(began))
				}
				r.Stop()
				<-r.ended
				<-ended
			})
		})
	}
}

// An interrupted Conn leaves the gate. When it runs again, it asks for a place behind the others.
//
// Guarantees: G-0001.15, G-0027.5
func TestInterruptedConnLeavesTheGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := &conn.Gate{Places: 1, Hold: time.Hour}
		options := conn.Options{Handshake: hanging, Tuning: conn.Tuning{Gate: gate, InitTimeout: time.Hour}}
		holds, waits := conn.New(opening(fresh), options), conn.New(opening(fresh), options)
		_, interruptFirst := interruptible(t, holds)
		_, interruptSecond := interruptible(t, waits)
		last := conn.New(opening(fresh), conn.Options{Tuning: conn.Tuning{Gate: gate}})
		r := start(last)
		synctest.Wait()
		wantInterrupted(t, interruptSecond())
		if state := r.State(); state != conn.Starting {
			t.Errorf("the last Conn is %s, want starting", state)
		}
		again := start(waits)
		synctest.Wait()
		wantInterrupted(t, interruptFirst())
		synctest.Wait()
		if r.State() != conn.Ready || waits.State() != conn.Initializing || waits.Status().Epoch != 2 {
			t.Errorf("the last Conn is %s, the interrupted one %s; want ready, initializing", r.State(), waits.State())
		}
		for _, r := range []run{r, again} {
			r.Stop()
			<-r.ended
		}
	})
}

// A Conn that gets its place stays in its state, and its Status says since when it has been in that.
//
// Guarantees: G-0027.5
func TestAPlaceIsNoNewState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := fleet{t: t, gate: &conn.Gate{Places: 1}}
		f.join(fresh, conn.Options{Handshake: handshakeTaking(300 * time.Millisecond)})
		waits := f.join(func(ctx context.Context) (transport.Link, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, conn.Options{})
		before := waits.Status()
		advance(500 * time.Millisecond)
		after := waits.Status()
		if before.Reason.Kind != conn.Queued || after.Reason.Kind != conn.Admitted || after.State != before.State || !after.Since.Equal(before.Since) {
			t.Errorf("%s (%v) since %v, want %s, admitted, since %v", after.State, after.Reason, after.Since, before.State, before.Since)
		}
		f.stop()
	})
}
