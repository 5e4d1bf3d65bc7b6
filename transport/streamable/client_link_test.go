package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// A legacyServer is a server with a session. Its handlers answer what it does not know.
type legacyServer struct {
	session string
	events  bool // answers initialize with an event
	get     http.HandlerFunc
	call    http.HandlerFunc

	mu   sync.Mutex
	seen []string // method, JSON-RPC method, session, version; GET and DELETE too
}

func (s *legacyServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	m, _ := jsonrpc.Decode(body, jsonrpc.Limits{})
	label := m.Method
	if label == "" {
		label = m.Kind.String()
	}
	if req.Method != http.MethodPost {
		label = "-"
	}
	s.note(strings.Join([]string{req.Method, label, req.Header.Get(headerSession), req.Header.Get(headerVersion)}, " "))
	switch {
	case req.Method == http.MethodDelete:
	case req.Method == http.MethodGet && s.get != nil:
		s.get(w, req)
	case req.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.Method == "initialize":
		w.Header().Set(headerSession, s.session)
		if s.events {
			stream(w, "data: "+initializeResult+"\n\n")
			return
		}
		answerJSON(initializeResult)(w, req)
	case m.Method == "tools/call" && s.call != nil:
		s.call(w, req)
	case m.ID.IsZero():
		w.WriteHeader(http.StatusAccepted)
	default:
		answerJSON(result(m.ID))(w, req)
	}
}

func (s *legacyServer) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, text)
}

func (s *legacyServer) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

const initializeResult = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`

// handshake begins a legacy session: initialize with id 1, then notifications/initialized.
func handshake(t *testing.T, s *legacyServer) *testReceiver {
	t.Helper()
	r := connect(t, s.ServeHTTP)
	r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
	r.send(0, initialized)
	return r
}

// Each request of a legacy session names the session and the revision, and Close ends
// it with DELETE.
func TestRequestsNameTheirLegacySession(t *testing.T) {
	for _, events := range []bool{false, true} {
		t.Run(fmt.Sprintf("events %v", events), func(t *testing.T) {
			s := &legacyServer{session: "s-1", events: events}
			r := connect(t, s.ServeHTTP)
			r.wantFrame(0, r.callLegacy(9, 1), result(9), true) // before there is one
			r.wantFrame(1, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
			r.wantFrame(2, r.callLegacy(2, 1), result(2), true)
			r.send(0, result(`"from the server"`))
			r.wantFrame(3, r.callLegacy(3, 1), result(3), true)
			if err := r.link.Close(hangGuard); err != nil {
				t.Fatal(err)
			}
			want := []string{"POST tools/call  ", "POST initialize  ", "POST tools/call s-1 2025-11-25", "POST result s-1 2025-11-25", "POST tools/call s-1 2025-11-25", "DELETE - s-1 2025-11-25"}
			if got := s.log(); !slices.Equal(got, want) {
				t.Fatalf("the server saw %q, want %q", got, want)
			}
		})
	}
}

// A server that names no session gets the revision only, and only if it is one; it has no session that Close could delete.
func TestASessionWithoutAnID(t *testing.T) {
	for version, named := range map[string]string{"2025-11-25": "2025-11-25", "2025-11-25-and-more": "", "a b": "", "ä": "", "": ""} {
		s := new(legacyServer)
		r := connect(t, func(w http.ResponseWriter, req *http.Request) {
			if len(s.log()) == 0 {
				s.note("initialize")
				answerJSON(strings.Replace(initializeResult, "2025-11-25", version, 1))(w, req)
				return
			}
			s.ServeHTTP(w, req)
		})
		r.request(1, 1, request(1, "initialize", ""))
		r.frame(0)
		r.wantFrame(1, r.callLegacy(2, 1), result(2), true)
		if err := r.link.Close(hangGuard); err != nil {
			t.Error(err)
		}
		if got, want := s.log(), []string{"initialize", "POST tools/call  " + named}; !slices.Equal(got, want) {
			t.Errorf("%q: the server saw %q, want %q", version, got, want)
		}
	}
}

// An error begins no session, even if its response names one.
func TestAnErrorBeginsNoSession(t *testing.T) {
	fault := `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`
	s := &legacyServer{call: answerJSON(result(2))}
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		if len(s.log()) == 0 {
			s.note("initialize")
			w.Header().Set(headerSession, "s-1")
			answerJSON(fault)(w, req)
			return
		}
		s.ServeHTTP(w, req)
	})
	r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), fault, true)
	r.wantFrame(1, r.callLegacy(2, 1), result(2), true)
	if err := r.link.Close(hangGuard); err != nil {
		t.Fatal(err)
	}
	if got, want := s.log(), []string{"initialize", "POST tools/call  "}; !slices.Equal(got, want) {
		t.Errorf("the server saw %q, want %q", got, want)
	}
}

// A session id that is too long or not visible ASCII fails initialize.
func TestABadSessionIDFailsTheHandshake(t *testing.T) {
	for _, id := range []string{strings.Repeat("x", 1025), "a b", "ä"} {
		for _, events := range []bool{false, true} {
			r := connect(t, (&legacyServer{session: id, events: events}).ServeHTTP)
			r.request(1, 1, request(1, "initialize", ""))
			if f := r.failure(0); f.Tag != 1 || f.Unsent || !strings.Contains(f.Err.Error(), "session id") {
				t.Fatalf("%q: got %+v", id, f)
			}
		}
	}
}

// A request is not sent before the notifications that were sent earlier have been
// accepted.
//
// Guarantees: G-0022.2
func TestARequestWaitsForTheNotificationsBeforeIt(t *testing.T) {
	first, accept := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	var seen []string
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		m, _ := jsonrpc.Decode(body, jsonrpc.Limits{})
		mu.Lock()
		seen = append(seen, m.Method)
		mu.Unlock()
		switch m.Method {
		case "n/1":
			close(first)
			hold(req, accept)
			w.WriteHeader(http.StatusNoContent)
		case "n/2":
			w.WriteHeader(http.StatusBadRequest)
		case "ping":
			answerJSON(result(m.ID))(w, req)
		}
	})
	before := r.request(1, 1, request(1, "ping", ""))
	r.wantFrame(0, before, result(1), true)
	r.send(1, notification("n/1"))
	r.send(2, notification("n/2"))
	after := r.request(3, 1, request(3, "ping", ""))
	receive(t, "the first notification", first)
	mu.Lock()
	if want := []string{"ping", "n/1"}; !slices.Equal(seen, want) {
		t.Errorf("before the first was accepted the server saw %q", seen)
	}
	mu.Unlock()
	close(accept)
	r.wantFrame(1, after, result(3), true)
	if want := []string{"ping", "n/1", "n/2", "ping"}; !slices.Equal(seen, want) {
		t.Errorf("the server saw %q, want %v", seen, want)
	}
	var status *transport.StatusError
	if f := r.failure(0); f.Tag != 2 || !f.Unsent || !errors.As(f.Err, &status) || len(r.failed) != 1 {
		t.Errorf("failed: got %+v", r.failed)
	}
}

// Requests of one link run concurrently.
//
// Guarantees: G-0022.1
func TestRequestsRunConcurrently(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		both.Done()
		both.Wait()
		answerJSON(result(0))(w, req)
	})
	r.call(1, 1)
	r.call(2, 1)
	r.frame(1)
}

// silentTripper is an HTTP transport that never responds.
type silentTripper struct{}

func (silentTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// A notification without a response fails after a timeout.
//
// Guarantees: G-0022.2
func TestNotificationTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: silentTripper{}}})
		begun := time.Now()
		r.send(1, notification("n"))
		r.send(2, notification("n"))
		r.await("two failures", func() bool { return len(r.failed) == 2 })
		if took := time.Since(begun); took != 2*postPatience {
			t.Errorf("they failed after %v", took)
		}
		for n := range 2 {
			// The notification counts as possibly sent, because this transport cannot
			// be traced.
			if f := r.failure(n); f.Tag != transport.Tag(n+1) || f.Unsent || !errors.Is(f.Err, context.DeadlineExceeded) {
				t.Errorf("got %+v", f)
			}
		}
	})
}

// A full queue makes Send return ErrBusy. Writable is called once there is room.
func TestFullQueueIsBusyAndThenWritable(t *testing.T) {
	for name, c := range map[string]struct {
		frames, size int
	}{"frames": {256, 100}, "bytes": {16, 1 << 20}} {
		t.Run(name, func(t *testing.T) {
			arrived, accept := make(chan struct{}, 1000), make(chan struct{})
			r := connect(t, func(w http.ResponseWriter, req *http.Request) {
				io.Copy(io.Discard, req.Body)
				arrived <- struct{}{}
				hold(req, accept)
				w.WriteHeader(http.StatusAccepted)
			})
			frame := `{"jsonrpc":"2.0","method":"n","params":["` + strings.Repeat("x", c.size)
			frame = frame[:c.size-3] + `"]}`
			r.send(0, frame)
			receive(t, "the first", arrived)
			for range c.frames {
				r.send(0, frame)
			}
			for range 2 {
				if err := r.link.Send(outbound(0, frame)); err != transport.ErrBusy {
					t.Fatalf("one message more: got %v, want ErrBusy", err)
				}
			}
			if r.writable != 0 {
				t.Fatal("Writable was called before there was room")
			}
			accept <- struct{}{}
			r.await("Writable", func() bool { return r.writable == 1 })
			r.send(0, frame)
			if err := r.link.Send(outbound(0, frame)); err != transport.ErrBusy {
				t.Fatalf("one message more, again: got %v, want ErrBusy", err)
			}
			close(accept)
			r.link.Close(hangGuard)
		})
	}
}

// Send refuses a frame above the limit.
func TestSendRefusesWhatItCannotCarry(t *testing.T) {
	r := open(t, &Client{MaxFrame: 100, URL: serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })})
	r.send(1, notification(strings.Repeat("n", 100-len(notification("")))))
	var oversized *transport.OversizedError
	if err := r.link.Send(transport.Outbound{Frame: make([]byte, 101)}); !errors.As(err, &oversized) || *oversized != (transport.OversizedError{Limit: 100, Size: 101}) {
		t.Errorf("oversized: %v, want a *transport.OversizedError with the limit 100 and the size 101", err)
	}
	if err := r.link.Close(hangGuard); err != nil || len(r.failed) > 0 {
		t.Errorf("Close returned %v, and failed %+v; want a message of 100 bytes sent", err, r.failed)
	}
}

// cancelled returns the notification that a request was cancelled.
func cancelled(id int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id)
}

// A cancelled legacy request is announced with a notification. A modern one is ended by
// closing its response.
//
// Guarantees: G-0022.6
func TestOnlyLegacyRequestsAreCancelledByNotification(t *testing.T) {
	arrived, answer := make(chan struct{}, 2), make(chan struct{})
	s := &legacyServer{call: func(w http.ResponseWriter, req *http.Request) {
		arrived <- struct{}{}
		hold(req, answer)
		answerJSON(result(0))(w, req)
	}}
	r := connect(t, s.ServeHTTP)
	r.call(1, 1)
	r.callLegacy(2, 1)
	receive(t, "a request", arrived)
	receive(t, "the other", arrived)
	r.send(0, cancelled(1))
	r.send(0, cancelled(3))
	r.send(0, cancelled(2))
	r.send(0, notification("n"))
	close(answer)
	r.frame(1)
	r.send(0, cancelled(2)) // the request has ended
	r.link.Close(hangGuard)
	want := []string{"POST notifications/cancelled  ", "POST n  "}
	if got := s.log()[2:]; !slices.Equal(got, want) {
		t.Fatalf("the server saw %q, want %q", got, want)
	}
}

// A cancellation is posted for a legacy request under way, and in a session for one that the link does not know. It is never posted
// for a modern request.
//
// Guarantees: G-0022.6
func TestWhichCancellationsArePosted(t *testing.T) {
	modern, legacy := `"name":"echo",`+modernMeta, `"name":"echo"`
	for name, test := range map[string]struct {
		params  string // of the request under way, whose id is 1; "": there is none
		session bool
		cancel  int
		posted  bool
	}{
		"a legacy request":                       {legacy, false, 1, true},
		"a legacy request of a session":          {legacy, true, 1, true},
		"another one":                            {legacy, false, 2, false},
		"another one of a session":               {legacy, true, 2, true},
		"a modern request":                       {modern, false, 1, false},
		"a modern request beside a session":      {modern, true, 1, false},
		"another one than a modern one":          {modern, false, 2, false},
		"another one beside a session":           {modern, true, 2, true},
		"one that is not under way":              {"", false, 1, false},
		"one of a session that is not under way": {"", true, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var posted atomic.Int64
				r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: tripperFunc(func(r *http.Request) (*http.Response, error) {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						return nil, err
					}
					if strings.Contains(string(body), protocol.NotificationCancelled) {
						posted.Add(1)
						return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody}, nil
					}
					<-r.Context().Done()
					return nil, r.Context().Err()
				})}})
				if test.session {
					r.link.(*clientLink).remote.session = session{begun: true}
				}
				if test.params != "" {
					r.request(1, 1, request(1, "tools/call", test.params))
				}
				synctest.Wait()
				r.send(7, cancelled(test.cancel))
				if synctest.Wait(); posted.Load() != 0 != test.posted || len(r.failed) > 0 {
					t.Errorf("it was posted %d times, and the failures are %v; want it posted: %t", posted.Load(), r.failed, test.posted)
				}
			})
		})
	}
}

// A request that ends while it is queued is never sent.
func TestARequestEndedInTheQueueIsNeverSent(t *testing.T) {
	arrived, accept := make(chan struct{}), make(chan struct{})
	s := &legacyServer{}
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		if s.ServeHTTP(w, req); len(s.log()) == 1 {
			close(arrived)
			hold(req, accept)
		}
	})
	r.send(0, notification("n/1"))
	receive(t, "the notification", arrived)
	ended := r.callLegacy(1, 1)
	r.link.End(ended)
	kept := r.request(2, 1, request(2, "ping", ""))
	close(accept)
	r.wantFrame(0, kept, result(2), true)
	if want := []string{"POST n/1  ", "POST ping  "}; !slices.Equal(s.log(), want) {
		t.Fatalf("the server saw %q, want %q", s.log(), want)
	}
}

// Close does not wait for a request that has ended while it was queued.
func TestARequestEndedInTheQueueDelaysNoClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accept := make(chan struct{})
		r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: tripperFunc(func(r *http.Request) (*http.Response, error) {
			_, err := io.Copy(io.Discard, r.Body)
			<-accept
			return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody}, err
		})}})
		r.send(0, notification("n/1"))
		synctest.Wait()
		r.link.End(r.callLegacy(1, 1))
		close(accept)
		synctest.Wait()
		began := time.Now()
		if err := r.link.Close(time.Hour); err != nil || time.Since(began) != 0 {
			t.Errorf("Close returned %v after %v, want no error at once", err, time.Since(began))
		}
	})
}

// Without MaxFrame, both sides limit a message to 16 MiB.
//
// Guarantees: G-0008.2
func TestDefaultLimitOfAFrame(t *testing.T) {
	const limit = 16 << 20
	r := open(t, &Client{URL: serve(t, answerJSON(result(1))), MaxFrame: -1})
	err := r.link.Send(transport.Outbound{Tag: 1, Frame: make([]byte, limit+1)})
	var oversized *transport.OversizedError
	if !errors.As(err, &oversized) || oversized.Limit != limit {
		t.Errorf("the client: %v, want a *transport.OversizedError and oversized.Limit == %v", err, limit)
	}
	if got := NewHandler(newAcceptor(respond), HandlerOptions{}).options.MaxFrame; got != limit {
		t.Errorf("the server: the limit is %d bytes", got)
	}
}
