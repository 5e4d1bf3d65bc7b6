package streamable

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A node's name consists of letters, digits, - and _, and has a limited length.
func TestRouterNamesOfNodes(t *testing.T) {
	for _, name := range []string{"", "az", "AZ", "09", "a-b_c", strings.Repeat("a", maxNode)} {
		if err := checkNode(name); err != nil {
			t.Errorf("%.20q: %v", name, err)
		}
	}
	for _, name := range []string{"a.b", "a b", "é", "`", "{", "@", "[", "/", ":", strings.Repeat("a", maxNode+1)} {
		if checkNode(name) == nil {
			t.Errorf("%.20q is accepted as the name of a node, want an error", name)
		}
	}
}

// A fixedRouter router knows another node for each session, and records the sessions that
// were looked up.
type fixedRouter struct {
	to    http.Handler
	asked []string
}

func (*fixedRouter) Node() string { return "here" }

func (r *fixedRouter) Reach(session string) http.Handler {
	r.asked = append(r.asked, session)
	return r.to
}

func routed(t *testing.T, to http.Handler) (*Handler, *fixedRouter) {
	t.Helper()
	router := &fixedRouter{to: to}
	h := NewHandler(accepting(func(link transport.Link) { link.Bind(&mute{link: link}) }), HandlerOptions{Router: router, MaxBody: 100})
	t.Cleanup(func() { h.Close(0) })
	return h, router
}

// The router is asked for sessions of other nodes only.
func TestRouterIsAskedForSessionsOfOtherNodes(t *testing.T) {
	h, router := routed(t, http.NotFoundHandler())
	here := fuzzed(h, "POST", "Content-Type: application/json", initializeBody("2025-06-18")).Header().Get(headerSession)
	if NodeOf(here) != "here" {
		t.Fatalf("got the session %q, want %q", here, "here")
	}
	for _, c := range []struct {
		name   string
		header map[string]string
		asked  bool
	}{
		{"another's", map[string]string{headerSession: "there.1"}, true},
		{"another's, of an old revision", map[string]string{headerSession: "there.1", headerVersion: "2025-06-18"}, true},
		{"no session", nil, false},
		{"its own", map[string]string{headerSession: here}, false},
		{"a revision without sessions", map[string]string{headerSession: "there.1", headerVersion: "2026-07-28"}, false},
		{"forwarded already", map[string]string{headerSession: "there.1", headerForwarded: "1"}, false},
	} {
		r := httptest.NewRequest("POST", "/", nil)
		for name, value := range c.header {
			r.Header.Set(name, value)
		}
		router.asked = nil
		to := h.elsewhere(r)
		if (to != nil) != c.asked || (len(router.asked) > 0) != c.asked {
			t.Errorf("%s: got %v after the lookups %q", c.name, to, router.asked)
		}
	}
	alone := NewHandler(accepting(func(transport.Link) {}), HandlerOptions{})
	defer alone.Close(0)
	r := httptest.NewRequest("POST", "/", nil)
	if r.Header.Set(headerSession, "there.1"); alone.elsewhere(r) != nil {
		t.Error("got another node without a router, want none")
	}
}

// A deadlineRecorder response records its read deadlines.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

func (d *deadlineRecorder) SetReadDeadline(at time.Time) error {
	d.deadlines = append(d.deadlines, at)
	return nil
}

// A request is forwarded with its headers. Its body is limited and has the same
// deadlines as without forwarding.
func TestRouterForwardsAtMostABody(t *testing.T) {
	for _, c := range []struct {
		name           string
		body           io.Reader // nil: no body
		length         int64
		refused, reads bool // whether the handler refuses it; whether the other node reads it
		tooLarge       bool
	}{
		{"of the limit", strings.NewReader(strings.Repeat("a", 100)), 100, false, true, false},
		{"beyond the limit", strings.NewReader(strings.Repeat("a", 101)), 101, true, false, false},
		{"of unknown length, beyond the limit", strings.NewReader(strings.Repeat("a", 101)), -1, false, true, true},
		{"empty", http.NoBody, 0, false, false, false},
		{"absent", nil, 0, false, false, false},
		{"absent, of some length", nil, 7, false, false, false},
	} {
		var got *http.Request
		var failed error
		h, router := routed(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if got = r; r.Body != nil {
				_, failed = io.ReadAll(r.Body)
			}
		}))
		w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		w.Header().Set("Connection", "close")
		r := httptest.NewRequest("POST", "/", c.body)
		if r.ContentLength = c.length; c.body == nil {
			r.Body = nil
		}
		refused := h.forward(router.to, w, r)
		if (refused != nil) != c.refused || (got == nil) != c.refused {
			t.Errorf("%s: got the refusal %v", c.name, refused)
			continue
		}
		if got == nil {
			continue
		}
		if got.Header.Get(headerForwarded) != "1" || r.Header.Get(headerForwarded) != "" {
			t.Errorf("%s: got the forwarded headers %v for %v, want got.Header.Get(headerForwarded) == %q and r.Header.Get(headerForwarded) == %q", c.name, got.Header, r.Header, "1", "")
		}
		if (got.Body == nil) != (c.body == nil) {
			t.Errorf("%s: got the body %v", c.name, got.Body)
		}
		if errors.As(failed, new(*http.MaxBytesError)) != c.tooLarge || (failed != nil) != c.tooLarge {
			t.Errorf("%s: reading the body: got %v", c.name, failed)
		}
		// The body arrives while the response is sent, for as long as it takes to read.
		if unbound := len(w.deadlines) > 0 && w.deadlines[0].IsZero(); unbound != (c.reads && !c.tooLarge) {
			t.Errorf("%s: got the deadlines %v", c.name, w.deadlines)
		}
		if closes := w.Header().Get("Connection") != ""; closes == c.reads {
			t.Errorf("%s: got the headers %v", c.name, w.Header())
		}
	}
}
