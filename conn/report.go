package conn

import (
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/conn/internal/hookqueue"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// reportPanic does what that of the record does, but lets the hook queue report the panic.
func (l *loop) reportPanic(where string, err error) {
	if panicked := asPanic(err); panicked != nil {
		l.reporter().reportPanic(where, panicked, l.queue)
	}
}

// queue adds a call to the hook queue. If too many wait, the event is lost. Besides the loop, the
// goroutine that reads from the link may call queue. The loop must never wait for a hook, however
// slow it is.
func (l *loop) queue(call func()) {
	if !l.hookQueue().Submit(call) {
		l.counters.droppedEvents.Add(1)
	}
}

func (l *loop) hookQueue() *hookQueue {
	if l.hooks.Load() == nil {
		l.hooks.CompareAndSwap(nil, &hookQueue{Queue: hookqueue.Queue{Make: l.reporter().tell}})
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

// report counts an irregularity and tells the hooks. What is counted here is counted even if its
// event is lost.
func (l *loop) report(fx *effect) {
	hooks := &l.options.Hooks
	reply := telemetry.Reply{Conn: l.own.name, Epoch: fx.epoch, ID: fx.id, Cause: fx.cause.String()}
	stalled := telemetry.Stalled{Conn: l.own.name, Epoch: fx.epoch, Why: fx.stall.String()}
	switch fx.kind {
	case late:
		l.counters.late.Add(1)
		tell(l, hooks.LateReply, reply)
	case unknown:
		l.counters.unknown.Add(1)
		tell(l, hooks.UnknownReply, reply)
	case missed:
		tell(l, hooks.Missed, telemetry.Missed{Conn: l.own.name, Epoch: fx.epoch, InRow: fx.frames})
	case stallBegun:
		l.counters.stalls.Add(1)
		l.counters.stall.Store(uint32(fx.stall))
		stalled.Since = time.Now()
		tell(l, hooks.Stalled, stalled)
	case stallEnded:
		l.counters.stall.Store(0)
		stalled.Since, stalled.Over, stalled.Duration = time.Now().Add(-fx.at), true, fx.at
		tell(l, hooks.Stalled, stalled)
	default:
		l.counters.malformed.Add(1)
		l.reportViolation(fx)
	}
}

// reportViolation tells the hook and the log of a frame that was no message.
func (l *loop) reportViolation(fx *effect) {
	hook := l.options.Hooks.Violation
	log := l.reporter().log(hook != nil)
	if log != nil && !l.hookQueue().violations.mayLog(l.now()) {
		log = nil
	}
	if hook == nil && log == nil {
		return
	}
	e := telemetry.Violation{Conn: l.own.name, Epoch: fx.epoch, Reason: telemetry.ViolationNoMessage, Shape: "unknown", Size: fx.frames, Err: fx.err}
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

// received tells the hooks of a notification for the handler.
func (l *loop) received(in *Incoming) {
	if hook := l.options.Hooks.NotificationReceived; hook != nil {
		tell(l, hook, telemetry.NotificationReceived{Conn: l.own.name, Epoch: in.Epoch, Method: in.Method, Size: len(in.Params)})
	}
}

// shed counts a notification that was dropped, and tells the hooks.
func (l *loop) shed(method string) {
	l.counters.shed.Add(1)
	tell(l, l.options.Hooks.Shed, telemetry.Shed{Conn: l.own.name, Method: method})
}

// countLost counts a call that ends because of the loss that began the gap.
// Notifications have no id and are not counted.
func (l *loop) countLost(id int64, cause Cause) {
	if gap := l.gap; gap != nil && id != 0 && cause == LinkLost && gap.lost == l.core.epoch {
		gap.calls++
	}
}

// endGap tells the hooks that the Conn is ready again.
func (l *loop) endGap(epoch uint64, now time.Time) {
	over := telemetry.Gap{
		Conn: l.own.name, Lost: l.gap.lost, Epoch: epoch, Kind: string(l.gap.why.Kind), Reason: l.gap.why,
		Calls: l.gap.calls, Duration: now.Sub(l.gap.since),
	}
	l.gap = nil
	tell(l, l.options.Hooks.Gap, over)
	l.logBack(over)
}

// logBack logs that the Conn is ready again, after the warnings of logFailure.
func (l *loop) logBack(over telemetry.Gap) {
	hooks := &l.options.Hooks
	if log := l.reporter().log(hooks.Gap != nil || hooks.Transition != nil); log != nil {
		l.queue(func() { log.Info("bowline: "+over.String(), named(over.Conn)) })
	}
}

// reportStuck tells the hooks once of a handler that does not return, and the log of
// the first one.
func (l *loop) reportStuck(in *Incoming) {
	if in.stuck {
		return
	}
	in.stuck = true
	l.tellStuck(in)
	hook := l.options.Hooks.Stuck
	e := telemetry.Stuck{Conn: l.own.name, Epoch: in.Epoch, Method: in.Method, Name: in.Target()}
	tell(l, hook, e)
	if log := l.reporter().log(hook != nil); log != nil && !l.stuckLogged {
		l.stuckLogged = true
		l.queue(func() { logStuck(log, e) })
	}
}

// logFailure logs that the Conn waits for its next attempt to connect. If a login is
// missing, it logs only once, because the next attempts fail in the same way until somebody
// logs in.
func (l *loop) logFailure(from State, why Reason, next time.Time) {
	told := l.wantsLogin && from != Ready
	if l.wantsLogin = why.Kind == AuthRequired; l.wantsLogin && told {
		return
	}
	log := l.reporter().log(l.options.Hooks.Transition != nil)
	if log == nil {
		return
	}
	message := "bowline: connecting failed"
	if from == Ready {
		message = "bowline: connection lost"
	}
	name := l.own.name
	l.queue(func() {
		log.Warn(message, named(name), "reason", shorten(why.Error()), "next", next.Round(time.Millisecond))
	})
}

// guarded recovers the panics of a Dialect. Otherwise they would end the loop, or the
// goroutine that reads from the link.
type guarded struct{ loop *loop }

func (g guarded) dialect() Dialect { return g.loop.own.dialect }

func (g guarded) Classify(m jsonrpc.Message) (class Class) {
	g.loop.reportPanic("Dialect.Classify", guard(func() error { class = g.dialect().Classify(m); return nil }))
	return class
}

func (g guarded) Cancel(id jsonrpc.ID, why error) (m Message) {
	g.loop.reportPanic("Dialect.Cancel", guard(func() error { m = g.dialect().Cancel(id, why); return nil }))
	return m
}

func (g guarded) Probe() (m Message) {
	g.loop.reportPanic("Dialect.Probe", guard(func() error { m = g.dialect().Probe(); return nil }))
	return m
}

func (g guarded) Batches() (may bool) {
	g.loop.reportPanic("Dialect.Batches", guard(func() error { may = g.dialect().Batches(); return nil }))
	return may
}

// Awaits implements Awaiting for every Dialect.
func (g guarded) Awaits() (waits bool) {
	if awaiting, ok := g.dialect().(Awaiting); ok {
		g.loop.reportPanic("Dialect.Awaits", guard(func() error { waits = awaiting.Awaits(); return nil }))
	}
	return waits
}

// Version implements Versioned for every Dialect.
func (g guarded) Version() (version string) {
	if versioned, ok := g.dialect().(Versioned); ok {
		g.loop.reportPanic("Dialect.Version", guard(func() error { version = versioned.Version(); return nil }))
	}
	return version
}
