package streamable

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
			want := transport.StreamLoss{Stream: s, Resumable: true, Advanced: true, Delay: 60 * time.Millisecond}
			loss := r.streamLoss(0)
			if name == "ended" != errors.Is(loss.Reason, transport.ErrPeerClosed) {
				t.Errorf("the reason is %v", loss.Reason)
			}
			if loss.Reason = nil; loss != want {
				t.Fatalf("%+v, want %+v", loss, want)
			}
			r.link.Resume(s)
			r.wantFrame(1, s, result(1), true)
			r.link.Resume(s) // it is over: void
		})
	}
}

// The server says how long to wait, within bounds, and whether it has come further.
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
			if loss := r.streamLoss(0); loss.Delay != want || !loss.Advanced {
				t.Fatalf("after a priming event: %+v, want a delay of %v", loss, want)
			}
			r.link.Resume(s)
			if loss := r.streamLoss(1); loss.Delay != want || loss.Advanced {
				t.Fatalf("after a comment: %+v, want a delay of %v", loss, want)
			}
		})
	}
}

// Guarantees: G-0022.4
func TestAStreamThatCannotBeResumed(t *testing.T) {
	for name, c := range map[string]struct {
		events string
		call   func(*testReceiver, int, int) transport.Stream
	}{
		"a modern one":        {"id: 7\ndata:\n\n", (*testReceiver).call},
		"one without an id":   {"data: " + notification("x") + "\n\n", (*testReceiver).callLegacy},
		"an id no header has": {"id: \x01\ndata:\n\n", (*testReceiver).callLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			r := connect(t, func(w http.ResponseWriter, _ *http.Request) { stream(w, c.events) })
			s := c.call(r, 1, 10)
			if loss := r.streamLoss(0); loss.Stream != s || loss.Resumable || !errors.Is(loss.Reason, transport.ErrPeerClosed) {
				t.Fatalf("%+v", loss)
			}
		})
	}
}

// Guarantees: G-0022.4
func TestResumingMayFail(t *testing.T) {
	for status, resumable := range map[int]bool{405: false, 404: false, 202: false, 302: false, 500: true, 503: true} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			r := connect(t, func(w http.ResponseWriter, req *http.Request) {
				if req.Method == http.MethodPost {
					stream(w, "id: 7\ndata:\n\n")
					return
				}
				w.WriteHeader(status)
			})
			s := r.callLegacy(1, 10)
			r.streamLoss(0)
			r.link.Resume(s)
			var is *transport.StatusError
			if loss := r.streamLoss(1); loss.Stream != s || loss.Resumable != resumable || !errors.As(loss.Reason, &is) || is.Status != status {
				t.Fatalf("%+v", loss)
			}
		})
	}
}

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
	wait(t, "the request", arrived)
	r.link.End(s)
	wait(t, "its cancellation", cancelled)
	r.link.End(s)
	r.link.End(transport.Main)
	r.wantQuiet(0)
	if unsent := r.loss().Unsent; len(unsent) > 0 {
		t.Errorf("unsent: %v", unsent)
	}
}

// A server that leaves its response open after the answer does not keep the
// stream, nor the connection.
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
	wait(t, "the end of the response", left)
	r.wantQuiet(1)
}

// A server may ask on the stream of a request. What answers it is posted, like
// everything.
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

// A stream that was resumed can be resumed again, from where it was.
//
// Guarantees: G-0022.4
func TestAResumedStreamKeepsItsPlace(t *testing.T) {
	resumed := make(chan string, 2)
	s := &legacy{
		call: func(w http.ResponseWriter, _ *http.Request) { stream(w, "id: a1\ndata:\n\n") },
		get: func(w http.ResponseWriter, req *http.Request) {
			if id := req.Header.Get(headerLastEventID); id != "" {
				resumed <- id
			}
			stream(w, "retry: 10\n\n") // nothing that names a place
		},
	}
	r := connect(t, s.ServeHTTP)
	r.request(1, 1, request(1, "initialize", ""))
	r.frame(0)
	number := r.callLegacy(2, 5)
	for n := range 3 {
		if loss := r.streamLoss(n); loss.Stream != number || !loss.Resumable {
			t.Fatalf("%+v", loss)
		}
		if n < 2 {
			r.link.Resume(number)
			if id := <-resumed; id != "a1" {
				t.Fatalf("resumed at %q", id)
			}
		}
	}
}

// Events of other types are keep-alives and the like, and no messages.
//
// Guarantees: G-0022.14
func TestEventsOfOtherTypesAreNoMessages(t *testing.T) {
	r := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		stream(w, "event: ping\ndata: now\n\ndata: "+result(1)+"\n\n")
	})
	r.wantFrame(0, r.call(1, 5), result(1), true)
}

// A GET stream that is refused for now, or for who asks, is told; one that the
// server does not have is not.
//
// Guarantees: G-0022.4
func TestAGetStreamThatIsRefusedForNow(t *testing.T) {
	for status, resumable := range map[int]bool{401: false, 403: false, 408: true, 429: true, 503: true} {
		r := handshake(t, &legacy{get: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
		}})
		loss := r.streamLoss(0)
		if loss.Stream != transport.Main || loss.Resumable != resumable || resumable && loss.Delay.Seconds() != 7 {
			t.Errorf("%d: %+v", status, loss)
		}
	}
}

// Guarantees: G-0022.4
func TestTheGetStreamBringsWhatBelongsToNoRequest(t *testing.T) {
	more := make(chan struct{})
	asked := make(chan string, 10)
	s := &legacy{session: "s-1", get: func(w http.ResponseWriter, req *http.Request) {
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
	if loss.Stream != transport.Main || !loss.Resumable || loss.Delay != 80*time.Millisecond || !errors.Is(loss.Reason, transport.ErrPeerClosed) {
		t.Fatalf("%+v", loss)
	}
	r.link.Resume(transport.Main)
	r.link.Resume(transport.Main) // it is not lost now: void
	r.wantFrame(5, transport.Main, notification("n/2"), false)
	if first, second := <-asked, <-asked; first != "" || second != "5" || len(asked) > 0 {
		t.Fatalf("asked for %q, then %q, and %d times more", first, second, len(asked))
	}
}

// A request is not sent while the server has not answered the GET request: what the
// server would send on the standalone stream is not lost, and no server takes that
// request for one that resumes the stream of a call.
//
// Guarantees: G-0022.2
func TestTheGetStreamIsOpenBeforeTheFirstRequest(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	var opened atomic.Bool
	s := &legacy{
		get: func(w http.ResponseWriter, req *http.Request) {
			close(asked)
			hold(req, answer)
			opened.Store(true)
			stream(w, ": hello\n\n")
			<-req.Context().Done()
		},
		call: func(w http.ResponseWriter, req *http.Request) {
			if !opened.Load() {
				t.Error("the request has overtaken the GET request")
			}
			answerJSON(result(2))(w, req)
		},
	}
	r := handshake(t, s)
	number := r.callLegacy(2, 1)
	wait(t, "the GET request", asked)
	close(answer)
	r.wantFrame(1, number, result(2), true)
}

// A server that does not answer the GET request does not stop the session.
//
// Guarantees: G-0022.2
func TestAGetRequestWithoutAnAnswerHoldsNothingUp(t *testing.T) {
	r := handshake(t, &legacy{get: func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }})
	r.wantFrame(1, r.callLegacy(2, 1), result(2), true)
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
