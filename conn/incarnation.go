package conn

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// An Incarnation is what the handshake talks through: a link that is attached
// but not ready. Once that link is over its methods fail.
type Incarnation struct {
	conn  *Conn
	epoch uint64
}

// Epoch numbers the incarnation: 1 for the first of a Conn.
func (i *Incarnation) Epoch() uint64 { return i.epoch }

// Call is Conn.Call, before the Conn is ready.
func (i *Incarnation) Call(ctx context.Context, r Request) (json.RawMessage, error) {
	return i.conn.call(ctx, r, origin{handshake: i})
}

// Notify is Conn.Notify, before the Conn is ready.
func (i *Incarnation) Notify(ctx context.Context, method string, params json.RawMessage) error {
	return i.conn.notify(ctx, method, params, origin{handshake: i})
}

// A receiver turns what a link reports into events of its incarnation. It
// decodes in the link's reading goroutine.
type receiver struct {
	conn    *Conn
	epoch   uint64
	dialect Dialect
}

func (r *receiver) Receive(in transport.Inbound) {
	came := event{stream: in.Stream, last: in.Last, frames: 1}
	switch {
	case in.Err != nil:
		r.malformed(came, &jsonrpc.DecodeError{Code: jsonrpc.CodeInvalidRequest, Err: in.Err})
	case r.dialect.Batches() && jsonrpc.IsBatch(in.Frame):
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
	for i := range items {
		part := event{stream: came.stream}
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
		classified := *m // who classifies may keep it; an answer is not worth the allocation
		r.request(&ev, &classified, size, from)
	default:
		classified := *m
		r.notification(&ev, &classified, size, from)
	}
	r.post(ev)
}

func (r *receiver) request(ev *event, m *jsonrpc.Message, size int, from *transport.Origin) {
	class := r.dialect.Classify(m)
	if class.Kind == Probe {
		ev.kind = probed
		ev.out = outboundFrame{stream: ev.stream, reply: true, frame: jsonrpc.AppendResult(nil, m.ID, class.Answer), route: resultRoute(m.ID)}
		return
	}
	ev.kind, ev.incoming = requested, r.incoming(ev.stream, m, size, from)
	ev.incoming.exclusive, ev.incoming.streaming = class.Kind == Exclusive, class.Kind == Streaming
	ev.incoming.nested = class.Kind == Nested
}

func (r *receiver) notification(ev *event, m *jsonrpc.Message, size int, from *transport.Origin) {
	class := r.dialect.Classify(m)
	switch class.Kind {
	case Progress:
		ev.kind, ev.method, ev.payload = progressed, m.Method, m.Params
		ev.id, _ = class.Request.Int64()
	case Cancellation:
		ev.kind, ev.incoming = cancelled, r.incoming(ev.stream, m, size, from)
		ev.incoming.key.id = class.Request
	default:
		ev.kind, ev.incoming = notified, r.incoming(ev.stream, m, size, from)
		ev.incoming.coalescing, ev.incoming.droppable = class.Key, class.Droppable
	}
}

func (r *receiver) incoming(stream transport.Stream, m *jsonrpc.Message, size int, from *transport.Origin) *Incoming {
	return &Incoming{Method: m.Method, Params: m.Params, Epoch: r.epoch, Origin: from, size: size, conn: r.conn, key: incomingKey{stream, m.ID}}
}

// malformed reports a frame that is no message. Only acceptors answer, and
// only what may have been a request.
func (r *receiver) malformed(ev event, err *jsonrpc.DecodeError) {
	ev.kind, ev.err, ev.random = malformed, err, random()
	if r.conn.role == acceptor && err.ReplyDue() {
		fault := &jsonrpc.Error{Code: err.Code, Message: err.Error()}
		ev.out = outboundFrame{stream: ev.stream, reply: true, frame: jsonrpc.AppendError(nil, err.ID, fault), route: errorRoute(err.ID, err.Code)}
	}
	r.post(ev)
}

func (r *receiver) StreamOpened(stream transport.Stream, tag transport.Tag) {
	r.post(event{kind: streamOpened, stream: stream, id: int64(tag)})
}

func (r *receiver) StreamLost(loss transport.StreamLoss) {
	r.post(event{
		kind: streamLost, stream: loss.Stream, reason: Reason{StreamLost, loss.Reason},
		resumable: loss.Resumable, timeout: loss.Delay, random: random(),
	})
}

func (r *receiver) Writable() { r.post(event{kind: writable}) }

func (r *receiver) Failed(f transport.Failure) {
	r.post(event{kind: failed, out: outboundFrame{id: int64(f.Tag)}, err: f.Err, unsent: f.Unsent})
}

func (r *receiver) Ended() { r.post(event{kind: linkEnded}) }

func (r *receiver) Lost(loss transport.Loss) {
	why := askable(loss.Reason)
	r.post(event{kind: linkLost, reason: lossReason(why), timeout: askedDelay(why), tags: loss.Unsent, random: random()})
}

// post hands an event to the loop. When no loop takes it any more, the Conn is
// closed and nobody waits for it.
func (r *receiver) post(ev event) {
	ev.epoch = r.epoch
	r.conn.mailbox.post(ev)
}
