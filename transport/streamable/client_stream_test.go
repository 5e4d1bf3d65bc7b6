package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// stream writes an event stream, and flushes it.
func stream(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, text)
	w.(http.Flusher).Flush()
}

// A stream that breaks is reported with the delay of its retry field, and Resume
// continues it after its last event.
//
// Guarantees: G-0022.4
func TestABrokenStreamIsResumed(t *testing.T) {
	progress := notification("notifications/progress")
	cuts := map[string]func(){"ended": func() {}, "cut": func() { panic(http.ErrAbortHandler) }}
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			r := connect(t, func(w http.ResponseWriter, req *http.Request) {
				switch {
				case req.Method == http.MethodPost:
					stream(w, "id: 7\nretry: 60\ndata: "+progress+"\n\n")
					cut()
				case req.Header.Get("Last-Event-ID") == "7" && req.Header.Get("Accept") == web.TypeEvents:
					stream(w, "data: "+result(1)+"\n\n")
				default:
					w.WriteHeader(500)
				}
			})
			s := r.callLegacy(1, 10)
			r.wantFrame(0, s, progress, false)
			want := transport.StreamLoss{Stream: s, Resumable: true, Delay: 60 * time.Millisecond}
			loss := r.streamLoss(0)
			if name == "ended" != errors.Is(loss.Reason, transport.ErrPeerClosed) {
				t.Errorf("the reason is %v", loss.Reason)
			}
			if loss.Reason = nil; loss != want {
				t.Fatalf("got %+v, want %+v", loss, want)
			}
			r.link.Resume(s)
			r.wantFrame(1, s, result(1), true)
			r.link.Resume(s) // has no effect, because the stream has ended
		})
	}
}

// A resumingReceiver resumes each stream while it hears of its loss.
type resumingReceiver struct{ *testReceiver }

func (r resumingReceiver) StreamLost(loss transport.StreamLoss) {
	resumed := make(chan struct{})
	go func() {
		defer close(resumed)
		r.link.Resume(loss.Stream)
	}()
	<-resumed
	r.testReceiver.StreamLost(loss)
}

// A stream can be resumed as soon as its loss is told.
//
// Guarantees: G-0022.4
func TestAStreamIsResumedAtOnce(t *testing.T) {
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			stream(w, "id: 7\ndata:\n\n")
			return
		}
		stream(w, "data: "+result(1)+"\n\n")
	})
	r.link.Bind(resumingReceiver{r})
	r.wantFrame(0, r.callLegacy(1, 1), result(1), true)
}

// The server sets the least delay before a stream is resumed, within bounds.
//
// Guarantees: G-0022.4
func TestAStreamIsResumedWhenTheServerSays(t *testing.T) {
	for retry, want := range map[string]time.Duration{
		"50": 50 * time.Millisecond, "2000": 2 * time.Second, "0": minDelay, "1": minDelay, "999999999": web.MaxDelay, "99999999999999999999": web.MaxDelay,
		"x": 0, "": 0,
	} {
		t.Run(retry, func(t *testing.T) {
			r := connect(t, func(w http.ResponseWriter, req *http.Request) {
				if req.Method == http.MethodPost {
					stream(w, "id: 7\nretry: "+retry+"\ndata:\n\n")
					return
				}
				stream(w, ": nothing\n\n")
			})
			s := r.callLegacy(1, 10)
			if loss := r.streamLoss(0); loss.Delay != want {
				t.Fatalf("after an event without data: got %+v, want a delay of %v", loss, want)
			}
			r.link.Resume(s)
			if loss := r.streamLoss(1); loss.Delay != want {
				t.Fatalf("after a comment: got %+v, want a delay of %v", loss, want)
			}
		})
	}
}

// A stream cannot be resumed if it is modern, or if its last event has no id that fits
// into a header.
//
// Guarantees: G-0022.4
func TestAStreamThatCannotBeResumed(t *testing.T) {
	for name, c := range map[string]struct {
		events string
		call   func(*testReceiver, int, int) transport.Stream
	}{
		"a modern one":                     {"id: 7\ndata:\n\n", (*testReceiver).call},
		"one without an id":                {"data: " + notification("x") + "\n\n", (*testReceiver).callLegacy},
		"an id that is no header value":    {"id: \x01\ndata:\n\n", (*testReceiver).callLegacy},
		"an id of that kind after another": {"id: 7\ndata:\n\nid: \x01\ndata:\n\n", (*testReceiver).callLegacy},
		"initialize": {"id: 7\ndata:\n\n", func(r *testReceiver, id, credit int) transport.Stream {
			return r.request(id, credit, request(id, "initialize", ""))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := connect(t, func(w http.ResponseWriter, _ *http.Request) { stream(w, c.events) })
			s := c.call(r, 1, 10)
			if loss := r.streamLoss(0); loss.Stream != s || loss.Resumable || !errors.Is(loss.Reason, transport.ErrPeerClosed) {
				t.Fatalf("got %+v", loss)
			}
		})
	}
}

// If the server refuses the request that resumes a stream, the stream is lost. A refusal that is not final does not make the next
// attempt come earlier than the stream has said.
//
// Guarantees: G-0022.4
func TestFailedResumeLosesTheStream(t *testing.T) {
	for status, resumable := range map[int]bool{405: false, 404: false, 202: false, 302: false, 500: true, 503: true} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			r := connect(t, func(w http.ResponseWriter, req *http.Request) {
				if req.Method == http.MethodPost {
					stream(w, "id: 7\nretry: 3000\ndata:\n\n")
					return
				}
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(status)
			})
			s := r.callLegacy(1, 10)
			r.streamLoss(0)
			r.link.Resume(s)
			var is *transport.StatusError
			if loss := r.streamLoss(1); loss.Stream != s || loss.Resumable != resumable || !errors.As(loss.Reason, &is) || is.Status != status || resumable && loss.Delay != 3*time.Second {
				t.Fatalf("got %+v", loss)
			}
		})
	}
}

// End cancels the request at the server, and the receiver gets nothing more of its
// stream.
//
// Guarantees: G-0022.6
func TestEndCancelsTheRequestAndIsSilent(t *testing.T) {
	arrived, cancelled := make(chan struct{}), make(chan struct{})
	r := connect(t, func(_ http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		close(arrived)
		<-req.Context().Done()
		close(cancelled)
	})
	s := r.call(1, 10)
	receive(t, "the request", arrived)
	r.link.End(s)
	receive(t, "cancellation", cancelled)
	r.link.End(s)
	r.link.End(transport.Main)
	r.wantQuiet(0)
	if unsent := r.loss().Unsent; len(unsent) > 0 {
		t.Errorf("unsent: %v, want none", unsent)
	}
}

// End waits until a report of its stream that has begun is over: after End the receiver hears nothing of the stream.
//
// Guarantees: G-0022.6
func TestEndWaitsForAReport(t *testing.T) {
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		stream(w, "data: "+notification("n")+"\n\n")
		<-req.Context().Done()
	})
	begun, over, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r.receiving = func() {
		close(begun)
		<-over
	}
	number := r.call(1, 1)
	receive(t, "the notification", begun)
	go func() {
		defer close(ended)
		r.link.End(number)
	}()
	for n := 0; n < 1000 && !wait.IsClosed(ended); n++ {
		runtime.Gosched()
	}
	if wait.IsClosed(ended) {
		t.Error("End returned during a report of its stream, want it to wait")
	}
	close(over)
	receive(t, "the end", ended)
}

// A response that Close breaks off ends with the link: its loss says so, and nothing else is reported.
//
// Guarantees: G-0022.15
func TestAResponseThatCloseBreaksOff(t *testing.T) {
	for _, kind := range []string{web.TypeJSON, web.TypeEvents} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: tripperFunc(func(req *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}}, ContentLength: -1, Body: silentBody{req.Context()}}, nil
				})}})
				r.callLegacy(1, 1)
				synctest.Wait()
				r.wantQuiet(0)
				if loss := r.loss(); loss.Reason != transport.ErrClosed || len(loss.Unsent) > 0 {
					t.Errorf("lost %+v, want %v and nothing unsent", loss, transport.ErrClosed)
				}
			})
		})
	}
}

// A silentBody is a body of which nothing comes until its request is cancelled.
type silentBody struct{ ctx context.Context }

func (b silentBody) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

func (silentBody) Close() error { return nil }

// After the response the stream has ended, even if the server leaves its HTTP response
// open. The connection is closed.
//
// Guarantees: G-0019.4
func TestAnAnsweredStreamIsOver(t *testing.T) {
	left := make(chan struct{})
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		stream(w, "data: "+result(1)+"\n\ndata: "+notification("late")+"\n\n")
		<-req.Context().Done()
		close(left)
	})
	r.wantFrame(0, r.call(1, 5), result(1), true)
	receive(t, "the end of the response", left)
	r.wantQuiet(1)
}

// A server can send requests on the stream of a request. The responses to them are
// posted.
//
// Guarantees: G-0022.2
func TestServerQuestionsAreAnswered(t *testing.T) {
	asked := `{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage"}`
	answered := make(chan struct{})
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if m, err := jsonrpc.Decode(body, jsonrpc.Limits{}); err == nil && m.Kind == jsonrpc.KindResult {
			w.WriteHeader(http.StatusAccepted)
			close(answered)
			return
		}
		stream(w, "data: "+asked+"\n\n")
		hold(req, answered)
		stream(w, "data: "+result(1)+"\n\n")
	})
	s := r.call(1, 5)
	r.wantFrame(0, s, asked, false)
	if err := r.link.Send(outbound(0, result(`"s"`))); err != nil {
		t.Fatal(err)
	}
	r.wantFrame(1, s, result(1), true)
}

// A stream that was resumed can be resumed again, from its last event.
//
// Guarantees: G-0022.4
func TestAResumedStreamKeepsItsPlace(t *testing.T) {
	resumed := make(chan string, 2)
	s := &legacyServer{
		call: func(w http.ResponseWriter, _ *http.Request) { stream(w, "id: a1\ndata:\n\n") },
		get: func(w http.ResponseWriter, req *http.Request) {
			if id := req.Header.Get(headerLastEventID); id != "" {
				resumed <- id
			}
			stream(w, "retry: 10\n\n") // no event with an id
		},
	}
	r := connect(t, s.ServeHTTP)
	r.request(1, 1, request(1, "initialize", ""))
	r.frame(0)
	number := r.callLegacy(2, 5)
	for n := range 3 {
		if loss := r.streamLoss(n); loss.Stream != number || !loss.Resumable {
			t.Fatalf("got %+v", loss)
		}
		if n < 2 {
			r.link.Resume(number)
			if id := <-resumed; id != "a1" {
				t.Fatalf("resumed after %q", id)
			}
		}
	}
}

// Events of other types, for example keep-alives, are not messages, but they are places in the stream.
//
// Guarantees: G-0022.14
func TestEventsOfOtherTypesAreNoMessages(t *testing.T) {
	r := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		stream(w, "event: ping\ndata: now\n\ndata: "+result(1)+"\n\n")
	})
	r.wantFrame(0, r.call(1, 5), result(1), true)
	r = connect(t, func(w http.ResponseWriter, _ *http.Request) {
		stream(w, "event: ping\nid: 7\nretry: 60\ndata: now\n\n")
	})
	r.callLegacy(1, 5)
	if loss := r.streamLoss(0); !loss.Resumable || loss.Delay != 60*time.Millisecond {
		t.Errorf("after a keep-alive with an id and a delay: got %+v, want a stream that is resumed after 60 ms", loss)
	}
}

// If a GET stream is refused temporarily or for lack of access, the loss is reported.
// If the server has no GET stream, nothing is reported.
//
// Guarantees: G-0022.4
func TestAGetStreamThatIsRefusedForNow(t *testing.T) {
	for status, resumable := range map[int]bool{401: false, 403: false, 408: true, 429: true, 503: true} {
		r := handshake(t, &legacyServer{get: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
		}})
		loss := r.streamLoss(0)
		if loss.Stream != transport.Main || loss.Resumable != resumable || resumable && loss.Delay.Seconds() != 7 {
			t.Errorf("%d: got %+v", status, loss)
		}
	}
}

// The GET stream delivers messages that belong to no request, and is resumed after it
// breaks.
//
// Guarantees: G-0022.4
func TestTheGetStreamBringsWhatBelongsToNoRequest(t *testing.T) {
	more := make(chan struct{})
	asked := make(chan string, 10)
	s := &legacyServer{session: "s-1", get: func(w http.ResponseWriter, req *http.Request) {
		asked <- req.Header.Get("Last-Event-ID")
		if req.Header.Get("Last-Event-ID") == "" {
			stream(w, "id: 5\nretry: 80\ndata: "+notification("n/1")+"\n\n")
			hold(req, more)
			return
		}
		stream(w, "data: "+notification("n/2")+"\n\n")
		<-req.Context().Done()
	}}
	r := handshake(t, s)
	r.wantFrame(1, r.request(2, 1, request(2, "ping", "")), result(2), true) // leaves time for a frame that should not come
	r.link.Grant(transport.Main, 5)
	r.wantFrame(2, transport.Main, notification("n/1"), false)
	r.send(0, initialized) // does not open it a second time
	r.wantFrame(3, r.request(3, 1, request(3, "ping", "")), result(3), true)
	r.wantFrame(4, r.request(4, 1, request(4, "ping", "")), result(4), true)
	if len(asked) != 1 {
		t.Fatalf("got %d GET requests, want 1 element", len(asked))
	}
	close(more)
	loss := r.streamLoss(0)
	if loss.Stream != transport.Main || !loss.Resumable || loss.Delay != 80*time.Millisecond || !errors.Is(loss.Reason, transport.ErrPeerClosed) {
		t.Fatalf("got %+v", loss)
	}
	r.link.Resume(transport.Main)
	r.link.Resume(transport.Main) // has no effect, because the stream is not lost
	r.wantFrame(5, transport.Main, notification("n/2"), false)
	if first, second := <-asked, <-asked; first != "" || second != "5" || len(asked) > 0 {
		t.Fatalf("got GET requests after %q and %q, and %d more", first, second, len(asked))
	}
}

// No request is sent before the server has answered the GET request. So no message of
// the standalone stream is lost, and no server takes the GET request for one that
// resumes the stream of a call.
//
// Guarantees: G-0022.2
func TestTheGetStreamIsOpenBeforeTheFirstRequest(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	var opened atomic.Bool
	s := &legacyServer{
		get: func(w http.ResponseWriter, req *http.Request) {
			close(asked)
			hold(req, answer)
			opened.Store(true)
			stream(w, ": hello\n\n")
			<-req.Context().Done()
		},
		call: func(w http.ResponseWriter, req *http.Request) {
			if !opened.Load() {
				t.Error("the request was sent before the GET request was answered")
			}
			answerJSON(result(2))(w, req)
		},
	}
	r := handshake(t, s)
	number := r.callLegacy(2, 1)
	receive(t, "the GET request", asked)
	close(answer)
	r.wantFrame(1, number, result(2), true)
}

// A server that does not answer the GET request does not block the session.
//
// Guarantees: G-0022.2
func TestAGetRequestWithoutAnAnswerHoldsNothingUp(t *testing.T) {
	r := handshake(t, &legacyServer{get: func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }})
	r.wantFrame(1, r.callLegacy(2, 1), result(2), true)
	// A GET request that fails is not waited for at all.
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: tripperFunc(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodGet {
				return nil, errors.New("broken")
			}
			w := httptest.NewRecorder()
			new(legacyServer).ServeHTTP(w, req)
			return w.Result(), nil
		})}})
		r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
		r.send(0, initialized)
		r.wantFrame(1, r.callLegacy(2, 1), result(2), true)
		if took := time.Since(begun); took > 0 {
			t.Errorf("the request was answered after %v, want at once", took)
		}
	})
}

// A server without a GET stream causes no report.
func TestServerWithoutAGetStream(t *testing.T) {
	for _, c := range []struct {
		status  int
		session string
	}{{405, "s-1"}, {404, "s-1"}, {404, ""}, {400, "s-1"}, {202, "s-1"}} {
		status := c.status
		s := &legacyServer{session: c.session, get: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }}
		r := connect(t, s.ServeHTTP)
		r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
		r.link.(*clientLink).main.listen() // returns after all reports
		r.wantFrame(1, r.callLegacy(2, 1), result(2), true)
		r.wantQuiet(2)
		doubtful := status == 404 && c.session != ""
		if doubts := len(r.doubts); (doubts == 1) != doubtful || doubts > 1 {
			t.Errorf("%d, session %q: the link has doubted %d times, want once only for a session and 404", status, c.session, doubts)
		}
	}
}

// A GET stream that cannot be opened yet is lost, and can be resumed later.
//
// Guarantees: G-0022.4
func TestAGetStreamThatCannotBeOpenedYet(t *testing.T) {
	answers := make(chan int, 3)
	answers <- 503
	answers <- 0
	answers <- 410
	s := &legacyServer{session: "s-1", get: func(w http.ResponseWriter, _ *http.Request) {
		if status := <-answers; status != 0 {
			w.WriteHeader(status)
			return
		}
		stream(w, ": hello\n\n")
	}}
	r := handshake(t, s)
	r.link.Grant(transport.Main, 1)
	defer func() {
		if !slices.Equal(r.doubts, []transport.Tag{0}) {
			t.Errorf("got the doubts %v, want one, because of 503", r.doubts)
		}
	}()
	for n, resumable := range []bool{true, true, false} {
		if loss := r.streamLoss(n); loss.Stream != transport.Main || loss.Resumable != resumable {
			t.Fatalf("loss %d: got %+v, want loss.Stream == %v and loss.Resumable == %v", n, loss, transport.Main, resumable)
		}
		r.link.Resume(transport.Main)
	}
}

// An event above the limit on Main is reported and skipped. The report uses credit as a message does.
func TestAnOversizedEventOnMainIsSkipped(t *testing.T) {
	big := strings.Repeat("x", 4097)
	s := &legacyServer{get: func(w http.ResponseWriter, req *http.Request) {
		stream(w, "data: "+big+"\n\ndata: "+notification("n")+"\n\ndata: "+notification("no credit")+"\n\n")
		<-req.Context().Done()
	}}
	r := open(t, &Client{URL: serve(t, s.ServeHTTP), MaxFrame: 4096})
	r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
	r.send(0, initialized)
	r.link.Grant(transport.Main, 2)
	var oversized *transport.OversizedError
	if in := r.frame(1); !errors.As(in.Err, &oversized) || in.Frame != nil || in.Stream != transport.Main {
		t.Fatalf("got %+v, want an error", in)
	}
	r.wantFrame(2, transport.Main, notification("n"), false)
	r.wantQuiet(3)
}

// An event that is too large has no place in the stream: the stream is resumed after the event before it.
//
// Guarantees: G-0022.4
func TestAnOversizedEventKeepsThePlace(t *testing.T) {
	places := make(chan string, 2)
	s := &legacyServer{get: func(w http.ResponseWriter, req *http.Request) {
		places <- req.Header.Get("Last-Event-ID")
		stream(w, "id: 1\ndata: "+notification("n")+"\n\nid: 2\ndata: "+strings.Repeat("x", 4097)+"\n\n")
	}}
	r := open(t, &Client{URL: serve(t, s.ServeHTTP), MaxFrame: 4096})
	r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
	r.send(0, initialized)
	r.link.Grant(transport.Main, 10)
	r.streamLoss(0)
	r.link.Resume(transport.Main)
	r.streamLoss(1)
	if first, second := <-places, <-places; first != "" || second != "1" {
		t.Errorf("the stream was asked for after %q and then after %q, want none and 1", first, second)
	}
}

// However a request ends, its stream holds nothing of it any more.
//
// Guarantees: G-0019.4
func TestAStreamThatHasEndedHoldsNothing(t *testing.T) {
	with := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	fault := `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}`
	for name, answer := range map[string]http.HandlerFunc{
		"json": with(200, web.TypeJSON, result(1)), "another json": with(200, web.TypeJSON, result(2)), "no json": with(200, web.TypeJSON, "{"), "nothing": with(200, web.TypeJSON, ""),
		"events": with(200, web.TypeEvents, "data: "+result(1)+"\n\n"), "no events": with(200, web.TypeEvents, ""), "an event that is too large": with(200, web.TypeEvents, "data: "+strings.Repeat("x", 5000)+"\n\n"),
		"a page": with(200, "text/html", "<p>"), "accepted": with(202, "", ""),
		"a refusal": with(400, "text/plain", "no"), "an error": with(400, web.TypeJSON, fault), "a denial": with(403, web.TypeJSON, fault),
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			r := open(t, &Client{MaxFrame: 4096, URL: serve(t, func(w http.ResponseWriter, req *http.Request) {
				io.Copy(io.Discard, req.Body)
				hold(req, release)
				answer(w, req)
			})})
			number, l := r.call(1, 5), r.link.(*clientLink)
			l.Mu.Lock()
			s := l.streams[number]
			l.Mu.Unlock()
			close(release)
			receive(t, "the end of the stream", s.ctx.Done())
			r.await("the end of the request", func() bool { return len(r.received)+len(r.failed)+len(r.broken) > 0 })
			l.Mu.Lock()
			defer l.Mu.Unlock()
			if len(l.streams) > 0 {
				t.Errorf("the link has %d streams", len(l.streams))
			}
		})
	}
}
