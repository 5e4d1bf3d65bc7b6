package proptest

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// A witness writes down what passes. One stands between the Conn and the faults,
// one between the faults and the transport under test.
type witness struct {
	reopened chan struct{} // closed with the second link

	mu        sync.Mutex
	links     int
	frames    frames              // either way, on any link
	requests  []sighting          // accepted by the link
	unsent    map[passage]bool    // of those, what was said never to have left
	answers   map[int64]time.Time // when the first for an id was delivered
	replies   int                 // of any id, delivered
	guesses   int                 // of those, to ids of no request accepted
	cancelled map[int64]int       // announcements accepted, by id
}

// A sighting is one request on its way to the peer.
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

func (w *witness) opened() (number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.links++; w.links == 2 {
		close(w.reopened)
	}
	return w.links
}

// passages lists where the request with these params was accepted and not said
// to be unsent.
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

// seen lists every request accepted, in order.
func (w *witness) seen() []sighting {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests)
}

// answered says when the first answer for an id was delivered.
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

// count returns how many links were opened, how many answers delivered, and how
// many of them to requests never made.
func (w *witness) count() (links, replies, guesses int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.links, w.replies, w.guesses
}

// passed returns how many frames have passed, either way.
func (w *witness) passed() frames {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frames
}

func (w *witness) sent(link int, m *jsonrpc.Message) (undo func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frames[fault.Outbound]++
	id, _ := m.ID.Int64()
	switch {
	case m.Kind == jsonrpc.KindRequest:
		s := sighting{passage{link, id}, m.Method, string(m.Params)}
		w.requests = append(w.requests, s)
		return func() { w.forget(s) }
	case m.Method == cancelMethod:
		var params struct {
			ID int64 `json:"id"`
		}
		if json.Unmarshal(m.Params, &params) == nil {
			w.cancelled[params.ID]++
			return func() { w.uncancel(params.ID) }
		}
	}
	return func() {}
}

func (w *witness) forget(s sighting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.requests) - 1; i >= 0; i-- {
		if w.requests[i] == s {
			w.requests = slices.Delete(w.requests, i, i+1)
			return
		}
	}
}

func (w *witness) uncancel(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancelled[id]--
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

func (w *witness) notSent(link int, tags ...transport.Tag) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, tag := range tags {
		w.unsent[passage{link, int64(tag)}] = true
	}
}

// An observer is told what passes through a transport. Its methods may be
// called from several goroutines at once.
type observer interface {
	// opened numbers a link, from 1.
	opened() (number int)

	// sent notes a message before the link may deliver it, and returns what
	// takes that back, should the link not accept it.
	sent(link int, m *jsonrpc.Message) (undo func())

	// received notes a frame before it is delivered; err is why it is no message.
	received(m *jsonrpc.Message, err error)

	// notSent notes what never left, although it was accepted.
	notSent(link int, tags ...transport.Tag)
}

// watch returns a transport that tells an observer what passes.
func watch(inner transport.Transport, by observer) transport.Transport {
	return opening(func(ctx context.Context) (transport.Link, error) {
		link, err := inner.Open(ctx)
		if err != nil {
			return nil, err
		}
		return &watched{Link: link, by: by, number: by.opened()}, nil
	})
}

// opening is a transport made of a function.
type opening func(context.Context) (transport.Link, error)

func (o opening) Open(ctx context.Context) (transport.Link, error) { return o(ctx) }

// A watched link tells its observer what passes.
type watched struct {
	transport.Link
	by       observer
	number   int
	receiver transport.Receiver
}

func (l *watched) Bind(r transport.Receiver) {
	l.receiver = r
	l.Link.Bind((*watching)(l))
}

func (l *watched) Send(o transport.Outbound) error {
	m, decodeErr := jsonrpc.Decode(o.Frame, jsonrpc.Limits{}) // before the frame is the link's
	undo := func() {}
	if decodeErr == nil {
		undo = l.by.sent(l.number, &m)
	}
	err := l.Link.Send(o)
	if err != nil {
		undo()
	}
	return err
}

// watching is a watched link as the receiver of the one behind it.
type watching watched

func (l *watching) Receive(in transport.Inbound) {
	m, err := jsonrpc.Message{}, in.Err
	if err == nil {
		m, err = jsonrpc.Decode(in.Frame, jsonrpc.Limits{})
	}
	l.by.received(&m, err)
	l.receiver.Receive(in)
}

func (l *watching) Failed(f transport.Failure) {
	if f.Unsent {
		l.by.notSent(l.number, f.Tag)
	}
	l.receiver.Failed(f)
}

func (l *watching) Lost(loss transport.Loss) {
	l.by.notSent(l.number, loss.Unsent...)
	l.receiver.Lost(loss)
}

func (l *watching) StreamOpened(s transport.Stream, tag transport.Tag) {
	l.receiver.StreamOpened(s, tag)
}
func (l *watching) StreamLost(loss transport.StreamLoss) { l.receiver.StreamLost(loss) }
func (l *watching) Writable()                            { l.receiver.Writable() }
func (l *watching) Ended()                               { l.receiver.Ended() }
