package streamable

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/transport"
)

// A there is the node that another one forwards to. It records the requests that it gets.
type there struct {
	requests []*http.Request
	bodies   []string
}

func (n *there) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	n.requests, n.bodies = append(n.requests, r), append(n.bodies, fmt.Sprint(string(text), err))
	w.WriteHeader(http.StatusTeapot)
}

func newNamed(t *testing.T, to http.Handler) *Handler {
	h := NewHandler(accepting(func(link transport.Link) { newEcho(link) }), HandlerOptions{Router: &Nodes{Self: "here", Others: map[string]http.Handler{"there": to, "here": to, strings.Repeat("y", 64): to}}})
	t.Cleanup(func() { h.Close(0) })
	return h
}

func modernLines(method string, more ...string) string {
	return strings.Join(append(posting(), modernHeader(method, more...)...), "\n")
}

// A modern request is forwarded if it names another node that is there, and has not been
// forwarded before. All others are served where they arrive.
//
// Guarantees: G-0075.2
func TestModernRequestsAreForwardedToTheNodeThatTheyName(t *testing.T) {
	state := func(text string) string { return `"name":"t","requestState":` + text + `,` }
	task := func(id string) string { return fmt.Sprintf(`"taskId":%q,`, id) }
	longest := strings.Repeat("x", 64)
	for name, c := range map[string]struct {
		method, params string
		lines          []string
		forwarded      bool
	}{
		"a state of another node":      {"tools/call", state(`"1.there.abc"`), []string{"Mcp-Name: t"}, true},
		"with spaces":                  {"tools/call", "\n \"requestState\" :\t\"1.there.abc\" , \"name\":\"t\",", []string{"Mcp-Name: t"}, true},
		"a long state":                 {"tools/call", state(`"1.there.` + strings.Repeat("a", 60<<10) + `"`), []string{"Mcp-Name: t"}, true},
		"of a prompt":                  {"prompts/get", state(`"1.there.abc"`), []string{"Mcp-Name: t"}, true},
		"forwarded before":             {"tools/call", state(`"1.there.abc"`), []string{"Mcp-Name: t", "Mcp-Session-Forwarded: 1"}, false},
		"a state of this node":         {"tools/call", state(`"1.here.abc"`), []string{"Mcp-Name: t"}, false},
		"of a node that is not there":  {"tools/call", state(`"1.nowhere.abc"`), []string{"Mcp-Name: t"}, false},
		"of the longest name":          {"tools/call", state(`"1.` + longest + `.abc"`), []string{"Mcp-Name: t"}, false},
		"and that node is there":       {"tools/call", state(`"1.` + strings.Repeat("y", 64) + `.abc"`), []string{"Mcp-Name: t"}, true},
		"a state without a name":       {"tools/call", state(`"1.abc"`), []string{"Mcp-Name: t"}, false},
		"of another version":           {"tools/call", state(`"2.there.abc"`), []string{"Mcp-Name: t"}, false},
		"no text":                      {"tools/call", state(`["1.there.abc"]`), []string{"Mcp-Name: t"}, false},
		"two states":                   {"tools/call", state(`"1.there.abc"`) + `"requestState":"1.there.abc",`, []string{"Mcp-Name: t"}, false},
		"a state among the arguments":  {"tools/call", `"name":"t","arguments":{"requestState":"1.there.abc"},`, []string{"Mcp-Name: t"}, false},
		"a tool named like a task":     {"tools/call", `"name":"there.abc",`, []string{"Mcp-Name: there.abc"}, false},
		"a task of another node":       {"tasks/get", task("there.abc"), []string{"Mcp-Name: there.abc"}, true},
		"cancelling it":                {"tasks/cancel", task("there.abc"), []string{"Mcp-Name: there.abc"}, true},
		"answering it":                 {"tasks/update", task("there.abc"), []string{"Mcp-Name: there.abc"}, true},
		"a task of this node":          {"tasks/get", task("here.abc"), []string{"Mcp-Name: here.abc"}, false},
		"a task of no node":            {"tasks/get", task("abc"), []string{"Mcp-Name: abc"}, false},
		"a task of a path":             {"tasks/get", task("../there.abc"), []string{"Mcp-Name: ../there.abc"}, false},
		"a method without a name":      {"echo", task("there.abc"), nil, false},
		"what a subscription asks for": {"subscriptions/listen", `"notifications":{"taskIds":["there.abc"]},`, nil, false},
	} {
		other := new(there)
		h := newNamed(t, other)
		w := fuzzed(h, "POST", modernLines(c.method, c.lines...), modernBody(c.method, c.params))
		if (w.Code == http.StatusTeapot) != c.forwarded || len(other.requests) != map[bool]int{true: 1}[c.forwarded] {
			t.Errorf("%s: got %d %s, and %d requests were forwarded, want %t", name, w.Code, w.Body, len(other.requests), c.forwarded)
		}
		if c.forwarded && (other.requests[0].Header.Get(headerChecked) != "1" || w.Body.Len() > 0 || len(h.Stats().Refused) > 0) {
			t.Errorf("%s: forwarded with %v, and refused with %q; want it checked, and not refused", name, other.requests[0].Header, w.Body)
		}
	}
	alone := NewHandler(accepting(func(link transport.Link) { newEcho(link) }), HandlerOptions{})
	defer alone.Close(0)
	if w := fuzzed(alone, "POST", modernLines("tasks/get", "Mcp-Name: there.abc"), modernBody("tasks/get", task("there.abc"))); w.Code != http.StatusOK {
		t.Errorf("without a Router: got %d %s, want an answer", w.Code, w.Body)
	}
}

// What is forwarded is checked here first: its headers, and who sent it.
//
// Guarantees: G-0075.2
func TestOnlyCheckedRequestsAreForwarded(t *testing.T) {
	other := new(there)
	h := newNamed(t, other)
	h.options.Check = func(r *http.Request) (Caller, *Denial) {
		if r.Header.Get("Authorization") == "" {
			return nil, &Denial{Status: http.StatusUnauthorized}
		}
		return NewCaller("ada"), nil
	}
	body := modernBody("tasks/get", `"taskId":"there.abc",`)
	for name, c := range map[string]struct {
		lines string
		want  int
	}{
		"nobody":       {modernLines("tasks/get", "Mcp-Name: there.abc"), http.StatusUnauthorized},
		"another name": {modernLines("tasks/get", "Mcp-Name: there.abd", "Authorization: x"), http.StatusBadRequest},
		"all is well":  {modernLines("tasks/get", "Mcp-Name: there.abc", "Authorization: x"), http.StatusTeapot},
	} {
		if w := fuzzed(h, "POST", c.lines, body); w.Code != c.want {
			t.Errorf("%s: got %d %s, want %d", name, w.Code, w.Body, c.want)
		}
	}
	if len(other.requests) != 1 {
		t.Errorf("%d requests were forwarded, want 1", len(other.requests))
	}
}

// The other node gets the request as the client sent it, with a mark that says that it was
// forwarded. No header makes a proxy remove the mark, or wait before it sends the body.
//
// Guarantees: G-0075.2
func TestAForwardedRequestIsWhole(t *testing.T) {
	other := new(there)
	body := modernBody("tools/call", `"name":"t","requestState":"1.there.abc",`)
	r := newRequest(http.MethodPost, body, append(append(posting(), modernHeader("tools/call", "Mcp-Name: t")...),
		"Authorization: secret", "Connection: mcp-session-forwarded", "Expect: 100-continue", "X-Mine: 1")...)
	r.ContentLength, r.TransferEncoding, r.Trailer = -1, []string{"chunked"}, http.Header{"X-Late": nil}
	newNamed(t, other).ServeHTTP(httptest.NewRecorder(), r)
	if len(other.requests) != 1 || other.bodies[0] != body+"<nil>" {
		t.Fatalf("got the bodies %q, want %q", other.bodies, body)
	}
	got := other.requests[0]
	for name, want := range map[string]string{
		headerForwarded: "1", "Authorization": "secret", "X-Mine": "1", headerMethod: "tools/call", headerName: "t",
		headerVersion: "2026-07-28", "Connection": "", "Expect": "",
	} {
		if got.Header.Get(name) != want {
			t.Errorf("the header %s is %q, want %q", name, got.Header.Get(name), want)
		}
	}
	if got.ContentLength != int64(len(body)) || got.TransferEncoding != nil || got.Trailer != nil || got.Host != r.Host {
		t.Errorf("got the length %d, the encoding %v, the trailer %v and the host %q", got.ContentLength, got.TransferEncoding, got.Trailer, got.Host)
	}
	if r.Header.Get(headerForwarded) != "" {
		t.Error("the mark is in the client's request, too, want it in the forwarded one only")
	}
}

// While the other node works, the body that it has takes no room here. A read after the
// request is over gets nothing.
//
// Guarantees: G-0075.2
func TestAForwardedBodyLeavesItsRoom(t *testing.T) {
	var h *Handler
	var late io.Reader
	h = newNamed(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before := h.bodies.held()
		text, err := io.ReadAll(io.LimitReader(r.Body, 10))
		if half := h.bodies.held(); err != nil || len(text) != 10 || half != before || half == 0 {
			t.Errorf("before the body was read, %d bytes are held, %v, want %d", half, err, before)
		}
		if _, err := io.ReadAll(r.Body); err != nil || h.bodies.held() > 0 {
			t.Errorf("after the body was read, %d bytes are held, %v, want none", h.bodies.held(), err)
		}
	}))
	lines, body := modernLines("tasks/get", "Mcp-Name: there.abc"), modernBody("tasks/get", `"taskId":"there.abc",`)
	fuzzed(h, "POST", lines, body)
	h.options.Router = &Nodes{Self: "here", Others: map[string]http.Handler{"there": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { late = r.Body })}}
	fuzzed(h, "POST", lines, body)
	if text, err := io.ReadAll(late); len(text) > 0 || err != nil || h.bodies.held() > 0 {
		t.Errorf("after the request: got %q, %v and %d bytes held, want nothing and none", text, err, h.bodies.held())
	}
}

// A request for a node that refuses connections gets 502. Once that shows that the node is
// gone, this node serves the request, with its whole body.
//
// Guarantees: G-0075.3
func TestRequestOfANodeThatIsGoneIsServedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newNamed(t, newForwarder(&url.URL{Scheme: "http", Host: "there.test"}, roundTripper(func(r *http.Request) (*http.Response, error) {
			r.Body.Close()
			return nil, errRefused
		})))
		defer h.Close(0)
		for n, want := range []int{http.StatusBadGateway, http.StatusOK, http.StatusOK} {
			w := fuzzed(h, "POST", modernLines("tasks/get", "Mcp-Name: there.abc"), modernBody("tasks/get", `"taskId":"there.abc",`))
			if w.Code != want || want == http.StatusOK && !strings.Contains(w.Body.String(), `"there.abc"`) {
				t.Errorf("request %d: got %d %s, want %d", n, w.Code, w.Body, want)
			}
		}
	})
}

// If a body was read although its node is gone, the request may have taken effect there, so
// this node does not serve it, too.
//
// Guarantees: G-0075.2
func TestARequestThatWasReadIsNotServedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newNamed(t, newForwarder(&url.URL{Scheme: "http", Host: "there.test"}, roundTripper(func(r *http.Request) (*http.Response, error) {
			io.ReadAll(r.Body)
			return nil, errRefused
		})))
		defer h.Close(0)
		for n, want := range []int{http.StatusBadGateway, http.StatusBadGateway} {
			if w := fuzzed(h, "POST", modernLines("tasks/get", "Mcp-Name: there.abc"), modernBody("tasks/get", `"taskId":"there.abc",`)); w.Code != want {
				t.Errorf("request %d: got %d %s, want %d", n, w.Code, w.Body, want)
			}
		}
	})
}
