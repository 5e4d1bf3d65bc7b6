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

// A harness is one Conn on a transport with faults, and its callers.
type harness struct {
	t              rapid.TB
	o              Options
	faults         *fault.Transport
	outer          *frameLog // what passes between the Conn and the faults
	inner          *frameLog // what passes between the faults and the transport
	conn           *conn.Conn
	runDone        chan struct{} // closed when Run has returned
	runErr         error         // the result of Run
	callers        []*caller
	handshakeCalls atomic.Uint64 // how many calls of handshakes have ended
}

// method is the method of every call.
const method = "echo"

func newHarness(t rapid.TB, o Options, from transport.Transport, plan fault.Plan) *harness {
	h := &harness{t: t, o: o, inner: newFrameLog(), outer: newFrameLog(), runDone: make(chan struct{})}
	h.faults = fault.New(watch(from, h.inner), plan)
	o.Conn.Hooks = telemetry.Tee(o.Conn.Hooks, telemetry.Hooks{RequestStopped: func(_ context.Context, stopped telemetry.RequestStopped) {
		if stopped.Method != method {
			h.handshakeCalls.Add(1)
		}
	}})
	o.Conn.Log = cmp.Or(o.Conn.Log, slog.New(slog.DiscardHandler)) // the Conn fails on purpose thousands of times, so nothing is logged by default
	h.conn = conn.New(watch(h.faults, h.outer), o.Conn)
	go func() {
		defer close(h.runDone)
		h.runErr = h.conn.Run(context.Background())
	}()
	return h
}

// end stops the Conn in any state, and waits for its callers.
func (h *harness) end() {
	h.conn.Stop()
	for _, c := range h.callers {
		c.cancel()
	}
	h.await("the end of Run", h.runDone)
	for _, c := range h.callers {
		h.await("the end of a call", c.done)
	}
}

// waitIdle waits until nothing more can happen without time passing. In real time
// it cannot know that.
func (h *harness) waitIdle() {
	if !h.o.RealTime {
		synctest.Wait()
	}
}

// advance waits for the time d.
func (h *harness) advance(d time.Duration) {
	if d > 0 {
		timer := time.NewTimer(d)
		<-timer.C
	}
	h.waitIdle()
	h.checkNonePending()
}

// patientPlan returns a plan for a call that does not time out.
func (o Options) patientPlan() callPlan { return callPlan{Timeout: 2 * o.guard()} }

// guard returns a time that is longer than anything may take. In virtual time,
// waiting for it takes no time.
func (o Options) guard() time.Duration {
	if o.RealTime {
		return ContractOptions{Guard: o.Guard}.Wait()
	}
	return 24 * time.Hour
}

func (h *harness) await(what string, happened <-chan struct{}) {
	h.t.Helper()
	timeout := time.NewTimer(h.o.guard())
	defer timeout.Stop()
	select {
	case <-happened:
	case <-timeout.C:
		h.fatalf("%s never came", what)
	}
}

// fatalf fails the history, and prints the faults that were injected. They are
// not part of the failure's message, because rapid shrinks a failure only if
// its message stays the same.
func (h *harness) fatalf(format string, args ...any) {
	h.t.Helper()
	h.t.Logf("the Conn is %s (%v), its statistics %+v\nfaults:\n%v",
		h.conn.State(), h.conn.Status().Reason, h.conn.Stats(), h.faults.Log())
	h.t.Fatalf(format, args...)
}

// awaitReady waits for the Conn to be ready.
func (h *harness) awaitReady() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), h.o.guard())
	defer cancel()
	if err := h.conn.AwaitReady(ctx); err != nil {
		h.fatalf("the Conn does not become ready: %v", err)
	}
	h.waitIdle()
}

// A caller is one call and the goroutine that waits for it.
type caller struct {
	callPlan
	params string
	ctx    context.Context
	cancel context.CancelFunc
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
	CancelAfter  time.Duration // when the context of the call is cancelled; 0: never
	WaitForReady bool
}

// call makes a call in the background.
func (h *harness) call(plan callPlan) *caller { return h.callIn(context.Background(), plan) }

// callIn makes a call in a context.
func (h *harness) callIn(ctx context.Context, plan callPlan) *caller {
	c := &caller{callPlan: plan, began: time.Now(), done: make(chan struct{}), params: string(h.o.Params(len(h.callers) + 1))}
	c.ctx, c.cancel = context.WithCancel(ctx)
	h.callers = append(h.callers, c)
	go func() {
		defer close(c.done)
		if plan.CancelAfter > 0 {
			cancelling := time.AfterFunc(plan.CancelAfter, c.cancel)
			defer cancelling.Stop()
		}
		result, err := h.conn.Call(c.ctx, conn.Request{
			Method: method, Params: json.RawMessage(c.params), Version: h.o.Version, Timeout: plan.Timeout, WaitForReady: plan.WaitForReady,
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

func (c *caller) hasReturned() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// finishCalls waits until every call has ended, and checks how.
func (h *harness) finishCalls() {
	h.t.Helper()
	for _, c := range h.callers {
		h.await("the end of call "+c.params, c.done)
	}
	h.waitIdle()
	for _, c := range h.callers {
		h.checkCall(c)
	}
	h.checkNoResend()
	h.checkStats()
}

// checkCall compares the outcome of a call with the frames that have passed.
func (h *harness) checkCall(c *caller) {
	h.t.Helper()
	if c.returns != 1 {
		h.fatalf("call %s returned %d times", c.params, c.returns)
	}
	if c.err == nil {
		if string(c.result) != c.params {
			h.fatalf("call %s got %s, which is the result of another call", c.params, c.result)
		}
		return
	}
	var failed *conn.CallError
	if !errors.As(c.err, &failed) {
		h.fatalf("call %s ended with %T: %v", c.params, c.err, c.err)
	}
	h.checkFailure(c, failed)
}

// unsentFor is longer than a call may wait for a busy link: a link that accepts
// nothing is lost after ten seconds (ADR-0007).
const unsentFor = 15 * time.Second

func (h *harness) checkFailure(c *caller, failed *conn.CallError) {
	h.t.Helper()
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
	passed := h.inner.sendsOf(c.params)
	switch {
	case !isLegal:
		h.fatalf("call %s ended %s and %s", c.params, failed.Cause, failed.Delivery)
	case failed.Cause == conn.PeerError && !h.mayRefuse():
		h.fatalf("the peer refused call %s: %v", c.params, c.err)
	case failed.Delivery == conn.NotSent && len(passed) > 0:
		h.fatalf("call %s was reported as not sent, and was sent on link %d: %v", c.params, passed[0].link, c.err)
	case failed.Delivery == conn.NotSent && !c.WaitForReady && !h.o.RealTime && c.at.Sub(c.began) > unsentFor:
		h.fatalf("call %s waited %v to be sent: %v", c.params, c.at.Sub(c.began), c.err)
	}
	if at, answered := h.outer.answered(failed.ID); answered && !h.o.RealTime && failed.Cause != conn.PeerError && at.Before(c.at) {
		h.fatalf("call %s was answered %v before it ended: %v", c.params, c.at.Sub(at), c.err)
	}
}

// mayRefuse reports whether a fault may have made the peer refuse a call.
func (h *harness) mayRefuse() bool { return len(h.faults.Log()) > 0 }

// checkNoResend checks that every request was passed to one link, once, and
// with its own id.
func (h *harness) checkNoResend() {
	h.t.Helper()
	ids, params := map[int64]string{}, map[string]bool{}
	for _, s := range h.outer.sentRequests() {
		if earlier, taken := ids[s.id]; taken {
			h.fatalf("id %d was used for %s and for %s", s.id, earlier, s.params)
		}
		ids[s.id] = s.params
		if s.method != method {
			continue // a handshake is repeated on every link
		}
		if params[s.params] {
			h.fatalf("request %s was sent twice", s.params)
		}
		params[s.params] = true
	}
}

// checkStats checks that the statistics of the Conn contain the end of every
// call, and every answer. Calls of a handshake may still be in flight.
func (h *harness) checkStats() {
	h.t.Helper()
	ended := uint64(len(h.callers)) + h.handshakeCalls.Load()
	stats := h.conn.Stats()
	if exact := h.o.Conn.Handshake == nil; stats.Ended() < ended || stats.Calls < stats.Ended() || exact && stats.Calls != ended {
		h.fatalf("%d calls have ended, but the Conn has counted %d calls, %d of them as ended", ended, stats.Calls, stats.Ended())
	}
	counted := stats.Settled[conn.Answered][conn.Sent] + stats.Settled[conn.PeerError][conn.Sent] + stats.Late + stats.Unknown
	_, replies, unmatched := h.outer.count()
	if counted > uint64(replies) || !h.o.RealTime && counted < uint64(replies) {
		h.fatalf("%d answers were delivered, and the Conn has counted %d", replies, counted)
	}
	if stats.Unknown > uint64(unmatched) || !h.o.RealTime && stats.Unknown < uint64(unmatched) {
		h.fatalf("%d answers match no request, and the Conn has counted %d as unknown", unmatched, stats.Unknown)
	}
}

// checkNonePending checks that calls end with their incarnation, except
// those that wait for the next one. In real time this cannot be observed.
func (h *harness) checkNonePending() {
	h.t.Helper()
	if state := h.conn.State(); h.o.RealTime || state == conn.Ready || state == conn.Initializing {
		return
	}
	for _, c := range h.callers {
		if !c.hasReturned() && !c.WaitForReady {
			h.fatalf("call %s is pending in %s", c.params, h.conn.State())
		}
	}
}
