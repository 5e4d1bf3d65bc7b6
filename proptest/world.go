package proptest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// A world is one Conn on a transport with faults, and its callers.
type world struct {
	t       rapid.TB
	o       Options
	faults  *fault.Transport
	outer   *witness // what passes between the Conn and the faults
	inner   *witness // what passes between the faults and the transport
	conn    *conn.Conn
	ran     chan struct{} // closed when Run has returned
	result  error         // the result of Run
	callers []*caller
	others  atomic.Uint64 // how many calls of handshakes have ended
}

// method is the method of every call.
const method = "echo"

func newWorld(t rapid.TB, o Options, from transport.Transport, plan fault.Plan) *world {
	w := &world{t: t, o: o, inner: newWitness(), outer: newWitness(), ran: make(chan struct{})}
	w.faults = fault.New(watch(from, w.inner), plan)
	o.Conn.Hooks = telemetry.Tee(o.Conn.Hooks, telemetry.Hooks{RequestStopped: func(_ context.Context, stopped telemetry.RequestStopped) {
		if stopped.Method != method {
			w.others.Add(1)
		}
	}})
	o.Conn.Log = cmp.Or(o.Conn.Log, slog.New(slog.DiscardHandler)) // the Conn fails on purpose thousands of times, so nothing is logged by default
	w.conn = conn.New(watch(w.faults, w.outer), o.Conn)
	go func() {
		defer close(w.ran)
		w.result = w.conn.Run(context.Background())
	}()
	return w
}

// end stops the Conn, whatever its state, and waits for its callers.
func (w *world) end() {
	w.conn.Stop()
	for _, c := range w.callers {
		c.leave()
	}
	w.await("the end of Run", w.ran)
	for _, c := range w.callers {
		w.await("the end of a call", c.done)
	}
}

// settle waits until nothing more can happen without time passing. In real time
// it cannot know that.
func (w *world) settle() {
	if !w.o.RealTime {
		synctest.Wait()
	}
}

// pass waits for the time d.
func (w *world) pass(d time.Duration) {
	if d > 0 {
		timer := time.NewTimer(d)
		<-timer.C
	}
	w.settle()
	w.nothingPendsOutsideReady()
}

// patient returns a plan for a call that certainly does not time out.
func (o Options) patient() callPlan { return callPlan{Timeout: 2 * o.guard()} }

// guard returns a time that is longer than anything may take. In virtual time,
// waiting for it takes no time.
func (o Options) guard() time.Duration {
	if o.RealTime {
		return ContractOptions{Guard: o.Guard}.guard()
	}
	return 24 * time.Hour
}

func (w *world) await(what string, happened <-chan struct{}) {
	w.t.Helper()
	guard := time.NewTimer(w.o.guard())
	defer guard.Stop()
	select {
	case <-happened:
	case <-guard.C:
		w.fatalf("%s never came", what)
	}
}

// fatalf fails the history, and prints the faults that were injected. They are
// not part of the failure's message, because rapid shrinks a failure only if
// its message stays the same.
func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Logf("the Conn is %s (%v), its books %+v\nfaults:\n%v",
		w.conn.State(), w.conn.Status().Reason, w.conn.Stats(), w.faults.Log())
	w.t.Fatalf(format, args...)
}

// ready waits for the Conn to be ready.
func (w *world) ready() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), w.o.guard())
	defer cancel()
	if err := w.conn.AwaitReady(ctx); err != nil {
		w.fatalf("the Conn does not become ready: %v", err)
	}
	w.settle()
}

// A caller is one call and the goroutine that waits for it.
type caller struct {
	callPlan
	params string
	ctx    context.Context
	leave  context.CancelFunc
	began  time.Time
	done   chan struct{} // closed when the call has returned

	mu      sync.Mutex
	returns int
	result  json.RawMessage
	err     error
	at      time.Time // when the call returned
}

// A callPlan says how a call is made.
type callPlan struct {
	Timeout      time.Duration // the timeout of the call; 0: that of the Conn
	Leave        time.Duration // when the context of the call is cancelled; 0: never
	WaitForReady bool
}

// call makes a call in the background.
func (w *world) call(plan callPlan) *caller { return w.callIn(context.Background(), plan) }

// callIn makes a call in a context.
func (w *world) callIn(ctx context.Context, plan callPlan) *caller {
	c := &caller{callPlan: plan, began: time.Now(), done: make(chan struct{}), params: string(w.o.Params(len(w.callers) + 1))}
	c.ctx, c.leave = context.WithCancel(ctx)
	w.callers = append(w.callers, c)
	go func() {
		defer close(c.done)
		if plan.Leave > 0 {
			leaving := time.AfterFunc(plan.Leave, c.leave)
			defer leaving.Stop()
		}
		result, err := w.conn.Call(c.ctx, conn.Request{
			Method: method, Params: json.RawMessage(c.params), Version: w.o.Version, Timeout: plan.Timeout, WaitForReady: plan.WaitForReady,
		})
		c.returned(result, err)
	}()
	return c
}

func (c *caller) returned(result json.RawMessage, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.returns++
	c.result, c.err, c.at = result, err, time.Now()
}

func (c *caller) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// finish waits until every call has ended, and checks how.
func (w *world) finish() {
	w.t.Helper()
	for _, c := range w.callers {
		w.await("the end of call "+c.params, c.done)
	}
	w.settle()
	for _, c := range w.callers {
		w.checkCall(c)
	}
	w.checkNoReplay()
	w.checkBooks()
}

// checkCall compares the outcome of a call with the frames that have passed.
func (w *world) checkCall(c *caller) {
	w.t.Helper()
	if c.returns != 1 {
		w.fatalf("call %s returned %d times", c.params, c.returns)
	}
	if c.err == nil {
		if string(c.result) != c.params {
			w.fatalf("call %s got %s, which is another's", c.params, c.result)
		}
		return
	}
	var failed *conn.CallError
	if !errors.As(c.err, &failed) {
		w.fatalf("call %s ended with %T: %v", c.params, c.err, c.err)
	}
	w.checkFailure(c, failed)
}

// unsentFor is longer than a call may wait for a busy link: a link that accepts
// nothing is lost after ten seconds (ADR-0007).
const unsentFor = 15 * time.Second

func (w *world) checkFailure(c *caller, failed *conn.CallError) {
	w.t.Helper()
	legal := map[conn.Cause][]conn.Delivery{
		conn.PeerError: {conn.Sent},
		conn.Cancelled: {conn.NotSent, conn.Unknown},
		conn.TimedOut:  {conn.NotSent, conn.Unknown},
		conn.LinkLost:  {conn.NotSent, conn.Unknown},
		conn.Refused:   {conn.NotSent},
		conn.ShutDown:  {conn.NotSent, conn.Unknown},
	}
	isLegal := false
	for _, delivery := range legal[failed.Cause] {
		isLegal = isLegal || delivery == failed.Delivery
	}
	passed := w.inner.passages(c.params)
	switch {
	case !isLegal:
		w.fatalf("call %s ended %s and %s", c.params, failed.Cause, failed.Delivery)
	case failed.Cause == conn.PeerError && !w.mayRefuse():
		w.fatalf("the peer refused call %s: %v", c.params, c.err)
	case failed.Delivery == conn.NotSent && len(passed) > 0:
		w.fatalf("call %s is said not to be sent, and was, on link %d: %v", c.params, passed[0].link, c.err)
	case failed.Delivery == conn.NotSent && !c.WaitForReady && !w.o.RealTime && c.at.Sub(c.began) > unsentFor:
		w.fatalf("call %s waited %v to be sent: %v", c.params, c.at.Sub(c.began), c.err)
	}
	if at, answered := w.outer.answered(failed.ID); answered && !w.o.RealTime && failed.Cause != conn.PeerError && at.Before(c.at) {
		w.fatalf("call %s was answered %v before it ended: %v", c.params, c.at.Sub(at), c.err)
	}
}

// mayRefuse reports whether a fault may have made the peer refuse a call.
func (w *world) mayRefuse() bool { return len(w.faults.Log()) > 0 }

// checkNoReplay checks that every request was passed to one link, once, and
// with its own id.
func (w *world) checkNoReplay() {
	w.t.Helper()
	ids, params := map[int64]string{}, map[string]bool{}
	for _, s := range w.outer.seen() {
		if earlier, taken := ids[s.id]; taken {
			w.fatalf("id %d was used for %s and for %s", s.id, earlier, s.params)
		}
		ids[s.id] = s.params
		if s.method != method {
			continue // a handshake is repeated on every link
		}
		if params[s.params] {
			w.fatalf("request %s was sent twice", s.params)
		}
		params[s.params] = true
	}
}

// checkBooks checks that the statistics of the Conn contain the end of every
// call, and every answer. Calls of a handshake may still be in flight.
func (w *world) checkBooks() {
	w.t.Helper()
	over := uint64(len(w.callers)) + w.others.Load()
	stats := w.conn.Stats()
	if exact := w.o.Conn.Handshake == nil; stats.Ended() < over || stats.Calls < stats.Ended() || exact && stats.Calls != over {
		w.fatalf("%d calls have ended, %d are in the books, %d of them ended", over, stats.Calls, stats.Ended())
	}
	counted := stats.Settled[conn.Answered][conn.Sent] + stats.Settled[conn.PeerError][conn.Sent] + stats.Late + stats.Unknown
	_, replies, guesses := w.outer.count()
	if counted > uint64(replies) || !w.o.RealTime && counted < uint64(replies) {
		w.fatalf("%d answers were delivered, and %d counted", replies, counted)
	}
	if stats.Unknown > uint64(guesses) || !w.o.RealTime && stats.Unknown < uint64(guesses) {
		w.fatalf("%d answers were to requests never made, and %d are counted as unknown", guesses, stats.Unknown)
	}
}

// nothingPendsOutsideReady checks that calls end with their incarnation, except
// those that wait for the next one. In real time this cannot be observed.
func (w *world) nothingPendsOutsideReady() {
	w.t.Helper()
	if state := w.conn.State(); w.o.RealTime || state == conn.Ready || state == conn.Initializing {
		return
	}
	for _, c := range w.callers {
		if !c.over() && !c.WaitForReady {
			w.fatalf("call %s is pending in %s", c.params, w.conn.State())
		}
	}
}
