package sse

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/eventstream"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

const (
	// orderPatience is how long the next message waits for the POST of a request.
	// Some servers answer the POST only when they have served the request.
	orderPatience = time.Second

	// maxBeside is how many such POSTs there may be.
	maxBeside = 64

	// postPatience is how long a server may take to accept any other message.
	postPatience = 10 * time.Second
)

// A clientLink is the link of a Client. One goroutine reads the stream of events.
// Another posts messages, while there are any. They are goroutines of its parts.Client, which also ends it.
type clientLink struct {
	parts.Client // its Mu guards the fields from queue on
	parts.Single

	client   *http.Client
	header   http.Header
	auth     transport.Authorizer // nil if there is none
	limit    int                  // the maximum size of a frame, in bytes
	endpoint *url.URL             // the URL that messages are posted to
	http     string               // the version of HTTP of the stream's response
	body     io.ReadCloser
	events   *eventstream.Reader
	release  func() // called when the link has ended

	reads parts.Reads
	known atomic.Bool // the server has accepted a message, so it knew the session

	ctx    context.Context // ends when nothing is exchanged any more
	cancel context.CancelFunc
	beside chan struct{} // holds a token for each request whose POST later messages may overtake

	queue   parts.Queue
	taken   uint64 // how many messages were taken out of the queue
	posting bool
}

// A numbered message is one that has left the queue.
type numbered struct {
	transport.Outbound
	number uint64 // the position in the order of Send
}

func newClientLink(client *http.Client, header http.Header, limit int) *clientLink {
	if limit <= 0 {
		limit = parts.DefaultMaxFrame
	}
	l := &clientLink{
		client: client, header: header, limit: limit, release: func() {}, beside: make(chan struct{}, maxBeside),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.Link = l
	return l
}

func (l *clientLink) newRequest(ctx context.Context, method string, to *url.URL, frame io.Reader) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, to.String(), frame)
	if err == nil && l.header != nil {
		request.Header = l.header.Clone()
	}
	return request, err
}

// start begins to read the stream.
func (l *clientLink) start() {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.Run(func() { l.EndFor(l.read()) })
}

// abandon ends a link that was never opened.
func (l *clientLink) abandon() {
	l.cancel()
	if l.body != nil {
		l.body.Close()
	}
	l.release()
}

// read delivers the messages of the stream until it ends, and returns why.
func (l *clientLink) read() error {
	defer l.body.Close()
	for l.Credit.Take(l.ctx.Done(), nil) {
		frame, err := l.next()
		switch {
		case err == io.EOF:
			return fmt.Errorf("sse: the stream ended: %w", transport.ErrPeerClosed)
		case err != nil:
			return fmt.Errorf("sse: read the stream: %w", err)
		}
		l.Recv.Tell(func(to transport.Receiver) { to.Receive(transport.Inbound{Frame: frame}) })
	}
	return transport.ErrClosed
}

// next returns the data of the next event that is a message.
func (l *clientLink) next() ([]byte, error) {
	for {
		e, err := l.events.Next()
		if err != nil || e.Type == "message" && len(e.Data) > 0 {
			return e.Data, err
		}
	}
}

// LinkTraits implements transport.LinkDescriber. It leaves out the session's id, which is a
// secret part of the address.
func (l *clientLink) LinkTraits() transport.LinkTraits {
	return transport.LinkTraits{
		RequestPerMessage: true, RecordsReads: true, LastRead: l.reads.Last(), Network: transport.Network{HTTP: l.http},
	}
}

// Send implements transport.Link.
func (l *clientLink) Send(o transport.Outbound) error {
	if err := l.Refuses(o, "sse", l.limit); err != nil {
		return err
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	switch {
	case l.HasBegun():
		return transport.ErrClosed
	case !l.queue.Push(o):
		return transport.ErrBusy
	case !l.posting:
		l.posting = true
		l.Run(l.postAll)
	}
	return nil
}

// postAll posts messages until none is queued.
func (l *clientLink) postAll() {
	for m, ok := l.take(); ok; m, ok = l.take() {
		if m.Route.Kind == jsonrpc.KindRequest {
			l.postRequest(m)
		} else {
			ctx, cancel := context.WithTimeout(l.ctx, postPatience)
			l.post(ctx, m)
			cancel()
		}
	}
}

// take takes the oldest message out of the queue.
func (l *clientLink) take() (m numbered, ok bool) {
	l.Mu.Lock()
	if l.queue.Len() == 0 || l.IsStopped() {
		l.posting = false // the goroutine that has posted checks whether the link may end
		l.Mu.Unlock()
		return m, false
	}
	l.taken++
	m = numbered{l.queue.At(0), l.taken}
	l.queue.Drop(1)
	relieved := l.queue.Relieved()
	l.Mu.Unlock()
	if relieved {
		l.Recv.Tell(transport.Receiver.Writable)
	}
	return m, true
}

// postRequest posts a request, and waits until the server has accepted it, for at
// most orderPatience.
func (l *clientLink) postRequest(m numbered) {
	select {
	case l.beside <- struct{}{}:
	case <-l.ctx.Done():
		l.keepUnsent(m)
		return
	}
	posted := make(chan struct{})
	post := func() {
		defer func() { <-l.beside }()
		defer close(posted)
		l.post(l.ctx, m)
	}
	l.Mu.Lock()
	started := l.Run(post)
	l.Mu.Unlock()
	if !started { // and nothing will
		l.keepUnsent(m)
		return
	}
	wait.Within(posted, orderPatience)
}

// post posts one message and tells the receiver if it failed.
func (l *clientLink) post(ctx context.Context, m numbered) {
	var waiting, connected atomic.Bool
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { waiting.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	}
	response, unsent, err := web.Send(ctx, l.client, l.auth, func() (*http.Request, error) {
		connected.Store(false)
		request, err := l.newRequest(httptrace.WithClientTrace(ctx, trace), http.MethodPost, l.endpoint, bytes.NewReader(m.Frame))
		if err == nil {
			request.Header.Set("Content-Type", web.TypeJSON)
		}
		return request, err
	})
	if err != nil {
		l.settle(m, err, unsent || waiting.Load() && !connected.Load()) // if the RoundTripper does not support tracing, this is uncertain
		return
	}
	defer response.Body.Close()
	l.reads.Note() // the status of the response has arrived
	if response.StatusCode/100 == 2 {
		l.known.Store(true)
		web.Drain(response.Body)
		return
	}
	refused := web.NewStatusError(response, web.Excerpt(response))
	if response.StatusCode == http.StatusNotFound && l.known.Load() {
		l.expire(m, refused)
		return
	}
	l.settle(m, refused, web.IsRefusal(response))
}

// expire ends a link whose session the server does not know any more. The server may
// say so before the end of the stream has arrived. A message that it did not accept
// was not sent, so it is reported with the loss.
func (l *clientLink) expire(m numbered, refused error) {
	l.keepUnsent(m)
	l.EndFor(fmt.Errorf("%w: %w", transport.ErrSessionExpired, refused))
}

// settle tells the receiver that a message has failed. One that ends with the link
// is reported with its loss.
func (l *clientLink) settle(m numbered, err error, unsent bool) {
	if l.ctx.Err() != nil {
		if unsent {
			l.keepUnsent(m)
		}
		return
	}
	if m.Tag != 0 { // a sender that gives no tag does not want to know
		l.Recv.Tell(func(to transport.Receiver) { to.Failed(transport.Failure{Tag: m.Tag, Err: err, Unsent: unsent}) })
	}
}

// keepUnsent keeps a message that was not sent, to be reported with the loss.
func (l *clientLink) keepUnsent(m numbered) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.Abandon(m.number, m.Tag)
}

// Close implements transport.Link. It posts what is queued within 70 % of the grace,
// and then ends the stream.
func (l *clientLink) Close(grace time.Duration) error {
	return l.Client.Close(grace, func() {})
}

// IsEmpty implements parts.Ending. While something is queued, a goroutine posts.
func (l *clientLink) IsEmpty() bool { return !l.posting }

// AwaitAnswers implements parts.Ending. None is worth the wait.
func (l *clientLink) AwaitAnswers(error) {}

// Cancel implements parts.Ending.
func (l *clientLink) Cancel() { l.cancel() }

// EndOthers implements parts.Ending. There is only the stream, which ends with the requests.
func (l *clientLink) EndOthers(error) error { return nil }

// Gone implements parts.Ending.
func (l *clientLink) Gone() {
	l.release()
	l.Mu.Lock()
	defer l.Mu.Unlock()
	for _, tag := range l.queue.Tags() {
		l.Abandon(l.taken+1, tag) // in its order, after what has left the queue
	}
}

// Name implements parts.Ending.
func (l *clientLink) Name() string { return "sse" }
