package client_test

import (
	"context"
	"errors"
	"slices"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

func drawListeningURI(t *rapid.T) string { return rapid.SampledFrom(listeningURIs).Draw(t, "uri") }

func (s *listeningSide) subscribe(t *rapid.T) { s.request(drawListeningURI(t), true) }

func (s *listeningSide) unsubscribe(t *rapid.T) { s.request(drawListeningURI(t), false) }

// request begins to subscribe or unsubscribe.
func (s *listeningSide) request(uri string, isSubscribe bool) {
	s.mu.Lock()
	r := &modelRequest{isSubscribe: isSubscribe, uri: uri, away: s.away, cuts: s.cuts, refusals: s.refusals[uri], done: make(chan error, 1)}
	s.mu.Unlock()
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	if !isSubscribe {
		s.explicit[uri] = false
		for _, other := range s.requests {
			other.withdrawn = other.withdrawn || other.uri == uri
		}
	}
	s.requests = append(s.requests, r)
	go func() {
		if isSubscribe {
			r.done <- s.session.Subscribe(ctx, &protocol.SubscribeParams{URI: uri})
		} else {
			r.done <- s.session.Unsubscribe(ctx, &protocol.UnsubscribeParams{URI: uri})
		}
	}()
	synctest.Wait()
}

// cancelOne cancels a request that waits for its answer.
func (s *listeningSide) cancelOne(t *rapid.T) {
	if len(s.requests) == 0 {
		t.Skip("nobody waits")
	}
	r := s.requests[rapid.IntRange(0, len(s.requests)-1).Draw(t, "request")]
	r.cancelled = true
	r.cancel()
}

// watch begins to watch a resource.
func (s *listeningSide) watch(t *rapid.T) {
	uri := drawListeningURI(t)
	s.mu.Lock()
	w := &modelWatch{uri: uri, refusals: s.refusals[uri], ended: make(chan error, 1)}
	s.mu.Unlock()
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	s.watches = append(s.watches, w)
	go func() {
		for _, err := range s.session.Watch(ctx, uri) {
			if err != nil {
				w.ended <- err
				return
			}
			w.mu.Lock()
			w.yields++
			w.mu.Unlock()
		}
	}()
	synctest.Wait()
}

// leave ends a watch, perhaps before it has got contents.
func (s *listeningSide) leave(t *rapid.T) {
	if len(s.watches) == 0 {
		t.Skip("nobody watches")
	}
	s.leaveOne(t, s.watches[rapid.IntRange(0, len(s.watches)-1).Draw(t, "watch")])
}

func (s *listeningSide) leaveOne(t *rapid.T, w *modelWatch) {
	s.watches = slices.DeleteFunc(s.watches, func(other *modelWatch) bool { return other == w })
	w.cancel()
	synctest.Wait()
	if len(w.ended) == 0 && s.isOpen() {
		t.Fatalf("a watch of %s continues after its context", w.uri)
	}
	if len(w.ended) > 0 {
		if err := <-w.ended; !errors.Is(err, context.Canceled) && s.isOpen() && s.refusals[w.uri] == w.refusals {
			t.Fatalf("a watch of %s ended with %v after its context", w.uri, err)
		}
	}
}

// wantedOf returns how often the server reports a change of a resource now, and what it reports.
func (s *listeningSide) wantedOf(t *rapid.T, uri string) (sent int, reported []string) {
	s.mu.Lock()
	defer s.mu.Unlock() // also when a check fails
	s.takeEvents(t)
	s.requests = slices.DeleteFunc(s.requests, func(r *modelRequest) bool { return s.hasReturned(t, r) })
	s.watches = slices.DeleteFunc(s.watches, func(w *modelWatch) bool { return s.hasEnded(t, w) })
	return s.reportsOf(uri), s.reported()
}

// change changes a resource, perhaps while one subscriptions/listen replaces another.
func (s *listeningSide) change(t *rapid.T) {
	uri, early := drawListeningURI(t), rapid.Bool().Draw(t, "early")
	if !s.isOpen() {
		t.Skip("it does not report now")
	}
	if early {
		s.subscribe(t)
	}
	sent, reported := s.wantedOf(t, uri)
	wanted := slices.ContainsFunc(listeningURIs, func(of string) bool {
		return isWithin(uri, of) && (s.isWatched(of) || s.explicit[of] && (!s.told[of] || slices.Contains(reported, of)))
	})
	if !wanted && (early || s.continues()) {
		return // the one before may report what is refused, or not wanted any more
	}
	if wanted != (sent > 0) || sent > 1 && !early {
		t.Fatalf("the server reports a change of %s %d times; wanted: %t", uri, sent, wanted)
	}
	for _, w := range s.watches {
		w.fresh()
	}
	for range sent {
		s.sendFrame(updated(uri))
		synctest.Wait()
	}
	heard := 0
	for _, e := range s.takeEvents(t) {
		if e, ok := e.(*client.ResourceUpdated); ok && e.URI == uri {
			heard++
		}
	}
	if heard != sent {
		t.Fatalf("the program was told %d times of a change of %s, want %d", heard, uri, sent)
	}
	for _, w := range s.watches {
		if n := w.fresh(); n > sent || (n > 0) != isWithin(uri, w.uri) {
			t.Fatalf("a watch of %s got contents %d times for a change of %s, which was reported %d times", w.uri, n, uri, sent)
		}
	}
}

// list changes the list of tools.
func (s *listeningSide) list(t *rapid.T) {
	s.mu.Lock()
	sent := s.reportsOfTools()
	s.mu.Unlock()
	if !s.isOpen() || sent == 0 {
		t.Skip("it does not report lists now")
	}
	s.sendFrame(announcement)
	synctest.Wait()
	if got := s.takeEvents(t); len(got) != 1 {
		t.Fatalf("a change of the tools has led to %d events", len(got))
	}
}

// changeMind lets the server refuse a resource from now on, or not any more.
func (s *listeningSide) changeMind(t *rapid.T) {
	uri := drawListeningURI(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses[uri] = !s.refuses[uri]
}

func (s *listeningSide) beSlow(*rapid.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = true
}

func (s *listeningSide) answerAll(*rapid.T) { s.answerLate() }

// endReports lets a modern server end its reports. The client asks for them again, and everything counts as changed.
func (s *listeningSide) endReports(t *rapid.T) {
	if !s.isOpen() || len(s.listens) != 1 {
		t.Skip("it does not report now")
	}
	s.mu.Lock()
	l := s.listens[0]
	s.listens = nil
	s.mu.Unlock()
	s.sendFrame(l.result(`{"resultType":"complete"}`))
	for _, w := range s.watches {
		w.checked = false
	}
}

// cutLink breaks the link.
func (s *listeningSide) cutLink(t *rapid.T) {
	if s.away {
		t.Skip("it is away")
	}
	s.lose(t, false)
}

func (s *listeningSide) outage(t *rapid.T) {
	if s.away {
		t.Skip("it is away")
	}
	s.lose(t, true)
}

// lose breaks the link. The next server may be of another kind.
func (s *listeningSide) lose(t *rapid.T, away bool) {
	like := s.like
	like.modern = like.modern != (rapid.IntRange(0, 4).Draw(t, "other era") == 0)
	like.offers = rapid.IntRange(0, 4).Draw(t, "offers") > 0
	like.strict = rapid.IntRange(0, 2).Draw(t, "strict") == 0
	s.mu.Lock() // not while something is drawn, which may end the case
	s.away, s.like = away, like
	clear(s.told)
	s.mu.Unlock()
	s.cuts++
	s.timedOut = false
	for _, w := range s.watches {
		w.checked = false
	}
	s.fakeServer.cut()
	synctest.Wait()
}

// back ends an outage.
func (s *listeningSide) back(t *rapid.T) {
	if !s.away {
		t.Skip("it is there")
	}
	passAll(rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "time"))
	s.mu.Lock()
	s.away, s.slow = false, rapid.Bool().Draw(t, "slow")
	s.mu.Unlock()
	s.session.Wake()
}
