package conn

import (
	"context"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// serve runs the handler of a request: on a goroutine of its own or, where the
// turns have none, on that of this turn once it is over.
func (l *loop) serve(in *Incoming) {
	ctx, cancel := context.WithCancelCause(withValues(l.ctx, in.Origin)) // the incarnation's would remember for good that it had children
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
			l.conn.mailbox.post(l.over(in, l.conn.refusal(in, exited())))
		}
	}()
	reply = l.conn.answer(ctx, in)
	ev := l.over(in, reply)
	_, first = l.conn.mailbox.add(&ev)
	return first
}

// over is the end of a handler.
func (l *loop) over(in *Incoming, reply []byte) event {
	in.task.cancel(nil)
	l.tasks.end(in.task)
	out := outboundFrame{stream: in.key.stream, reply: true, answers: in.key.id, frame: reply, route: &in.reply}
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

// withValues adds the values of the HTTP request that brought a message. The
// parent's own values come first: those by which package context finds the
// parent's cancellation are among them.
func withValues(parent context.Context, from *transport.Origin) context.Context {
	if from == nil || from.Value == nil {
		return parent
	}
	return requestContext{parent, from.Value}
}

type requestContext struct {
	context.Context
	request func(key any) any
}

func (c requestContext) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.request(key)
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
		return c.refusal(in, err)
	}
	if result == nil {
		result = []byte("null")
	}
	in.reply = transport.Route{Kind: jsonrpc.KindResult, ID: in.key.id}
	return jsonrpc.AppendResult(nil, in.key.id, result)
}

// refusal is the reply to a request whose handler has failed.
func (c *Conn) refusal(in *Incoming, err error) []byte {
	c.reportPanic(in.Method, err)
	fault := asFault(err)
	in.reply = transport.Route{Kind: jsonrpc.KindError, ID: in.key.id, Code: fault.Code}
	return jsonrpc.AppendError(nil, in.key.id, fault)
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
