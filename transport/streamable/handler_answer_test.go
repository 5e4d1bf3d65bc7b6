package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// controlOf returns the Exchange of the request that a peer has received last.
func (p *peer) controlOf() transport.Exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.received[len(p.received)-1].Origin.Exchange
}

// With JSONOnly a response is its answer and nothing else, also in the revisions whose responses could be streams. The response to a
// request that was cancelled is empty.
//
// Guarantees: G-0022.1
func TestAResponseInJSONOnlyIsItsAnswer(t *testing.T) {
	inBubble(t, HandlerOptions{JSONOnly: true}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		w, done := b.serve(t.Context(), "POST", legacyHold(""), session)
		p := b.peer(t, 0)
		if exchange := p.controlOf(); exchange.Events() || exchange.Poll(time.Second) {
			t.Error("the response can become a stream, want none")
		}
		if err := p.send(t, transport.Outbound{Stream: p.newest(), Frame: notice(1)}); !errors.Is(err, transport.ErrNoRoute) {
			t.Errorf("a notification: got %v, want %v", err, transport.ErrNoRoute)
		}
		pass(time.Minute)
		p.mustSend(t, answering(p.newest(), heldAnswer))
		if <-done; w.Code != http.StatusOK || w.Body.String() != heldAnswer {
			t.Errorf("got %d %q, want the answer", w.Code, w.Body)
		}
		w, done = b.serve(t.Context(), "POST", `{"jsonrpc":"2.0","id":5,"method":"end"}`, session)
		if <-done; w.Code != http.StatusAccepted || w.Body.Len() > 0 {
			t.Errorf("the response to a cancelled request: got %d %q, want 202", w.Code, w.Body)
		}
	})
}

// A handler without sessions names none, to its client or to its server, and a long request takes no more places than a session can.
//
// Guarantees: G-0022.18
func TestARequestWithoutASessionNamesNone(t *testing.T) {
	inBubble(t, HandlerOptions{Stateless: true, MaxSessions: 10}, false, func(t *testing.T, b *bench) {
		long := `{"jsonrpc":"2.0","id":5,"method":"echo","params":` + padded(3<<20) + `}`
		for n, body := range []string{initializeBody("2025-11-25"), echoBody, long} {
			w, done := b.serve(t.Context(), "POST", body, "Mcp-Protocol-Version: 2025-11-25")
			if <-done; w.Code != http.StatusOK || w.Header().Get(headerSession) != "" {
				t.Errorf("request %d: got %d with the session %q, want 200 and none", n, w.Code, w.Header().Get(headerSession))
				continue
			}
			if got, want := transport.LinkTraitsOf(b.peer(t, n).link).Network, (transport.Network{HTTP: "1.1"}); got != want {
				t.Errorf("request %d: its link tells of %+v, want %+v", n, got, want)
			}
		}
	})
}

// A session whose client did not get the whole response to initialize does not stay, whether the connection breaks or the client has
// left just before the answer.
//
// Guarantees: G-0073.1
func TestASessionThatNobodyKnowsEnds(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		serveHTTP(b.handler, failingWriter{httptest.NewRecorder()}, newRequest("POST", initializeBody("2025-11-25")))
		if kept := b.handler.Stats().Sessions; kept != 0 {
			t.Errorf("after a write that failed there are %d sessions, want none", kept)
		}
		ctx := &leftContext{Context: t.Context()}
		b.play = func(p *peer, in transport.Inbound, m jsonrpc.Message) {
			ctx.left.Store(true)
			respond(p, in, m)
		}
		_, done := b.serve(ctx, "POST", initializeBody("2025-11-25"))
		<-done
		if kept := b.handler.Stats().Sessions; kept != 0 {
			t.Errorf("after the client has left there are %d sessions, want none", kept)
		}
	})
}

// A leftContext is that of a request whose client has just left, which nobody has been told yet.
type leftContext struct {
	context.Context
	left atomic.Bool
}

func (c *leftContext) Err() error {
	if c.left.Load() {
		return context.Canceled
	}
	return c.Context.Err()
}

// The request of another identity does not make a session one that its client has used.
//
// Guarantees: G-0022.12
func TestAForeignRequestIsNoUseOfASession(t *testing.T) {
	inBubble(t, HandlerOptions{Identify: byUser}, false, func(t *testing.T, b *bench) {
		session, p := b.begin(userHeader("ada"))
		link := p.link.(*serverLink)
		if status, text := b.ask(session, userHeader("eve")); status != http.StatusForbidden || text != "the session belongs to another identity\n" || link.use.confirmed {
			t.Errorf("got %d, and the session counts as used: %t; want 403 and false", status, link.use.confirmed)
		}
		if b.ask(session, userHeader("ada")); !link.use.confirmed {
			t.Error("the session does not count as used by its own client")
		}
		if denied := b.handler.Stats().Denied; !slices.Equal(denied, []telemetry.Refused{{Status: http.StatusForbidden, Count: 1}}) {
			t.Errorf("%+v count as denied, want the request of another identity", denied)
		}
	})
}

// A response that can be resumed begins after a second, or earlier if the stream must be kept alive more often.
func TestAResponseBeginsInTimeToBeKeptAlive(t *testing.T) {
	for keepAlive, want := range map[time.Duration]time.Duration{100 * time.Millisecond: 100 * time.Millisecond, time.Minute: eventsAfter} {
		inBubble(t, HandlerOptions{KeepAlive: keepAlive}, false, func(t *testing.T, b *bench) {
			w, begun := &flushedWriter{ResponseRecorder: httptest.NewRecorder()}, time.Now()
			done, p := b.serveOn(w, legacyHold(""), b.initialize()), b.peer(t, 0)
			pass(time.Minute)
			p.mustSend(t, answering(p.newest(), heldAnswer))
			if <-done; w.first.Sub(begun) != want {
				t.Errorf("kept alive every %v: the response has begun after %v, want %v", keepAlive, w.first.Sub(begun), want)
			}
		})
	}
}

// A flushedWriter says when it was flushed first.
type flushedWriter struct {
	*httptest.ResponseRecorder
	first time.Time
}

func (w *flushedWriter) Flush() {
	if w.first.IsZero() {
		w.first = time.Now()
	}
}

// The answer to a request whose client does not come back is stored, and nothing else is left of its stream.
func TestAnAnswerForAnAbsentClientLeavesNoStream(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *peer){
		"answered": func(t *testing.T, p *peer) { p.mustSend(t, answering(p.newest(), heldAnswer)) },
		"ended":    func(_ *testing.T, p *peer) { p.link.End(p.newest()) },
	} {
		inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
			session, p := b.initialize(), b.peer(t, 0)
			ctx, leave := context.WithCancel(t.Context())
			_, done := b.serve(ctx, "POST", legacyHold(""), session)
			pass(2 * time.Second) // its response begins, with the id of an event
			leave()
			<-done
			link := p.link.(*serverLink)
			if len(link.streams) != 1 {
				t.Errorf("%s: before that there are %d streams, want 1", name, len(link.streams))
			}
			if end(t, p); len(link.streams) != 0 {
				t.Errorf("%s: the link has %d streams, want none", name, len(link.streams))
			}
		})
	}
}

// An Auditor hears nothing of a request that has reached its server, however its response ends: the server tells of it.
//
// Guarantees: G-0071.3
func TestAnAuditorHearsNothingOfWhatWasDelivered(t *testing.T) {
	same := func(w *httptest.ResponseRecorder) http.ResponseWriter { return w }
	plain := func(w *httptest.ResponseRecorder) http.ResponseWriter { return plainWriter{w} }
	stream := func(t *testing.T, p *peer) {
		if exchange := p.controlOf(); exchange.Events() || exchange.Poll(time.Second) {
			t.Error("the response can become a stream, want none")
		}
		p.mustSend(t, transport.Outbound{Stream: p.newest(), Frame: notice(1), Tag: 9})
	}
	for name, test := range map[string]struct {
		modern         bool
		writer         func(*httptest.ResponseRecorder) http.ResponseWriter
		end            func(*testing.T, *peer)
		status, failed int
	}{
		"the link ends":                           {false, same, func(_ *testing.T, p *peer) { go p.link.Close(0) }, http.StatusServiceUnavailable, 0},
		"no stream is possible":                   {false, plain, stream, http.StatusInternalServerError, 0},
		"no stream is possible without a session": {true, plain, stream, http.StatusInternalServerError, 1},
		"broken off": {false, same, func(t *testing.T, p *peer) {
			p.mustSend(t, transport.Outbound{Stream: p.newest(), Frame: notice(1)})
			synctest.Wait()
			go p.link.Close(0)
		}, http.StatusOK, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				audit := &auditing{acceptor: newAcceptor(respond)}
				b := &bench{t: t, acceptor: audit.acceptor, handler: NewHandler(audit, HandlerOptions{})}
				defer audit.finish(t)
				defer b.handler.Close(0)
				body, lines, w := modernBody("hold", ""), modernHeader("hold"), httptest.NewRecorder()
				if !test.modern {
					body, lines = legacyHold(""), []string{b.initialize()}
				}
				done, p := b.serveOn(test.writer(w), body, lines...), b.peer(t, 0)
				test.end(t, p)
				if <-done; w.Code != test.status || len(audit.all) > 0 {
					t.Errorf("got %d, and the Auditor heard %+v; want %d and nothing", w.Code, audit.all, test.status)
				}
				synctest.Wait()
				if failed := p.count(func(p *peer) int { return len(p.failed) }); failed != test.failed {
					t.Errorf("%d messages have failed, want %d", failed, test.failed)
				}
			})
		})
	}
}

// A failingStore fails to return events after so many calls.
type failingStore struct {
	MemoryStore
	calls int
}

func (s *failingStore) After(ctx context.Context, session string, stream transport.Stream, index uint64, maxBytes int) ([]StoredEvent, error) {
	if s.calls--; s.calls < 0 {
		return nil, errors.New("no way")
	}
	return s.MemoryStore.After(ctx, session, stream, index, maxBytes)
}

// A client that comes back for a response gets 500 if the events cannot be read, 410 if it names an event that there is not, and a
// response that is broken off if it has too much unread. It is counted among the refusals only if it is refused.
//
// Guarantees: G-0033.4
func TestAResponseThatCannotBeResumed(t *testing.T) {
	const many = 1 << 30
	store := &failingStore{calls: many}
	inBubble(t, HandlerOptions{EventStore: store}, false, func(t *testing.T, b *bench) {
		session, p := b.initialize(), b.peer(t, 0)
		ctx, leave := context.WithCancel(t.Context())
		_, done := b.serve(ctx, "POST", legacyHold(""), session)
		pass(2 * time.Second)
		leave()
		<-done
		come := func(id string) (status int, aborted bool) {
			w := httptest.NewRecorder()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			aborted = serveHTTP(b.handler, w, newRequest("GET", "", session, "Last-Event-ID: "+id).WithContext(ctx))
			return w.Code, aborted
		}
		if status, _ := come("2-0"); status != http.StatusOK || len(b.handler.Stats().Refused) > 0 {
			t.Errorf("got %d, and a client that has left is counted as refused: %+v", status, b.handler.Stats().Refused)
		}
		if status, _ := come("2-7"); status != http.StatusGone {
			t.Errorf("an event that there is not yet: got %d, want 410", status)
		}
		p.mustSend(t, answering(p.newest(), heldAnswer))
		var statuses []int
		for _, store.calls = range []int{0, 1, many} {
			status, _ := come("2-0")
			statuses = append(statuses, status)
		}
		if want := []int{500, 500, 200}; !slices.Equal(statuses, want) {
			t.Errorf("while the store cannot be read: got %v, want %v", statuses, want)
		}
		own, small, taken := share.Client{Network: "192.0.2.1"}, b.handler.unread.Small, 0
		for size := 1 << 20; size > 0; size /= 2 {
			for small.Take(own, size) {
				taken += size
			}
		}
		if _, aborted := come("2-0"); !aborted {
			t.Error("without room for the events the response is whole, want it broken off")
		}
		small.Give(own, taken)
	})
}

// A GET stream that begins after an event which there has not been begins at the last one.
//
// Guarantees: G-0033.2
func TestAListenerThatIsAheadBeginsAtTheLastEvent(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session, p := b.begin()
		p.mustSend(t, transport.Outbound{Frame: notice(1)})
		w, leave := b.listening(session, "0-99")
		leave()
		if got, want := w.Body.String(), "id: 0-1\nretry: 1000\ndata: \n\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A GET whose body has no announced length is refused, too.
func TestAGetWithABodyOfUnknownLength(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		r := newRequest("GET", "", b.initialize())
		r.ContentLength = -1
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w := httptest.NewRecorder()
		if b.handler.ServeHTTP(w, r.WithContext(ctx)); said(w) != `400 "" a GET has no body` {
			t.Errorf("got %s, want 400", said(w))
		}
	})
}

// Close has its grace for all sessions together, and not for one after the other.
func TestCloseEndsSessionsAtTheSameTime(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		for n := range 3 {
			b.serveStuck("POST", legacyHold(""), b.initialize())
			p := b.peer(t, n)
			p.mustSend(t, answering(p.newest(), heldAnswer))
		}
		synctest.Wait() // until they write
		begun := time.Now()
		b.handler.Close(10 * time.Second)
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("Close took %v, want at most the grace of 10 s", took)
		}
	})
}

// Whoever waits for the end of a link after that has begun waits no longer.
func TestTheEndOfALinkIsToldLate(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		_, p := b.begin()
		if p.link.Close(0); !wait.IsClosed(p.link.(*serverLink).untilClosing()) {
			t.Error("the link has ended, and its end is waited for")
		}
	})
}

// A frame that waits behind one that cannot be written is reported as unsent, and that one is not.
func TestFramesBehindAWriteThatFails(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		w, aborted := brokenWriter{httptest.NewRecorder(), make(chan struct{})}, make(chan bool, 1)
		go func() {
			aborted <- serveHTTP(b.handler, w, newRequest("POST", modernBody("hold", ""), modernHeader("hold")...))
		}()
		synctest.Wait()
		p := b.peer(t, 0)
		for tag := range transport.Tag(2) {
			p.mustSend(t, transport.Outbound{Stream: 1, Tag: tag + 1, Frame: notice(1)})
			synctest.Wait()
		}
		close(w.fails)
		<-aborted
		synctest.Wait()
		var got []string
		for _, f := range p.failed {
			got = append(got, fmt.Sprint(f.Tag, " unsent: ", f.Unsent))
		}
		if slices.Sort(got); fmt.Sprint(got) != "[1 unsent: false 2 unsent: true]" {
			t.Errorf("got the failures %q, want 1 in doubt and 2 unsent", got)
		}
	})
}

// A brokenWriter fails when fails is closed.
type brokenWriter struct {
	*httptest.ResponseRecorder
	fails chan struct{}
}

func (w brokenWriter) Write([]byte) (int, error) {
	<-w.fails
	return 0, io.ErrClosedPipe
}
