package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A served is a request, the loop that serves it, and the context of its handler.
type served struct {
	*Incoming
	loop *loop
	ctx  context.Context
}

// serve gives a request to a waiting worker, or to a new one. Its handler must start before startBy;
// 0: at any time.
func (l *loop) serve(in *Incoming, startBy instant) {
	if in.immediate {
		l.serveNow(in)
		return
	}
	ctx, cancel := context.WithCancelCause(withValues(l.served, in.Origin)) // not a child of the incarnation's context, which would keep a map of its children until its end
	in.serving, in.startBy = task{name: in.Method, cancel: cancel, serves: in}, startBy
	l.tasks.add(&in.serving)
	if l.buffers.pace.isAtMost(l.buffers.keepUpTo) && l.buffers.kept.Incoming == nil && !in.exclusive && !in.streaming {
		l.buffers.kept = served{in, l, ctx}
		return
	}
	if in.worker = l.conn.options.Wheel.workers.take(); in.worker == nil {
		in.worker = &worker{requests: make(chan served, 1)}
		go in.worker.serveAll()
	}
	in.worker.requests <- served{in, l, ctx} // the channel has room, because the worker is idle
}

// serveNow runs the handler of an Immediate request in the loop itself. The core gets the
// answer in the same step.
func (l *loop) serveNow(in *Incoming) {
	in.serving = task{name: in.Method, cancel: func(error) {}, serves: in} // nothing can cancel the handler before it returns
	request := served{in, l, withValues(l.served, in.Origin)}
	reply := request.answer()
	in.letGo()
	l.buffers.follow(event{kind: handled, epoch: in.Epoch, incoming: in, payload: reply})
}

// serveOne runs a handler if that is still wanted, and lends this goroutine to the loop for the answer.
// It reports false if the loop has ended.
func (l *loop) serveOne(request served) bool {
	began := l.conn.now()
	if why := request.unwanted(began); why != nil {
		l.conn.tellUnserved(request.Incoming, why)
		return l.handled(request.Incoming, began, request.refusal(why))
	}
	returned := false
	defer func() {
		if !returned {
			request.endWithoutAnswer(began)
		}
	}()
	reply := request.answer()
	returned = true
	return l.handled(request.Incoming, began, reply)
}

// unwanted returns why the handler must not start any more, or nil.
func (s *served) unwanted(now instant) error {
	switch {
	case s.ctx.Err() != nil && !errors.Is(context.Cause(s.ctx), ErrDraining): // only a stream ends so: its handler answers
		return context.Cause(s.ctx)
	case passed(now, s.startBy):
		return errTooLate(s.loop.conn.options.Patience)
	default:
		return nil
	}
}

// handled lends this goroutine to the loop for the answer of a handler. It is a function of
// its own, so that the event takes no stack while the handler runs.
//
//go:noinline
func (l *loop) handled(in *Incoming, began instant, reply []byte) bool {
	in.took = l.conn.now() - began
	in.serving.cancel(nil)
	in.letGo()
	return l.lend(&event{kind: handled, epoch: in.Epoch, incoming: in, payload: reply, task: &in.serving})
}

// errGoexit answers a request whose handler has ended its goroutine, as t.FailNow does.
var errGoexit = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error: the handler has ended its goroutine"}

// endWithoutAnswer answers for a handler that has called runtime.Goexit. This goroutine is
// about to end, so it neither works for the loop nor serves another request.
func (s *served) endWithoutAnswer(began instant) {
	in, l := s.Incoming, s.loop
	reply := s.refusal(errGoexit)
	in.worker, in.took = nil, l.conn.now()-began
	if l.conn.timesRequests() {
		l.conn.tellServed(*s, began, began+in.took, errGoexit)
	}
	in.serving.cancel(nil)
	in.letGo()
	l.mailbox.post(event{kind: handled, epoch: in.Epoch, incoming: in, payload: reply, task: &in.serving})
}

// answer runs the handler, and returns the frame of its answer.
func (s *served) answer() []byte {
	if s.loop.conn.timesRequests() {
		return s.answerAndTell()
	}
	reply, _ := s.encodeAnswer()
	return reply
}

// answerAndTell does what answer does, and tells Hooks.ServeStopped and the Auditor. It is a
// separate function, so that a handler without them needs less stack.
func (s *served) answerAndTell() []byte {
	c := s.loop.conn
	began := c.now()
	reply, err := s.encodeAnswer()
	c.tellServed(*s, began, c.now(), err)
	return reply
}

// encodeAnswer runs the handler, and returns the frame of its answer and its error.
func (s *served) encodeAnswer() (reply []byte, err error) {
	in := s.Incoming
	err = guard(func() error {
		result, err := s.loop.conn.own.handler.ServeRequest(s.ctx, in)
		switch {
		case err != nil:
			return err
		case in.result != nil && !in.reserve():
			return errDropped
		case in.result != nil:
			reply, err = jsonrpc.AppendResultOf(nil, in.key.id, in.result)
			return err
		default:
			reply = jsonrpc.AppendResult(nil, in.key.id, result)
			return nil
		}
	})
	if err != nil {
		return s.refusal(err), err
	}
	return reply, nil
}

// refusal returns the answer for the error of the handler.
func (s *served) refusal(err error) []byte {
	in := s.Incoming
	s.loop.conn.reportPanic(in.Method, err)
	fault := asFault(err)
	in.failed, in.failure = true, fault.Code
	return jsonrpc.AppendError(nil, in.key.id, fault)
}

// asFault returns the error to send to the peer for the error of a handler. It does
// not reveal the text of a panic.
func asFault(err error) *jsonrpc.Error {
	fault, own := FaultOf(err)
	switch {
	case fault != nil && (own || fault.Code != jsonrpc.CodeOverloaded): // the peer would repeat a request that was executed
		return fault
	case errors.As(err, new(*PanicError)):
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error"}
	default:
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprint(err)}
	}
}

// FaultOf returns the error response that the error of a handler contains, or nil, and whether it
// is the handler's own. Otherwise another peer has answered it to a call of the handler, and its
// code says nothing about the request that is being served. A Conn passes such a response on to
// its peer, except jsonrpc.CodeOverloaded: that becomes an internal error.
func FaultOf(err error) (fault *jsonrpc.Error, own bool) {
	if !errors.As(err, &fault) {
		return nil, false
	}
	return fault, !answersCall(err, fault)
}

// answersCall reports whether a call in the tree of err failed with the response. There may be
// several calls, since a handler may join their errors.
func answersCall(err error, fault *jsonrpc.Error) bool {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself, as errors.As does
	case *CallError:
		var its *jsonrpc.Error
		return errors.As(e.Err, &its) && its == fault
	case interface{ Unwrap() error }:
		return answersCall(e.Unwrap(), fault)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return answersCall(err, fault) })
	default:
		return false
	}
}

// servedBy is the context key under which a handler finds the Conn it serves.
type servedBy struct{}

// A servedContext has the values of a context, but not its end, and the Conn under servedBy.
// It does not refer to the loop, because a handler may keep a context for long.
type servedContext struct {
	values context.Context
	conn   *Conn
}

func newServedContext(ctx context.Context, c *Conn) *servedContext {
	if ctx.Done() != nil { // otherwise it has no end
		ctx = context.WithoutCancel(ctx)
	}
	return &servedContext{ctx, c}
}

func (*servedContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (*servedContext) Done() <-chan struct{}                   { return nil }
func (*servedContext) Err() error                              { return nil }

func (c *servedContext) Value(key any) any {
	if key == (servedBy{}) {
		return c.conn
	}
	return c.values.Value(key)
}

// serves reports whether ctx is that of one of this Conn's handlers.
func (c *Conn) serves(ctx context.Context) bool { return ctx.Value(servedBy{}) == c }

// withValues adds the values of the HTTP request that brought a message. The parent's own
// values take precedence: by one of them, package context finds the parent's cancellation.
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

// A worker is a goroutine that runs one handler after the other. A new goroutine
// for each would grow its stack each time, which costs up to a fourth of a call.
type worker struct{ requests chan served } // capacity one

// serveAll serves requests until the worker is dismissed.
func (w *worker) serveAll() {
	for request := range w.requests {
		if !request.loop.serveOne(request) {
			return // the loop has ended, so nobody will dismiss the worker
		}
	}
}

// workers are the workers that wait for a request of any Conn that shares the Wheel. There
// are none while all its loops are parked.
type workers struct {
	mu    sync.Mutex
	idle  []*worker
	loops int // how many of the loops are not parked
}

// maxIdleWorkers is the maximum number of waiting workers: the default of MaxServing.
const maxIdleWorkers = 128

// take returns the idle worker that has served a request most recently, or nil.
func (w *workers) take() *worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := len(w.idle) - 1
	if last < 0 {
		return nil
	}
	taken := w.idle[last]
	w.idle = w.idle[:last]
	return taken
}

// add adds a worker that has served a request. The loop of that request is not parked.
func (w *workers) add(idle *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.idle) == maxIdleWorkers {
		close(idle.requests)
		return
	}
	w.idle = append(w.idle, idle)
}

// busy notes that a loop has work.
func (w *workers) busy() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loops++
}

// parked notes that a loop has parked or ended. After the last one, it ends the waiting
// workers.
func (w *workers) parked() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.loops--; w.loops > 0 {
		return
	}
	for _, idle := range w.idle {
		close(idle.requests)
	}
	w.idle = nil
}

// A pace is the moving average of how long handlers take. The latest one counts for an
// eighth, so one slow handler has an effect for some dozens of quick ones. It is zero
// only before the first handler.
type pace time.Duration

func (p *pace) note(took time.Duration) {
	if *p == 0 {
		*p = firstPace
	}
	*p += (pace(min(took, time.Second)) - *p) / 8
}

func (p pace) isAtMost(longest pace) bool { return p != 0 && p <= longest }

// If handlers take no longer than quickHandler on average, they run on the goroutine of a
// link that allows it (ADR-0055), since switching to another goroutine costs about as much.
// While further requests wait behind them, which could run at the same time, the limit is
// quickestHandler.
const (
	quickHandler    = pace(100 * time.Microsecond)
	quickestHandler = pace(10 * time.Microsecond)
	firstPace       = pace(time.Millisecond)
)
