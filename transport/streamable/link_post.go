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
)

// postTime is how long the server may take to accept what is no request. What
// is behind it waits.
const postTime = 10 * time.Second

// postAll posts what is no request, each once the one before was accepted or
// has failed, until nothing is queued.
func (l *clientLink) postAll(o *outgoing) {
	for o != nil {
		l.post(o)
		l.mu.Lock()
		if o = l.advance(); o == nil {
			l.posting = false
			l.check()
		}
		l.mu.Unlock()
	}
}

func (l *clientLink) post(o *outgoing) {
	ctx, cancel := context.WithTimeout(l.ctx, postTime)
	defer cancel()
	a := l.newPost(o)
	response, err := a.do(ctx)
	unsent := a.unsent()
	if err == nil {
		unsent = isRefusal(response.StatusCode)
		err = accepted(response)
	}
	var refused *transport.StatusError
	if errors.As(err, &refused) && a.fatal == nil {
		a.fatal = l.countDisowned(a, refused)
	}
	switch {
	case err == nil && o.Route.Method == protocol.NotificationInitialized:
		l.openMain()
	case err == nil, o.Tag == 0: // nobody asks after it
	case l.ctx.Err() != nil, a.fatal != nil:
		l.abandon(o, unsent)
	default:
		err = fmt.Errorf("streamable: post %s: %w", o.label(), err)
		l.Tell(func(to transport.Receiver) { to.Failed(transport.Failure{Tag: o.Tag, Err: err, Unsent: unsent}) })
	}
	l.judge(a)
}

// label names a message in errors.
func (o *outgoing) label() string {
	if o.Route.Method == "" {
		return "a response"
	}
	return o.Route.Method
}

// accepted reads the response to what is no request.
func accepted(response *http.Response) error {
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return newStatusError(response, excerptOf(response))
	}
	io.CopyN(io.Discard, response.Body, maxErrorBody) // only so that the connection can be used again
	return nil
}

// openMain listens to what belongs to no request, once per session.
func (l *clientLink) openMain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session.begun && !l.session.listens {
		l.session.listens = true
		l.run(l.main.listen)
	}
}

// abandon notes a message that ends with the link.
func (l *clientLink) abandon(o *outgoing, unsent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if unsent && !l.isEnded(o) {
		l.unsent = append(l.unsent, o)
	}
}

// isEnded reports whether a request's stream was ended from this side.
func (l *clientLink) isEnded(o *outgoing) bool {
	return o.exchange != nil && l.exchanges[o.exchange.stream] == nil
}

// judge ends the link if the attempt says that it is over.
func (l *clientLink) judge(a *attempt) {
	if a.fatal != nil {
		l.end(a.fatal)
	}
}
