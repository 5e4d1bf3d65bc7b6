package conn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/internal/ondemand"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// A reporter calls the hooks of a Conn and writes to its log.
type reporter struct {
	options  *Tuning
	name     string // the name of the Conn
	counters *counters
}

func (c *Conn) reporter() reporter { return reporter{c.options, c.own.name, &c.counters} }

// tell calls a hook on this goroutine. If the hook panics, it loses that event.
func (r reporter) tell(hook func()) {
	defer func() {
		if recover() != nil {
			r.counters.droppedEvents.Add(1)
		}
	}()
	hook()
}

// log returns where to log what a hook may take as well, or nil.
func (r reporter) log(hooked bool) *slog.Logger {
	if r.options.Log != nil || hooked {
		return r.options.Log
	}
	return slog.Default()
}

// reportPanic tells the hook and the log of a panic in code of the program. It passes
// each of the two calls to tell.
func (r reporter) reportPanic(where string, panicked *PanicError, tell func(func())) {
	e := telemetry.Panic{Conn: r.name, Where: where, Value: panicked.Value, Stack: panicked.Stack}
	hook := r.options.Hooks.Panic
	if hook != nil {
		tell(func() { hook(e) })
	}
	if log := r.log(hook != nil); log != nil {
		tell(func() { logPanic(log, e) })
	}
}

// tellServed tells the hook and the Auditor that the handler of a request from the peer has
// returned.
func (c *Conn) tellServed(request served, began, ended instant, err error) {
	in := request.Incoming
	event := telemetry.ServeStopped{
		Conn: c.own.name, Epoch: in.Epoch, Method: in.Method, Target: in.label,
		Queued: began - in.received, Duration: ended - began, Err: err,
	}
	switch ctx := request.ctx; {
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrDraining): // a request that ends because of a drain is still answered
		event.Outcome = telemetry.ServeCancelled
	case err == nil:
		event.Outcome = telemetry.ServeAnswered
	case errors.As(err, new(*PanicError)):
		event.Outcome, event.Code = telemetry.ServePanicked, in.failure
	default:
		event.Outcome, event.Code = telemetry.ServeFailed, in.failure
	}
	if hook := c.options.Hooks.ServeStopped; hook != nil && !in.Implied {
		c.reporter().tell(func() { hook(request.ctx, event) })
	}
	c.tellAuditor(request.ctx, in, event)
}

// ReportPanic does what that of a Conn does, for a panic in a callback that no Conn has to do with.
func (t *Tuning) ReportPanic(where string, panicked *PanicError) {
	r := reporter{t, t.Name, new(counters)}
	r.reportPanic(where, panicked, r.tell)
}

// reportPanic reports the error of code of the program, if it is a panic, on this
// goroutine.
func (c *Conn) reportPanic(where string, err error) {
	if panicked := asPanic(err); panicked != nil {
		r := c.reporter()
		r.reportPanic(where, panicked, r.tell)
	}
}

// reportPanic does what that of Conn does, but lets the hook queue report the panic.
func (l *loop) reportPanic(where string, err error) {
	if panicked := asPanic(err); panicked != nil {
		l.conn.reporter().reportPanic(where, panicked, l.queue)
	}
}

// asPanic returns the panic that an error is, or nil.
func asPanic(err error) *PanicError {
	panicked, _ := err.(*PanicError) //nolint:errorlint // a wrapped panic was already reported where it happened
	return panicked
}

// A hookQueue holds calls of the hooks of a Conn. It makes them one at a time, in order, on
// a goroutine beside the loop.
type hookQueue struct {
	ondemand.Worker
	reporter reporter
	waiting  []func()

	violations violations // only the loop uses it
}

// maxHookEvents is how many events wait for slow hooks.
const maxHookEvents = 1024

// submit adds the call of a hook, or reports false when too many wait.
func (q *hookQueue) submit(call func()) bool {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if len(q.waiting) >= maxHookEvents {
		return false
	}
	q.waiting = append(q.waiting, call)
	q.Start(q.callNext)
	return true
}

func (q *hookQueue) callNext() (more bool) {
	call := q.next()
	if call != nil {
		q.reporter.tell(call)
	}
	return call != nil
}

func (q *hookQueue) next() func() {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if len(q.waiting) == 0 {
		q.waiting = nil
		q.End()
		return nil
	}
	next := q.waiting[0]
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	q.Begin()
	return next
}

// settle waits until no hook runs, for at most the grace. If that is too short, it
// drops the calls that wait. If a call is still running then, settle waits until
// it has run for the grace, and reports false if it has not returned by then.
func (q *hookQueue) settle(grace time.Duration) bool {
	if q.Await(grace) {
		return true
	}
	q.Mu.Lock()
	q.waiting = nil
	q.Mu.Unlock()
	return q.AwaitLast(grace)
}

// queue adds a call to the hook queue. If too many wait, the event is lost. Besides the loop,
// the goroutine that reads from the link may call queue.
func (l *loop) queue(call func()) {
	if !l.hookQueue().submit(call) {
		l.conn.counters.droppedEvents.Add(1)
	}
}

func (l *loop) hookQueue() *hookQueue {
	if l.hooks.Load() == nil {
		l.hooks.CompareAndSwap(nil, &hookQueue{reporter: l.conn.reporter()})
	}
	return l.hooks.Load()
}

// tell queues an event for a hook, if there is one.
func tell[E any](l *loop, hook func(E), e E) {
	if hook != nil {
		queueEvent(l, hook, e)
	}
}

// queueEvent is not part of tell, which would then allocate even if there is no hook.
func queueEvent[E any](l *loop, hook func(E), e E) { l.queue(func() { hook(e) }) }

// report counts an irregularity and tells the hooks.
func (l *loop) report(fx *effect) {
	c, hooks := l.conn, &l.conn.options.Hooks
	reply := telemetry.Reply{Conn: c.own.name, Epoch: fx.epoch, ID: fx.id, Cause: fx.cause.String()}
	stalled := telemetry.Stalled{Conn: c.own.name, Epoch: fx.epoch, Why: fx.stall.String()}
	switch fx.kind {
	case late:
		c.counters.late.Add(1)
		tell(l, hooks.LateReply, reply)
	case unknown:
		c.counters.unknown.Add(1)
		tell(l, hooks.UnknownReply, reply)
	case missed:
		tell(l, hooks.Missed, telemetry.Missed{Conn: c.own.name, Epoch: fx.epoch, InRow: fx.frames})
	case stallBegun:
		c.counters.stalls.Add(1)
		c.counters.stall.Store(uint32(fx.stall))
		stalled.Since = time.Now()
		tell(l, hooks.Stalled, stalled)
	case stallEnded:
		c.counters.stall.Store(0)
		stalled.Since, stalled.Over, stalled.Duration = time.Now().Add(-fx.at), true, fx.at
		tell(l, hooks.Stalled, stalled)
	default:
		c.counters.malformed.Add(1)
		l.reportViolation(fx)
	}
}

// reportViolation tells the hook and the log of a frame that was no message.
func (l *loop) reportViolation(fx *effect) {
	hook := l.conn.options.Hooks.Violation
	log := l.conn.reporter().log(hook != nil)
	if log != nil && !l.hookQueue().violations.mayLog(l.conn.now()) {
		log = nil
	}
	if hook == nil && log == nil {
		return
	}
	e := telemetry.Violation{Conn: l.conn.own.name, Epoch: fx.epoch, Reason: telemetry.ViolationNoMessage, Shape: "unknown", Size: fx.frames, Err: fx.err}
	var refused *jsonrpc.DecodeError
	if errors.As(fx.err, &refused) {
		if refused.Kind != 0 {
			e.Shape = refused.Kind.String()
		}
		if refused.Code == jsonrpc.CodeParseError {
			e.Reason = telemetry.ViolationNotJSON
		}
	}
	var oversized *transport.OversizedError
	switch {
	case errors.As(fx.err, &oversized):
		e.Reason, e.Size = telemetry.ViolationOversized, oversized.Size
	case errors.Is(fx.err, jsonrpc.ErrTooDeep):
		e.Reason = telemetry.ViolationTooDeep
	case errors.Is(fx.err, jsonrpc.ErrTooManyValues):
		e.Reason = telemetry.ViolationTooMany
	case errors.Is(fx.err, jsonrpc.ErrBatch):
		e.Reason = telemetry.ViolationBatch
	}
	tell(l, hook, e)
	if log != nil {
		unlogged := l.hookQueue().violations.take()
		l.queue(func() { logViolation(log, e, unlogged) })
	}
}

// violations limits how many frames that were no messages are logged.
type violations struct {
	next     instant // when the next one may be logged
	unlogged int     // how many were not, since the last that was
}

// betweenViolations is the time between two frames that are logged. A child that prints its
// log to standard output would otherwise fill that of the program.
const betweenViolations = 10 * time.Second

// mayLog reports whether to log a frame that was no message, and counts it if not.
func (v *violations) mayLog(now instant) bool {
	if now < v.next {
		v.unlogged++
		return false
	}
	v.next = now + betweenViolations
	return true
}

// take returns how many were not logged, and forgets that.
func (v *violations) take() (unlogged int) {
	unlogged, v.unlogged = v.unlogged, 0
	return unlogged
}

func logViolation(log *slog.Logger, e telemetry.Violation, unlogged int) {
	more := slog.Attr{}
	if unlogged > 0 {
		more = slog.Int("unlogged", unlogged)
	}
	log.Warn("bowline: a frame is no valid message", named(e.Conn), "direction", "received", "reason", string(e.Reason),
		"shape", e.Shape, "size", e.Size, "error", shorten(e.Err.Error()), more)
}

// received tells the hooks of a notification for the handler.
func (l *loop) received(in *Incoming) {
	if hook := l.conn.options.Hooks.NotificationReceived; hook != nil {
		tell(l, hook, telemetry.NotificationReceived{Conn: l.conn.own.name, Epoch: in.Epoch, Method: in.Method, Size: len(in.Params)})
	}
}

// shed counts a notification that was dropped, and tells the hooks.
func (l *loop) shed(method string) {
	c := l.conn
	c.counters.shed.Add(1)
	tell(l, c.options.Hooks.Shed, telemetry.Shed{Conn: c.own.name, Method: method})
}

// A gap is the time from the loss of a ready incarnation until the next is ready.
type gap struct {
	lost  uint64 // the incarnation that was lost
	why   Reason
	since time.Time
	calls int // how many calls ended with the loss
}

// countLost counts a call that ends because of the loss that began the gap.
// Notifications have no id and are not counted.
func (l *loop) countLost(id int64, cause Cause) {
	if gap := l.conn.gap; gap != nil && id != 0 && cause == LinkLost && gap.lost == l.core.epoch {
		gap.calls++
	}
}

// endGap tells the hooks that the Conn is ready again.
func (l *loop) endGap(epoch uint64, now time.Time) {
	c := l.conn
	over := telemetry.Gap{
		Conn: c.own.name, Lost: c.gap.lost, Epoch: epoch, Kind: string(c.gap.why.Kind), Reason: c.gap.why,
		Calls: c.gap.calls, Duration: now.Sub(c.gap.since),
	}
	c.gap = nil
	tell(l, c.options.Hooks.Gap, over)
	l.logBack(over)
}

// logBack logs that the Conn is ready again, after the warnings of logFailure.
func (l *loop) logBack(over telemetry.Gap) {
	hooks := &l.conn.options.Hooks
	if log := l.conn.reporter().log(hooks.Gap != nil || hooks.Transition != nil); log != nil {
		l.queue(func() { log.Info("bowline: "+over.String(), named(over.Conn)) })
	}
}

func logPanic(log *slog.Logger, e telemetry.Panic) {
	log.Error("bowline: panic", named(e.Conn), "where", e.Where, "panic", shorten(fmt.Sprint(e.Value)), "stack", string(e.Stack))
}

// reportStuck tells the hooks once of a handler that does not return, and the log of
// the first one.
func (l *loop) reportStuck(in *Incoming) {
	if in.stuck {
		return
	}
	in.stuck = true
	l.conn.tellStuck(in)
	hook := l.conn.options.Hooks.Stuck
	e := telemetry.Stuck{Conn: l.conn.own.name, Epoch: in.Epoch, Method: in.Method, Name: in.Target()}
	tell(l, hook, e)
	if log := l.conn.reporter().log(hook != nil); log != nil && !l.stuckLogged {
		l.stuckLogged = true
		l.queue(func() { logStuck(log, e) })
	}
}

func logStuck(log *slog.Logger, e telemetry.Stuck) {
	name := slog.Attr{}
	if e.Name != "" {
		name = slog.String("name", shorten(e.Name))
	}
	log.Warn("bowline: a handler goes on although its context has ended", named(e.Conn), "method", shorten(e.Method), name)
}

// logFailure logs that the Conn waits for its next attempt to connect. If a login is
// missing, it logs only once, because the next attempts fail in the same way until somebody
// logs in.
func (l *loop) logFailure(from State, why Reason, next time.Time) {
	told := l.wantsLogin && from != Ready
	if l.wantsLogin = why.Kind == AuthRequired; l.wantsLogin && told {
		return
	}
	log := l.conn.reporter().log(l.conn.options.Hooks.Transition != nil)
	if log == nil {
		return
	}
	message := "bowline: connecting failed"
	if from == Ready {
		message = "bowline: connection lost"
	}
	name := l.conn.own.name
	l.queue(func() {
		log.Warn(message, named(name), "reason", shorten(why.Error()), "next", next.Round(time.Millisecond))
	})
}

// named is the attribute that names a connection; a connection without a name has
// none.
func named(conn string) slog.Attr {
	if conn == "" {
		return slog.Attr{}
	}
	return slog.String("conn", conn)
}

// shorten cuts a text that may come from a peer.
func shorten(text string) string {
	const most = 1024
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
