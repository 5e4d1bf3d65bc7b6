package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	httpheader "github.com/bowline-mcp/bowline/internal/header"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/eventstream"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

const (
	// minDelay is the shortest delay before a stream is resumed, even if the server asks
	// for less; web.MaxDelay is the longest.
	minDelay = 50 * time.Millisecond

	// maxEventID is the maximum length of an event id that the client sends back, in
	// bytes.
	maxEventID = 1 << 10
)

// A clientStream is the client's side of a stream: the POST of a request and its
// response or, for Main, the GET request on which a session listens. At most one
// goroutine reads for it at a time.
//
// A stream ends once: by its last frame, its failure, its loss, or End. Whoever ends it sets over while
// the receiver is told, so that no other report follows. Its context ends after that, and stops what is
// still under way.
type clientStream struct {
	link        *clientLink
	number      transport.Stream
	tag         transport.Tag
	id          jsonrpc.ID // the id of the request
	modern      bool
	initializes bool            // the request is a legacy initialize
	ctx         context.Context // ends with the stream
	cancel      context.CancelFunc

	sent    outgoing    // the message that the stream was opened for
	request httpRequest // the HTTP request that posts the message

	credit parts.Credit

	// Only the reading goroutine uses these.
	sessions []string      // ids, as the headers of the response name them
	eventID  string        // the id of the last event; "" if it had none
	retry    time.Duration // the delay that the server asked for
	listened bool          // a GET request has opened the stream before

	broken bool // Resume may resume the stream; guarded by link.Mu
	over   bool // the receiver gets nothing more from the stream; guarded by link.Told
}

func (s *clientStream) init(l *clientLink, number transport.Stream) {
	s.link, s.number = l, number
	s.ctx, s.cancel = context.WithCancel(l.ctx)
}

func (s *clientStream) isMain() bool { return s.number == transport.Main }

// await waits for credit. It reports false if the stream ends first.
// Without credit nothing is read beyond the read-ahead, so a receiver that takes nothing leaves its
// messages at the server.
func (s *clientStream) await() bool {
	return (s.credit.Left() > 0 || s.credit.Await(s.ctx.Done(), nil)) && s.ctx.Err() == nil
}

// tell calls the receiver of the stream, unless the stream has ended. If last is set,
// the stream ends.
// over is guarded by link.Told and not by link.Mu, because it says what the receiver has heard.
func (s *clientStream) tell(last bool, call func(transport.Receiver)) {
	s.link.Recv.Tell(func(to transport.Receiver) {
		if !s.over {
			s.over = last
			call(to)
		}
	})
}

// silence ends the reports to the receiver of the stream.
func (s *clientStream) silence() { s.tell(true, func(transport.Receiver) {}) }

// post posts the request and delivers the response.
func (s *clientStream) post() {
	m, r := &s.sent, &s.request
	s.link.remote.preparePost(s.ctx, r, m)
	r.posts = s
	response, err := r.do(s.ctx)
	// It failed before, or the RoundTripper does not support tracing. Either way it waits in the queue
	// no longer.
	if !r.written.Load() {
		s.written()
	}
	switch {
	// The link ends because of this response. Its loss says whether the request was executed.
	case err == nil && r.fatal != nil:
		response.Body.Close()
		s.link.abandon(m, web.IsRefusal(response))
	case err == nil:
		s.read(m, r, response)
	case s.ctx.Err() != nil, r.fatal != nil:
		s.link.abandon(m, r.unsent())
	default:
		s.fail(inWords(err), r.unsent())
	}
	s.link.endIf(r.fatal)
}

// written records that the request was written.
func (s *clientStream) written() {
	s.link.Mu.Lock()
	defer s.link.Mu.Unlock()
	s.link.written(&s.sent)
}

// read reads the response to the POST.
func (s *clientStream) read(m *outgoing, r *httpRequest, response *http.Response) {
	defer response.Body.Close()
	s.sessions = response.Header[headerSession]
	switch kind := web.MediaType(response.Header); {
	case response.StatusCode/100 != 2:
		s.refused(m, r, response)
	case kind == web.TypeJSON:
		s.readJSON(response)
	case kind == web.TypeEvents:
		s.readEvents(response.Body)
	// Only a message answers a request. 202 is for notifications, and nobody else would end the wait.
	case kind == "" || response.StatusCode != http.StatusOK:
		web.Drain(response.Body)
		s.fail(&transport.StatusError{Status: response.StatusCode, Body: "a request was answered without a message"}, false)
	default:
		web.Drain(response.Body)
		body := fmt.Sprintf("a request was answered with %q, which is neither JSON nor an event stream", web.Printable(kind, maxKind))
		s.fail(&transport.StatusError{Status: response.StatusCode, Body: body}, false)
	}
}

// readJSON delivers a body that consists of one message.
func (s *clientStream) readJSON(response *http.Response) {
	if !s.await() {
		return
	}
	frame, err := readBody(response, s.link.limit)
	if err == nil && len(frame) == 0 {
		err = &transport.StatusError{Status: response.StatusCode, Body: "a request was answered with an empty body"}
	}
	in := transport.Inbound{Frame: frame}
	if err == nil {
		err = s.decode(&in)
	}
	if err != nil {
		s.fail(err, false)
		return
	}
	in.Last = in.Last || in.Message == nil && jsonrpc.IsBatch(frame) // the receiver looks for the response in the batch
	if s.deliver(in); in.Last {
		s.cancel()
		return
	}
	s.fail(&transport.StatusError{Status: response.StatusCode, Body: "a request was answered with JSON that is not its response"}, false)
}

// refused reads a response with an error status. If its body is a JSON-RPC response,
// refused delivers that, unless the status says more: that access is denied, or that the
// server is overloaded.
func (s *clientStream) refused(request *outgoing, r *httpRequest, response *http.Response) {
	body := web.Excerpt(response)
	failed := web.NewStatusError(response, body)
	s.link.judge(s.tag, r, failed, body)
	if s.mayBeOlder(response.StatusCode, body) {
		response.Body.Close() // the next request may need the connection
		if err := s.fallBack(request, failed); s.link.ctx.Err() != nil {
			s.link.abandon(request, true)
		} else if err != nil {
			s.fail(err, true)
		}
		return
	}
	m, err := jsonrpc.Decode(body, jsonrpc.Limits{})
	switch answers := err == nil && s.isAnswer(&m); {
	// The status decides what this side does next; the error that the server gives is kept with it.
	case answers && (failed.Denied() || failed.Overloaded()):
		failed.Fault = m.Error
	case answers:
		if s.await() {
			s.deliver(transport.Inbound{Frame: body, Message: &m, Last: true})
			s.cancel()
		}
		return
	}
	s.fail(failed, web.IsRefusal(response))
}

// readEvents delivers the events of a body until it ends.
func (s *clientStream) readEvents(body io.Reader) {
	events := s.link.remote.newReader(body, s.link.limit)
	defer s.link.remote.release(events)
	events.ResumeAfter(s.eventID)
	for s.await() {
		e, err := events.Next()
		switch {
		// On Main one message is lost, and the next ones are not. In the stream of a request it may
		// have been the answer, so the request fails.
		case isOversized(err) && s.isMain():
			s.deliver(transport.Inbound{Err: err})
			continue
		case isOversized(err):
			s.fail(err, false)
			return
		case err != nil:
			s.ended(err)
			return
		}
		if s.note(e); len(e.Data) == 0 || e.Type != "message" { // MCP has no other type
			continue
		}
		in := transport.Inbound{Frame: e.Data}
		if err := s.decode(&in); err != nil {
			s.fail(err, false)
			return
		}
		if s.deliver(in); in.Last {
			if !events.Ended() {
				s.awaitEnd(body)
			}
			s.cancel()
			return
		}
	}
}

// note stores the position in the stream. If a header cannot contain an event id, the
// stream cannot be resumed from it.
func (s *clientStream) note(e eventstream.Event) {
	if s.eventID = e.ID; !httpheader.IsPlain(e.ID) || len(e.ID) > maxEventID {
		s.eventID = ""
	}
	// A server may neither have the client reconnect without a pause, nor keep it away for long.
	if e.Retry > 0 {
		s.retry = max(minDelay, min(e.Retry, web.MaxDelay))
	}
}

// awaitEnd waits until the server ends the event stream, so that the connection can be
// reused.
// A server that goes on after its answer is cut off.
func (s *clientStream) awaitEnd(body io.Reader) {
	timer := time.AfterFunc(web.EndTime, s.cancel)
	defer timer.Stop()
	io.CopyN(io.Discard, body, web.MaxErrorBody)
}

// decode decodes a frame before it is delivered, and notices the response to the
// request. If a frame cannot be decoded, the receiver decides about it.
func (s *clientStream) decode(in *transport.Inbound) error {
	m, err := jsonrpc.Decode(in.Frame, jsonrpc.Limits{})
	if err != nil {
		return nil
	}
	in.Message = &m
	if !s.isAnswer(&m) {
		return nil
	}
	// Before the receiver has the answer, because what it then sends belongs to the session.
	if s.initializes && m.Kind == jsonrpc.KindResult {
		if err := s.link.remote.begin(s.sessions, &m); err != nil {
			return err
		}
	}
	in.Last = true
	return nil
}

// isAnswer reports whether a message is the response to the request.
func (s *clientStream) isAnswer(m *jsonrpc.Message) bool {
	return (m.Kind == jsonrpc.KindResult || m.Kind == jsonrpc.KindError) && m.ID == s.id && !s.isMain()
}

// deliver delivers a frame for one credit.
func (s *clientStream) deliver(in transport.Inbound) {
	// await has seen the credit, and only this goroutine takes it.
	s.credit.TryTake()
	in.Stream = s.number
	if in.Last {
		s.link.drop(s)
	}
	s.link.Recv.Work(func(to transport.Receiver, work bool) {
		if !s.over {
			s.over, in.Work = in.Last, work
			to.Receive(in)
		}
	})
}

// fail reports that the request has failed, and ends the stream. If this side has ended
// the stream, fail reports nothing.
func (s *clientStream) fail(err error, unsent bool) {
	if s.ctx.Err() != nil {
		return
	}
	s.tell(true, func(to transport.Receiver) {
		to.Failed(transport.Failure{Tag: s.tag, Err: err, Unsent: unsent})
	})
	s.forget()
}

// ended reports that an event stream has ended.
// A proper end before the response is a loss as well: the response is missing.
func (s *clientStream) ended(err error) {
	if err == io.EOF {
		err = transport.ErrPeerClosed
	}
	if s.isMain() {
		s.lost(fmt.Errorf("streamable: the GET stream of the session ended: %w", err), true, s.retry)
		return
	}
	resumable := s.eventID != "" && !s.modern && !s.initializes // without an event id the server cannot tell where to continue
	s.lost(fmt.Errorf("streamable: the stream of a request ended before its response: %w", err), resumable, s.retry)
}

// lost reports that the stream broke off, and how long to wait before it is resumed. If
// this side has ended the stream, lost reports nothing.
func (s *clientStream) lost(reason error, resumable bool, delay time.Duration) {
	if s.ctx.Err() != nil {
		return
	}
	loss := transport.StreamLoss{Stream: s.number, Reason: reason, Resumable: resumable}
	if resumable {
		loss.Delay = delay
		s.link.Mu.Lock()
		s.broken = true // now the stream belongs to the goroutine that resumes it
		s.link.Mu.Unlock()
	}
	// After this, Resume may have started another goroutine for the stream: this one leaves it alone.
	s.tell(!resumable, func(to transport.Receiver) { to.StreamLost(loss) })
	if !resumable {
		s.forget()
	}
}

// forget ends a stream after its last report.
func (s *clientStream) forget() {
	s.link.drop(s)
	s.cancel()
}

// listen opens the stream by a GET request: a stream that broke off, or Main.
func (s *clientStream) listen() {
	r := s.link.remote.newRequest(http.MethodGet, s.link.remote.acceptsEvents)
	// The headers of this request are its own, so they may be changed.
	r.joinSession()
	if s.eventID != "" {
		r.header.Set(headerLastEventID, s.eventID)
	}
	response, err := r.do(s.ctx)
	// Whatever the answer is, messages wait for it no longer (awaitListening).
	if s.isMain() {
		s.link.answered.Fire()
	}
	if err != nil {
		s.lost(fmt.Errorf("streamable: open the event stream: %w", err), true, s.retry)
	} else {
		s.readListened(r, response)
	}
	s.link.endIf(r.fatal)
}

// readListened reads the response to a GET request. A server need not have a stream for its session: if
// it refuses the first request for one, nothing is reported, and nothing tried again.
func (s *clientStream) readListened(r *httpRequest, response *http.Response) {
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK && web.MediaType(response.Header) == web.TypeEvents {
		s.listened = true
		s.readEvents(response.Body)
		return
	}
	body := web.Excerpt(response)
	refused := web.NewStatusError(response, body)
	passing, unknown := web.IsPassing(refused.Status), r.inSession && refused.Status == http.StatusNotFound
	switch {
	case unknown && s.listened: // the server has such a stream, so it does not know the session
		r.fatal = transport.ErrSessionExpired
		return
	case unknown, r.isForeign(refused, body):
		s.link.doubt(0, refused)
	}
	if s.isMain() && !s.listened && !refused.Denied() && !passing {
		return // a server need not support this stream
	}
	s.lost(fmt.Errorf("streamable: open the event stream: %w", refused), passing, max(s.retry, refused.RetryAfter))
}

func isOversized(err error) bool {
	if err == nil { // nearly always, and errors.As allocates
		return false
	}
	var oversized *transport.OversizedError
	return errors.As(err, &oversized)
}
