package conn

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os/exec"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// An Incarnation is one link of a Conn, with its handshake and the handlers that
// run for it. Options.Handshake gets it to talk to the peer before the Conn is
// ready. Its methods fail once the incarnation has ended.
type Incarnation struct {
	conn   *Conn
	epoch  uint64
	ctx    context.Context // of everything that runs for it
	cancel context.CancelCauseFunc
	link   transport.Link // nil until attached; the loop's
}

// Epoch returns the number of the incarnation: 1 for the first of a Conn.
func (i *Incarnation) Epoch() uint64 { return i.epoch }

// Network returns what the link knows about the way to the peer (transport.Networked),
// also after the incarnation has ended.
func (i *Incarnation) Network() transport.Network {
	if networked, ok := i.link.(transport.Networked); ok {
		return networked.Network()
	}
	return transport.Network{}
}

// Call is Conn.Call for the handshake: it works before the Conn is ready.
func (i *Incarnation) Call(ctx context.Context, r Request) (json.RawMessage, error) {
	return i.conn.call(ctx, r, sender{handshake: i})
}

// Notify is Conn.Notify for the handshake: it works before the Conn is ready.
func (i *Incarnation) Notify(ctx context.Context, method string, params json.RawMessage) error {
	return i.conn.notify(ctx, method, params, sender{handshake: i})
}

func (l *loop) incarnate(epoch uint64) *Incarnation {
	i := &Incarnation{conn: l.conn, epoch: epoch}
	i.ctx, i.cancel = context.WithCancelCause(l.ctx)
	l.incarnation = i
	return i
}

// cancelAll ends the contexts of everything that runs for the incarnation.
func (l *loop) cancelAll(why error) {
	if l.incarnation != nil {
		l.incarnation.cancel(why)
	}
	l.tasks.cancel(why)
	if j := l.opening.takeLast(true); j != nil { // the caller has not come for it
		go l.runJob(j)
	}
}

// open asks the transport for a link.
func (l *loop) open(epoch uint64) {
	c, i := l.conn, l.incarnate(epoch)
	one := new(struct { // one allocation
		ev event
		of particulars
	})
	ev := &one.ev
	*ev = event{kind: linkOpened, epoch: epoch, particulars: &one.of}
	l.do("opening a link", i.cancel, func() (err error) {
		if ev.link, err = c.transport.Open(i.ctx); err == nil && ev.link == nil {
			return errNoLink
		}
		if hearing, ok := ev.link.(transport.ActivityRecorder); ok && err == nil {
			_, ev.hearing = hearing.Heard()
		}
		if requesting, ok := ev.link.(transport.RequestPerMessage); ok && err == nil {
			ev.costly = requesting.Requests()
		}
		return err
	}, func(err error) event {
		if err == nil {
			return *ev
		}
		if ev.link != nil {
			closeUnwanted(ev.link)
		}
		return event{kind: openFailed, epoch: epoch, random: random(), timeout: askedDelay(err), particulars: &particulars{reason: openReason(err)}}
	})
}

// errNoLink is reported for a transport that returns neither a link nor an error.
var errNoLink = errors.New("conn: the transport returned neither a link nor an error")

// bind attaches the link, whose events come in from here on. If Bind panics, the
// link is lost.
func (l *loop) bind(link transport.Link, epoch uint64) {
	if l.incarnation == nil { // an acceptor's
		l.incarnate(epoch)
	}
	l.incarnation.link = link
	l.hearing, _ = link.(transport.ActivityRecorder)
	l.lastHeard()
	l.flush.flush(0) // the link before this one may have left something to it
	l.flush = flush{conn: l.conn}
	err := guard(func() error {
		link.Bind(&receiver{conn: l.conn, loop: l, epoch: epoch, dialect: l.core.dialect})
		return nil
	})
	if err != nil {
		l.incarnation.link = unbound{link}
		l.mailbox.post(event{kind: linkLost, epoch: epoch, random: random(), particulars: &particulars{reason: Reason{LinkBroken, err}}})
		return
	}
	l.flush.link, _ = link.(transport.Flusher)
	l.flush.flush(0)
}

func openReason(err error) Reason {
	switch {
	case isDenied(err):
		return Reason{AuthRequired, err}
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return Reason{ExecutableMissing, err}
	default:
		return Reason{OpenFailed, err}
	}
}

func handshakeReason(err error) Reason {
	switch {
	case errors.Is(err, ErrIncompatible):
		return Reason{Incompatible, err}
	case isDenied(err):
		return Reason{AuthRequired, err}
	default:
		return Reason{HandshakeFailed, err}
	}
}

// isDenied reports whether the peer denied access, or the transport needs a login.
func isDenied(err error) bool {
	var status *transport.StatusError
	return errors.As(err, &status) && status.Denied() || errors.Is(err, transport.ErrAuthRequired)
}

// askedDelay returns the delay that the peer has asked for (Retry-After), or zero.
func askedDelay(err error) time.Duration {
	if err == nil || err == transport.ErrPeerClosed || err == transport.ErrClosed {
		return 0
	}
	var status *transport.StatusError
	if errors.As(err, &status) {
		return status.RetryAfter
	}
	return 0
}

func lossReason(err error) Reason {
	switch err { // a fast path for the two common reasons: errors.As is slow
	case transport.ErrPeerClosed:
		return Reason{PeerEnded, err}
	case transport.ErrClosed:
		return Reason{LinkBroken, err}
	}
	var exit *transport.ExitError
	var oversized *transport.OversizedError
	switch {
	case errors.As(err, &exit):
		return Reason{Exited, err}
	case errors.As(err, &oversized):
		return Reason{Oversized, err}
	case errors.Is(err, transport.ErrPeerClosed):
		return Reason{PeerEnded, err}
	case errors.Is(err, transport.ErrSessionExpired):
		return Reason{SessionExpired, err}
	default:
		return Reason{LinkBroken, err}
	}
}

// An unbound is a link that could not be bound. It can only be closed.
type unbound struct{ transport.Link }

func (unbound) Send(transport.Outbound) error { return transport.ErrClosed }
func (unbound) Grant(transport.Stream, int)   {}

// handshake runs Options.Handshake for the link.
func (l *loop) handshake() {
	strategy, i := l.conn.own.handshake, l.incarnation
	l.do("handshake", i.cancel, func() error {
		if strategy == nil {
			return nil
		}
		return strategy(i.ctx, i)
	}, func(err error) event {
		if err == nil {
			return event{kind: handshakeDone, epoch: i.epoch}
		}
		return event{kind: handshakeFailed, epoch: i.epoch, random: random(), timeout: askedDelay(err), particulars: &particulars{reason: handshakeReason(err)}}
	})
}

// closeLink closes the given link, or that of the incarnation if it is nil.
func (l *loop) closeLink(epoch uint64, link transport.Link, grace time.Duration) {
	if link == nil && l.incarnation != nil && l.incarnation.epoch == epoch {
		link = l.incarnation.link
	}
	if link == nil || l.closeNow(epoch, link) {
		return
	}
	l.do("closing the link", func(error) {}, func() error { return link.Close(grace) }, func(err error) event {
		return event{kind: linkGone, epoch: epoch, err: err}
	})
}

// closeNow closes a link whose close does not block. The core gets the event linkGone in the
// same step.
func (l *loop) closeNow(epoch uint64, link transport.Link) (closed bool) {
	closing, ok := link.(transport.NonBlockingCloser)
	if !ok {
		return false
	}
	err := guard(func() error { closed = closing.CloseNow(); return nil })
	if closed = closed || err != nil; closed {
		l.reportPanic("closing the link", err)
		l.closeErr = err
		l.buffers.following = append(l.buffers.following, event{kind: linkGone, epoch: epoch})
	}
	return closed
}

// A receiver turns what a link reports into events of its incarnation. It
// decodes in the link's reading goroutine.
type receiver struct {
	conn    *Conn
	loop    *loop
	epoch   uint64
	dialect Dialect
	owed    atomic.Bool // the link's goroutine has the loop, and owes it a turn (Work or Serve)
	batches atomic.Bool // a request has permitted batches (Class.Batches)
}

func (r *receiver) Receive(in transport.Inbound) {
	came := event{stream: in.Stream, last: in.Last, frames: 1, size: int32(min(len(in.Frame), maxMalformedBytes)), works: in.Work}
	r.conn.counters.bytesIn.Add(uint64(len(in.Frame)))
	switch {
	case in.Err != nil:
		r.malformed(came, &jsonrpc.DecodeError{Code: jsonrpc.CodeInvalidRequest, Err: in.Err})
	case (r.dialect.Batches() || r.batches.Load()) && jsonrpc.IsBatch(in.Frame):
		r.receiveBatch(came, in.Frame, in.Origin)
	case in.Message != nil:
		r.receiveOne(came, in.Message, len(in.Frame), in.Origin, nil)
	default:
		m, err := jsonrpc.Decode(in.Frame, jsonrpc.Limits{})
		r.receiveOne(came, &m, len(in.Frame), in.Origin, err)
	}
}

// receiveBatch posts every message of a batch; the last one carries the credit
// the frame has used, and the end of its stream.
func (r *receiver) receiveBatch(came event, frame []byte, from *transport.Origin) {
	items, err := jsonrpc.DecodeBatch(frame, jsonrpc.Limits{})
	if err != nil {
		r.receiveOne(came, nil, 0, from, err)
		return
	}
	answers := &batch{due: 1}
	for i := range items {
		if items[i].Message.Kind == jsonrpc.KindRequest || items[i].Err != nil && r.answers(items[i].Err) {
			answers.due++
		}
	}
	came.batch = answers
	for i := range items {
		part := event{stream: came.stream, batch: answers}
		if i == len(items)-1 {
			part = came
		}
		if items[i].Err != nil {
			r.malformed(part, items[i].Err)
			continue
		}
		m := &items[i].Message
		m.Params = slices.Clone(m.Params) // else each would hold the whole batch
		r.receiveOne(part, m, len(m.Params)+len(m.Method), from, nil)
	}
}

// receiveOne posts a message that holds size bytes.
func (r *receiver) receiveOne(ev event, m *jsonrpc.Message, size int, from *transport.Origin, err error) {
	if err != nil {
		var refused *jsonrpc.DecodeError
		errors.As(err, &refused) // it always is one
		r.malformed(ev, refused)
		return
	}
	switch m.Kind {
	case jsonrpc.KindResult, jsonrpc.KindError:
		ev.kind, ev.payload, ev.fault = replied, m.Result, m.Error
		ev.id, _ = m.ID.Int64() // ours are positive integers; anything else is unknown
	case jsonrpc.KindRequest:
		r.request(&ev, &arrival{message: *m}, size, from)
	default:
		r.notification(&ev, &arrival{message: *m}, size, from)
	}
	r.post(ev)
}

// An arrival holds an incoming request or notification in one allocation. A Dialect may keep
// the message that it classifies. Answers are not classified, so they need none.
type arrival struct {
	incoming Incoming
	message  jsonrpc.Message
}

func (r *receiver) request(ev *event, a *arrival, size int, from *transport.Origin) {
	m := &a.message
	class := r.dialect.Classify(m)
	if class.Batches {
		r.batches.Store(true)
	}
	if class.Kind == Probe {
		ev.kind = probed
		ev.out = &outboundFrame{stream: ev.stream, reply: true, frame: jsonrpc.AppendResult(nil, m.ID, class.Answer), route: resultRoute(m.ID)}
		return
	}
	ev.kind, ev.incoming = requested, r.incoming(ev.stream, a, size, from)
	ev.incoming.exclusive, ev.incoming.streaming = class.Kind == Exclusive, class.Kind == Streaming
	ev.incoming.nested, ev.incoming.batch = class.Kind == Nested, ev.batch
	ev.incoming.immediate = class.Immediate && size <= immediateSize && r.conn.options.Hooks.ServeStopped == nil
}

func (r *receiver) notification(ev *event, a *arrival, size int, from *transport.Origin) {
	m := &a.message
	class := r.dialect.Classify(m)
	switch class.Kind {
	case Progress:
		ev.kind, ev.method, ev.payload = progressed, m.Method, m.Params
		ev.id, _ = class.Request.Int64()
	case Cancellation:
		ev.kind, ev.incoming = cancelled, r.incoming(ev.stream, a, size, from)
		ev.incoming.key.id = class.Request
	default:
		ev.kind, ev.incoming = notified, r.incoming(ev.stream, a, size, from)
		ev.incoming.label, ev.incoming.droppable = class.Key, class.Droppable
		ev.incoming.immediate = class.Immediate && size <= immediateSize
	}
}

func (r *receiver) incoming(stream transport.Stream, a *arrival, size int, from *transport.Origin) *Incoming {
	m, in := &a.message, &a.incoming
	*in = Incoming{Method: m.Method, Params: m.Params, Epoch: r.epoch, Origin: from, size: size, conn: r.conn, key: incomingKey{stream, m.ID}}
	m.Params = nil // so that they last no longer than the handler keeps them
	if r.conn.options.Hooks.ServeStopped != nil {
		in.received = r.conn.now()
	}
	return in
}

// malformed reports a frame that is no message. If it was meant as a response, it
// names the request. Only acceptors answer, and only what may have been a request.
func (r *receiver) malformed(ev event, err *jsonrpc.DecodeError) {
	ev.kind, ev.err, ev.random = malformed, err, random()
	if err.IsResponse() {
		ev.id, _ = err.ID.Int64()
	}
	if r.answers(err) {
		fault := &jsonrpc.Error{Code: err.Code, Message: err.Error()}
		ev.out = &outboundFrame{stream: ev.stream, reply: true, frame: jsonrpc.AppendError(nil, err.ID, fault), route: errorRoute(err.ID, err.Code)}
	}
	r.post(ev)
}

// answers reports whether a malformed message is answered.
func (r *receiver) answers(err *jsonrpc.DecodeError) bool {
	return r.conn.role == acceptor && err.ReplyDue()
}

func (r *receiver) StreamOpened(stream transport.Stream, tag transport.Tag) {
	r.post(event{kind: streamOpened, stream: stream, id: int64(tag)})
}

func (r *receiver) StreamLost(loss transport.StreamLoss) {
	r.post(event{
		kind: streamLost, stream: loss.Stream, resumable: loss.Resumable, heard: loss.Advanced, timeout: loss.Delay, random: random(),
		particulars: &particulars{reason: Reason{StreamLost, loss.Reason}},
	})
}

func (r *receiver) Writable() { r.post(event{kind: writable, random: random()}) }

func (r *receiver) Failed(f transport.Failure) {
	r.post(event{kind: failed, out: &outboundFrame{id: int64(f.Tag)}, err: f.Err, unsent: f.Unsent})
}

func (r *receiver) Ended() { r.post(event{kind: linkEnded}) }

func (r *receiver) Lost(loss transport.Loss) {
	r.post(event{
		kind: linkLost, timeout: askedDelay(loss.Reason), random: random(), works: loss.Work,
		particulars: &particulars{reason: lossReason(loss.Reason), tags: loss.Unsent},
	})
}

// post hands an event to the loop. If the loop has ended, nobody needs the event.
func (r *receiver) post(ev event) {
	ev.epoch = r.epoch
	if !ev.works {
		r.loop.mailbox.post(ev)
	} else if _, taken := r.loop.mailbox.lend(&ev); taken {
		r.owed.Store(true)
	}
}

// StreamBegun implements transport.StreamWorker.
func (r *receiver) StreamBegun(stream transport.Stream) bool {
	if r.conn.State() == Closing { // the frame would be dropped, as if it had perhaps been executed
		return false
	}
	r.post(event{kind: streamOpened, stream: stream, works: true})
	return true
}

// Serve implements transport.ServingWorker: a turn of the loop, and then the handler of the
// request that it has kept. It keeps none while the handler of another still runs: how
// long that takes is not known before it ends, and each would delay the frames behind it.
func (r *receiver) Serve(more bool, leave func()) {
	if !r.owed.Load() || !r.owed.Swap(false) {
		return
	}
	longest := quickHandler
	switch {
	case r.loop.serving.Load() > 0:
		longest = 0
	case more:
		longest = quickestHandler
	}
	if kept := r.loop.turnToServe(longest); kept.Incoming != nil {
		r.loop.serving.Add(1)
		defer r.loop.serving.Add(-1)
		kept.leave = leave
		r.loop.serveOne(kept)
	}
}

// deepest is how deep turns of loops may be nested on one goroutine (G-0048.3). In memory,
// depth 0 is the loop of a caller, depth 1 that of the peer, and depth 2 again that of the
// caller, which gets the answer.
const deepest = 2

// Work implements transport.Worker: it runs a turn of the loop on this goroutine. If that is
// nested too deeply, or if it is nested and the loop's own goroutine waits, that goroutine
// works instead. An acceptor's loop may end here.
func (r *receiver) Work(depth int) {
	switch {
	case !r.owed.Load() || !r.owed.Swap(false):
	case depth > deepest || depth > 1 && r.loop.ownWaits:
		r.loop.resume()
	default:
		flush, _ := r.loop.workLent(0, r.loop.endsInClose && r.conn.role == acceptor)
		flush.flush(depth)
	}
}
