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

// A witness records the frames that pass. There is one between the Conn and the
// faults, and one between the faults and the transport under test.
type witness struct {
	reopened chan struct{} // closed when the second link is opened

	mu        sync.Mutex
	links     int
	frames    frames              // frames in both directions, on all links
	requests  []sighting          // requests that the link has accepted
	unsent    map[passage]bool    // the requests among these that were reported as unsent
	answers   map[int64]time.Time // when the first answer for an id was delivered
	replies   int                 // how many replies were delivered
	guesses   int                 // how many of these have an id that no accepted request has
	cancelled map[int64]int       // how many cancellations the link has accepted, by id
}

// A sighting is a request that has passed on its way to the peer.
type sighting struct {
	passage
	method string
	params string
}

// A passage is an id on a link; links are counted from 1.
type passage struct {
	link int
	id   int64
}

func newWitness() *witness {
	return &witness{
		reopened: make(chan struct{}), unsent: map[passage]bool{}, answers: map[int64]time.Time{},
		cancelled: map[int64]int{},
	}
}

func (w *witness) opened() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.links++; w.links == 2 {
		close(w.reopened)
	}
}

// passages lists the links on which the request with these params was accepted
// and not reported as unsent.
func (w *witness) passages(params string) (passed []passage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.requests {
		if s.params == params && !w.unsent[s.passage] {
			passed = append(passed, s.passage)
		}
	}
	return passed
}

// seen lists all accepted requests, in order.
func (w *witness) seen() []sighting {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests)
}

// answered returns when the first answer for an id was delivered.
func (w *witness) answered(id int64) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok := w.answers[id]
	return at, ok
}

func (w *witness) announced(id int64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cancelled[id]
}

// count returns how many links were opened, how many answers were delivered,
// and how many of these answered no request.
func (w *witness) count() (links, replies, guesses int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.links, w.replies, w.guesses
}

// passed returns how many frames have passed in each direction.
func (w *witness) passed() frames {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frames
}

func (w *witness) sent(link int, m *jsonrpc.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frames[fault.Outbound]++
	if m.Kind == jsonrpc.KindRequest {
		w.requests = append(w.requests, sightingOf(link, m))
	}
	if id, ok := cancelledBy(m); ok {
		w.cancelled[id]++
	}
}

func (w *witness) refused(link int, m *jsonrpc.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id, ok := cancelledBy(m); ok {
		w.cancelled[id]--
	}
	if m.Kind != jsonrpc.KindRequest {
		return
	}
	if i := slices.Index(w.requests, sightingOf(link, m)); i >= 0 {
		w.requests = slices.Delete(w.requests, i, i+1)
	}
}

func sightingOf(link int, m *jsonrpc.Message) sighting {
	id, _ := m.ID.Int64()
	return sighting{passage{link, id}, m.Method, string(m.Params)}
}

// cancelledBy returns the id of the request that a message cancels.
func cancelledBy(m *jsonrpc.Message) (id int64, ok bool) {
	var params struct {
		ID int64 `json:"id"`
	}
	ok = m.Method == cancelMethod && json.Unmarshal(m.Params, &params) == nil
	return params.ID, ok
}

func (w *witness) received(m *jsonrpc.Message, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frames[fault.Inbound]++
	if err != nil || m.Kind != jsonrpc.KindResult && m.Kind != jsonrpc.KindError {
		return
	}
	w.replies++
	id, _ := m.ID.Int64()
	if !slices.ContainsFunc(w.requests, func(s sighting) bool { return s.id == id }) {
		w.guesses++
	}
	if _, again := w.answers[id]; !again {
		w.answers[id] = time.Now()
	}
}

func (*witness) spoiled(jsonrpc.ID) {}

func (w *witness) notSent(link int, tags ...transport.Tag) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, tag := range tags {
		w.unsent[passage{link, int64(tag)}] = true
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

	// spoiled gets the id of a sent frame that is not a valid message, if the id
	// can be read.
	spoiled(id jsonrpc.ID)

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
			by.spoiled(unread.ID)
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
