package streamable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
)

const (
	modelBytes = 700 // of the events that are kept
	modelAge   = 20 * time.Minute
)

// A streamModel is a session whose client loses its connections and comes back, and what it must get.
type streamModel struct {
	t        *testing.T
	acceptor *acceptor
	handler  *Handler
	store    *MemoryStore
	peer     *peer
	session  string // the header
	streams  map[transport.Stream]*modelStream
	conns    []*modelConn
	kept     []modelEvent // the events in the store, oldest first
	sent     int          // notifications
	left     time.Time    // when the client has begun its session, or has lost its last GET stream
}

// A modelStream is a stream of the session. Stream 0 is Main.
type modelStream struct {
	number transport.Stream
	events []string   // all that were sent
	read   int        // the last one that the client has read
	over   bool       // its last event was sent
	ended  bool       // and nobody has to come back for the rest
	known  bool       // the client has had a connection for it
	stuck  bool       // and that has stuck, so nobody knows what it has got
	on     *modelConn // nil: the client is away
}

type modelEvent struct {
	stream transport.Stream
	index  int
	bytes  int
	at     time.Time
}

// A modelConn is the connection of a client, with what it has got and must get.
type modelConn struct {
	leave       context.CancelFunc
	left        <-chan struct{} // closed by leave
	done        chan struct{}
	header      http.Header
	status      int
	mu          sync.Mutex
	got         bytes.Buffer
	want        []string
	stuck       bool          // the client reads nothing any more
	interrupted chan struct{} // closed: the blocked write fails
}

// The client of a session gets each event once and in order, however often its connections break, stick and
// are replaced, as long as the events are kept. Where some are missing, it is told so.
//
// Guarantees: G-0033.1, G-0033.2, G-0033.4, G-0033.5, G-0033.8, G-0033.9
func TestStreamsAgainstModel(t *testing.T) {
	real := t
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := &streamModel{t: real, acceptor: newAcceptor(respond), store: &MemoryStore{MaxSessionBytes: modelBytes, MaxAge: modelAge}}
			m.handler = NewHandler(m.acceptor, HandlerOptions{EventStore: m.store, Log: slog.New(slog.DiscardHandler), SessionIdle: 10_000 * time.Hour})
			defer m.acceptor.finish(real)
			defer m.handler.Close(0)
			m.begin()
			t.Repeat(map[string]func(*rapid.T){
				"post":   m.post,
				"send":   m.sends,
				"answer": m.answer,
				"leave":  m.leave,
				"resume": m.resume,
				"stick":  m.stick,
				"delete": m.end,
				"pass": func(t *rapid.T) {
					pass(rapid.SampledFrom([]time.Duration{time.Second, comingTime - time.Second, awayTime - time.Second, awayTime, modelAge}).Draw(t, "time"))
				},
				"": m.check,
			})
		})
	})
}

func (c *modelConn) Header() http.Header    { return c.header }
func (c *modelConn) WriteHeader(status int) { c.status = status }
func (c *modelConn) FlushError() error      { return nil }

func (c *modelConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	if !c.stuck {
		defer c.mu.Unlock()
		return c.got.Write(b)
	}
	c.mu.Unlock()
	select {
	case <-c.interrupted:
	case <-c.left:
	}
	return 0, errors.New("interrupted")
}

func (c *modelConn) SetWriteDeadline(deadline time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !deadline.IsZero() && deadline.Before(time.Now()) && c.stuck {
		close(c.interrupted)
		c.stuck = false
	}
	return nil
}

func (c *modelConn) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got.String()
}

// open sends a request of the client.
func (m *streamModel) open(method, body string, lines ...string) *modelConn {
	ctx, cancel := context.WithCancel(context.Background())
	c := &modelConn{leave: cancel, left: ctx.Done(), done: make(chan struct{}), header: http.Header{}, status: http.StatusOK, interrupted: make(chan struct{})}
	go func() {
		defer close(c.done)
		serveHTTP(m.handler, c, newRequest(method, body, lines...).WithContext(ctx))
	}()
	synctest.Wait()
	return c
}

func (m *streamModel) begin() {
	c := m.open("POST", initializeBody("2025-11-25"))
	m.session = headerSession + ": " + c.header.Get(headerSession)
	m.conns = nil
	m.peer = m.acceptor.peer(m.t, m.acceptor.links()-1)
	m.streams, m.kept, m.left = map[transport.Stream]*modelStream{0: {}}, nil, time.Now()
}

// end deletes the session, and begins another. Nothing is kept of the first one.
func (m *streamModel) end(t *rapid.T) {
	if c := m.open("DELETE", "", m.session); c.status/100 != 2 {
		t.Fatalf("DELETE got %d", c.status)
	}
	for _, s := range m.streams {
		if s.on != nil && !wait.IsClosed(s.on.done) {
			t.Fatalf("a connection of stream %d outlives its session", s.number)
		}
	}
	if c := m.open("GET", "", m.session, "Last-Event-ID: 0-0"); c.status != http.StatusNotFound || m.store.all.bytes != 0 {
		t.Fatalf("a session that has ended got %d, and has %d bytes in the store", c.status, m.store.all.bytes)
	}
	m.begin()
}

// post sends a request, whose response becomes a stream at the first event, or after a second.
func (m *streamModel) post(t *rapid.T) {
	c := m.open("POST", holdBody, m.session)
	s := &modelStream{number: m.peer.newest(), on: c, known: true}
	c.want = []string{fmt.Sprintf("%d-0 ", s.number)}
	m.streams[s.number], m.conns = s, append(m.conns, c)
	if rapid.Bool().Draw(t, "at once") {
		m.send(t, s)
		return
	}
	pass(eventsAfter)
}

// pick draws a stream that satisfies a condition.
func (m *streamModel) pick(t *rapid.T, condition func(*modelStream) bool) *modelStream {
	var fitting []transport.Stream
	for number, s := range m.streams {
		if condition(s) && (number == 0 || number+2 > m.peer.newest()) {
			fitting = append(fitting, number)
		}
	}
	if len(fitting) == 0 {
		t.Skip("there is no such stream")
	}
	slices.Sort(fitting)
	return m.streams[rapid.SampledFrom(fitting).Draw(t, "stream")]
}

func isOpen(s *modelStream) bool { return !s.ended }
func isOn(s *modelStream) bool   { return s.on != nil }

func (m *streamModel) sends(t *rapid.T) {
	s := m.pick(t, isOpen)
	for range rapid.IntRange(1, 4).Draw(t, "events") {
		m.send(t, s)
	}
}

// send sends a notification to the client.
func (m *streamModel) send(t *rapid.T, s *modelStream) {
	away := time.Since(m.left)
	taken := s.number != 0 || s.on != nil || away <= comingTime || s.known && away <= awayTime
	m.sent++
	if err := m.peer.send(m.t, transport.Outbound{Stream: s.number, Frame: notice(m.sent)}); (err == nil) != taken {
		t.Fatalf("a notification on stream %d gets %v, want that it is taken: %v", s.number, err, taken)
	}
	if taken {
		m.keep(s, noticeLine(m.sent))
	}
}

// keep adds an event to a stream and to the store, which drops the oldest ones.
func (m *streamModel) keep(s *modelStream, data string) {
	s.events = append(s.events, data)
	index, bytes := len(s.events), 0
	m.kept = append(m.kept, modelEvent{s.number, index, len(data) + eventOverhead, time.Now()})
	for n := len(m.kept) - 1; n >= 0; n-- {
		if bytes += m.kept[n].bytes; bytes > modelBytes {
			m.kept = m.kept[n+1:]
			break
		}
	}
	if s.on != nil && !s.on.stuck {
		s.on.want, s.read = append(s.on.want, fmt.Sprintf("%d-%d %s", s.number, index, data)), index
	}
	synctest.Wait()
}

// after returns the events of a stream that are kept and follow an index.
func (m *streamModel) after(s *modelStream, index int) (events []string) {
	for _, e := range m.kept {
		if e.stream == s.number && e.index > index && time.Since(e.at) < modelAge {
			events = append(events, fmt.Sprintf("%d-%d %s", s.number, e.index, s.events[e.index-1]))
		}
	}
	return events
}

func (m *streamModel) answer(t *rapid.T) {
	s := m.pick(t, func(s *modelStream) bool { return !s.ended && s.number != 0 })
	m.finish(s)
	s.ended = true
	m.detach(t, s)
}

// finish sends the last event of a stream.
func (m *streamModel) finish(s *modelStream) {
	m.peer.mustSend(m.t, answering(s.number, heldAnswer))
	m.keep(s, heldAnswer)
	s.over = true
}

// detach checks that the connection of a stream has ended.
func (m *streamModel) detach(t *rapid.T, s *modelStream) {
	if synctest.Wait(); s.on != nil && !wait.IsClosed(s.on.done) {
		t.Fatalf("a connection of stream %d is still open", s.number)
	}
	s.on = nil
}

func (m *streamModel) leave(t *rapid.T) {
	s := m.pick(t, isOn)
	s.on.leave()
	if m.detach(t, s); s.number == 0 {
		m.left = time.Now()
	}
}

// resume comes back for a stream, also if it has ended or has another connection.
func (m *streamModel) resume(t *rapid.T) {
	s := m.pick(t, func(*modelStream) bool { return true })
	m.comesBack(t, s, max(0, s.read-rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "again")))
}

func (m *streamModel) comesBack(t *rapid.T, s *modelStream, index int) {
	lines := []string{m.session, fmt.Sprintf("Last-Event-ID: %d-%d", s.number, index)}
	if s.number == 0 && index == s.read && rapid.Bool().Draw(t, "without an id") && !s.stuck {
		lines = lines[:1] // it continues after what a connection has got
	}
	events, missing := m.after(s, index), len(s.events)-index
	missing -= len(events)
	c := m.open("GET", "", lines...)
	if s.number != 0 && (missing > 0 || s.ended && len(events) == 0) {
		if c.status != http.StatusGone || strings.Contains(c.text(), "data") {
			t.Fatalf("stream %d after event %d, of which %d are missing, gets %d %q", s.number, index, missing, c.status, c.text())
		}
		return
	}
	if s.number == 0 && s.on != nil && s.on.stuck {
		s.on.leave() // its write is not interrupted, because the event would be lost for a client that names none
	}
	m.detach(t, s)
	if !s.ended {
		s.on, c.want = c, []string{fmt.Sprintf("%d-%d ", s.number, index)}
	}
	if missing > 0 {
		c.want = append(c.want, fmt.Sprintf(": %d messages are not kept any more", missing))
	}
	c.want = append(c.want, events...)
	s.read, s.known, s.stuck = len(s.events), true, false
	m.conns = append(m.conns, c)
	if wait.IsClosed(c.done) != s.over {
		t.Fatalf("the connection of stream %d has ended: %v", s.number, !s.over)
	}
	if s.over {
		s.on, s.ended = nil, true
	}
}

// stick makes a connection stick while notifications are sent. Then its client leaves, or comes back on another.
func (m *streamModel) stick(t *rapid.T) {
	s := m.pick(t, isOn)
	s.on.mu.Lock()
	s.on.stuck, s.stuck = true, true
	s.on.mu.Unlock()
	for range rapid.IntRange(1, 3).Draw(t, "events") {
		m.send(t, s)
	}
	if s.number != 0 && rapid.Bool().Draw(t, "answered") {
		m.finish(s)
	}
	if rapid.Bool().Draw(t, "comes back") && len(m.after(s, s.read)) == len(s.events)-s.read {
		m.comesBack(t, s, s.read)
		return
	}
	s.on.leave()
	s.ended = s.over
	if m.detach(t, s); s.number == 0 {
		m.left = time.Now()
	}
}

// check compares what all connections have got with what they must have got.
func (m *streamModel) check(t *rapid.T) {
	synctest.Wait()
	for _, c := range m.conns {
		var got []string
		for block := range strings.SplitSeq(c.text(), "\n\n") {
			var id, data string
			for line := range strings.Lines(block) {
				name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
				switch name {
				case "id":
					id = value
				case "data":
					data = value
				case "":
					got = append(got, ": "+value)
				}
			}
			if id != "" {
				got = append(got, id+" "+data)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Fatalf("a connection got %q, want %q", got, c.want)
		}
	}
}
