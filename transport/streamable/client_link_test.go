package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// A legacy is a server with a session. What it does not know, it answers as
// its handler says.
type legacy struct {
	session string
	events  bool // initialize is answered by an event
	get     http.HandlerFunc
	call    http.HandlerFunc

	mu   sync.Mutex
	seen []string // method, JSON-RPC method, session, version; GET and DELETE too
}

func (s *legacy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
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

func (s *legacy) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, text)
}

func (s *legacy) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

const initializeResult = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`

// handshake opens a legacy session: request 1, and notifications/initialized.
func handshake(t *testing.T, s *legacy) *recorder {
	t.Helper()
	r := connect(t, s.ServeHTTP)
	r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
	r.send(0, initialized)
	return r
}

func TestALegacySessionIsCarriedOn(t *testing.T) {
	for _, events := range []bool{false, true} {
		t.Run(fmt.Sprintf("events %v", events), func(t *testing.T) {
			s := &legacy{session: "s-1", events: events}
			r := connect(t, s.ServeHTTP)
			r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
			r.wantFrame(1, r.callLegacy(2, 1), result(2), true)
			r.send(0, result(`"from the server"`))
			r.wantFrame(2, r.callLegacy(3, 1), result(3), true)
			if err := r.link.Close(hangGuard); err != nil {
				t.Fatal(err)
			}
			want := []string{"POST initialize  ", "POST tools/call s-1 2025-11-25", "POST result s-1 2025-11-25", "POST tools/call s-1 2025-11-25", "DELETE - s-1 2025-11-25"}
			if got := s.log(); !slices.Equal(got, want) {
				t.Fatalf("the server saw %q, want %q", got, want)
			}
		})
	}
}

func TestABadSessionIDFailsTheHandshake(t *testing.T) {
	for _, id := range []string{strings.Repeat("x", 1025), "a b", "ä"} {
		for _, events := range []bool{false, true} {
			r := connect(t, (&legacy{session: id, events: events}).ServeHTTP)
			r.request(1, 1, request(1, "initialize", ""))
			if f := r.failure(0); f.Tag != 1 || f.Unsent || !strings.Contains(f.Err.Error(), "session id") {
				t.Fatalf("%q: %+v", id, f)
			}
		}
	}
}

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
	r.send(0, notification("n/1"))
	r.send(2, notification("n/2"))
	after := r.request(3, 1, request(3, "ping", ""))
	wait(t, "the first notification", first)
	mu.Lock()
	if want := []string{"ping", "n/1"}; !slices.Equal(seen, want) {
		t.Errorf("before the first was accepted the server saw %q", seen)
	}
	mu.Unlock()
	close(accept)
	r.wantFrame(1, after, result(3), true)
	if want := []string{"ping", "n/1", "n/2", "ping"}; !slices.Equal(seen, want) {
		t.Errorf("the server saw %q", seen)
	}
	var status *transport.StatusError
	if f := r.failure(0); f.Tag != 2 || !f.Unsent || !errors.As(f.Err, &status) || len(r.failed) != 1 {
		t.Errorf("failed: %+v", r.failed)
	}
}

// Guarantees: G-0022.1
func TestRequestsRunSideBySide(t *testing.T) {
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

// silent is an HTTP transport that never answers.
type silent struct{}

func (silent) RoundTrip(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// Guarantees: G-0022.2
func TestANotificationHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: silent{}}})
		begun := time.Now()
		r.send(1, notification("n"))
		r.send(2, notification("n"))
		r.await("two failures", func() bool { return len(r.failed) == 2 })
		if took := time.Since(begun); took != 2*postPatience {
			t.Errorf("they failed after %v", took)
		}
		for n := range 2 {
			// It may have been sent: this transport cannot be traced.
			if f := r.failure(n); f.Tag != transport.Tag(n+1) || f.Unsent || !errors.Is(f.Err, context.DeadlineExceeded) {
				t.Errorf("%+v", f)
			}
		}
	})
}

// Guarantees: G-0022.15
func TestCloseIsBoundedThoughNothingAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: silent{}}})
		r.link.(*clientLink).remote.session = session{begun: true, id: "s"}
		r.call(1, 1)
		r.send(2, notification("n"))
		r.send(3, notification("n"))
		r.send(4, request(4, "ping", ""))
		begun := time.Now()
		r.link.Close(5 * time.Second)
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("Close took %v", took)
		}
		loss := r.loss()
		if loss.Reason != transport.ErrClosed || !slices.Equal(loss.Unsent, []transport.Tag{3, 4}) || len(r.failed) > 0 {
			t.Errorf("lost %+v, failed %+v", loss, r.failed)
		}
	})
}

func TestAShorterGraceShortensAnEarlierOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: silent{}}})
		r.send(1, notification("n"))
		r.send(2, notification("n"))
		begun := time.Now()
		var closing sync.WaitGroup
		closing.Go(func() { r.link.Close(time.Hour) })
		closing.Go(func() { r.link.Close(time.Second) })
		closing.Wait()
		if took := time.Since(begun); took != 700*time.Millisecond {
			t.Errorf("Close took %v", took)
		}
		if err := r.link.Send(outbound(0, initialized)); err != transport.ErrClosed {
			t.Errorf("Send after Close: %v", err)
		}
	})
}

// Guarantees: G-0022.15
func TestCloseFlushesAndDeletesTheSession(t *testing.T) {
	s := &legacy{session: "s-1"}
	r := handshake(t, s)
	for range 20 {
		r.send(1, notification("n"))
	}
	if err := r.link.Close(hangGuard); err != nil {
		t.Fatal(err)
	}
	got := s.log()
	notified := 0
	for _, line := range got {
		if line == "POST n s-1 2025-11-25" {
			notified++
		}
	}
	if notified != 20 || got[len(got)-1] != "DELETE - s-1 2025-11-25" || len(r.loss().Unsent) > 0 {
		t.Fatalf("the server saw %q, unsent %v", got, r.loss().Unsent)
	}
}

func TestCloseAtOnceDeletesNothing(t *testing.T) {
	s := &legacy{session: "s-1"}
	handshake(t, s).link.Close(0)
	for _, line := range s.log() {
		if strings.HasPrefix(line, "DELETE") {
			t.Fatal(line)
		}
	}
}

func TestALossBeforeBindIsToldAtBind(t *testing.T) {
	link, err := (&Client{URL: "http://host/"}).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	link.Close(hangGuard)
	r := &recorder{t: t, calls: make(chan struct{}, 1), changed: make(chan struct{})}
	link.Bind(r)
	if loss := r.loss(); loss.Reason != transport.ErrClosed {
		t.Fatalf("%+v", loss)
	}
}

func TestAFullQueueSaysBusyAndThenWritable(t *testing.T) {
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
			wait(t, "the first", arrived)
			for range c.frames {
				r.send(0, frame)
			}
			for range 2 {
				if err := r.link.Send(outbound(0, frame)); err != transport.ErrBusy {
					t.Fatalf("one too many: %v", err)
				}
			}
			if r.writable != 0 {
				t.Fatal("Writable before there was room")
			}
			accept <- struct{}{}
			r.await("Writable", func() bool { return r.writable == 1 })
			r.send(0, frame)
			if err := r.link.Send(outbound(0, frame)); err != transport.ErrBusy {
				t.Fatalf("one too many again: %v", err)
			}
			close(accept)
			r.link.Close(hangGuard)
		})
	}
}

func TestSendRefusesWhatItCannotCarry(t *testing.T) {
	r := open(t, &Client{URL: "http://host/", MaxFrame: 100})
	var oversized *transport.OversizedError
	if err := r.link.Send(transport.Outbound{Frame: make([]byte, 101)}); !errors.As(err, &oversized) || oversized.Limit != 100 {
		t.Errorf("oversized: %v", err)
	}
}

// cancelled tells the server that a request is.
func cancelled(id int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id)
}

// Guarantees: G-0022.6
func TestOnlyLegacyRequestsAreCancelledByNotification(t *testing.T) {
	arrived, answer := make(chan struct{}, 2), make(chan struct{})
	s := &legacy{call: func(w http.ResponseWriter, req *http.Request) {
		arrived <- struct{}{}
		hold(req, answer)
		answerJSON(result(0))(w, req)
	}}
	r := connect(t, s.ServeHTTP)
	r.call(1, 1)
	r.callLegacy(2, 1)
	wait(t, "a request", arrived)
	wait(t, "the other", arrived)
	r.send(0, cancelled(1))
	r.send(0, cancelled(3))
	r.send(0, cancelled(2))
	r.send(0, notification("n"))
	close(answer)
	r.frame(1)
	r.send(0, cancelled(2)) // it is over
	r.link.Close(hangGuard)
	want := []string{"POST notifications/cancelled  ", "POST n  "}
	if got := s.log()[2:]; !slices.Equal(got, want) {
		t.Fatalf("the server saw %q, want %q", got, want)
	}
}

// Guarantees: G-0022.5
func TestAnExpiredSessionIsALoss(t *testing.T) {
	body := `{"jsonrpc":"2.0","id":2,"error":{"code":-32001,"message":"no session"}}`
	s := &legacy{session: "s-1", call: func(w http.ResponseWriter, req *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, body)
	}}
	r := handshake(t, s)
	r.callLegacy(2, 1)
	if loss := r.loss(); loss.Reason != transport.ErrSessionExpired || !slices.Equal(loss.Unsent, []transport.Tag{2}) {
		t.Errorf("%+v", loss)
	}
	if err := r.link.Send(outbound(0, initialized)); err != transport.ErrClosed {
		t.Errorf("Send after the loss: %v", err)
	}
}

// Some servers say 400 of a session that they do not know, and mean no message
// in particular. One such refusal fails its message, two in a row the link.
//
// Guarantees: G-0022.5
func TestADisownedSessionIsALoss(t *testing.T) {
	const unknown = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"no valid session"},"id":null}`
	accepts := make(chan bool, 10)
	r := handshake(t, &legacy{session: "s-1", call: func(w http.ResponseWriter, _ *http.Request) {
		if <-accepts {
			stream(w, "data: "+notification("n")+"\n\n")
			return
		}
		w.Header().Set("Content-Type", typeJSON)
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, unknown)
	}})
	for n, accept := range []bool{false, true, false} {
		accepts <- accept
		if number := r.callLegacy(2+n, 5); accept {
			r.wantFrame(1, number, notification("n"), false)
		} else if f := r.failure(n / 2); !f.Unsent {
			t.Fatalf("%+v", f)
		}
	}
	accepts <- false
	r.callLegacy(9, 5)
	if loss := r.loss(); !errors.Is(loss.Reason, transport.ErrSessionExpired) {
		t.Errorf("%+v", loss)
	}
}

// Guarantees: G-0022.5
func TestWithoutASession404IsOneFailure(t *testing.T) {
	s := &legacy{call: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }}
	r := handshake(t, s)
	r.callLegacy(2, 1)
	r.failure(0)
	r.wantFrame(1, r.request(3, 1, request(3, "ping", "")), result(3), true)
}

// closedPort is an address where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// Guarantees: G-0022.5
func TestTwoFailedDialsAreALoss(t *testing.T) {
	r := open(t, &Client{URL: closedPort(t)})
	r.call(1, 1)
	if f := r.failure(0); f.Tag != 1 || !f.Unsent {
		t.Fatalf("%+v", f)
	}
	r.call(2, 1)
	var dial *net.OpError
	if loss := r.loss(); !errors.As(loss.Reason, &dial) || dial.Op != "dial" || !slices.Equal(loss.Unsent, []transport.Tag{2}) {
		t.Fatalf("%+v", loss)
	}
}

// Guarantees: G-0022.5
func TestAResponseForgivesAFailedDial(t *testing.T) {
	var fail sync.Map // whether to fail the next dial
	url := serve(t, answerJSON(result(0)))
	pool := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if _, ok := fail.LoadAndDelete("next"); ok {
			return nil, errors.New("no way")
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	r := open(t, &Client{URL: url, HTTP: &http.Client{Transport: pool}})
	for turn := range 3 {
		fail.Store("next", true)
		r.call(2*turn+1, 1)
		r.failure(turn)
		r.call(2*turn+2, 1)
		r.frame(turn)
	}
}

// Guarantees: G-0022.4
func TestTheGetStreamBringsWhatBelongsToNoRequest(t *testing.T) {
	more := make(chan struct{})
	asked := make(chan string, 10)
	s := &legacy{session: "s-1", get: func(w http.ResponseWriter, req *http.Request) {
		asked <- req.Header.Get("Last-Event-ID")
		if req.Header.Get("Last-Event-ID") == "" {
			stream(w, "id: 5\nretry: 40\ndata: "+notification("n/1")+"\n\n")
			hold(req, more)
			return
		}
		stream(w, "data: "+notification("n/2")+"\n\n")
		<-req.Context().Done()
	}}
	r := handshake(t, s)
	r.wantFrame(1, r.request(2, 1, request(2, "ping", "")), result(2), true) // time for what should not come to come
	r.link.Grant(transport.Main, 5)
	r.wantFrame(2, transport.Main, notification("n/1"), false)
	r.send(0, initialized) // it is opened once
	r.wantFrame(3, r.request(3, 1, request(3, "ping", "")), result(3), true)
	r.wantFrame(4, r.request(4, 1, request(4, "ping", "")), result(4), true)
	if len(asked) != 1 {
		t.Fatalf("asked %d times", len(asked))
	}
	close(more)
	loss := r.streamLoss(0)
	if loss.Stream != transport.Main || !loss.Resumable || loss.Delay != 40*time.Millisecond || !errors.Is(loss.Reason, transport.ErrPeerClosed) {
		t.Fatalf("%+v", loss)
	}
	r.link.Resume(transport.Main)
	r.link.Resume(transport.Main) // it is not lost now: void
	r.wantFrame(5, transport.Main, notification("n/2"), false)
	if first, second := <-asked, <-asked; first != "" || second != "5" || len(asked) > 0 {
		t.Fatalf("asked for %q, then %q, and %d times more", first, second, len(asked))
	}
}

func TestAServerNeedHaveNoGetStream(t *testing.T) {
	for _, status := range []int{405, 404, 400, 202} {
		s := &legacy{session: "s-1", get: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }}
		r := connect(t, s.ServeHTTP)
		r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
		r.link.(*clientLink).main.listen() // returns when all is told
		r.wantFrame(1, r.callLegacy(2, 1), result(2), true)
		r.wantQuiet(2)
	}
}

// Guarantees: G-0022.4
func TestAGetStreamThatCannotBeOpenedYet(t *testing.T) {
	answers := make(chan int, 3)
	answers <- 503
	answers <- 0
	answers <- 410
	s := &legacy{session: "s-1", get: func(w http.ResponseWriter, _ *http.Request) {
		if status := <-answers; status != 0 {
			w.WriteHeader(status)
			return
		}
		stream(w, ": hello\n\n")
	}}
	r := handshake(t, s)
	r.link.Grant(transport.Main, 1)
	for n, resumable := range []bool{true, true, false} {
		if loss := r.streamLoss(n); loss.Stream != transport.Main || loss.Resumable != resumable {
			t.Fatalf("loss %d: %+v", n, loss)
		}
		r.link.Resume(transport.Main)
	}
}

// Guarantees: G-0022.5
func TestAnExpiredSessionIsNoticedByTheGetStream(t *testing.T) {
	answers := make(chan bool, 2)
	answers <- true
	answers <- false
	s := &legacy{session: "s-1", get: func(w http.ResponseWriter, _ *http.Request) {
		if <-answers {
			stream(w, ": hello\n\n")
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}}
	r := handshake(t, s)
	r.link.Grant(transport.Main, 1)
	r.streamLoss(0)
	r.link.Resume(transport.Main)
	if loss := r.loss(); loss.Reason != transport.ErrSessionExpired {
		t.Fatalf("%+v", loss)
	}
}

func TestAnOversizedEventOnMainIsSkipped(t *testing.T) {
	big := strings.Repeat("x", 4097)
	s := &legacy{get: func(w http.ResponseWriter, req *http.Request) {
		stream(w, "data: "+big+"\n\ndata: "+notification("n")+"\n\n")
		<-req.Context().Done()
	}}
	r := open(t, &Client{URL: serve(t, s.ServeHTTP), MaxFrame: 4096})
	r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
	r.send(0, initialized)
	r.link.Grant(transport.Main, 2)
	var oversized *transport.OversizedError
	if in := r.frame(1); !errors.As(in.Err, &oversized) || in.Frame != nil || in.Stream != transport.Main {
		t.Fatalf("%+v", in)
	}
	r.wantFrame(2, transport.Main, notification("n"), false)
}

func TestARequestEndedInTheQueueIsNeverSent(t *testing.T) {
	arrived, accept := make(chan struct{}), make(chan struct{})
	s := &legacy{}
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		if s.ServeHTTP(w, req); len(s.log()) == 1 {
			close(arrived)
			hold(req, accept)
		}
	})
	r.send(0, notification("n/1"))
	wait(t, "the notification", arrived)
	ended := r.callLegacy(1, 1)
	r.link.End(ended)
	kept := r.request(2, 1, request(2, "ping", ""))
	close(accept)
	r.wantFrame(0, kept, result(2), true)
	if want := []string{"POST n/1  ", "POST ping  "}; !slices.Equal(s.log(), want) {
		t.Fatalf("the server saw %q, want %q", s.log(), want)
	}
}
