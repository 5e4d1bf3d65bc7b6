package streamable

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// forwarding returns what forwards requests in the name of a legacy client.
func forwarding(t *testing.T, to http.Handler, lines ...string) transport.Forwarder {
	h := newNamed(t, to)
	h.maxFrame = 1000
	r := newRequest(http.MethodPost, `{"its body":"was read"}`, lines...)
	return forwardingControl{Forwarder: &forwarder{h, r}}
}

func getTask(id string) transport.Outbound {
	return transport.Outbound{Frame: []byte(`{"the":"request"}`), Route: transport.Route{
		Kind: jsonrpc.KindRequest, ID: jsonrpc.IntegerID(1), Method: "tasks/get", Name: id, Version: "2026-07-28",
	}}
}

// What a server sends to another node has the credentials and the host of the client, and
// nothing of the session.
//
// Guarantees: G-0075.4
func TestRequestsInTheNameOfAClient(t *testing.T) {
	other := new(there)
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(http.StatusEarlyHints)
		other.ServeHTTP(w, r)
		io.WriteString(w, "the ")
		http.NewResponseController(w).Flush()
		io.WriteString(w, "answer")
	})
	by := forwarding(t, answer, "Authorization: secret", "Mcp-Session-Id: here.1", "Mcp-Protocol-Version: 2025-11-25", "Last-Event-ID: 7",
		"Connection: Authorization, Mcp-Session-Forwarded", "Accept-Encoding: br", "Expect: 100-continue", "X-Mine: 1")
	got, err := by.Forward(t.Context(), "there", getTask("there.é"))
	if err != nil || string(got) != "the answer" {
		t.Fatalf("got %q, %v, want the answer", got, err)
	}
	r := other.requests[0]
	for name, want := range map[string]string{
		headerForwarded: "1", headerVersion: "2026-07-28", headerMethod: "tasks/get", headerName: "=?base64?dGhlcmUuw6k=?=", "Authorization": "secret", "X-Mine": "1",
		"Content-Type": "application/json", "Accept": typeBoth, headerSession: "", headerLastEventID: "", "Connection": "", "Accept-Encoding": "", "Expect": "",
	} {
		if values := r.Header.Values(name); strings.Join(values, "|") != want {
			t.Errorf("the header %s is %q, want %q", name, values, want)
		}
	}
	if r.Host != "mcp.example" || r.Method != http.MethodPost || r.ContentLength != int64(len(`{"the":"request"}`)) || other.bodies[0] != `{"the":"request"}<nil>` {
		t.Errorf("got %s of %s with the body %q (%d)", r.Method, r.Host, other.bodies, r.ContentLength)
	}
	if _, err := by.Forward(t.Context(), "nowhere", getTask("nowhere.1")); err == nil || !strings.Contains(err.Error(), "not there") {
		t.Errorf("a node that is not there: got %v, want an error that says so", err)
	}
}

// What is no answer is an error: also a broken one, one that is too long, and one that does
// not come before the call ends.
//
// Guarantees: G-0075.6
func TestNodesThatDoNotAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"plain text": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadGateway) }, "502"},
		"events": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusOK)
		}, "200"},
		"nothing": {func(http.ResponseWriter, *http.Request) {}, "without"},
		"broken": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"a`)
			panic(http.ErrAbortHandler)
		}, "broken off"},
		"too long": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, strings.Repeat("x", 900))
			if _, err := io.WriteString(w, strings.Repeat("x", 101)); err == nil {
				panic("a response beyond the limit was accepted")
			}
		}, "1000 bytes"},
	} {
		got, err := forwarding(t, c.answer).Forward(t.Context(), "there", getTask("there.1"))
		if err == nil || !strings.Contains(err.Error(), c.want) || got != nil {
			t.Errorf("%s: got %q, %v, want an error with %q", name, got, err, c.want)
		}
	}
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	by := forwarding(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel(why)
		<-r.Context().Done()
	}))
	if _, err := by.Forward(ctx, "there", getTask("there.1")); !errors.Is(err, why) {
		t.Errorf("the call has ended: got %v, want %v", err, why)
	}
	synctest.Test(t, func(t *testing.T) {
		by := forwarding(t, newForwarder(&url.URL{Scheme: "http", Host: "there.test"}, roundTripper(func(*http.Request) (*http.Response, error) { return nil, errRefused })))
		for n, want := range []string{"502", "is gone"} {
			if _, err := by.Forward(t.Context(), "there", getTask("there.1")); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("request %d: got %v, want an error with %q", n, err, want)
			}
		}
	})
}

// A panic of a Router's handler is one of the program, and not hidden.
func TestAPanicOfARouterIsNotHidden(t *testing.T) {
	defer func() {
		if value := recover(); value != "at the disco" {
			t.Errorf("got the panic %v, want that of the handler", value)
		}
	}()
	_, err := forwarding(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("at the disco") })).Forward(t.Context(), "there", getTask("there.1"))
	t.Errorf("got %v, want a panic", err)
}

// Only a request of a session for a task, where there are other nodes, can be sent to another node in the name of its client.
//
// Guarantees: G-0075.4
func TestWhichRequestsTheirServerCanForward(t *testing.T) {
	task := func(method string) string {
		return `{"jsonrpc":"2.0","id":5,"method":"` + method + `","params":{"taskId":"here.1"}}`
	}
	for name, test := range map[string]struct {
		alone, modern bool
		body          string
		want          bool
	}{
		"a task":                  {false, false, task("tasks/get"), true},
		"cancelling it":           {false, false, task("tasks/cancel"), true},
		"another request":         {false, false, echoBody, false},
		"a task of a single node": {true, false, task("tasks/get"), false},
		"a modern request":        {false, true, modernBody("tasks/get", `"taskId":"here.1",`), false},
	} {
		t.Run(name, func(t *testing.T) {
			o := HandlerOptions{Router: &Nodes{Self: "here"}}
			if test.alone {
				o.Router = nil
			}
			inBubble(t, o, false, func(t *testing.T, b *bench) {
				session, p := b.begin()
				lines := []string{headerSession + ": " + session}
				if test.modern {
					lines = modernHeader("tasks/get", "Mcp-Name: here.1")
				}
				ctx, leave := context.WithCancel(t.Context())
				_, done := b.serve(ctx, "POST", test.body, lines...)
				if test.modern {
					p = b.peer(t, 1)
				}
				in := p.received[len(p.received)-1]
				if _, can := in.Origin.Exchange.(transport.Forwarder); can != test.want {
					t.Errorf("%s can be forwarded: %t, want %t", in.Message.Method, can, test.want)
				}
				leave()
				<-done
				p.returned(0)
			})
		})
	}
}
