package conn

import (
	"context"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

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
		l.buffers.kept = served{in, ctx}
		return
	}
	if in.worker = l.options.Wheel.workers.take(); in.worker == nil {
		in.worker = &worker{requests: make(chan served, 1)}
		go in.worker.serveAll()
	}
	in.worker.by = l
	in.worker.requests <- served{in, ctx} // the channel has room, because the worker is idle
}

// serveNow runs the handler of an Immediate request in the loop itself. The core gets the answer
// in the same step. It must not wait for anything, since no other event is handled meanwhile; the
// dialect has promised that (Class.Immediate).
func (l *loop) serveNow(in *Incoming) {
	in.serving = task{name: in.Method, cancel: func(error) {}, serves: in} // nothing can cancel the handler before it returns
	request := served{in, withValues(l.served, in.Origin)}
	reply := l.answer(&request)
	in.letGo()
	l.buffers.follow(event{kind: handled, epoch: in.Epoch, incoming: in, payload: reply})
}

// serveOne runs a handler if that is still wanted, and lends this goroutine to the loop for the
// answer. It reports false if the loop has ended. The answer must be posted in any case, also if
// the handler panics or ends its goroutine: the core counts the handler until then.
func (l *loop) serveOne(request served) bool {
	began := l.now()
	if why := request.unwanted(began, l.options.Patience); why != nil {
		l.tellUnserved(request.Incoming, why)
		return l.handled(request.Incoming, began, l.refusal(&request, why))
	}
	returned := false
	defer func() {
		if !returned {
			l.endWithoutAnswer(&request, began)
		}
	}()
	reply := l.answer(&request)
	returned = true
	return l.handled(request.Incoming, began, reply)
}

// handled lends this goroutine to the loop for the answer of a handler. It is a function of
// its own, so that the event takes no stack while the handler runs.
//
//go:noinline
func (l *loop) handled(in *Incoming, began instant, reply []byte) bool {
	in.took = l.now() - began
	in.serving.cancel(nil)
	in.letGo()
	return l.lend(&event{kind: handled, epoch: in.Epoch, incoming: in, payload: reply, task: &in.serving})
}

// errGoexit answers a request whose handler has ended its goroutine, as t.FailNow does.
var errGoexit = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error: the handler has ended its goroutine"}

// endWithoutAnswer answers for a handler that has called runtime.Goexit. This goroutine is
// about to end, so it neither works for the loop nor serves another request.
func (l *loop) endWithoutAnswer(s *served, began instant) {
	in := s.Incoming
	reply := l.refusal(s, errGoexit)
	in.worker, in.took = nil, l.now()-began
	if l.timesRequests() {
		l.tellServed(*s, began, began+in.took, errGoexit)
	}
	in.serving.cancel(nil)
	in.letGo()
	l.mailbox.post(event{kind: handled, epoch: in.Epoch, incoming: in, payload: reply, task: &in.serving})
}

// answer runs the handler, and returns the frame of its answer.
func (l *loop) answer(s *served) []byte {
	if l.timesRequests() {
		return l.answerAndTell(s)
	}
	reply, _ := l.encodeAnswer(s)
	return reply
}

// answerAndTell does what answer does, and tells Hooks.ServeStopped and the Auditor. It is a
// separate function, so that a handler without them needs less stack.
func (l *loop) answerAndTell(s *served) []byte {
	began := l.now()
	reply, err := l.encodeAnswer(s)
	l.tellServed(*s, began, l.now(), err)
	return reply
}

// encodeAnswer runs the handler, and returns the frame of its answer and its error.
func (l *loop) encodeAnswer(s *served) (reply []byte, err error) {
	in := s.Incoming
	err = guard(func() error {
		result, err := l.own.handler.ServeRequest(s.ctx, in)
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
		return l.refusal(s, err), err
	}
	return reply, nil
}

// refusal returns the answer for the error of the handler.
func (l *loop) refusal(s *served, err error) []byte {
	in := s.Incoming
	l.record.reportPanic(in.Method, err)
	fault := asFault(err)
	in.failed, in.failure = true, fault.Code
	return jsonrpc.AppendError(nil, in.key.id, fault)
}

// notify hands a notification to the handler, or queues it.
func (l *loop) notify(in *Incoming) {
	l.received(in)
	if in.immediate && l.notifications.Load().Idle() {
		l.handle(notification{in, withValues(l.served, in.Origin)}) // nothing can cancel it before it returns
		return
	}
	shed, many := l.record.queue().Add(notification{in, withValues(l.contextOf(l.incarnation), in.Origin)})
	for _, gone := range shed {
		l.shed(gone.Method)
	}
	l.crowded = l.crowded || many
}
