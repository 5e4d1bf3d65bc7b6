package streamable

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/eventstream"
)

// maxSessionID is the longest session id that is accepted, in bytes.
const maxSessionID = 1 << 10

// An exchange is a stream as the client has it: a request's POST and what
// answers it, or, for Main, the GET stream of a legacy session.
type exchange struct {
	*lane
	link      *clientLink
	tag       transport.Tag
	id        jsonrpc.ID
	modern    bool
	handshake bool   // the request is a legacy initialize
	sessionID string // as the response to it has said
	answered  bool   // the response was handed on
}

func newExchange(l *clientLink, stream transport.Stream, o *outgoing) *exchange {
	return &exchange{
		lane:      newLane(l.ctx, stream),
		link:      l,
		tag:       o.Tag,
		id:        o.Route.ID,
		modern:    o.modern(),
		handshake: o.Route.Method == protocol.MethodInitialize && !o.modern(),
	}
}

func (x *exchange) isMain() bool { return x.stream == transport.Main }

// post sends the request, and hands on what answers it.
func (x *exchange) post(o *outgoing) {
	a := x.link.newPost(o)
	letGo := func() {
		x.link.mu.Lock()
		defer x.link.mu.Unlock()
		x.link.letGo(o)
	}
	a.written = letGo
	response, err := a.do(x.ctx)
	letGo()
	switch {
	case err == nil && a.fatal != nil:
		response.Body.Close()
		x.link.abandon(o, isRefusal(response.StatusCode))
	case err == nil:
		x.answer(a, response)
	case x.ctx.Err() != nil, a.fatal != nil:
		x.link.abandon(o, a.unsent())
	default:
		x.fail(fmt.Errorf("streamable: post %s: %w", o.label(), err), a.unsent())
	}
	if x.answered {
		x.cancel()
	}
	x.link.judge(a)
}

// answer hands on what the server has said to the request.
func (x *exchange) answer(a *attempt, response *http.Response) {
	defer response.Body.Close()
	x.sessionID = response.Header.Get(headerSession)
	switch kind := mediaType(response); {
	case response.StatusCode/100 != 2:
		x.refused(a, response)
	case kind == typeJSON:
		x.whole(response)
	case kind == typeStream:
		x.events(response.Body)
	case kind == "" || response.StatusCode != http.StatusOK:
		x.fail(&transport.StatusError{Status: response.StatusCode, Body: "no message is no answer to a request"}, false)
	default:
		body := fmt.Sprintf("an answer of type %q is neither JSON nor an event stream", printable(kind, maxKind))
		x.fail(&transport.StatusError{Status: response.StatusCode, Body: body}, false)
	}
}

// whole hands on a body that is one message.
func (x *exchange) whole(response *http.Response) {
	if !x.await() {
		return
	}
	frame, err := readBody(response, x.link.limit)
	if err == nil && len(frame) == 0 {
		err = &transport.StatusError{Status: response.StatusCode, Body: "an empty body is no answer to a request"}
	}
	in := transport.Inbound{Frame: frame, Last: true}
	if err == nil {
		err = x.decode(&in)
	}
	if err != nil {
		x.fail(err, false)
		return
	}
	x.deliver(in)
}

// refused reads a response whose status says that the request failed. If it
// holds the JSON-RPC response, that is the answer, unless it is about who asks:
// then the status matters.
func (x *exchange) refused(a *attempt, response *http.Response) {
	body := excerptOf(response)
	failed := newStatusError(response, body)
	a.fatal = x.link.countDisowned(a, failed)
	m, err := jsonrpc.Decode(body, jsonrpc.Limits{})
	switch answers := err == nil && x.isAnswer(m); {
	case answers && failed.Denied():
		failed.Fault = m.Error
	case answers:
		if x.await() {
			x.deliver(transport.Inbound{Frame: body, Message: &m, Last: true})
		}
		return
	}
	x.fail(failed, isRefusal(response.StatusCode))
}

func (x *exchange) isAnswer(m jsonrpc.Message) bool {
	return (m.Kind == jsonrpc.KindResult || m.Kind == jsonrpc.KindError) && m.ID == x.id
}

// events hands on the events of a body until it ends.
func (x *exchange) events(body io.Reader) {
	stream := eventstream.NewReader(body, x.link.limit)
	stream.ResumeAfter(x.eventID)
	for x.await() {
		e, err := stream.Next()
		switch {
		case isOversized(err) && x.isMain():
			x.deliver(transport.Inbound{Err: err})
			continue
		case isOversized(err) && !x.answered:
			x.fail(err, false)
			return
		case err != nil:
			x.cut(err)
			return
		}
		x.link.heard()
		if x.note(e); len(e.Data) == 0 || e.Type != "message" { // other types are none of ours
			continue
		}
		in := transport.Inbound{Frame: e.Data}
		if err := x.decode(&in); err != nil {
			x.fail(err, false)
			return
		}
		if x.deliver(in); x.answered {
			x.linger(body)
			return
		}
	}
}

// linger lets a server end the response by itself once it has answered, so that
// the connection can be used again, and ends it otherwise.
func (x *exchange) linger(body io.Reader) {
	timer := time.AfterFunc(lingerTime, x.cancel)
	defer timer.Stop()
	io.CopyN(io.Discard, body, maxErrorBody)
}

// lingerTime is how long a response may go on after its answer.
const lingerTime = time.Second

// decode decodes a frame that is to be handed on, and takes note of the response
// to the request. A frame that cannot be decoded is left to the receiver.
func (x *exchange) decode(in *transport.Inbound) error {
	m, err := jsonrpc.Decode(in.Frame, jsonrpc.Limits{})
	if err != nil {
		return nil
	}
	in.Message = &m
	if x.answered || x.isMain() || !x.isAnswer(m) {
		return nil
	}
	if x.handshake && m.Kind == jsonrpc.KindResult {
		if err := x.link.begin(x.sessionID, m); err != nil {
			return err
		}
	}
	x.answered, in.Last = true, true
	return nil
}

// begin takes note of what the server has answered to initialize.
func (l *clientLink) begin(id string, answer jsonrpc.Message) error {
	if id != "" && !isToken(id, maxSessionID) {
		return fmt.Errorf("streamable: the server's session id, of %d bytes, is not visible ASCII of at most %d", len(id), maxSessionID)
	}
	var result struct {
		Version string `json:"protocolVersion"`
	}
	if !decode(answer.Result, &result) || !isToken(result.Version, len("2025-11-25")) {
		result.Version = "" // whoever receives it refuses it
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = session{begun: true, id: id, version: result.Version}
	return nil
}

// deliver hands on one frame, for one credit.
func (x *exchange) deliver(in transport.Inbound) {
	x.spend()
	in.Stream = x.stream
	if in.Last {
		x.link.drop(x)
	}
	x.link.tellOf(x.lane, in.Last, func(to transport.Receiver) { to.Receive(in) })
}

// fail tells that the request has failed, and its stream with it.
func (x *exchange) fail(err error, unsent bool) {
	if x.ctx.Err() != nil {
		return // it was ended, from this side
	}
	x.link.tellOf(x.lane, true, func(to transport.Receiver) {
		to.Failed(transport.Failure{Tag: x.tag, Err: err, Unsent: unsent})
	})
	x.link.forget(x)
}

// cut tells that an event stream is over.
func (x *exchange) cut(err error) {
	if err == io.EOF {
		err = transport.ErrPeerClosed
	}
	switch {
	case x.isMain():
		x.lost(fmt.Errorf("streamable: the stream of the session ended: %w", err), true)
	case x.answered:
		x.lost(transport.ErrPeerClosed, false)
	default:
		x.lost(fmt.Errorf("streamable: the stream of a request ended before its response: %w", err), x.canResume())
	}
}

// canResume reports whether the server knows where the stream was.
func (x *exchange) canResume() bool {
	return x.isMain() || x.eventID != "" && !x.modern && !x.handshake
}

func (x *exchange) lost(reason error, resumable bool) {
	if x.ctx.Err() != nil {
		return // it was ended, from this side
	}
	loss := transport.StreamLoss{Stream: x.stream, Reason: reason, Resumable: resumable}
	if resumable {
		loss.Delay = x.retry
		x.link.mu.Lock()
		x.broken = true // from here on the stream is that of who resumes it
		x.link.mu.Unlock()
	}
	x.link.tellOf(x.lane, !resumable, func(to transport.Receiver) { to.StreamLost(loss) })
	if !resumable {
		x.link.forget(x)
	}
}

// listen takes a stream up by a GET: one that was broken off, or Main.
func (x *exchange) listen() {
	a := x.link.newAttempt(http.MethodGet, typeStream)
	a.joinSession()
	if x.eventID != "" {
		a.header.Set(headerResume, x.eventID)
	}
	response, err := a.do(x.ctx)
	if err != nil {
		x.lost(fmt.Errorf("streamable: open the event stream: %w", err), true)
	} else {
		x.listenTo(a, response)
	}
	x.link.judge(a)
}

func (x *exchange) listenTo(a *attempt, response *http.Response) {
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK && mediaType(response) == typeStream {
		x.opened = true
		x.events(response.Body)
		return
	}
	refused := newStatusError(response, excerptOf(response))
	passing := isPassing(refused.Status)
	switch {
	case x.isMain() && !x.opened && !refused.Denied() && !passing:
		a.fatal = nil // the server has no such stream: it need not
	case a.fatal != nil: // the whole link is lost
	default:
		x.retry = max(x.retry, refused.RetryAfter)
		x.lost(fmt.Errorf("streamable: open the event stream: %w", refused), passing)
	}
}

func isOversized(err error) bool {
	var oversized *transport.OversizedError
	return errors.As(err, &oversized)
}
