package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A relay passes a response on as it is, with its headers, and flushes it. Informational
// responses are left out. Only the first status counts.
func TestForwardedResponsesAreWhole(t *testing.T) {
	for name, c := range map[string]struct {
		write   func(w http.ResponseWriter)
		status  int
		body    string
		flushed bool
	}{
		"a whole one": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusTeapot)
			io.WriteString(w, "text")
		}, http.StatusTeapot, "text", false},
		"without a status": {func(w http.ResponseWriter) { io.WriteString(w, "text") }, http.StatusOK, "text", false},
		"nothing":          {func(http.ResponseWriter) {}, http.StatusOK, "", false},
		"only flushed":     {func(w http.ResponseWriter) { http.NewResponseController(w).Flush() }, http.StatusOK, "", true},
		"as a Flusher":     {func(w http.ResponseWriter) { w.(http.Flusher).Flush() }, http.StatusOK, "", true},
		"early hints": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusContinue)
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusCreated)
		}, http.StatusCreated, "", false},
		"two statuses": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusCreated)
			w.WriteHeader(http.StatusMisdirectedRequest)
			io.WriteString(w, "text")
		}, http.StatusCreated, "text", false},
		"another protocol": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusSwitchingProtocols) }, http.StatusSwitchingProtocols, "", false},
		"a later header": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusOK)
			w.Header().Set("X-Late", "yes")
		}, http.StatusOK, "", false},
	} {
		begun := 0
		w := httptest.NewRecorder()
		w.Header().Set("X-Mine", "1")
		served, owner := forward(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Theirs", "2")
			c.write(w)
		}), w, newRequest("GET", ""), func() { begun++ }, new(bool))
		if !served || owner != "" || begun != 1 {
			t.Errorf("%s: it is served: %t, by %q, and has begun %d times, want true and once", name, served, owner, begun)
		}
		if w.Code != c.status || w.Body.String() != c.body || w.Flushed != c.flushed || w.Header().Get("X-Mine") != "1" || w.Header().Get("X-Theirs") != "2" {
			t.Errorf("%s: got %d %q %v, flushed: %t", name, w.Code, w.Body, w.Header(), w.Flushed)
		}
		if late := w.Header().Get("X-Late"); (late != "") != (name == "a later header") {
			t.Errorf("%s: got the later header %q", name, late)
		}
	}
}

// Nothing of a response with status 421 is passed on, however it is written.
//
// Guarantees: G-0073.8
func TestForwardHoldsBackMisdirectedResponses(t *testing.T) {
	begun := 0
	w := httptest.NewRecorder()
	served, owner := forward(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(headerOwner, "there")
		w.WriteHeader(http.StatusMisdirectedRequest)
		n, err := io.WriteString(w, "text")
		if flushed := http.NewResponseController(w).Flush(); n != 4 || err != nil || flushed != nil {
			t.Errorf("got %d, %v and %v from the writer", n, err, flushed)
		}
		w.WriteHeader(http.StatusOK)
	}), w, newRequest("GET", ""), func() { begun++ }, new(bool))
	if served || owner != "there" || begun > 0 || w.Flushed || w.Body.Len() > 0 || len(w.Header()) > 0 {
		t.Errorf("it is served: %t, by %q, and the client got %v %q", served, owner, w.Header(), w.Body)
	}
}

// A small body is in its room until a node responds. A large one is announced, so that the node
// asks for it. After another node was asked, nobody reads the body for the first one.
//
// Guarantees: G-0073.8
func TestForwardLooksAfterBodies(t *testing.T) {
	for _, size := range []int{100, 64<<10 + 1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			var late io.Reader
			var h *Handler
			small := size == 100
			router := &handlers{func(w http.ResponseWriter, r *http.Request) {
				if expects := r.Header.Get("Expect") == "100-continue"; expects == small {
					t.Errorf("the request is sent with the expectation: %t, want %t", expects, !small)
				}
				late = r.Body
				w.Header().Set(headerOwner, "second")
				w.WriteHeader(http.StatusMisdirectedRequest)
			}, func(w http.ResponseWriter, r *http.Request) {
				if n, err := late.Read(make([]byte, 10)); n > 0 || !small && !errors.Is(err, errReclaimed) {
					t.Errorf("the first node read %d bytes, %v, want none", n, err)
				}
				text, err := io.ReadAll(r.Body)
				if len(text) != size || err != nil {
					t.Errorf("the second node read %d bytes, %v, want %d", len(text), err, size)
				}
				if held := h.bodies.held(); (held > 0) != small {
					t.Errorf("%d bytes are held before the response, want them only of a small body", held)
				}
				w.WriteHeader(http.StatusOK)
				if held := h.bodies.held(); held > 0 {
					t.Errorf("%d bytes are held during the response, want none", held)
				}
			}}
			h = NewHandler(accepting(nil), HandlerOptions{Router: router, Sessions: NewSharedStore().Node("here")})
			defer h.Close(0)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, newRequest("POST", strings.Repeat("x", size), headerSession+": first.1"))
			if w.Code != http.StatusOK || len(*router) > 0 {
				t.Errorf("got %d, and %d nodes were not asked, want 200 and none", w.Code, len(*router))
			}
		})
	}
}

// A node that has read as much as was announced may answer before its forwarder has looked for the end of the body.
// net/http has closed the body then, and yet that is its end.
func TestForwardFindsTheEndOfABodyDuringTheResponse(t *testing.T) {
	const size = 64<<10 + 1
	router := &handlers{func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadFull(r.Body, make([]byte, size)); err != nil {
			t.Errorf("the body: %v", err)
		}
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		if n, err := r.Body.Read(make([]byte, 1)); n > 0 || err != io.EOF {
			t.Errorf("behind the body: %d bytes, %v, want %v", n, err, io.EOF)
		}
	}}
	h := NewHandler(accepting(nil), HandlerOptions{Router: router, Sessions: NewSharedStore().Node("here")})
	defer h.Close(0)
	server := httptest.NewServer(h)
	defer server.Close()
	r := newRequest("POST", strings.Repeat("x", size), headerSession+": first.1")
	outgoing, err := http.NewRequestWithContext(t.Context(), r.Method, server.URL, r.Body)
	if err != nil {
		t.Fatal(err)
	}
	outgoing.Header, outgoing.ContentLength = r.Header, size
	response, err := http.DefaultTransport.RoundTrip(outgoing)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK || len(*router) > 0 {
		t.Errorf("got %d, and %d nodes were not asked, want 200 and none", response.StatusCode, len(*router))
	}
}

// handlers is a Router whose requests go to one handler after the other.
type handlers []http.HandlerFunc

func (*handlers) Node() string { return "here" }

func (all *handlers) Reach(string) http.Handler { return all.ReachNode("") }

func (all *handlers) Another(string, ...string) string { return "" }

func (all *handlers) ReachNode(string) http.Handler {
	next := (*all)[0]
	*all = (*all)[1:]
	return next
}

// If this node refuses a body that it has not read, it closes the connection, also after another
// node was asked.
func TestForwardClosesTheConnectionOfAnUnreadBody(t *testing.T) {
	for name, stored := range map[string]bool{"with a store": true, "without": false} {
		router := &handlers{func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMisdirectedRequest) }}
		o := HandlerOptions{Router: router}
		if stored {
			store := NewSharedStore().Node("here")
			store.taking = func(context.Context, string) error { return &OwnedError{} }
			o.Sessions = store
		}
		h := NewHandler(accepting(nil), o)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, newRequest("POST", strings.Repeat("x", 100<<10), headerSession+": first.1"))
		if w.Code < 400 || w.Header().Get("Connection") != "close" {
			t.Errorf("%s: got %d %v, want a refusal and the end of the connection", name, w.Code, w.Header())
		}
		h.Close(0)
	}
}
