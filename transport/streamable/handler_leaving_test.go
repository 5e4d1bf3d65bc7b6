package streamable

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A node that shuts down waits with a forwarded request until the call under way of its session has ended. Then another node
// serves it, if the one that has forwarded it has kept the body. Otherwise this node serves it, at once.
//
// Guarantees: G-0073.10
func TestForwardedRequestsOfANodeThatDrains(t *testing.T) {
	const short = int64(len(echoBody))
	named := strings.Replace(echoBody, `"a":1`, `"a":1,"requestState":"`+nodename.StateVersion+nodename.Join("a", "x")+`"`, 1)
	for name, test := range map[string]struct {
		body   string        // "": a request
		begins int           // the length of the initialize of its session
		length int64         // of the body; -1: it is not announced, 0: as long as it is
		ends   time.Duration // when the call under way ends
		status int
		after  time.Duration
	}{
		"a short body":               {"", 0, short, time.Second, http.StatusMisdirectedRequest, time.Second},
		"the longest that is kept":   {"", 0, web.SmallBody, time.Second, http.StatusMisdirectedRequest, time.Second},
		"a longer one":               {"", 0, web.SmallBody + 1, time.Second, http.StatusOK, 0},
		"one of an unknown length":   {"", 0, -1, time.Second, http.StatusOK, 0},
		"a call that takes too long": {"", 0, short, time.Minute, http.StatusServiceUnavailable, restorePatience},
		"a call that ends just then": {"", 0, short, restorePatience - 1, http.StatusMisdirectedRequest, restorePatience - 1},
		"a notification":             {notification("n"), 0, 0, time.Second, http.StatusAccepted, 0},
		"a response":                 {result(5), 0, 0, time.Second, http.StatusAccepted, 0},
		"no message":                 {"{", 0, 0, time.Second, http.StatusBadRequest, 0},
		"a broken batch":             {"[" + echoBody, 0, 0, time.Second, http.StatusBadRequest, 0},
		"what belongs to this node":  {named, 0, 0, time.Second, http.StatusOK, 0},
		"a session of this process":  {"", MaxStoredInitialize + 1, short, time.Second, http.StatusOK, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inMesh(t, func(t *testing.T, _ *mesh, a, _, _ *meshNode) {
				begun, done := a.serve(t.Context(), "POST", paddedInitialize(max(test.begins, 300)))
				<-done
				session, p := begun.Header().Get(headerSession), a.peer(t, 0)
				_, held := a.serve(t.Context(), "POST", legacyHold(""), headerSession+": "+session)
				a.handler.table.drain()
				call := time.AfterFunc(test.ends, func() { p.link.Close(0) })
				defer call.Stop()
				body := cmp.Or(test.body, echoBody)
				if pad := int(test.length) - len(body); pad > 0 {
					body = strings.Replace(body, `"a":1`, `"a":1`+strings.Repeat(" ", pad), 1)
				}
				r := Forwarded(newRequest("POST", body, headerSession+": "+session))
				if test.length != 0 {
					r.ContentLength = test.length
				}
				w, began := httptest.NewRecorder(), time.Now()
				serveHTTP(a.handler, w, r.WithContext(r.Context()))
				if took := time.Since(began); w.Code != test.status || took != test.after {
					t.Errorf("got %d %.100s after %v, want %d after %v", w.Code, w.Body, took, test.status, test.after)
				}
				if test.status == http.StatusServiceUnavailable && !strings.Contains(w.Body.String(), `"id":5,`) {
					t.Errorf("got the refusal %s, want it with the id 5", w.Body)
				}
				if checked := w.Header().Get(headerChecked); test.status == http.StatusMisdirectedRequest && checked != "" {
					t.Errorf("the node says that it has checked the request: %q, want nothing", checked)
				}
				p.link.Close(0)
				<-held
			})
		})
	}
}

// A countingCaller counts the operations that it is asked about.
type countingCaller struct {
	Caller
	asked *int
}

func (c countingCaller) Allow(Operation) *Denial {
	*c.asked++
	return nil
}

// A node that shuts down asks once whether each message of a batch is allowed, although it reads the batch to see that it belongs to
// what is under way. What another node serves leaves the connection, which is about to be closed.
//
// Guarantees: G-0073.10
func TestWhatANodeThatDrainsServesAndWhatNot(t *testing.T) {
	asked := 0
	o := HandlerOptions{
		Router: &Nodes{Self: "here", Others: map[string]http.Handler{"there": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })}},
		Check:  func(*http.Request) (Caller, *Denial) { return countingCaller{NewCaller("ada"), &asked}, nil },
	}
	inStore(t, o, func(t *testing.T, b *bench, _ *NodeStore) {
		w, done := b.serve(t.Context(), "POST", initializeBody("2025-03-26"))
		<-done
		session := headerSession + ": " + w.Header().Get(headerSession)
		b.handler.table.drain()
		asked = 0
		w, done = b.serve(t.Context(), "POST", "["+notification("n/1")+","+notification("n/2")+"]", session)
		if <-done; w.Code != http.StatusAccepted || asked != 2 {
			t.Errorf("got %d, and the caller was asked %d times, want 202 and twice", w.Code, asked)
		}
		w, done = b.serve(t.Context(), "POST", initializeBody("2025-03-26"))
		if <-done; w.Code != http.StatusTeapot || w.Header().Get("Connection") != "close" {
			t.Errorf("got %d %v, want the response of the other node, and the end of the connection", w.Code, w.Header())
		}
		w, done = b.serve(t.Context(), "POST", initializeBody("2025-03-26"), headerForwarded+": 1") // a client claims it
		if <-done; w.Code != http.StatusServiceUnavailable {
			t.Errorf("what was forwarded: got %d, want 503 of this node", w.Code)
		}
	})
}

// A request whose session is unknown to the store just when this node begins to shut down may be repeated: another node may have it by now.
//
// Guarantees: G-0073.4
func TestASessionThatIsUnknownWhenADrainBegins(t *testing.T) {
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		store.taking = func(context.Context, string) error {
			b.handler.table.drain()
			return ErrNoSession
		}
		if w := b.send("POST", "x"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
			t.Errorf("got %d %v %s, want 503 with Retry-After: 1", w.Code, w.Header(), w.Body)
		}
	})
}

// A namingRouter knows the nodes of a list, each by what it does with the requests that it gets.
type namingRouter map[string]http.HandlerFunc

func (namingRouter) Node() string { return "here" }

func (r namingRouter) Reach(session string) http.Handler { return r.ReachNode(NodeOf(session)) }

func (r namingRouter) ReachNode(node string) http.Handler {
	if to := r[node]; to != nil {
		return to
	}
	return nil
}

func (r namingRouter) Another(_ string, tried ...string) string {
	for _, node := range []string{"first", "second"} {
		if r[node] != nil && !slices.Contains(tried, node) {
			return node
		}
	}
	return ""
}

// misdirects refuses some requests, and names the owner of their session. Then it serves them.
func misdirects(owner string, refused int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if refused--; refused < 0 {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.Header().Set(headerOwner, owner)
		w.WriteHeader(http.StatusMisdirectedRequest)
	}
}

// A node that shuts down asks another one when the first takes nothing, and the same one again if that one says that the session is
// still here. A node waits a second for others that contradict each other about a session.
//
// Guarantees: G-0073.10
func TestNodesThatDoNotTakeARequest(t *testing.T) {
	for name, test := range map[string]struct {
		router  namingRouter
		drains  bool
		session string
		status  int
		after   time.Duration
	}{
		"the first takes nothing":   {namingRouter{"first": misdirects("", 9), "second": misdirects("", 0)}, true, "", http.StatusTeapot, 0},
		"the session is still here": {namingRouter{"first": misdirects("here", 3)}, true, "first.x", http.StatusTeapot, 3 * newsPause},
		"they contradict":           {namingRouter{"third": misdirects("", 1000)}, false, "x", http.StatusServiceUnavailable, newsPatience},
	} {
		inStore(t, HandlerOptions{Router: test.router}, func(t *testing.T, b *bench, store *NodeStore) {
			store.taking = func(context.Context, string) error { return &OwnedError{Node: "third"} }
			if test.drains {
				b.handler.table.drain()
			}
			r := newRequest("POST", initializeBody("2025-11-25"))
			if test.session != "" {
				r = newRequest("POST", echoBody, headerSession+": "+test.session)
			}
			w, began := httptest.NewRecorder(), time.Now()
			serveHTTP(b.handler, w, r)
			if took := time.Since(began); w.Code != test.status || took != test.after {
				t.Errorf("%s: got %d %s after %v, want %d after %v", name, w.Code, w.Body, took, test.status, test.after)
			}
		})
	}
}
