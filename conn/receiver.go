package conn

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/internal/actor"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// A receiver turns what a link reports into events of its incarnation. It
// decodes in the link's reading goroutine.
type receiver struct {
	*record
	loop    *loop
	epoch   uint64
	dialect Dialect
	promise actor.Promise // the link's goroutine has the loop, and must still call Work or Serve
	batches atomic.Bool   // a request has permitted batches (Class.Batches)
}

// A source says where a frame came from; see transport.Inbound.
type source struct {
	origin  *transport.Origin
	implied bool
	held    time.Duration
	room    transport.Room // not nil: of the request that the frame brings, or to be released
}

// release gives back the room of a message that is no request for a handler.
func (s *source) release() {
	if s.room != nil {
		s.room.Release()
	}
}

// A sharedRoom is the room of a batch.
type sharedRoom struct {
	transport.Room
	messages atomic.Int64 // that still need it
}

// Release implements transport.Room, for one message.
func (s *sharedRoom) Release() {
	if s.messages.Add(-1) == 0 {
		s.Room.Release()
	}
}

// Receive implements transport.Receiver. It decodes the envelope; params and results stay part of
// the frame, which belongs to the Conn from here on.
func (r *receiver) Receive(in transport.Inbound) {
	came := event{stream: in.Stream, last: in.Last, frames: 1, size: int32(min(len(in.Frame), maxMalformedBytes)), works: in.Work}
	from := source{in.Origin, in.Implied, in.Held, in.Room}
	r.counters.bytesIn.Add(uint64(len(in.Frame)))
	switch {
	case in.Err != nil:
		r.malformed(came, from, &jsonrpc.DecodeError{Code: jsonrpc.CodeInvalidRequest, Err: in.Err})
	case (r.dialect.Batches() || r.batches.Load()) && jsonrpc.IsBatch(in.Frame):
		r.receiveBatch(came, in.Frame, from)
	case in.Message != nil:
		r.receiveOne(came, in.Message, len(in.Frame), from, nil)
	default:
		m, err := jsonrpc.Decode(in.Frame, jsonrpc.Limits{})
		r.receiveOne(came, &m, len(in.Frame), from, err)
	}
}

// receiveBatch posts every message of a batch; the last one carries the credit
// the frame has used, and the end of its stream.
func (r *receiver) receiveBatch(came event, frame []byte, from source) {
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
	if from.room != nil {
		shared := &sharedRoom{Room: from.room}
		shared.messages.Store(int64(len(items)))
		from.room = shared
	}
	for i := range items {
		part := event{stream: came.stream, batch: answers}
		if i == len(items)-1 {
			part = came
		}
		if items[i].Err != nil {
			r.malformed(part, from, items[i].Err)
			continue
		}
		m := &items[i].Message
		m.Params = slices.Clone(m.Params) // otherwise each message would keep the whole batch in memory
		r.receiveOne(part, m, len(m.Params)+len(m.Method), from, nil)
	}
}

// receiveOne posts a message that holds size bytes.
func (r *receiver) receiveOne(ev event, m *jsonrpc.Message, size int, from source, err error) {
	if err != nil {
		var refused *jsonrpc.DecodeError
		errors.As(err, &refused) // the error is always a *jsonrpc.DecodeError
		r.malformed(ev, from, refused)
		return
	}
	switch m.Kind {
	case jsonrpc.KindResult, jsonrpc.KindError:
		ev.kind, ev.payload, ev.fault = replied, m.Result, m.Error
		ev.id, _ = m.ID.Int64() // our ids are positive integers; any other id is unknown
	case jsonrpc.KindRequest:
		r.request(&ev, m, size, from)
	default:
		r.notification(&ev, m, size, from)
	}
	if ev.kind != requested {
		from.release()
	}
	r.post(ev)
}

// request fills the event of a request. The room goes to the request, which gives it back when its
// handler has returned.
func (r *receiver) request(ev *event, m *jsonrpc.Message, size int, from source) {
	class := r.dialect.Classify(*m)
	if class.Batches {
		r.batches.Store(true)
	}
	if class.Kind == Probe {
		ev.kind = probed
		ev.out = &outboundFrame{stream: ev.stream, reply: true, frame: jsonrpc.AppendResult(nil, m.ID, class.Answer), route: resultRoute(m.ID)}
		r.tellProbed(ev.stream, m, from)
		return
	}
	ev.kind, ev.incoming, ev.timeout = requested, r.incoming(ev.stream, m, size, from), from.held
	ev.incoming.room = from.room
	ev.incoming.exclusive, ev.incoming.streaming = class.Kind == Exclusive, class.Kind == Streaming
	ev.incoming.nested, ev.incoming.batch = class.Kind == Nested, ev.batch
	ev.incoming.immediate = class.Immediate && size <= immediateSize && r.options.Hooks.ServeStopped == nil
}

// notification fills the event of a notification, which the dialect may know to be progress or a
// cancellation.
func (r *receiver) notification(ev *event, m *jsonrpc.Message, size int, from source) {
	class := r.dialect.Classify(*m)
	switch class.Kind {
	case Progress:
		ev.kind, ev.method, ev.payload = progressed, m.Method, m.Params
		ev.id, _ = class.Request.Int64()
	case Cancellation:
		ev.kind, ev.incoming = cancelled, r.incoming(ev.stream, m, size, from)
		ev.incoming.key.id = class.Request
	default:
		ev.kind, ev.incoming = notified, r.incoming(ev.stream, m, size, from)
		ev.incoming.label, ev.incoming.droppable = class.Key, class.Droppable
		ev.incoming.immediate = class.Immediate && size <= immediateSize
	}
}

func (r *receiver) incoming(stream transport.Stream, m *jsonrpc.Message, size int, from source) *Incoming {
	in := &Incoming{Method: m.Method, Params: m.Params, Epoch: r.epoch, Origin: from.origin, Implied: from.implied, size: uint32(min(uint64(size)+uint64(m.Memory), math.MaxInt32)), caller: &r.caller, key: incomingKey{stream, m.ID}}
	if r.timesRequests() {
		in.received = r.now() - from.held
	}
	return in
}

// malformed reports a frame that is no message. If it was meant as a response, it
// names the request. Only acceptors answer, and only what may have been a request.
func (r *receiver) malformed(ev event, from source, err *jsonrpc.DecodeError) {
	from.release()
	ev.kind, ev.err, ev.random = malformed, err, random()
	if err.IsResponse() {
		ev.id, _ = err.ID.Int64()
		ev.eventExtra = idsOf(err.IDs)
	}
	if r.answers(err) {
		fault := &jsonrpc.Error{Code: err.Code, Message: err.Error()}
		ev.out = &outboundFrame{stream: ev.stream, reply: true, frame: jsonrpc.AppendError(nil, err.ID, fault), route: errorRoute(err.ID, err.Code)}
		r.tellMalformed(ev.stream, from, err)
	}
	r.post(ev)
}

// idsOf returns the requests that a response with several ids may have meant.
func idsOf(ids []jsonrpc.ID) *eventExtra {
	if len(ids) == 0 {
		return nil
	}
	p := new(eventExtra)
	for _, id := range ids {
		number, _ := id.Int64()
		p.tags = append(p.tags, transport.Tag(number))
	}
	return p
}

// answers reports whether a malformed message is answered.
func (r *receiver) answers(err *jsonrpc.DecodeError) bool {
	return r.role == acceptor && err.ReplyDue()
}

// tellMalformed tells the Auditor of a frame that is no message.
func (r *receiver) tellMalformed(stream transport.Stream, from source, err *jsonrpc.DecodeError) {
	if r.auditor() != nil {
		r.tellUnserved(r.incoming(stream, &jsonrpc.Message{ID: err.ID}, 0, from), err)
	}
}

// tellProbed tells the Auditor of a probe of the peer, which the Conn answers itself.
func (r *receiver) tellProbed(stream transport.Stream, m *jsonrpc.Message, from source) {
	if r.auditor() != nil {
		in := r.incoming(stream, m, 0, from)
		r.tellAuditor(withValues(context.Background(), in.Origin), in, r.ended(in, telemetry.ServeAnswered, nil))
	}
}

// StreamOpened implements transport.Receiver. The stream has no credit until the core grants it
// some.
func (r *receiver) StreamOpened(stream transport.Stream, tag transport.Tag) {
	r.post(event{kind: streamOpened, stream: stream, id: int64(tag)})
}

// StreamLost implements transport.Receiver. The link goes on.
func (r *receiver) StreamLost(loss transport.StreamLoss) {
	r.post(event{
		kind: streamLost, stream: loss.Stream, resumable: loss.Resumable, serving: loss.Waiting, timeout: loss.Delay, random: random(),
		eventExtra: &eventExtra{reason: Reason{StreamLost, loss.Reason}},
	})
}

// Writable implements transport.Receiver.
func (r *receiver) Writable() { r.post(event{kind: writable, random: random()}) }

// Failed implements transport.Receiver.
func (r *receiver) Failed(f transport.Failure) {
	r.post(event{kind: failed, out: &outboundFrame{id: int64(f.Tag)}, err: f.Err, unsent: f.Unsent})
}

// Doubt implements transport.Doubter.
func (r *receiver) Doubt(tag transport.Tag, why error) {
	r.post(event{kind: doubted, id: r.nextID(), out: &outboundFrame{id: int64(tag)}, err: why, random: random()})
}

// Ended implements transport.Receiver: the peer sends nothing more.
func (r *receiver) Ended() { r.post(event{kind: linkEnded}) }

// Lost implements transport.Receiver. The link has said which frames certainly were not sent;
// every other request may have been executed.
func (r *receiver) Lost(loss transport.Loss) {
	r.post(event{
		kind: linkLost, timeout: askedDelay(loss.Reason), random: random(), works: loss.Work,
		eventExtra: &eventExtra{reason: lossReason(loss.Reason), tags: loss.Unsent},
	})
}

// post hands an event to the loop. If the loop has ended, only the Auditor needs the event.
func (r *receiver) post(ev event) {
	ev.epoch = r.epoch
	posted, held := false, actor.Held{}
	if !ev.works {
		posted = r.loop.mailbox.post(ev)
	} else if posted, held = r.loop.mailbox.lend(&ev, actor.Lend); held.OK() {
		r.promise.Keep(held)
	}
	if !posted && ev.kind == requested {
		r.tellUnserved(ev.incoming, r.status.read().Reason)
	}
}

// StreamBegun implements transport.Runner.
func (r *receiver) StreamBegun(stream transport.Stream) bool {
	if r.status.state() == Closing { // the loop would drop the frame, and the link would report it as perhaps executed
		return false
	}
	r.post(event{kind: streamOpened, stream: stream, works: true})
	return true
}

// Serve implements transport.Runner: a turn of the loop, and then the handler of the
// request that it has kept. It keeps none while the handler of another still runs: how
// long that takes is not known before it ends, and each would delay the frames behind it.
func (r *receiver) Serve(more bool, leave func()) {
	held := r.promise.Take()
	if !held.OK() {
		return
	}
	longest := quickHandler
	switch {
	case r.loop.serving.Load() > 0:
		longest = 0
	case more:
		longest = quickestHandler
	}
	if kept := r.loop.turnToServe(held, longest); kept.Incoming != nil {
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

// Work implements transport.Runner: it runs a turn of the loop on this goroutine. If that is
// nested too deeply, or if it is nested and the loop's own goroutine waits, that goroutine
// works instead. An acceptor's loop may end here.
func (r *receiver) Work(depth int) {
	switch held := r.promise.Take(); {
	case !held.OK():
	case depth > deepest || depth > 1 && held.Beside():
		r.loop.mailbox.resume(held)
	default:
		flush, _ := r.loop.workLent(held, 0, r.loop.endsInClose && r.role == acceptor)
		flush.flush(depth)
	}
}
