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
)

// A listeningModel is two sessions of one client, and what they should hear.
type listeningModel struct {
	client *client.Client
	sides  []*listeningSide
}

// A listeningSide is a session, its servers, and those in the program who want to hear of changes.
type listeningSide struct {
	*listeningServer
	session  *client.Session
	explicit map[string]bool // what Subscribe has asked for
	told     map[string]bool // the program knows that the server does not report it
	news     map[string]bool // what of that it has just been told
	again    map[string]bool // it has been told since that the server may report it
	watches  []*modelWatch
	requests []*modelRequest
	cuts     int
	timedOut bool // the program was told that this server does not answer
	lost     bool // the last of Lost and Restored that the program got

	events struct {
		sync.Mutex
		all []client.Event
	}
}

// A modelWatch is a Watch that has not been left.
type modelWatch struct {
	uri      string
	cancel   func()
	refusals int // of its resource, when it was last known to be reported
	ended    chan error
	mu       sync.Mutex
	yields   int
	seen     int // yields that were checked
	checked  bool
}

// A modelRequest is a Subscribe or Unsubscribe that has not returned.
type modelRequest struct {
	isSubscribe, cancelled, withdrawn, away bool

	uri            string
	cuts, refusals int // when it began
	cancel         func()
	done           chan error
}

var listeningURIs = []string{"x://a", "x://a/b", "x://c"}

// Callers subscribe to resources, watch them, several the same, and leave in any order, some before they have an answer. Servers of both
// eras answer late, refuse one resource or everything, change their mind, lack the capability, lose links, come back in another era, and
// end their reports. When all has settled, the server reports what somebody wants, once, and nothing else; each change reaches the program
// and exactly those who watch; and the program knows of each resource that it wants and the server does not report.
//
// Guarantees: G-0030.1, G-0030.2, G-0030.4, G-0030.5, G-0030.11
func TestListeningAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := newListeningModel(t)
			defer m.end(t)
			t.Repeat(map[string]func(*rapid.T){
				"subscribe": m.on((*listeningSide).subscribe), "unsubscribe": m.on((*listeningSide).unsubscribe), "cancel": m.on((*listeningSide).cancelOne),
				"watch": m.on((*listeningSide).watch), "watch more": m.on((*listeningSide).watch), "leave": m.on((*listeningSide).leave),
				"change": m.on((*listeningSide).change), "list": m.on((*listeningSide).list), "change its mind": m.on((*listeningSide).changeMind),
				"slow": m.on((*listeningSide).beSlow), "answer": m.on((*listeningSide).answerAll), "end reports": m.on((*listeningSide).endReports),
				"cut": m.on((*listeningSide).cutLink), "outage": m.on((*listeningSide).outage), "back": m.on((*listeningSide).back),
				"": m.check,
			})
			m.leaveAll(t)
		})
	})
}

func newListeningModel(t *rapid.T) *listeningModel {
	m := new(listeningModel)
	m.client = client.New(clientInfo, client.Options{
		Calls: client.CallOptions{Timeout: -1},
		Conn:  conn.Tuning{BackoffMin: 10 * time.Millisecond, BackoffMax: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler)},
		OnEvent: func(_ context.Context, s *client.Session, e client.Event) {
			side := m.sides[int(s.Name()[0]-'0')]
			side.events.Lock()
			defer side.events.Unlock()
			side.events.all = append(side.events.all, e)
		},
	})
	for n := range 2 {
		s := &listeningSide{explicit: make(map[string]bool), told: make(map[string]bool), again: make(map[string]bool), lost: true, listeningServer: &listeningServer{
			fakeServer: new(fakeServer), refuses: make(map[string]bool), refusals: make(map[string]int), grants: make(map[string]bool),
			like: serverKind{modern: n == 1, offers: true, lists: rapid.Bool().Draw(t, "lists")},
		}}
		s.answer = s.serve
		m.sides = append(m.sides, s)
	}
	for n, s := range m.sides { // events find all sides
		var err error
		if s.session, err = m.client.Start(context.Background(), fmt.Sprint(n), s); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// on returns an action of one session.
func (m *listeningModel) on(action func(*listeningSide, *rapid.T)) func(*rapid.T) {
	return func(t *rapid.T) { action(m.sides[rapid.IntRange(0, 1).Draw(t, "side")], t) }
}

// check lets time pass, and compares all servers and programs with the model.
func (m *listeningModel) check(t *rapid.T) {
	passAll(3 * time.Second)
	for _, s := range m.sides {
		s.check(t)
	}
}

// isOpen reports whether the server answers at once.
func (s *listeningSide) isOpen() bool { return !s.away && !s.slow }

func (s *listeningSide) check(t *rapid.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeEvents(t)
	s.requests = slices.DeleteFunc(s.requests, func(r *modelRequest) bool { return s.hasReturned(t, r) })
	s.watches = slices.DeleteFunc(s.watches, func(w *modelWatch) bool { return s.hasEnded(t, w) })
	if s.slow && !s.away {
		return
	}
	if s.lost != s.away || (s.session.Status().State == client.Ready) == s.away {
		t.Fatalf("the program was told that the server is lost: %t, the session is %v; the server is away: %t", s.lost, s.session.Status().State, s.away)
	}
	if len(s.requests) > 0 {
		t.Fatalf("%+v waits", s.requests[0])
	}
	if s.away {
		return
	}
	reported := s.reported()
	for _, uri := range listeningURIs {
		reports, watched := slices.Contains(reported, uri), s.isWatched(uri)
		switch {
		case reports && !s.isHeld(uri) && !s.continues():
			t.Fatalf("the server reports changes of %s, which nobody wants", uri)
		case !reports && watched:
			t.Fatalf("somebody watches %s, and the server does not report its changes", uri)
		case !reports && s.explicit[uri] && !s.told[uri]:
			t.Fatalf("the server does not report changes of %s, and the program does not know", uri)
		case reports && s.explicit[uri] && s.told[uri] && !s.again[uri] && s.like.modern: // nobody knows of a legacy server whose answer came too late
			t.Fatalf("the server reports changes of %s again, and the program does not know", uri)
		}
		s.told[uri] = s.told[uri] && !(reports && s.again[uri])
	}
	open := len(s.listens)
	if wants := s.like.lists || s.like.offers && (len(s.watches) > 0 || s.wantsExplicit()); s.like.modern && !s.faulted && wants != (open == 1) || open > 1 {
		t.Fatalf("%d subscriptions/listen are open, for %q, tools: %t", open, reported, s.like.lists)
	}
	if s.reportsOfTools() == 0 && s.like.lists && !s.faulted {
		t.Fatal("the server does not report changes of the tools")
	}
	for _, w := range s.watches {
		if w.refusals = s.refusals[w.uri]; w.fresh() == 0 && !w.checked {
			t.Fatalf("a watch of %s got nothing", w.uri)
		}
		w.checked = true
	}
	if s.faults = 0; s.continues() {
		s.faults = 1 // the one before goes on
	}
}

// continues reports whether the server has refused a whole subscriptions/listen, and the one before goes on for what is still wanted of it.
// Something else of it may be wanted no more.
func (s *listeningSide) continues() bool {
	return s.faulted && (s.like.lists || slices.ContainsFunc(s.reported(), s.isHeld))
}

// isHeld reports whether somebody wants the reports of a resource.
func (s *listeningSide) isHeld(uri string) bool { return s.explicit[uri] || s.isWatched(uri) }

func (s *listeningSide) isWatched(uri string) bool {
	return slices.ContainsFunc(s.watches, func(w *modelWatch) bool { return w.uri == uri })
}

func (s *listeningSide) wantsExplicit() bool {
	return slices.ContainsFunc(listeningURIs, func(uri string) bool { return s.explicit[uri] })
}

// takeEvents notes what the program was told since it was called last.
func (s *listeningSide) takeEvents(t *rapid.T) (all []client.Event) {
	s.events.Lock()
	all, s.events.all = s.events.all, nil
	s.events.Unlock()
	s.news = make(map[string]bool)
	for _, e := range all {
		switch e := e.(type) {
		case *client.Lost:
			if s.lost {
				t.Fatal("the program was told of one loss twice")
			}
			s.lost = true
		case *client.Restored:
			if !s.lost {
				t.Fatal("the program was told twice that the server is back")
			}
			s.lost = false
			for _, err := range e.Failures {
				s.tell(t, err)
			}
		case *client.SubscriptionRefused:
			if s.told[e.URI] && !s.again[e.URI] && !s.grants[e.URI] {
				t.Fatalf("the program was told twice of one refusal of %s", e.URI)
			}
			s.grants[e.URI] = false // a grant that another request has replaced is no news
			s.tell(t, fmt.Errorf("%q: %w", e.URI, e.Err))
		case *client.ToolsChanged:
			if !s.like.lists {
				t.Fatal("the program was told of a change of tools that nobody reports")
			}
		case *client.ResourceUpdated:
			s.again[e.URI] = true
			if !s.wants(e.URI) && s.faults == 0 && !slices.ContainsFunc(s.requests, func(r *modelRequest) bool { return isWithin(e.URI, r.uri) }) {
				t.Fatalf("the program was told of a change of %s, of which nobody wants to hear", e.URI)
			}
		default:
			t.Fatalf("the program got the event %T", e)
		}
	}
	return all
}

// wants reports whether somebody wants to hear of changes of a resource.
func (s *listeningSide) wants(uri string) bool {
	return slices.ContainsFunc(listeningURIs, func(of string) bool { return isWithin(uri, of) && s.isHeld(of) })
}

// tell notes that the program knows what the server does not report.
func (s *listeningSide) tell(t *rapid.T, err error) {
	s.timedOut = s.timedOut || errors.Is(err, client.ErrTimedOut)
	for _, uri := range listeningURIs {
		all := strings.HasPrefix(err.Error(), "reports of changes: ")
		if all && !s.explicit[uri] || !all && !strings.Contains(err.Error(), fmt.Sprintf("%q", uri)) {
			continue
		}
		s.news[uri], s.again[uri] = true, all // another request may report it before Restored
		if s.told[uri] = true; s.refusals[uri] == 0 && !s.timedOut {
			t.Fatalf("the program was told that %v, and the server has not refused %s", err, uri)
		}
	}
}

// hasReturned checks whether a request should have returned, and how.
func (s *listeningSide) hasReturned(t *rapid.T, r *modelRequest) bool {
	if len(r.done) == 0 {
		return false
	}
	err := <-r.done
	refused := s.refusals[r.uri] > r.refusals
	excused := r.cancelled || s.cuts > r.cuts
	switch {
	case r.away && r.isSubscribe && (!errors.Is(err, client.ErrUnavailable) || !client.NotExecuted(err)):
		t.Fatalf("without a server, %+v returned %v, want %v", r, err, client.ErrUnavailable)
	case err != nil && !excused && !r.away && !(r.isSubscribe && (refused || !s.like.offers)):
		t.Fatalf("%+v returned %v", r, err)
	case r.isSubscribe && err != nil && refused:
		s.told[r.uri], s.again[r.uri] = true, false
	case r.isSubscribe && err == nil && !r.withdrawn:
		s.explicit[r.uri], s.told[r.uri], s.again[r.uri] = true, s.news[r.uri], true // it may have been refused since
	}
	return true
}

// hasEnded checks whether a watch may have ended.
func (s *listeningSide) hasEnded(t *rapid.T, w *modelWatch) bool {
	if len(w.ended) == 0 {
		return false
	}
	if err := <-w.ended; s.like.offers && s.refusals[w.uri] == w.refusals || !errors.As(err, new(*client.CallError)) {
		t.Fatalf("a watch of %s ended with %v, and the server has not refused it", w.uri, err)
	}
	return true
}

// fresh returns how often a watch has got contents since it was asked last.
func (w *modelWatch) fresh() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.yields - w.seen
	w.seen = w.yields
	return n
}

// leaveAll lets everybody leave. Nothing stays at the servers.
func (m *listeningModel) leaveAll(t *rapid.T) {
	for _, s := range m.sides {
		if s.away {
			s.back(t)
		}
		s.answerLate()
	}
	m.check(t)
	for _, s := range m.sides {
		for len(s.watches) > 0 {
			s.leaveOne(t, s.watches[0])
		}
		for _, uri := range listeningURIs {
			s.request(uri, false)
		}
	}
	m.check(t)
	for _, s := range m.sides {
		if reported := s.reported(); len(reported) > 0 || len(s.listens) > 0 && !s.like.lists {
			t.Fatalf("everybody has left, and the server reports %q to %d", reported, len(s.listens))
		}
	}
}

// end closes the sessions, which ends everything.
func (m *listeningModel) end(t *rapid.T) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.client.Close(now)
	for _, s := range m.sides {
		s.fakeServer.close()
		synctest.Wait()
		for _, w := range s.watches {
			if len(w.ended) == 0 && !t.Failed() {
				t.Errorf("a watch of %s goes on after Close", w.uri)
			}
			w.cancel()
		}
	}
}
