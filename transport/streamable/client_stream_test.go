package streamable

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// answerJSON is a server whose every answer is that body.
func answerJSON(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "Application/JSON; charset=utf-8")
		io.WriteString(w, body)
	}
}

// stream writes an event stream, and flushes it.
func stream(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, text)
	w.(http.Flusher).Flush()
}

func TestAModernRequestSaysWhatItIs(t *testing.T) {
	seen := make(chan *http.Request, 1)
	bodies := make(chan string, 1)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- r
		bodies <- string(body)
		answerJSON(result(1))(w, r)
	})
	r := open(t, &Client{URL: url + "/mcp?key=1", Header: http.Header{"Authorization": {"Bearer x"}, "Accept": {"image/png"}}})
	frame := request(1, "tools/call", `"name":"größe",`+modernMeta)
	stream := r.request(1, 1, frame)
	r.wantFrame(0, stream, result(1), true)
	got := <-seen
	for name, want := range map[string]string{
		"Authorization":        "Bearer x",
		"Content-Type":         "application/json",
		"Accept":               "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28",
		"Mcp-Method":           "tools/call",
		"Mcp-Name":             "=?base64?Z3LDtsOfZQ==?=",
		"Mcp-Session-Id":       "",
	} {
		if got := got.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got.Method != http.MethodPost || got.URL.String() != "/mcp?key=1" {
		t.Errorf("%s %s", got.Method, got.URL)
	}
	if got := <-bodies; got != frame {
		t.Errorf("the body is %s", got)
	}
}

// Guarantees: G-0022.3
func TestAnAnswerWaitsForCredit(t *testing.T) {
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if bytes.Contains(body, []byte(`"id":1,`)) {
			answerJSON(result(1))(w, req)
			return
		}
		answerJSON(result(2))(w, req)
	})
	first := r.call(1, 0)
	second := r.call(2, 1)
	r.wantFrame(0, second, result(2), true)
	r.link.Grant(first, 1)
	r.wantFrame(1, first, result(1), true)
	r.link.Grant(first, 1) // it is over: void
	r.wantQuiet(2)
}

// Guarantees: G-0022.3
func TestAStreamOfEventsWaitsForCredit(t *testing.T) {
	progress := notification("notifications/progress")
	r := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		stream(w, ": hello\n\nid: 1\ndata:\n\ndata: "+progress+"\n\ndata: "+progress+"\n\ndata: "+result(1)+"\n\n")
	})
	s := r.call(1, 1)
	r.wantFrame(0, s, progress, false)
	other := r.call(2, 1) // time for what should not come to come
	r.wantFrame(1, other, progress, false)
	r.link.Grant(s, 2)
	r.wantFrame(2, s, progress, false)
	r.wantFrame(3, s, result(1), true) // which is the end of the stream
	r.link.Grant(s, 1)
}

// Guarantees: G-0022.1
func TestWhatIsNoAnswerFailsTheRequest(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		want   string
	}{
		"accepted":     {func(w http.ResponseWriter) { w.WriteHeader(202) }, "status 202"},
		"no content":   {func(w http.ResponseWriter) { w.WriteHeader(204) }, "status 204"},
		"another type": {func(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/html"); io.WriteString(w, "<p>") }, `"text/html"`},
		"empty":        {func(w http.ResponseWriter) { w.Header().Set("Content-Type", typeJSON) }, "empty body"},
		"cut": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", typeJSON)
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "{")
		}, "unexpected EOF"},
		"reset": {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			r := connect(t, func(w http.ResponseWriter, _ *http.Request) { c.answer(w) })
			r.call(1, 1)
			f := r.failure(0)
			if f.Tag != 1 || f.Unsent || !strings.Contains(f.Err.Error(), c.want) {
				t.Fatalf("%+v, want %q", f, c.want)
			}
		})
	}
}

// Guarantees: G-0022.1
func TestAStatusThatFailsTheRequest(t *testing.T) {
	fault := `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"no","data":{"supported":[]}}}`
	for name, c := range map[string]struct {
		status int
		header http.Header
		body   string
		want   transport.StatusError
		unsent bool
	}{
		"bad request with a fault": {400, nil, fault, transport.StatusError{Status: 400, Body: fault,
			Fault: &jsonrpc.Error{Code: -32022, Message: "no", Data: []byte(`{"supported":[]}`)}}, true},
		"another request's error": {400, nil, strings.Replace(fault, "null", "7", 1), transport.StatusError{Status: 400, Body: strings.Replace(fault, "null", "7", 1)}, true},
		"challenge":               {401, http.Header{"WWW-Authenticate": {`Bearer realm="x"`, strings.Repeat("y", 9000)}}, "", transport.StatusError{Status: 401, Challenge: `Bearer realm="x", ` + strings.Repeat("y", 8<<10-len(`Bearer realm="x", `))}, true},
		"forbidden":               {403, nil, "", transport.StatusError{Status: 403}, true},
		"not found":               {404, nil, "404 page not found\n", transport.StatusError{Status: 404, Body: "404 page not found"}, true},
		"not allowed":             {405, nil, "", transport.StatusError{Status: 405}, true},
		"not acceptable":          {406, nil, "", transport.StatusError{Status: 406}, true},
		"timeout":                 {408, nil, "", transport.StatusError{Status: 408}, false},
		"conflict":                {409, nil, "", transport.StatusError{Status: 409}, false},
		"too large":               {413, nil, "", transport.StatusError{Status: 413}, true},
		"unsupported":             {415, nil, "", transport.StatusError{Status: 415}, true},
		"too many":                {429, http.Header{"Retry-After": {"7"}}, "", transport.StatusError{Status: 429, RetryAfter: 7 * time.Second}, true},
		"too many, too long":      {429, http.Header{"Retry-After": {"99999999999999999999"}}, "", transport.StatusError{Status: 429, RetryAfter: time.Hour}, true},
		"a wait that is none":     {503, http.Header{"Retry-After": {"-7"}}, "", transport.StatusError{Status: 503}, false},
		"a far date":              {503, http.Header{"Retry-After": {"Fri, 01 Jan 2300 00:00:00 GMT"}}, "", transport.StatusError{Status: 503, RetryAfter: time.Hour}, true},
		"overloaded":              {503, http.Header{"Retry-After": {"7"}}, "", transport.StatusError{Status: 503, RetryAfter: 7 * time.Second}, true},
		"bad gateway":             {502, http.Header{"Retry-After": {"7"}}, "", transport.StatusError{Status: 502, RetryAfter: 7 * time.Second}, false},
		"gateway timeout":         {504, http.Header{"Retry-After": {"7"}}, "", transport.StatusError{Status: 504, RetryAfter: 7 * time.Second}, false},
		"a past date":             {503, http.Header{"Retry-After": {"Fri, 01 Jan 1999 00:00:00 GMT"}}, "", transport.StatusError{Status: 503}, false},
		"internal":                {500, nil, "a\x1b[31m\x00\xffb\n", transport.StatusError{Status: 500, Body: "a [31m b"}, false},
		"elsewhere":               {302, http.Header{"Location": {"https://example.com/mcp"}}, "", transport.StatusError{Status: 302, Body: "it redirects to https://example.com/mcp"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := connect(t, func(w http.ResponseWriter, _ *http.Request) {
				for name, values := range c.header {
					w.Header()[name] = values
				}
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			})
			r.call(1, 0)
			f := r.failure(0)
			var status *transport.StatusError
			if !errors.As(f.Err, &status) || f.Tag != 1 || f.Unsent != c.unsent {
				t.Fatalf("%+v", f)
			}
			if diff := cmp.Diff(&c.want, status); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnErrorsBodyIsCutShort(t *testing.T) {
	r := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		for range 1000 { // 3 MB, of characters that 512 bytes do not hold whole
			if _, err := io.WriteString(w, strings.Repeat("€", 1000)); err != nil {
				return
			}
		}
	})
	r.call(1, 1)
	var status *transport.StatusError
	if f := r.failure(0); !errors.As(f.Err, &status) || status.Body != strings.Repeat("€", 170) || !utf8.ValidString(status.Body) {
		t.Fatalf("%+v", f)
	}
}

// What an overloaded server says in the body is no answer: the request was not
// executed, and can be sent again.
//
// Guarantees: G-0022.1
func TestAnOverloadedServerHasNotAnswered(t *testing.T) {
	answer := `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"try later"}}`
	for _, status := range []int{429, 503} {
		r := connect(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
			io.WriteString(w, answer)
		})
		r.call(1, 1)
		var refused *transport.StatusError
		if f := r.failure(0); !f.Unsent || !errors.As(f.Err, &refused) || !refused.Overloaded() || refused.Fault == nil {
			t.Errorf("%d: %+v", status, f)
		}
	}
}

// Guarantees: G-0022.1
func TestAResponseUnderAnErrorStatusIsTheAnswer(t *testing.T) {
	answer := `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}`
	r := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", typeJSON)
		w.WriteHeader(404)
		io.WriteString(w, answer)
	})
	s := r.call(1, 0)
	r.link.Grant(s, 1)
	r.wantFrame(0, s, answer, true)
	r.wantQuiet(1)
}

// Guarantees: G-0022.1
func TestAnOversizedAnswerFailsItsRequestAlone(t *testing.T) {
	const limit = 4096
	big := `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", limit) + `"}`
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"announced": answerJSON(big),
		"chunked": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", typeJSON)
			w.(http.Flusher).Flush()
			io.WriteString(w, big)
		},
		"compressed": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", typeJSON)
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			io.WriteString(z, big)
		},
		"an event": func(w http.ResponseWriter, r *http.Request) { stream(w, "data: "+big+"\n\n") },
	} {
		t.Run(name, func(t *testing.T) {
			calls := make(chan struct{}, 2)
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				calls <- struct{}{}
				if len(calls) == 1 {
					answer(w, r)
					return
				}
				answerJSON(result(2))(w, r)
			})
			r := open(t, &Client{URL: url, MaxFrame: limit})
			r.call(1, 1)
			var oversized *transport.OversizedError
			if f := r.failure(0); !errors.As(f.Err, &oversized) || oversized.Limit != limit || f.Unsent {
				t.Fatalf("%+v", f)
			}
			r.wantFrame(0, r.call(2, 1), result(2), true)
		})
	}
}

func TestAnAnswerOfJustTheLimitArrives(t *testing.T) {
	const limit = 4096
	frame := `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", limit)
	frame = frame[:limit-2] + `"}`
	r := open(t, &Client{URL: serve(t, answerJSON(frame)), MaxFrame: limit})
	r.wantFrame(0, r.call(1, 1), frame, true)
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
				case req.Header.Get("Last-Event-ID") == "7" && req.Header.Get("Accept") == typeEvents:
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

// Who may not ask is told by the status, also where the body answers the
// request: it is no word on what was asked.
//
// Guarantees: G-0022.1
func TestADenialIsAStatusWhateverItsBody(t *testing.T) {
	for _, denied := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		r := connect(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", typeJSON)
			w.WriteHeader(denied)
			io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}`)
		})
		r.call(1, 1)
		var status *transport.StatusError
		if f := r.failure(0); !errors.As(f.Err, &status) || status.Status != denied || status.Fault == nil || !f.Unsent {
			t.Errorf("%+v", f)
		}
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
func TestWhatAServerAsksIsAnswered(t *testing.T) {
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
