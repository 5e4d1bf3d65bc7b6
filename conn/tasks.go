package conn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// A task is work the loop has begun on another goroutine. It posts an event that
// names it, and ends.
type task struct {
	name   string
	cancel context.CancelCauseFunc
	ended  atomic.Bool
}

// tasks is what runs. The loop alone touches it, but for end.
type tasks struct {
	running map[*task]struct{}
	over    atomic.Pointer[chan struct{}] // capacity one: a token after a task has ended; nil while nobody awaits it
}

func (t *tasks) add(name string, cancel context.CancelCauseFunc) *task {
	added := &task{name: name, cancel: cancel}
	t.enter(added)
	return added
}

func (t *tasks) enter(added *task) {
	if t.running == nil {
		t.running = make(map[*task]struct{})
	}
	t.running[added] = struct{}{}
}

// end is the last deed of a task's goroutine.
func (t *tasks) end(over *task) {
	over.ended.Store(true)
	awaited := t.over.Load()
	if awaited == nil {
		return
	}
	select {
	case *awaited <- struct{}{}:
	default: // there is a token already
	}
}

// await waits for all of them when no loop does any more, for at most the grace.
func (t *tasks) await(grace time.Duration) {
	patience := time.NewTimer(grace)
	defer patience.Stop()
	over := make(chan struct{}, 1)
	t.over.Store(&over)
	for {
		maps.DeleteFunc(t.running, func(task *task, _ struct{}) bool { return task.ended.Load() })
		if len(t.running) == 0 {
			return
		}
		select {
		case <-over:
		case <-patience.C:
			return
		}
	}
}

func (t *tasks) remove(over *task) { delete(t.running, over) }

// rest gives up what only work needs, when none is in sight.
func (t *tasks) rest() {
	if len(t.running) == 0 {
		t.running = nil
	}
}

// cancel ends the contexts of all that runs.
func (t *tasks) cancel(why error) {
	for running := range t.running {
		running.cancel(why)
	}
}

func (t *tasks) count() int { return len(t.running) }

func (t *tasks) names() []string {
	var names []string
	for running := range t.running {
		names = append(names, running.name)
	}
	slices.Sort(names)
	return names
}

// A running incarnation is a link and the context of everything that runs for it.
type running struct {
	epoch  uint64
	ctx    context.Context
	cancel context.CancelCauseFunc
	link   transport.Link // nil until attached
}

// cancelAll ends the contexts of everything that runs for the incarnation.
func (l *loop) cancelAll(why error) {
	if l.inc != nil {
		l.inc.cancel(why)
	}
	l.tasks.cancel(why)
}

// open asks the transport for a link.
func (l *loop) open(epoch uint64) {
	inc := l.incarnate(epoch)
	c, opening := l.conn, l.tasks.add("opening a link", inc.cancel)
	go func() {
		defer l.tasks.end(opening)
		ev := event{kind: linkOpened, epoch: epoch, task: opening}
		err := guard(func() (err error) {
			ev.link, err = c.transport.Open(inc.ctx)
			if hearing, ok := ev.link.(transport.Hearing); ok && err == nil {
				_, ev.counted = hearing.Heard()
			}
			return err
		})
		if err != nil {
			if ev.link != nil {
				closeUnwanted(ev.link)
			}
			ev.kind, ev.link, ev.reason, ev.random = openFailed, nil, openReason(err), random()
			ev.timeout = askedDelay(err)
		}
		if !c.mailbox.post(ev) && ev.link != nil {
			closeUnwanted(ev.link)
		}
	}()
}

func (l *loop) incarnate(epoch uint64) *running {
	l.inc = &running{epoch: epoch}
	l.inc.ctx, l.inc.cancel = context.WithCancelCause(l.ctx)
	return l.inc
}

// bind attaches the link: from here on its events come in.
func (l *loop) bind(link transport.Link, epoch uint64) {
	if l.inc == nil { // an acceptor's
		l.incarnate(epoch)
	}
	l.inc.link = link
	l.hearing, _ = link.(transport.Hearing)
	l.hears()
	link.Bind(&receiver{conn: l.conn, epoch: epoch, dialect: l.core.dialect})
}

// handshake runs the strategy that makes the link ready.
func (l *loop) handshake(epoch uint64) {
	c, ctx := l.conn, l.inc.ctx
	shaking := l.tasks.add("handshake", l.inc.cancel)
	go func() {
		defer l.tasks.end(shaking)
		ev := event{kind: handshakeDone, epoch: epoch, task: shaking}
		err := guard(func() error {
			if c.options.Handshake == nil {
				return nil
			}
			return c.options.Handshake(ctx, &Incarnation{conn: c, epoch: epoch})
		})
		if err != nil {
			ev.kind, ev.reason, ev.random = handshakeFailed, handshakeReason(err), random()
			ev.timeout = askedDelay(err)
		}
		c.mailbox.post(ev)
	}()
}

// closeLink closes the link of an incarnation, or one that was never attached.
func (l *loop) closeLink(epoch uint64, link transport.Link, grace time.Duration) {
	if link == nil && l.inc != nil && l.inc.epoch == epoch {
		link = l.inc.link
	}
	if link == nil {
		return
	}
	c, closing := l.conn, l.tasks.add("closing the link", func(error) {})
	go func() {
		defer l.tasks.end(closing)
		err := guard(func() error { return link.Close(grace) })
		c.mailbox.post(event{kind: linkGone, epoch: epoch, task: closing, err: err})
	}()
}

// serve runs the handler of a request: on a goroutine of its own or, where the
// turns have none, on that of this turn once it is over.
func (l *loop) serve(in *Incoming) {
	ctx, cancel := context.WithCancelCause(l.ctx) // the incarnation's would remember for good that it had children
	in.serving = task{name: in.Method, cancel: cancel}
	in.task = &in.serving
	l.tasks.enter(in.task)
	if l.stay == nil && l.next == nil {
		l.next = func() (first bool) { return l.handle(ctx, in) }
		return
	}
	go func() {
		if l.handle(ctx, in) {
			l.conn.mailbox.goOn()
		}
	}()
}

// handle reports whether it has added the first event since the loop was idle.
func (l *loop) handle(ctx context.Context, in *Incoming) (first bool) {
	growStack(0)
	var reply []byte
	defer func() {
		if reply == nil { // runtime.Goexit: this goroutine ends, and the loop is told all the same
			l.conn.mailbox.post(l.over(in, jsonrpc.AppendError(nil, in.key.id, asFault(errExited))))
		}
	}()
	reply = l.conn.answer(ctx, in)
	ev := l.over(in, reply)
	_, first = l.conn.mailbox.add(&ev)
	return first
}

// errExited is what the peer is told of a handler that has ended its goroutine.
var errExited = errors.New("the handler has not returned")

// over is the end of a handler.
func (l *loop) over(in *Incoming, reply []byte) event {
	in.task.cancel(nil)
	l.tasks.end(in.task)
	out := outboundFrame{stream: in.key.stream, reply: true, answers: in.key.id, frame: reply}
	return event{kind: handled, epoch: in.Epoch, incoming: in, out: out, task: in.task}
}

// growStack makes room at once for what nearly every handler needs. The stack of
// its new goroutine would else be copied again and again while it decodes, which
// takes a fourth of a short call.
//
//go:noinline
func growStack(at uint8) byte {
	var room [5 << 10]byte
	room[at] = 1 // what is not used is not made room for
	return room[at/2]
}

func (l *loop) workAlone(work func() (first bool)) {
	if work() {
		l.conn.mailbox.goOn()
	}
}

// servedBy is the context key under which a handler finds the Conn it serves.
type servedBy struct{}

// serves reports whether ctx is that of one of this Conn's handlers.
func (c *Conn) serves(ctx context.Context) bool { return ctx.Value(servedBy{}) == c }

// answer runs the handler and encodes its reply.
func (c *Conn) answer(ctx context.Context, in *Incoming) []byte {
	var result []byte
	err := guard(func() (err error) { result, err = c.options.Handler.ServeRequest(ctx, in); return err })
	if err != nil {
		c.reportPanic(in.Method, err)
		return jsonrpc.AppendError(nil, in.key.id, asFault(err))
	}
	if result == nil {
		result = []byte("null")
	}
	return jsonrpc.AppendResult(nil, in.key.id, result)
}

// reportPanic tells the hooks of a panic in code that was handed in.
func (c *Conn) reportPanic(where string, err error) {
	if told, ok := c.panicked(where, err); ok && c.options.Hooks.Panic != nil {
		c.tell(func() { c.options.Hooks.Panic(told) })
	}
}

// reportPanic is that of the Conn, off the goroutine that panicked.
func (l *loop) reportPanic(where string, err error) {
	if told, ok := l.conn.panicked(where, err); ok {
		tell(l, l.conn.options.Hooks.Panic, told)
	}
}

// panicked is what is told of a panic, if the error is one.
func (c *Conn) panicked(where string, err error) (told telemetry.Panic, ok bool) {
	panicked, ok := err.(*PanicError)
	if !ok {
		return told, false
	}
	return telemetry.Panic{Conn: c.options.Name, Where: where, Value: panicked.Value, Stack: panicked.Stack}, true
}

// deliver puts a notification before the handler, off the loop.
func (l *loop) deliver(in *Incoming) {
	l.received(in)
	shed, many := l.conn.notices.add(notice{in, l.inc.ctx})
	for _, gone := range shed {
		l.shed(gone.Method)
	}
	l.crowded = l.crowded || many
}

// handle runs the handler of a notification.
func (c *Conn) handle(n notice) {
	err := guard(func() error { c.options.Handler.ServeNotification(n.ctx, n.Incoming); return nil })
	c.reportPanic(n.Method, err)
}

// shed counts a notification that was dropped, and tells the hooks.
func (l *loop) shed(method string) {
	c := l.conn
	c.counters.shed.Add(1)
	tell(l, c.options.Hooks.Shed, telemetry.Shed{Conn: c.options.Name, Method: method})
}

// guard runs code that was handed in, and turns its panic into an error.
func guard(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return f()
}

// asFault is what the peer is told of a handler's error. The text of a panic
// stays here.
func asFault(err error) *jsonrpc.Error {
	var fault *jsonrpc.Error
	switch {
	case errors.As(err, &fault):
		return fault
	case errors.As(err, new(*PanicError)):
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error"}
	default:
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprint(err)}
	}
}
