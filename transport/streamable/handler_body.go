package streamable

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
	"github.com/go-json-experiment/json/jsontext"
)

// roomPatience is how long the reading of one body may wait for room. A message that is not
// a request also waits at most this long for those before it.
const roomPatience = 30 * time.Second

// A body is the content of one POST: a message or, in one revision, a batch. It holds room for its
// bytes from their arrival until take; from then on the request that is served has room of its own (served).
// Whoever has the body calls release, also if the request is refused; release may be called again.
type body struct {
	jsonrpc.Message // for a batch only what Memory says of all its messages
	meta            meta
	batch           bool
	forwarder       transport.Forwarder // for a request for a task, in a session of one of several nodes
	implied         bool                // the handler sends the message in the name of a client
	isRequest       bool                // the body contains a request, so it needs a response
	operations      []Operation         // the operations of a batch
	frame           []byte
	whole           time.Time // when all of it had arrived
	origin          *transport.Origin
	from            share.Client // the client that sent the body
	control         http.ResponseController
	bodies          *bodyBudget
	small, large    holding // the bytes that the body takes from the room
}

// meta are the members of _meta that make a message modern. The receiver of the message refuses
// a member of the wrong type.
type meta struct{ Version, Capabilities json.RawMessage }

// modern reports whether the message itself names its revision.
func (b *body) modern() bool { return len(b.meta.Version) > 0 }

func (b *body) initializes() bool {
	return b.Kind == jsonrpc.KindRequest && b.Method == protocol.MethodInitialize
}

// requestID returns the id that a refusal names. Only a request has one: the id of a
// response was not chosen by the client.
func (b *body) requestID() jsonrpc.ID {
	if b.Kind == jsonrpc.KindRequest {
		return b.ID
	}
	return jsonrpc.ID{}
}

// take returns the message and drops it from the body.
func (b *body) take() transport.Inbound {
	in := transport.Inbound{Frame: b.frame, Origin: b.origin, Implied: b.implied, Held: time.Since(b.whole)}
	if !b.batch {
		m := b.Message
		in.Message = &m
	}
	b.frame, b.Message, b.meta, b.operations = nil, jsonrpc.Message{}, meta{}, nil
	b.release()
	return in
}

// messages returns the messages of a body, or one nil if there are none that could be read.
func (b *body) messages() []*jsonrpc.Message {
	none := []*jsonrpc.Message{nil}
	switch {
	case b == nil:
		return none
	case !b.batch:
		return []*jsonrpc.Message{&b.Message}
	}
	items, err := jsonrpc.DecodeBatch(b.frame, jsonrpc.Limits{})
	if err != nil {
		return none
	}
	all := make([]*jsonrpc.Message, len(items))
	for i := range items {
		all[i] = &items[i].Message
		if refused := items[i].Err; refused != nil {
			all[i] = &jsonrpc.Message{ID: refused.ID}
		}
	}
	return all
}

// putBack undoes take, after the link did not accept the message.
// The refusal, and the Auditor, need it.
func (b *body) putBack(in transport.Inbound) {
	b.frame = in.Frame
	if in.Message != nil {
		b.Message = *in.Message
	}
}

func (b *body) release() { b.keep(0) }

// keep releases the room of all but the first n bytes.
// The first bytes count for the small pool, and only what is beyond them for the large one.
func (b *body) keep(n int) {
	b.small.keep(n)
	b.large.keep(n - web.SmallBody)
}

// due returns until when the body may wait for what it needs.
func (b *body) due() time.Time { return b.whole.Add(requestPatience) }

// inTurn does a part of the work for a body when it is the turn of its client.
// Decoding is what a client can make expensive, so clients take turns, and no client can hold up others
// with large bodies.
func (b *body) inTurn(ctx context.Context, work func() *refusal) (refused *refusal) {
	cost := len(b.frame)
	if b.batch {
		cost *= batchCost
	}
	if err := b.bodies.turns.DoBefore(ctx, b.due(), b.from, cost, func() { refused = work() }); err != nil {
		return overloaded(b.requestID(), errNotItsTurn.Error())
	}
	return refused
}

// batchCost is how many times more a batch costs than one message of its size.
const batchCost = 8

// decode decodes the body. It ignores malformed params; the receiver of the message
// refuses them.
func (b *body) decode() *refusal {
	if b.batch = jsonrpc.IsBatch(b.frame); b.batch {
		return nil // whether batches are allowed depends on the session
	}
	m, err := jsonrpc.Decode(b.frame, jsonrpc.Limits{})
	if err != nil {
		return undecodable(err)
	}
	b.Message, b.isRequest = m, m.Kind == jsonrpc.KindRequest
	if given, repeated := jsonrpc.Member(m.Params, "_meta"); !repeated {
		b.meta = metaOf(given)
	}
	return nil
}

// metaOf reads _meta. If a name appears twice, it ignores both members, because it is
// unclear which one counts.
func metaOf(given []byte) (m meta) {
	var repeated bool
	if m.Version, repeated = jsonrpc.Member(given, protocol.MetaProtocolVersion); repeated {
		m.Version = nil
	}
	if m.Capabilities, repeated = jsonrpc.Member(given, protocol.MetaClientCapabilities); repeated {
		m.Capabilities = nil
	}
	return m
}

// decodeBatch looks for requests in a batch. The receiver reports malformed messages
// together with the answers to the others.
func (b *body) decodeBatch() *refusal {
	items, err := jsonrpc.DecodeBatch(b.frame, jsonrpc.Limits{})
	if err != nil {
		return undecodable(err)
	}
	b.Memory = 0 // it may have been decoded before
	for _, item := range items {
		b.Memory += item.Message.Memory
		// A malformed message is answered as well, if it has an id.
		if item.Err != nil && item.Err.ReplyDue() || item.Message.Kind == jsonrpc.KindRequest {
			b.isRequest = true
		}
		if item.Err == nil && item.Message.Method != "" {
			b.operations = append(b.operations, Operation{item.Message.Method, item.Message.Params})
		}
	}
	return nil
}

func undecodable(err error) *refusal {
	refused := invalid(jsonrpc.ID{}, "%.200v", err)
	var why *jsonrpc.DecodeError
	if errors.As(err, &why) {
		refused.code = why.Code
		if why.ReplyDue() {
			refused.id = why.ID
		}
	}
	return refused
}

// decode reports whether there is a value and it could be decoded.
func decode(raw json.RawMessage, into any) bool {
	return len(raw) > 0 && protocol.Unmarshal(raw, into) == nil
}

// textOf returns the text of a JSON string; "" for other values.
func textOf(raw json.RawMessage) string {
	text, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return ""
	}
	return string(text)
}

// arrived undoes what expectBody did.
func (b *bodyReader) arrived(w http.ResponseWriter) {
	b.body.control.SetReadDeadline(time.Time{})
	w.Header().Del("Connection")
}

// read reads and decodes the body of a request. The caller releases it.
func (bodies *bodyBudget) read(w http.ResponseWriter, r *http.Request, expected expectedBody, origin *transport.Origin) (*body, *refusal) {
	b, refused := bodies.receive(w, r, expected, web.ClientOf(origin.Identity, origin.Address()))
	if refused != nil {
		return nil, refused
	}
	if refused := b.decodeFrom(r.Context(), origin); refused != nil {
		b.release()
		return nil, refused
	}
	return b, nil
}

// receive reads the body of a request, whose sender need not be established yet. The caller
// releases it.
func (bodies *bodyBudget) receive(w http.ResponseWriter, r *http.Request, expected expectedBody, from share.Client) (*body, *refusal) {
	if r.ContentLength > int64(bodies.maxBody) {
		return nil, bodies.tooLarge()
	}
	b := &body{control: expected.control, bodies: bodies, small: holding{bodies.small, from, 0}, large: holding{bodies.large, from, 0}}
	reader := bodyReader{body: b, pace: newPace(expected), most: bodies.maxBody}
	if r.ContentLength >= 0 {
		reader.most = int(r.ContentLength)
	}
	if refused := reader.readAll(w, r); refused != nil {
		b.release()
		return nil, refused
	}
	return b, nil
}

// decodeFrom decodes the body, which a sender has sent.
func (b *body) decodeFrom(ctx context.Context, origin *transport.Origin) *refusal {
	b.origin, b.from = origin, web.ClientOf(origin.Identity, origin.Address())
	return b.inTurn(ctx, b.decode)
}

func (bodies *bodyBudget) tooLarge() *refusal {
	text := fmt.Sprintf("the body is above the limit of %d bytes", bodies.maxBody)
	return &refusal{status: http.StatusRequestEntityTooLarge, code: jsonrpc.CodeInvalidRequest, text: text}
}

// A bodyReader reads one body. It claims room after bytes have arrived, so a client that announces a body without
// sending it holds nothing: at most web.SmallBody, and after these have arrived what was announced, or bodies.maxBody if nothing
// was. It claims that at once, because bodies that have partly arrived would wait for each other. Each piece that
// arrives extends the deadline.
type bodyReader struct {
	*body
	pace
	most int // the length or, if that was not announced, bodies.maxBody
}

var errNotItsTurn = errors.New("it was not the turn of the client")

var errNoRoom = errors.New("too much is waiting to be served")

// readAll reads the body. It reads one byte more than there may be, to tell a body that ends there from
// one that goes on.
func (b *bodyReader) readAll(w http.ResponseWriter, r *http.Request) *refusal {
	limit := b.bodies.maxBody + 1
	if r.ContentLength >= 0 {
		limit = int(r.ContentLength) + 1 // one byte more, to read up to the end
	}
	err := b.readFirst(r, limit)
	for err == nil && len(b.frame) < limit {
		if len(b.frame) == cap(b.frame) {
			err = b.grow(r.Context(), min(limit, 2*cap(b.frame)))
			continue
		}
		b.allow(len(b.frame))
		var n int
		n, err = r.Body.Read(b.frame[len(b.frame):cap(b.frame)])
		b.frame = b.frame[:len(b.frame)+n]
	}
	switch {
	case err == errNoRoom:
		return overloaded(jsonrpc.ID{}, err.Error())
	case len(b.frame) == limit:
		return b.bodies.tooLarge()
	case err == io.EOF:
		b.whole = time.Now()
		b.arrived(w)
		if cap(b.frame) > 2*len(b.frame) { // its length was not announced
			b.frame = bytes.Clone(b.frame)
		}
		b.keep(len(b.frame))
		return nil
	default:
		return b.unreadable(err)
	}
}

// readFirst reads the first bytes, and then claims room.
// Until then the bytes are in memory that requests reuse: a client that only announces a body holds no
// room.
func (b *bodyReader) readFirst(r *http.Request, limit int) error {
	first := b.bodies.first.Get().(*[firstRead]byte)
	defer b.bodies.first.Put(first)
	b.allow(0)
	n, err := 0, error(nil)
	for n == 0 && err == nil {
		n, err = r.Body.Read(first[:min(limit, firstRead)])
	}
	if n > 0 {
		if full := b.grow(r.Context(), min(limit, web.SmallBody)); full != nil {
			return full
		}
		b.frame = append(b.frame, first[:n]...)
	}
	return err
}

// grow makes room for a body of so many bytes.
func (b *bodyReader) grow(ctx context.Context, size int) error {
	needed := size
	if size > web.SmallBody {
		// All of it at once; see bodyReader.
		needed = b.most + 1
	}
	if !b.claim(ctx, &b.small, min(needed, web.SmallBody)) || !b.claim(ctx, &b.large, needed-web.SmallBody) {
		return errNoRoom
	}
	b.frame = append(make([]byte, 0, size), b.frame...)
	return nil
}

// claim waits until the body holds so many bytes of a pool, or as many as its client gets at most. The wait is
// limited because net/http does not notice that a client has left before its body was read.
func (b *bodyReader) claim(ctx context.Context, h *holding, bytes int) bool {
	more := h.from.Fit(h.of, bytes) - h.bytes
	if more <= 0 {
		return true
	}
	// A client that holds much waits behind those that hold little.
	if claim := h.from.Claim(h.of, more); claim != nil && !b.await(ctx, claim) {
		return false
	}
	h.bytes += more
	return true
}

// await waits until a claim is granted.
func (b *bodyReader) await(ctx context.Context, claim *share.Claim) bool {
	begun := time.Now()
	b.setDeadline(begun.Add(roomPatience + web.BodyPatience)) // no bytes are expected during the wait
	ctx, cancel := context.WithTimeout(ctx, roomPatience-b.waited)
	defer cancel()
	if !claim.Wait(ctx) {
		return false
	}
	// The client could not send meanwhile, so it does not count as slow.
	b.pause(time.Since(begun))
	return true
}

// unreadable says why a body was not read. The client hears no details of the connection.
func (b *bodyReader) unreadable(err error) *refusal {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &refusal{status: http.StatusRequestTimeout, text: "the body did not arrive in time"}
	case errors.As(err, &tooLarge):
		return b.bodies.tooLarge()
	default:
		return &refusal{status: http.StatusBadRequest, text: "the body did not arrive as a whole"}
	}
}
