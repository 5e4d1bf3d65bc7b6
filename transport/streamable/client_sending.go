package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// postPatience is how long the server may take to accept a message that is not a
// request. The messages after it wait.
const postPatience = 10 * time.Second

// listenPatience is how long the messages after notifications/initialized wait until the
// server has accepted the GET stream of the session.
const listenPatience = time.Second

// startRequests starts the requests at the head of the queue. It returns the first
// message after them that is not a request, or nil if there is none.
// The caller holds Mu. Requests are started in the order of Send, but each has its own HTTP exchange,
// so they may reach the server in another order.
func (l *clientLink) startRequests() *outgoing {
	for !l.IsStopped() && l.ctx.Err() == nil {
		m := l.queue.pop()
		switch {
		case m == nil:
			return nil
		// Its room is free as soon as it is started: at most one such message is on its way.
		case m.stream == nil:
			l.written(m)
			return m
		case m.stream.ctx.Err() != nil:
			l.written(m) // the stream of the request ended before the request was sent
		default:
			l.Run(m.stream.post)
		}
	}
	return nil
}

// written releases the room of a message in the queue.
// It may be called twice for a request, when it was written and when it has failed; only the first call
// counts. The caller holds Mu.
func (l *clientLink) written(m *outgoing) {
	if l.queue.release(m) {
		l.Recv.Tell(transport.Receiver.Writable)
	}
	l.Check()
}

// postAll posts messages that are not requests, each after the server has accepted or
// refused the one before, until none is queued.
func (l *clientLink) postAll(m *outgoing) {
	for m != nil {
		l.post(m)
		l.Mu.Lock()
		// Under Mu, because a Send that finds posting set relies on this goroutine to look once more.
		if m = l.startRequests(); m == nil {
			l.posting = false
			l.Check()
		}
		l.Mu.Unlock()
	}
}

// post posts one message. The response says only whether the server has accepted it; an answer comes on
// another stream.
func (l *clientLink) post(m *outgoing) {
	ctx, cancel := context.WithTimeout(l.ctx, postPatience)
	defer cancel()
	r := l.remote.newPost(ctx, m)
	response, err := r.do(ctx)
	unsent := r.unsent()
	if err == nil {
		unsent = web.IsRefusal(response)
		err = l.accepted(m, r, response)
	}
	switch {
	case err == nil && m.Route.Method == protocol.NotificationInitialized:
		l.listen()
		l.awaitListening()
	case err == nil, m.Tag == 0: // a sender that gives no tag does not want to know
	// It ends with the link, whose loss tells of it.
	case l.ctx.Err() != nil, r.fatal != nil:
		l.abandon(m, unsent)
	default:
		err = inWords(err)
		l.Recv.Tell(func(to transport.Receiver) { to.Failed(transport.Failure{Tag: m.Tag, Err: err, Unsent: unsent}) })
	}
	l.endIf(r.fatal)
}

// inWords says that a connection broke before the response came, if the error says no more
// than that its bytes ended. The connection knows the method, and tells it.
func inWords(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the server closed the connection without a response: %w", err)
	}
	return err
}

// accepted reads the response to a message that is not a request.
func (l *clientLink) accepted(m *outgoing, r *httpRequest, response *http.Response) error {
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		body := web.Excerpt(response)
		refused := web.NewStatusError(response, body)
		l.judge(m.Tag, r, refused, body)
		return refused
	}
	// The connection can be used again only once the body was read.
	web.Drain(response.Body)
	return nil
}

// judge decides what a refusal of a message means for the link.
// Call it before the failure of the message is reported: transport.Doubter comes first.
func (l *clientLink) judge(tag transport.Tag, r *httpRequest, refused *transport.StatusError, body []byte) {
	r.countRefused(refused)
	if r.isForeign(refused, body) {
		l.doubt(tag, refused)
	}
}

// doubt tells the receiver that the server may be gone, or may have forgotten the session.
func (l *clientLink) doubt(tag transport.Tag, why error) {
	l.Recv.Tell(func(to transport.Receiver) {
		if doubter, ok := transport.As[transport.Doubter](to); ok {
			doubter.Doubt(tag, why)
		}
	})
}

// listen opens the GET stream of a session, once. It does not wait until the stream is
// open.
func (l *clientLink) listen() {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	switch {
	case !l.remote.currentSession().begun:
		l.answered.Fire() // the session has no GET stream
	case !l.listening:
		l.listening = true
		l.Run(l.main.listen)
	}
}

// awaitListening waits until the server has answered the GET request, for at most
// listenPatience. There are two reasons. If the stream is not open yet, messages are
// lost that the server sends on it because of a later message. And some servers mistake
// a GET request during a call for one that resumes the call's stream.
func (l *clientLink) awaitListening() {
	ctx, cancel := context.WithTimeout(l.ctx, listenPatience)
	defer cancel()
	select {
	// A refusal is an answer, too: then there is no such stream to miss.
	case <-l.answered.Wait():
	case <-ctx.Done():
	}
}
