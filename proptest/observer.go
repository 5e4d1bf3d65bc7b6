package proptest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
	"github.com/bowline-mcp/bowline/transport/transcript"
)

// A frameLog records the frames that pass it. There is one between the Conn and the
// faults, and one between the faults and the transport under test.
type frameLog struct {
	reopened chan struct{} // closed when the second link is opened

	mu        sync.Mutex
	links     int
	frames    frames              // frames in both directions, on all links
	requests  []sentRequest       // requests that the link has accepted
	unsent    map[requestKey]bool // the requests among these that were reported as unsent
	answers   map[int64]time.Time // when the first answer for an id was delivered
	replies   int                 // how many replies were delivered
	unmatched int                 // how many of these have an id of no accepted request
	cancelled map[int64]int       // how many cancellations the link has accepted, by id
}

// A sentRequest is a request that has passed on its way to the peer.
type sentRequest struct {
	requestKey
	method string
	params string
}

// A requestKey is an id on a link; links are counted from 1.
type requestKey struct {
	link int
	id   int64
}

func newFrameLog() *frameLog {
	return &frameLog{
		reopened: make(chan struct{}), unsent: map[requestKey]bool{}, answers: map[int64]time.Time{},
		cancelled: map[int64]int{},
	}
}

func (l *frameLog) opened() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.links++; l.links == 2 {
		close(l.reopened)
	}
}

// sendsOf lists the link and id of each time that the request with these params was
// accepted and not reported as unsent.
func (l *frameLog) sendsOf(params string) (passed []requestKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.requests {
		if s.params == params && !l.unsent[s.requestKey] {
			passed = append(passed, s.requestKey)
		}
	}
	return passed
}

// sentRequests lists all accepted requests, in order.
func (l *frameLog) sentRequests() []sentRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.requests)
}

// answered returns when the first answer for an id was delivered.
func (l *frameLog) answered(id int64) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.answers[id]
	return at, ok
}

func (l *frameLog) cancellations(id int64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cancelled[id]
}

// count returns how many links were opened, how many answers were delivered,
// and how many of these answered no request.
func (l *frameLog) count() (links, replies, unmatched int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.links, l.replies, l.unmatched
}

// frameCounts returns how many frames have passed in each direction.
func (l *frameLog) frameCounts() frames {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.frames
}

func (l *frameLog) sent(link int, m *jsonrpc.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frames[fault.Outbound]++
	if m.Kind == jsonrpc.KindRequest {
		l.requests = append(l.requests, sentRequestOf(link, m))
	}
	if id, ok := cancelledBy(m); ok {
		l.cancelled[id]++
	}
}

func (l *frameLog) refused(link int, m *jsonrpc.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id, ok := cancelledBy(m); ok {
		l.cancelled[id]--
	}
	if m.Kind != jsonrpc.KindRequest {
		return
	}
	if i := slices.Index(l.requests, sentRequestOf(link, m)); i >= 0 {
		l.requests = slices.Delete(l.requests, i, i+1)
	}
}

func sentRequestOf(link int, m *jsonrpc.Message) sentRequest {
	id, _ := m.ID.Int64()
	return sentRequest{requestKey{link, id}, m.Method, string(m.Params)}
}

// cancelledBy returns the id of the request that a message cancels.
func cancelledBy(m *jsonrpc.Message) (id int64, ok bool) {
	var params struct {
		ID int64 `json:"id"`
	}
	ok = m.Method == cancelMethod && json.Unmarshal(m.Params, &params) == nil
	return params.ID, ok
}

func (l *frameLog) received(m *jsonrpc.Message, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frames[fault.Inbound]++
	if err != nil || m.Kind != jsonrpc.KindResult && m.Kind != jsonrpc.KindError {
		return
	}
	l.replies++
	id, _ := m.ID.Int64()
	if !slices.ContainsFunc(l.requests, func(s sentRequest) bool { return s.id == id }) {
		l.unmatched++
	}
	if _, again := l.answers[id]; !again {
		l.answers[id] = time.Now()
	}
}

func (*frameLog) invalid(jsonrpc.ID) {}

func (l *frameLog) notSent(link int, tags ...transport.Tag) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, tag := range tags {
		l.unsent[requestKey{link, int64(tag)}] = true
	}
}

// An observer gets the frames that pass through a transport. Its methods may be
// called from several goroutines at the same time.
type observer interface {
	opened()

	// sent gets a message before the link may deliver it. If the link does not
	// accept it, refused is called afterwards.
	sent(link int, m *jsonrpc.Message)
	refused(link int, m *jsonrpc.Message)

	// invalid gets the id of a sent frame that is not a valid message, if the id
	// can be read.
	invalid(id jsonrpc.ID)

	// received gets a frame before it is delivered. If it is not a valid message,
	// err says why.
	received(m *jsonrpc.Message, err error)

	// notSent gets the tags of frames that were accepted but not sent.
	notSent(link int, tags ...transport.Tag)
}

// watch returns a transport that reports its frames to an observer.
func watch(inner transport.Transport, by observer) transport.Transport {
	return transcript.Tap(inner, func(e transcript.Entry) {
		m, err := jsonrpc.Message{}, e.Err
		var unread *jsonrpc.DecodeError
		if e.Kind == transcript.Sent || e.Kind == transcript.Refused || e.Kind == transcript.Received {
			m, err = jsonrpc.Decode(e.Frame, jsonrpc.Limits{})
		}
		switch {
		case e.Kind == transcript.Opened:
			by.opened()
		case e.Kind == transcript.Sent && err == nil:
			by.sent(e.Link, &m)
		case e.Kind == transcript.Sent && errors.As(err, &unread):
			by.invalid(unread.ID)
		case e.Kind == transcript.Refused && err == nil:
			by.refused(e.Link, &m)
		case e.Kind == transcript.Received || e.Kind == transcript.Skipped:
			by.received(&m, err)
		case len(e.Unsent) > 0:
			by.notSent(e.Link, e.Unsent...)
		}
	})
}

// opening is a function that implements transport.Transport.
type opening func(context.Context) (transport.Link, error)

func (o opening) Open(ctx context.Context) (transport.Link, error) { return o(ctx) }
