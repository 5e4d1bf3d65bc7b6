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

// answerJSON returns a server that answers each request with the given body.
func answerJSON(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "Application/JSON; charset=utf-8")
		io.WriteString(w, body)
	}
}

// A modern request names its revision, method and name in headers, and has no session.
func TestModernRequestHasItsHeaders(t *testing.T) {
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
	if got.Method != http.MethodPost || got.URL.String() != "/mcp?key=1" || got.ContentLength != int64(len(frame)) {
		t.Errorf("got a request %s %s of %d bytes, want %s %s of %d", got.Method, got.URL, got.ContentLength, http.MethodPost, "/mcp?key=1", len(frame))
	}
	if got := <-bodies; got != frame {
		t.Errorf("got the body %s, want %v", got, frame)
	}
}

// A response in JSON is read when the stream has credit.
//
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
	r.link.Grant(first, 1) // has no effect, because the stream has ended
	r.wantQuiet(2)
}

// A response with events is read event by event, as the stream has credit.
//
// Guarantees: G-0022.3
func TestAStreamOfEventsWaitsForCredit(t *testing.T) {
	progress := notification("notifications/progress")
	r := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		stream(w, ": hello\n\nid: 1\ndata:\n\ndata: "+progress+"\n\ndata: "+progress+"\n\ndata: "+result(1)+"\n\n")
	})
	s := r.call(1, 1)
	r.wantFrame(0, s, progress, false)
	other := r.call(2, 1) // leaves time for an event that should not come
	r.wantFrame(1, other, progress, false)
	r.link.Grant(s, 2)
	r.wantFrame(2, s, progress, false)
	r.wantFrame(3, s, result(1), true) // the result ends the stream
	r.link.Grant(s, 1)
}

// A response without a valid message for the request fails the request with the reason.
//
// Guarantees: G-0022.1
func TestInvalidAnswerFailsTheRequest(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		want   string
	}{
		"accepted":     {func(w http.ResponseWriter) { w.WriteHeader(202) }, "status 202"},
		"no content":   {func(w http.ResponseWriter) { w.WriteHeader(204) }, "status 204"},
		"another type": {func(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/html"); io.WriteString(w, "<p>") }, `"text/html"`},
		"empty":        {func(w http.ResponseWriter) { w.Header().Set("Content-Type", web.TypeJSON) }, "empty body"},
		"cut": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", web.TypeJSON)
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "{")
		}, "unexpected EOF"},
		"reset": {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			r := connect(t, func(w http.ResponseWriter, _ *http.Request) { c.answer(w) })
			r.call(1, 1)
			f := r.failure(0)
			if f.Tag != 1 || f.Unsent || !strings.Contains(f.Err.Error(), c.want) || name == "cut" && !errors.Is(f.Err, io.ErrUnexpectedEOF) {
				t.Fatalf("got %+v, want %q", f, c.want)
			}
		})
	}
}

// An error status fails the request with its code, its text and its Retry-After.
//
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
		"an invalid wait":         {503, http.Header{"Retry-After": {"-7"}}, "", transport.StatusError{Status: 503}, false},
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
				t.Fatalf("got %+v, want a *transport.StatusError, f.Tag == 1 and f.Unsent == %v", f, c.unsent)
			}
			if diff := cmp.Diff(&c.want, status); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The body of an error is cut to 512 bytes of whole characters.
func TestAnErrorsBodyIsCutShort(t *testing.T) {
	r := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		for range 1000 { // 3 MB of characters of three bytes, which do not divide 512
			if _, err := io.WriteString(w, strings.Repeat("€", 1000)); err != nil {
				return
			}
		}
	})
	r.call(1, 1)
	var status *transport.StatusError
	if f := r.failure(0); !errors.As(f.Err, &status) || status.Body != strings.Repeat("€", 170) || !utf8.ValidString(status.Body) {
		t.Fatalf("got %+v", f)
	}
}

// A response in the body of an overloaded status is ignored: the request was not
// executed and can be repeated.
//
// Guarantees: G-0022.1
func TestResponseOfAnOverloadedServerIsIgnored(t *testing.T) {
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
			t.Errorf("%d: got %+v", status, f)
		}
	}
}

// A response in the body of another error status is the response to the request.
//
// Guarantees: G-0022.1
func TestAResponseUnderAnErrorStatusIsTheAnswer(t *testing.T) {
	answer := `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}`
	r := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", web.TypeJSON)
		w.WriteHeader(404)
		io.WriteString(w, answer)
	})
	s := r.call(1, 0)
	r.link.Grant(s, 1)
	r.wantFrame(0, s, answer, true)
	r.wantQuiet(1)
}

// A response above MaxFrame fails its request only.
//
// Guarantees: G-0022.1
func TestAnOversizedAnswerFailsItsRequestAlone(t *testing.T) {
	const limit = 4096
	big := `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", limit) + `"}`
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"announced": answerJSON(big),
		"chunked": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", web.TypeJSON)
			w.(http.Flusher).Flush()
			io.WriteString(w, big)
		},
		"compressed": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", web.TypeJSON)
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
			if f := r.failure(0); !errors.As(f.Err, &oversized) || oversized.Limit != limit || oversized.Size <= limit || f.Unsent {
				t.Fatalf("got %+v, want an answer of more than %d bytes", f, limit)
			}
			r.wantFrame(0, r.call(2, 1), result(2), true)
		})
	}
}

// A response of exactly MaxFrame arrives, and no longer one, whatever the link has received before.
func TestAnAnswerOfJustTheLimitArrives(t *testing.T) {
	const limit = 4096
	whole := `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", limit)
	frames := []string{whole[:limit-2] + `"}`, whole[:limit-1] + `"}`}
	for kind, form := range map[string]string{web.TypeJSON: "%s", web.TypeEvents: "data: %s\n\n"} {
		for _, announced := range []bool{false, true} {
			var calls atomic.Int64
			r := open(t, &Client{MaxFrame: limit, URL: serve(t, func(w http.ResponseWriter, _ *http.Request) {
				text := fmt.Sprintf(form, frames[calls.Add(1)-1])
				w.Header().Set("Content-Type", kind)
				if announced {
					w.Header().Set("Content-Length", fmt.Sprint(len(text)))
				} else {
					w.(http.Flusher).Flush()
				}
				io.WriteString(w, text)
			})})
			r.wantFrame(0, r.call(1, 1), frames[0], true)
			r.call(1, 1)
			var oversized *transport.OversizedError
			if f := r.failure(0); !errors.As(f.Err, &oversized) || *oversized != (transport.OversizedError{Limit: limit, Size: limit + 1}) {
				t.Errorf("%s, announced %t: got %+v, want %d bytes above the limit of %d", kind, announced, f, limit+1, limit)
			}
		}
	}
}

// A batch is the end of a response in JSON: whoever receives it looks for the answer in it.
func TestABatchIsAWholeResponse(t *testing.T) {
	r := connect(t, answerJSON("["+result(1)+"]"))
	r.wantFrame(0, r.callLegacy(1, 1), "["+result(1)+"]", true)
	r.wantQuiet(1)
}

// Memory for a response is taken as its bytes come, whatever length it announces.
//
// Guarantees: G-0008.2
func TestAnAnnouncedLengthTakesNoMemory(t *testing.T) {
	const announced = 1 << 40
	body, err := readBody(&http.Response{ContentLength: announced, Body: io.NopCloser(strings.NewReader("{}"))}, 2*announced)
	if string(body) != "{}" || err != nil || cap(body) > 1<<20 {
		t.Errorf("got %q and room for %d bytes, %v", body, cap(body), err)
	}
}

// With status 401 and 403 the request fails with the status, even if the body contains
// a response.
//
// Guarantees: G-0022.1
func TestDenialIsAStatusWhateverItsBody(t *testing.T) {
	for denied, id := range map[int]int{http.StatusUnauthorized: 1, http.StatusForbidden: 1, http.StatusTooManyRequests: 2} {
		r := connect(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", web.TypeJSON)
			w.WriteHeader(denied)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"error":{"code":-32601,"message":"no such method"}}`, id)
		})
		r.call(1, 1)
		var status *transport.StatusError
		if f := r.failure(0); !errors.As(f.Err, &status) || status.Status != denied || (status.Fault != nil) != (id == 1) || !f.Unsent { // what is said of another request is not kept
			t.Errorf("got %+v", f)
		}
	}
}

// cutOff closes the connection of a request after it has written a part of the response.
func cutOff(w http.ResponseWriter, part string) {
	connection, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_, err = io.WriteString(connection, part)
	}
	if err != nil {
		panic(err)
	}
	connection.Close()
}

// A failure says in words what the server has done, and wraps the error that it comes from.
func TestWhatAFailureSays(t *testing.T) {
	hungUp := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	refuses := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) }
	call, notified, begun := request(1, "ping", ""), notification("n"), request(1, "initialize", "")
	for name, test := range map[string]struct {
		frame  string
		server http.HandlerFunc
		says   string
		wraps  error
		unsent bool
	}{
		"hung up":              {call, hungUp, "the server closed the connection without a response: EOF", io.EOF, false},
		"hung up, and no call": {notified, hungUp, "the server closed the connection without a response: EOF", io.EOF, false},
		"a part of a header": {call, func(w http.ResponseWriter, _ *http.Request) { cutOff(w, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n") },
			"the server closed the connection without a response: net/http: HTTP/1.x transport connection broken: unexpected EOF", io.ErrUnexpectedEOF, false},
		"a part of a body": {call, func(w http.ResponseWriter, _ *http.Request) {
			cutOff(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
		}, "streamable: read the response: unexpected EOF", io.ErrUnexpectedEOF, false},
		"no message": {call, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) },
			"HTTP status 202: a request was answered without a message", nil, false},
		"JSON that was accepted only": {call, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusAccepted)
		}, "HTTP status 202: a request was answered without a message", nil, false},
		"a page": {call, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			io.WriteString(w, "<p>")
		}, `HTTP status 200: a request was answered with "text/html", which is neither JSON nor an event stream`, nil, false},
		"an empty body":          {call, answerJSON(""), "HTTP status 200: a request was answered with an empty body", nil, false},
		"another answer":         {call, answerJSON(result(2)), "HTTP status 200: a request was answered with JSON that is not its response", nil, false},
		"a refusal":              {call, refuses, "HTTP status 500: no", nil, false},
		"a refusal, and no call": {notified, refuses, "HTTP status 500: no", nil, false},
		"a refusal of the client": {call, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadRequest) },
			"HTTP status 400: no", nil, true},
		"a notification of the client": {notified, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadRequest) },
			"HTTP status 400: no", nil, true},
		"two sessions": {begun, func(w http.ResponseWriter, r *http.Request) {
			w.Header()[headerSession] = []string{"s-1", "s-2"}
			answerJSON(initializeResult)(w, r)
		}, "streamable: the server gives 2 session ids", nil, false},
		"a bad session": {begun, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(headerSession, "ä")
			answerJSON(initializeResult)(w, r)
		}, "streamable: the server's session id, of 2 bytes, is not visible ASCII of at most 1024", nil, false},
		"a stream that ends": {request(1, "ping", modernMeta), func(w http.ResponseWriter, _ *http.Request) { stream(w, ": hello\n\n") },
			"streamable: the stream of a request ended before its response: transport: peer closed the link", transport.ErrPeerClosed, false},
		"a stream that breaks": {request(1, "ping", modernMeta), func(w http.ResponseWriter, r *http.Request) { stream(w, "data: "); hungUp(w, r) },
			"streamable: the stream of a request ended before its response: unexpected EOF", io.ErrUnexpectedEOF, false},
	} {
		r := connect(t, func(w http.ResponseWriter, req *http.Request) {
			if body, _ := io.ReadAll(req.Body); len(body) > 0 {
				test.server(w, req)
			}
		})
		if r.send(1, test.frame); test.frame != notified {
			r.link.Grant(1, 5)
		}
		r.await("the end of "+name, func() bool { return len(r.failed)+len(r.broken) > 0 })
		var got transport.Failure
		switch {
		case len(r.failed) == 1 && len(r.broken) == 0:
			got = r.failed[0]
		case len(r.broken) == 1 && len(r.failed) == 0:
			got = transport.Failure{Tag: 1, Err: r.broken[0].Reason}
		}
		if got.Tag != 1 || got.Err == nil || got.Err.Error() != test.says || test.wraps != nil && !errors.Is(got.Err, test.wraps) || got.Unsent != test.unsent {
			t.Errorf("%s: got %+v, failures %+v, losses %+v; want %q, unsent: %t", name, got, r.failed, r.broken, test.says, test.unsent)
		}
	}
}
