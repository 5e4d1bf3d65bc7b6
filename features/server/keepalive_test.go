package server_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// watching is a server that probes its clients every five seconds, or none if off.
func watching(off bool) *server.Server {
	if off {
		return newServer(server.Options{})
	}
	return newServer(server.Options{Conn: conn.Tuning{Liveness: 5 * time.Second}})
}

// A client that has opened a session and is silent then is asked twice, and its session ends with its link. Who answers keeps it, and who has no session, or
// meets a server that watches nobody, is asked nothing.
//
// Guarantees: G-0025.5, G-0025.9
func TestSilentClientLosesItsSession(t *testing.T) {
	for name, test := range map[string]struct {
		opening      string // "": the client says nothing at all
		off, answers bool
		pings        int
		lost         bool
	}{
		"silent":        {opening: protocol.Version20251125, pings: 2, lost: true},
		"answers":       {opening: protocol.Version20250326, answers: true, pings: 12},
		"off":           {opening: protocol.Version20251125, off: true},
		"no session":    {},
		"modern client": {opening: protocol.Version20260728},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.Bubble(t, func(t *testing.T) {
				s := watching(test.off)
				ours, theirs := inmem.Pipe(inmem.Options{})
				w := &modelPeer{link: ours, frames: make(chan string, 1000), served: make(chan error, 1)}
				go func() { w.served <- s.ServeLink(context.Background(), theirs) }()
				ours.Bind(w)
				ours.Grant(transport.Main, cap(w.frames))
				switch test.opening {
				case "":
				case protocol.Version20260728:
					_ = w.send(modern(`1`, "tools/list", ``))
				default:
					_ = w.send(strings.Replace(initializeFrame, "VERSION", test.opening, 1))
				}
				w.came()
				session, pings := sessionOf(s), 0
				for range 60 {
					pass(time.Second)
					for _, frame := range w.came() {
						if !strings.Contains(frame, `"method":"ping"`) {
							t.Errorf("got %s, want only pings", frame)
						}
						if pings++; test.answers {
							_ = w.send(strings.Replace(frame, `"method":"ping"`, `"result":{}`, 1))
						}
					}
				}
				if len(w.served) == 1 != test.lost || pings < test.pings-1 || pings > test.pings {
					t.Errorf("the client got %d pings, lost: %t; want %d and %t", pings, len(w.served) == 1, test.pings, test.lost)
				}
				if err := w.close(); test.lost {
					if reason := (conn.Reason{}); !errors.As(err, &reason) || reason.Kind != conn.LivenessLost {
						t.Errorf("the session has ended with %v, want %s", err, conn.LivenessLost)
					}
					if reason := (conn.Reason{}); !errors.As(session.Wait(), &reason) || reason.Kind != conn.LivenessLost {
						t.Errorf("the session says that it has ended with %v, want %s", session.Wait(), conn.LivenessLost)
					}
				}
			})
		})
	}
}

// A quietWriter is the response of a stream of events. What its client does not read goes nowhere.
type quietWriter struct {
	mu     sync.Mutex
	header http.Header
	body   bytes.Buffer
}

func (w *quietWriter) Header() http.Header              { return w.header }
func (w *quietWriter) WriteHeader(int)                  {}
func (w *quietWriter) Flush()                           {}
func (w *quietWriter) SetWriteDeadline(time.Time) error { return nil }
func (w *quietWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.body.Write(p)
}

func (w *quietWriter) pings() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.body.String(), `"method":"ping"`)
}

// Over HTTP a silent client loses its GET stream after two misses, and its session only by SessionIdle. It may come back, and is asked again then. While it has
// no stream, it is asked nothing. A client that sends anything keeps its stream.
//
// Guarantees: G-0025.9
func TestSilentClientOverHTTPLosesItsStreamOnly(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := watching(false)
		h := streamable.NewHandler(s, streamable.HandlerOptions{SessionIdle: 20 * time.Minute})
		defer h.Close(0)
		post := func(session, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			if session != "" {
				r.Header.Set("Mcp-Session-Id", session)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		session := post("", strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1)).Header().Get("Mcp-Session-Id")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		listen := func() (*quietWriter, chan struct{}) {
			w, ended := &quietWriter{header: make(http.Header)}, make(chan struct{})
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/mcp", nil)
			r.Header.Set("Accept", "text/event-stream")
			r.Header.Set("Mcp-Session-Id", session)
			go func() {
				defer close(ended)
				h.ServeHTTP(w, r)
			}()
			synctest.Wait()
			return w, ended
		}
		hasEnded := func(ended chan struct{}) bool {
			synctest.Wait()
			select {
			case <-ended:
				return true
			default:
				return false
			}
		}
		pass(time.Minute) // without a stream there is nothing to end
		for range 2 {
			w, ended := listen()
			pass(14 * time.Second)
			before := w.pings()
			if hasEnded(ended) || before == 0 {
				t.Fatalf("after 14 s: the stream has ended, or its client was not asked: %d pings", before)
			}
			pass(3 * time.Second)
			if !hasEnded(ended) {
				t.Fatalf("the stream of a silent client goes on, after %d pings", w.pings())
			}
			pings := w.pings()
			pass(4 * time.Minute) // events are stored for a client that is away
			if w, ended := listen(); w.pings() > pings {
				t.Errorf("a client that comes back gets %d pings, of which at most the last %d are from before it left", w.pings(), pings)
			} else {
				pass(16 * time.Second)
				if !hasEnded(ended) {
					t.Errorf("the stream of a client that has come back and is silent goes on, after %d pings", w.pings())
				}
			}
			if got := post(session, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); got.Code != http.StatusOK {
				t.Fatalf("the session answers %d %s, want %d", got.Code, got.Body, http.StatusOK)
			}
		}
		w, ended := listen()
		for range 60 {
			pass(4 * time.Second)
			if got := post(session, `{"jsonrpc":"2.0","method":"notifications/x"}`); got.Code != http.StatusAccepted {
				t.Fatalf("got %d, want %d", got.Code, http.StatusAccepted)
			}
		}
		if hasEnded(ended) {
			t.Fatalf("the stream of a client that sends has ended, after %d pings", w.pings())
		}
		cancel()
		pass(21 * time.Minute)
		if got := post(session, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); got.Code != http.StatusNotFound {
			t.Errorf("after SessionIdle the session answers %d %s, want %d", got.Code, got.Body, http.StatusNotFound)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
