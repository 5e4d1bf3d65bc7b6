package streamable

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// said returns what a response says: its status, Retry-After and its body.
func said(w *httptest.ResponseRecorder) string {
	return fmt.Sprintf("%d %q %s", w.Code, w.Header().Get("Retry-After"), strings.TrimSpace(w.Body.String()))
}

// saysBusy is what a response says to a request that may be sent again; id is its member in the JSON, or empty.
func saysBusy(id, text string) string {
	return fmt.Sprintf(`503 "1" {"jsonrpc":"2.0",%s"error":{"code":-32050,"message":%q}}`, id, text)
}

// An Auditor hears of every refusal from where the request came and, as far as they were established, who has sent it and which
// messages it has brought.
//
// Guarantees: G-0071.3
func TestWhatAnAuditorHears(t *testing.T) {
	for name, test := range map[string]struct {
		body     string
		lines    []string
		status   int
		denied   bool
		identity string
		methods  []string // of the messages; "": there is none
	}{
		"from another site":  {echoBody, []string{"Origin: https://evil.example", "X-User: ada"}, 403, true, "", []string{""}},
		"of nobody":          {echoBody, nil, 401, true, "", []string{""}},
		"no message":         {"{", []string{"X-User: ada"}, 400, false, "ada", []string{""}},
		"an unknown session": {echoBody, []string{"X-User: ada", headerSession + ": x"}, 404, false, "ada", []string{"echo"}},
		"a batch of one":     {"[" + echoBody + "," + notification("n") + "]", []string{"X-User: ada", headerSession + ": x"}, 404, false, "ada", []string{"echo", "n"}},
		"a malformed one":    {"[" + echoBody + `,{"jsonrpc":"2.0","id":8,"method":1}]`, []string{"X-User: ada", headerSession + ": x"}, 404, false, "ada", []string{"echo", "8"}},
		"no session":         {legacyHold(""), []string{"X-User: ada"}, 400, false, "ada", []string{"hold"}},
	} {
		t.Run(name, func(t *testing.T) {
			audit := &auditing{acceptor: newAcceptor(respond)}
			h := NewHandler(audit, HandlerOptions{Check: func(r *http.Request) (Caller, *Denial) {
				if user := r.Header.Get("X-User"); user != "" {
					return NewCaller(user), nil
				}
				return nil, &Denial{Status: http.StatusUnauthorized, Text: "log in"}
			}})
			defer h.Close(0)
			began, w := time.Now(), httptest.NewRecorder()
			h.ServeHTTP(w, newRequest("POST", test.body, test.lines...))
			var methods []string
			for _, r := range audit.all {
				method := ""
				if r.Message != nil {
					if method = r.Message.Method; method == "" {
						method = fmt.Sprint(r.Message.ID)
					}
				}
				methods = append(methods, method)
				if r.Origin == nil || r.Origin.RemoteAddr != "192.0.2.1:1234" || r.Origin.Identity != test.identity {
					t.Errorf("the origin is %+v, want the address of the client and %q", r.Origin, test.identity)
				}
				if isJSON := strings.HasPrefix(w.Body.String(), "{"); isJSON != (r.Code != 0) || isJSON && !strings.Contains(w.Body.String(), fmt.Sprintf(`"error":{"code":%d,`, r.Code)) {
					t.Errorf("the Auditor heard of the code %d, and the client got %s", r.Code, w.Body)
				}
				if r.Status != test.status || r.Denied != test.denied || !strings.Contains(w.Body.String(), r.Err.Error()) || r.Since.Before(began) || r.Since.After(time.Now()) {
					t.Errorf("got %+v, want status %d, denied: %t, and the text of %q", r, test.status, test.denied, w.Body)
				}
			}
			if w.Code != test.status || !slices.Equal(methods, test.methods) {
				t.Errorf("got %d %s, and heard of %q, want %d and %q", w.Code, w.Body, methods, test.status, test.methods)
			}
		})
	}
}

// An Auditor hears that nobody may use the session of another identity, although the client hears only that there is none.
func TestAnAuditorHearsOfForeignSessions(t *testing.T) {
	audit := &auditing{acceptor: newAcceptor(respond)}
	h := NewHandler(audit, HandlerOptions{Check: func(r *http.Request) (Caller, *Denial) { return NewCaller(r.Header.Get("X-User")), nil }})
	defer audit.finish(t)
	defer h.Close(0)
	begun, w := httptest.NewRecorder(), httptest.NewRecorder()
	h.ServeHTTP(begun, newRequest("POST", initializeBody("2025-11-25"), "X-User: ada"))
	h.ServeHTTP(w, newRequest("POST", echoBody, "X-User: eve", headerSession+": "+begun.Header().Get(headerSession)))
	if w.Code != http.StatusNotFound || len(audit.all) != 1 || !audit.all[0].Denied || audit.all[0].Origin.Identity != "eve" {
		t.Errorf("got %d, and the Auditor heard %+v; want 404, and that it was denied to eve", w.Code, audit.all)
	}
}

// A slowCaller takes a while to say what it may do.
type slowCaller struct {
	Caller
	ask func()
}

func (c slowCaller) Allow(Operation) *Denial {
	c.ask()
	return nil
}

// What is refused because its link was lost meanwhile, an Auditor hears as the message that it is, and nothing of it is charged any more, and its
// client is told to leave the connection.
func TestAnAuditorHearsWhatCameTooLate(t *testing.T) {
	for method, body := range map[string]string{"echo": echoBody, "n": notification("n")} {
		synctest.Test(t, func(t *testing.T) {
			audit, ask := &auditing{acceptor: newAcceptor(respond)}, func() {}
			b := &bench{t: t, acceptor: audit.acceptor, handler: NewHandler(audit, HandlerOptions{
				Check: func(*http.Request) (Caller, *Denial) { return slowCaller{NewCaller("ada"), func() { ask() }}, nil },
			})}
			defer audit.finish(t)
			defer b.handler.Close(0)
			session, p := b.begin()
			ask = func() {
				go p.link.Close(0)
				p.awaitLoss(t)
			}
			w, done := b.serve(t.Context(), "POST", body, headerSession+": "+session)
			if <-done; w.Code != http.StatusServiceUnavailable || w.Header().Get("Connection") != "close" {
				t.Errorf("%s: got %d %s, %v; want 503, and that the connection is closed", method, w.Code, w.Body, w.Header())
			}
			if len(audit.all) != 1 || audit.all[0].Message == nil || audit.all[0].Message.Method != method {
				t.Errorf("%s: the Auditor heard %+v, want the message", method, audit.all)
			}
			if held := b.handler.unread.Small.Held(); held != 0 {
				t.Errorf("%s: %d bytes are charged, want none", method, held)
			}
		})
	}
}

// A refusal says of which type and length it is, and no browser guesses otherwise, whether it is text or JSON.
func TestHowARefusalIsWritten(t *testing.T) {
	for name, test := range map[string]struct {
		refusal          refusal
		body, mediaType  string
		again, allow, by string
	}{
		"text":  {refusal{status: 400, text: "no"}, "no\n", "text/plain; charset=utf-8", "", "", ""},
		"JSON":  {refusal{status: 400, text: "no", code: -32600}, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"}}`, "application/json", "", "", ""},
		"again": {refusal{status: 503, text: "busy", again: true}, "busy\n", "text/plain; charset=utf-8", soon, "", ""},
		"allow": {refusal{status: 405, text: "no", allow: "POST"}, "no\n", "text/plain; charset=utf-8", "", "POST", ""},
		"more":  {refusal{status: 401, text: "no", header: http.Header{"Www-Authenticate": {"Bearer"}}}, "no\n", "text/plain; charset=utf-8", "", "", "Bearer"},
	} {
		w := httptest.NewRecorder()
		test.refusal.write(w)
		if w.Code != test.refusal.status || w.Body.String() != test.body {
			t.Errorf("%s: got %d %q, want %d %q", name, w.Code, w.Body, test.refusal.status, test.body)
		}
		for header, want := range map[string]string{
			"Content-Type": test.mediaType, "Content-Length": strconv.Itoa(len(test.body)), "X-Content-Type-Options": "nosniff",
			"Retry-After": test.again, "Allow": test.allow, "Www-Authenticate": test.by,
		} {
			if got := w.Result().Header.Get(header); got != want {
				t.Errorf("%s: %s is %q, want %q", name, header, got, want)
			}
		}
	}
}
