package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// A restoreModel is two sessions of one endpoint, and what they should be like.
type restoreModel struct {
	client   *client.Client
	sessions []*restoredSession
}

// A restoredSession is a session and its servers, one for each of its links.
type restoredSession struct {
	*client.Session
	*fakeServer
	events events

	mu      sync.Mutex
	out     bool            // no server can be reached
	silent  bool            // servers do not answer initialize
	held    frame           // the last initialize without an answer
	refuses map[string]bool // the URIs that servers refuse
	dying   int             // how many servers die while they are restored

	ready  bool
	server int               // the number of the present or last server
	level  protocol.LogLevel // as the program wants it
	wanted map[string]bool   // by URI, whether the present server has accepted it
	seen   int               // how many frames were checked
	pins   []pinnedView
}

// A pinnedView is bound to a server, or to none.
type pinnedView struct {
	*client.Session
	server int
}

// Two sessions lose their servers, for a moment or for long, also while they are restored, and
// servers refuse subscriptions. Each call reaches the present server, or the one that it is
// pinned to, or none; each new server gets what the session wants, once and in order; the events
// are those of the model; and after an outage both sessions return together.
//
// Guarantees: G-0001.19, G-0030.1, G-0030.2
func TestRestoringAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			o := client.Options{ProtocolVersion: protocol.LatestLegacy, Conn: conn.Tuning{Log: slog.New(slog.DiscardHandler)}}
			m := new(restoreModel)
			o.OnEvent = func(ctx context.Context, s *client.Session, e client.Event) {
				m.sessions[int(s.Name()[0]-'0')].events.on(ctx, s, e)
			}
			m.client = client.New(clientInfo, o)
			for i := range 2 {
				m.start(t, fmt.Sprint(i))
			}
			defer m.end()
			t.Repeat(map[string]func(*rapid.T){
				"subscribe": m.subscribe, "unsubscribe": m.unsubscribe, "level": m.setLevel, "update": m.update, "pin": m.pin, "call": m.call,
				"cut": m.cut, "outage": m.outage, "back": m.back,
				"refuse": func(t *rapid.T) { s, uri := m.any(t), anyURI(t); s.refuses[uri] = !s.refuses[uri] },
				"pass":   func(*rapid.T) { passAll(time.Minute) },
				"":       m.check,
			})
		})
	})
}

// start starts a session, whose first event is Restored.
func (m *restoreModel) start(t *rapid.T, name string) {
	s := &restoredSession{fakeServer: &fakeServer{}, refuses: map[string]bool{}, wanted: map[string]bool{}}
	s.answer = s.serve
	m.sessions = append(m.sessions, s)
	var err error
	if s.Session, err = m.client.Start(context.Background(), name, s); err != nil {
		t.Fatal(err)
	}
	passAll(time.Minute)
	s.ready, s.server = true, 1
	s.expect(t, "restored but for 0")
	s.seen = s.count()
}

const restorable = `{"resources":{"subscribe":true},"logging":{}}`

// Traits implements transport.Describer. All sessions have the same endpoint.
func (*restoredSession) Traits() transport.Traits { return transport.Traits{Endpoint: "https://s"} }

// Open implements transport.Transport.
func (s *restoredSession) Open(ctx context.Context) (transport.Link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out {
		return nil, errors.New("connection refused")
	}
	return s.fakeServer.Open(ctx)
}

// serve answers one frame of the client.
func (s *restoredSession) serve(f frame) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f.Method {
	case protocol.MethodInitialize:
		if s.held = f; s.silent {
			return nil
		}
		return f.initialized(protocol.LatestLegacy, restorable)
	case protocol.MethodSubscribe, protocol.MethodSetLogLevel:
		if s.dying > 0 {
			s.dying--
			go s.fakeServer.cut()
			return nil
		}
		for uri, refused := range s.refuses {
			if refused && strings.Contains(string(f.Params), uri) {
				return []string{f.fault(-32602, `null`)}
			}
		}
	}
	if f.ID == nil {
		return nil
	}
	return []string{f.result(`{}`)}
}

func passAll(d time.Duration) {
	pass(d)
	synctest.Wait()
}

func anyURI(t *rapid.T) string {
	return rapid.SampledFrom([]string{"file:///a", "file:///b", "file:///c"}).Draw(t, "uri")
}

func (m *restoreModel) any(t *rapid.T) *restoredSession {
	return m.sessions[rapid.IntRange(0, len(m.sessions)-1).Draw(t, "session")]
}

// expect checks the events since the last check, and whether the session is ready.
func (s *restoredSession) expect(t *rapid.T, events ...string) {
	synctest.Wait()
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	if !slices.Equal(s.events.all, events) {
		t.Fatalf("session %s got the events %q, want %q", s.Name(), s.events.all, events)
	}
	s.events.all = nil
	if status := s.Status(); (status.State == client.Ready) != s.ready {
		t.Fatalf("session %s is %v, want it to be ready: %t", s.Name(), status.State, s.ready)
	}
}

// sent checks the requests that servers got since the last check, all of them the present one.
func (s *restoredSession) sent(t *rapid.T, want ...string) {
	synctest.Wait()
	s.fakeServer.mu.Lock()
	frames := slices.Clone(s.frames[s.seen:])
	s.fakeServer.mu.Unlock()
	all := sentSince(s.fakeServer, s.seen)
	s.seen += len(frames)
	var got []string
	for i, f := range frames {
		if f.Link == s.server && f.Method != protocol.MethodInitialize && f.Method != protocol.NotificationInitialized {
			got = append(got, all[i])
		} else if f.Method == protocol.MethodPing {
			t.Fatalf("session %s sent %s to server %d, want %d", s.Name(), f.Method, f.Link, s.server)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("server %d of session %s got %q, want %q", s.server, s.Name(), got, want)
	}
}

func (m *restoreModel) subscribe(t *rapid.T) {
	s, uri := m.any(t), anyURI(t)
	accepted, wanted := s.wanted[uri]
	err := s.Subscribe(context.Background(), &protocol.SubscribeParams{URI: uri})
	switch fails := !s.ready || s.refuses[uri] && !accepted; {
	case (err != nil) != fails:
		t.Fatalf("subscribing to %s returned %v; want an error: %t", uri, err, fails)
	case !s.ready:
		s.sent(t)
	case accepted:
		s.sent(t)
	default:
		if s.sent(t, "resources/subscribe "+uri); err == nil || wanted {
			s.wanted[uri] = err == nil
		}
	}
}

func (m *restoreModel) unsubscribe(t *rapid.T) {
	s, uri := m.any(t), anyURI(t)
	if err := s.Unsubscribe(context.Background(), &protocol.UnsubscribeParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
	if s.ready && s.wanted[uri] {
		s.sent(t, "resources/unsubscribe "+uri)
	}
	delete(s.wanted, uri)
	s.sent(t)
}

func (m *restoreModel) setLevel(t *rapid.T) {
	s := m.any(t)
	level := rapid.SampledFrom([]protocol.LogLevel{protocol.LogInfo, protocol.LogError}).Draw(t, "level")
	if err := s.SetLogLevel(context.Background(), level); (err == nil) != s.ready {
		t.Fatalf("setting the level returned %v; ready: %t", err, s.ready)
	}
	if s.ready {
		s.level = level
		s.sent(t, "logging/setLevel")
	}
}

// update reports a change, on the link of the present server.
func (m *restoreModel) update(t *rapid.T) {
	s, uri := m.any(t), anyURI(t)
	if !s.ready {
		t.Skip("no server")
	}
	s.fakeServer.mu.Lock()
	link := s.links[len(s.links)-1]
	s.fakeServer.mu.Unlock()
	if err := link.Send(outbound(updated(uri))); err != nil {
		t.Fatal(err)
	}
	s.expect(t, "updated "+uri)
}

func (m *restoreModel) pin(t *rapid.T) {
	s := m.any(t)
	server := 0
	if s.ready {
		server = s.server
	}
	s.pins = append(s.pins, pinnedView{s.Session.Pin(), server})
}

// call pings through all pinned views and the session itself.
func (m *restoreModel) call(t *rapid.T) {
	s := m.any(t)
	wait := rapid.Bool().Draw(t, "wait for ready")
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, view := range s.pins {
		server, o := view.server, view.Calls()
		o.WaitForReady = wait
		err := view.With(o).Ping(ctx)
		if alive := s.ready && server == s.server; (err == nil) != alive || !alive && (!errors.Is(err, client.ErrStale) || !client.NotExecuted(err)) {
			t.Fatalf("a call pinned to server %d of session %s returned %v; server %d, ready: %t", server, s.Name(), err, s.server, s.ready)
		} else if alive {
			s.sent(t, "ping")
		}
		s.sent(t)
	}
	if err := s.Ping(ctx); (err == nil) != s.ready || err != nil && !errors.Is(err, client.ErrUnavailable) {
		t.Fatalf("a call of session %s returned %v; ready: %t", s.Name(), err, s.ready)
	}
	if s.ready {
		s.sent(t, "ping")
	}
}

// lose cuts the link of the present server.
func (s *restoredSession) lose(t *rapid.T) {
	s.sent(t)
	s.fakeServer.cut()
	s.ready = false
	s.expect(t, "lost")
}

// restored notes that a new server is ready.
func (s *restoredSession) restored(t *rapid.T) {
	s.fakeServer.mu.Lock()
	s.ready, s.server = true, len(s.links)
	s.fakeServer.mu.Unlock()
	var want []string
	if s.level != "" {
		want = append(want, "logging/setLevel")
	}
	failures := 0
	for _, uri := range []string{"file:///a", "file:///b", "file:///c"} {
		if _, wanted := s.wanted[uri]; wanted {
			want = append(want, "resources/subscribe "+uri)
			if s.wanted[uri] = !s.refuses[uri]; s.refuses[uri] {
				failures++
			}
		}
	}
	s.expect(t, fmt.Sprintf("restored but for %d", failures))
	s.sent(t, want...)
}

// cut cuts the link of a session, which soon gets another server. Some die first.
func (m *restoreModel) cut(t *rapid.T) {
	s := m.any(t)
	if !s.ready {
		t.Skip("no server")
	}
	passAll(time.Minute) // so that its server is proven
	died := 0
	if s.level != "" || len(s.wanted) > 0 {
		died = rapid.IntRange(0, 2).Draw(t, "dying")
	}
	s.mu.Lock()
	s.dying = died
	s.mu.Unlock()
	s.lose(t)
	passAll(time.Minute)
	before := s.server
	if s.restored(t); s.server != before+1+died {
		t.Fatalf("session %s had %d servers, want %d", s.Name(), s.server-before, 1+died)
	}
}

// outage begins an outage of the endpoint.
func (m *restoreModel) outage(t *rapid.T) {
	if !m.sessions[0].ready {
		t.Skip("out already")
	}
	silent := rapid.Bool().Draw(t, "silent")
	for _, s := range m.sessions {
		s.mu.Lock()
		s.out, s.silent = !silent, silent
		s.mu.Unlock()
		s.lose(t)
	}
}

// back ends an outage. The session that tries first wakes the other.
func (m *restoreModel) back(t *rapid.T) {
	if m.sessions[0].ready {
		t.Skip("no outage")
	}
	passAll(5 * time.Minute) // so that the delays are long
	for _, s := range m.sessions {
		s.mu.Lock()
		if silent := s.silent; silent {
			s.fakeServer.mu.Lock()
			link := s.links[len(s.links)-1]
			s.fakeServer.mu.Unlock()
			_ = link.Send(outbound(s.held.initialized(protocol.LatestLegacy, restorable)[0])) // unless that has been given up
		}
		s.out, s.silent = false, false
		s.mu.Unlock()
	}
	m.any(t).Wake()
	passAll(time.Second)
	for _, s := range m.sessions {
		s.restored(t)
	}
}

// check checks that nothing else has happened.
func (m *restoreModel) check(t *rapid.T) {
	for _, s := range m.sessions {
		s.expect(t)
		s.sent(t)
	}
}

func (m *restoreModel) end() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.client.Close(now)
	for _, s := range m.sessions {
		s.fakeServer.close()
	}
}
