package streamable

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// judged returns how the checks with these descriptions refuse a request of a kind.
func judged(t *testing.T, of kind, r *http.Request, b *body, whats ...string) *refusal {
	t.Helper()
	var some []check
	for _, what := range whats {
		at := slices.IndexFunc(gate, func(c check) bool { return c.what == what })
		if at < 0 {
			t.Fatalf("no check says %q", what)
		}
		some = append(some, gate[at])
	}
	return (&arrival{h: &Handler{}, r: r, kind: of, body: b}).passes(some)
}

// walk makes the checks one by one, and returns the one that has refused the request.
func walk(a *arrival) (by *check, refused *refusal) {
	for _, table := range [][]check{door, gate} {
		for i := range table {
			if refused = a.passes(table[i : i+1]); refused != nil {
				return &table[i], refused
			}
		}
	}
	return nil, nil
}

// gateCase is a request that one check refuses, and what was done before it.
type gateCase struct {
	what    string // of the check
	options func(*HandlerOptions)
	before  func(*Handler, *http.Request)
	version string // of the session that the request names; "": it names none
	method  string // default: POST
	body    string
	header  header // in addition to that of a good POST; a value "-" removes the header
	want    verdict
	allow   string // the methods that the response names
}

func gateCases() []gateCase {
	const (
		list     = `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`
		notified = `{"jsonrpc":"2.0","method":"notifications/a"}`
		response = `{"jsonrpc":"2.0","id":7,"result":{}}`
	)
	modernList := modernBody("tools/list", "")
	mirrored := header{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list"}
	without := func(o *HandlerOptions) { o.Stateless = true }
	denying := func(o *HandlerOptions) {
		o.Check = func(r *http.Request) (Caller, *Denial) {
			if r.Header.Get("X-Begins") != "" {
				return NewCaller(""), nil
			}
			return restricted{}, nil
		}
	}
	task := nodename.Join("other", "x")
	return []gateCase{
		{what: "the handler is open, or another node takes its place", before: func(h *Handler, _ *http.Request) { h.Close(0) }, body: list, want: busy},
		{what: "no browser sends it for a page of another site, or under a rebound host name", header: header{"Origin: https://evil.example"}, want: verdict{403, 0}},
		{what: "its method is one of these", method: "PUT", want: verdict{405, 0}, allow: "GET, POST, DELETE"},
		{what: "it belongs to a session", method: "GET", want: verdict{405, 0}, allow: "POST"},
		{what: "it belongs to a session", method: "DELETE", version: "2025-11-25", options: without, want: verdict{405, 0}, allow: "POST"},
		{what: "it has no body, for whose end net/http would wait", method: "GET", version: "2025-11-25", body: "{}", want: verdict{400, 0}},
		{what: "its body is JSON", header: header{"Content-Type: -"}, want: verdict{415, 0}},
		{what: "its client accepts JSON and events", header: header{"Accept: text/html"}, want: verdict{406, 0}},
		{what: "its body is not announced as too large", body: strings.Repeat(" ", 2000), want: tooLarge},
		{what: "its sender is established, and its session is at this node", body: list, options: func(o *HandlerOptions) {
			o.Check = func(*http.Request) (Caller, *Denial) { return nil, &Denial{Status: 401, Text: "log in"} }
		}, want: verdict{401, 0}},
		{what: "its body arrives, and is a message or a batch", body: "{", want: verdict{400, -32700}},
		{what: "it is no batch", body: "[" + modernList + "]", header: mirrored, want: bad},
		{what: "it is no response", body: response, header: mirrored, want: bad},
		{what: "it names its revision", body: list, header: mirrored, want: verdict{400, -32602}},
		{what: "its headers say the same as its body", body: modernList, want: verdict{400, protocol.CodeHeaderMismatch}},
		{what: "initialize names no session", body: initializeBody("2025-11-25"), version: "2025-11-25", want: bad},
		{what: "no session is named, because there are none", body: list, header: header{"Mcp-Session-Id: any"}, options: without, want: absent},
		{what: "no session is named, because there are none", body: notified, header: header{"Mcp-Session-Id: any"}, options: without, want: absent},
		{what: "no session is named, because there are none", body: response, header: header{"Mcp-Session-Id: any"}, options: without, want: absent},
		{what: "no session is named, because there are none", body: "[" + list + "]", header: header{"Mcp-Session-Id: any", "Mcp-Protocol-Version: 2025-03-26"}, options: without, want: absent},
		{what: "initialize is not too large to be kept", options: func(o *HandlerOptions) { o.MaxBody = 1 << 20 },
			body: strings.Replace(initializeBody("2025-11-25"), `{"protocol`, `{"a":"`+strings.Repeat("a", web.MaxInitialize)+`","protocol`, 1), want: tooLarge},
		{what: "a session is named", body: list, want: bad},
		{what: "a session is named", body: notified, want: bad},
		{what: "a session is named", body: response, want: bad},
		{what: "a session is named", body: "[" + list + "]", header: header{"Mcp-Protocol-Version: 2025-03-26"}, want: bad},
		{what: "the session is here, and is the sender's, and so is its revision", body: list, header: header{"Mcp-Session-Id: unknown"}, want: absent},
		{what: "the session is here, and is the sender's, and so is its revision", body: notified, header: header{"Mcp-Session-Id: unknown"}, want: absent},
		{what: "the session is here, and is the sender's, and so is its revision", body: response, header: header{"Mcp-Session-Id: unknown"}, want: absent},
		{what: "the session is here, and is the sender's, and so is its revision", body: "[" + list + "]", header: header{"Mcp-Session-Id: unknown"}, want: absent},
		{what: "the session is here, and is the sender's, and so is its revision", method: "DELETE", version: "2025-11-25", header: header{"Mcp-Protocol-Version: 1999-01-01"}, want: bad},
		{what: "its revision has sessions", body: initializeBody("2025-11-25"), header: header{"Mcp-Protocol-Version: 1999-01-01"}, want: bad},
		{what: "its client accepts events", method: "GET", version: "2025-11-25", header: header{"Accept: text/html"}, want: verdict{406, 0}},
		{what: "there are GET streams of sessions, or it comes back for a response", method: "GET", version: "2025-11-25",
			options: func(o *HandlerOptions) { o.NoListening = true }, want: verdict{405, 0}, allow: "POST, DELETE"},
		{what: "its Last-Event-ID is one", method: "GET", version: "2025-11-25", header: header{"Last-Event-Id: x"}, want: verdict{400, 0}},
		{what: "it is no batch, unless the revision is 2025-03-26", body: "[" + list + "]", version: "2025-11-25", want: bad},
		{what: "it is no batch, unless the revision is 2025-03-26", body: "[" + list + "]", header: header{"Mcp-Protocol-Version: 2025-06-18"}, options: without, want: bad},
		{what: "if it is a batch, that can be read", body: "[1", version: "2025-03-26", want: verdict{400, -32700}},
		{what: "its response need not be a stream, if there are none", body: modernBody("subscriptions/listen", `"notifications":{},`),
			header:  header{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: subscriptions/listen"},
			options: func(o *HandlerOptions) { o.JSONOnly = true }, want: verdict{404, -32601}},
		{what: "the node that it names, if that is another one, does not serve it", body: modernBody("tasks/get", `"taskId":"`+task+`",`),
			header: header{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tasks/get", "Mcp-Name: " + task},
			options: func(o *HandlerOptions) {
				o.Router = &Nodes{Self: "self", Others: map[string]http.Handler{"other": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					w.WriteHeader(http.StatusMisdirectedRequest)
				})}}
			}, want: verdict{502, 0}},
		{what: "its sender may do this", body: modernList, header: mirrored, options: denying, want: verdict{403, 0}},
		{what: "its sender may do this", body: initializeBody("2025-11-25"), options: denying, want: verdict{403, 0}},
		{what: "its sender may do this", body: list, version: "2025-11-25", options: denying, want: verdict{403, 0}},
		{what: "its sender may do this", body: notified, version: "2025-11-25", options: denying, want: verdict{403, 0}},
		{what: "its sender may do this", body: "[" + list + "]", version: "2025-03-26", options: denying, want: verdict{403, 0}},
		{what: "its sender may do this", body: list, options: func(o *HandlerOptions) { denying(o); without(o) }, want: verdict{403, 0}},
		{what: "there is a server for it", body: modernList, header: mirrored, options: func(o *HandlerOptions) { o.Choose = func(*http.Request) transport.Acceptor { return nil } }, want: absent},
		{what: "its link is open, and speaks its revision", body: modernList, header: mirrored, before: func(h *Handler, _ *http.Request) { h.table.drain() }, want: busy},
		{what: "there is room to serve it, and for its answer", body: modernList, header: mirrored, before: func(h *Handler, r *http.Request) {
			for client := web.ClientOf("", web.AddressOf(r)); h.unread.Small.Take(client, 1<<10); {
			}
		}, want: busy},
	}
}

// gateTexts are what the checks say to whom they refuse; of a body that cannot be decoded, the beginning.
var gateTexts = map[string]string{
	"the handler is open, or another node takes its place":                         "overloaded: shutting down",
	"no browser sends it for a page of another site, or under a rebound host name": "origin not allowed",
	"its method is one of these":                                                   "method not allowed",
	"it belongs to a session":                                                      "method not allowed",
	"it has no body, for whose end net/http would wait":                            "a GET has no body",
	"its body is JSON":                                                             "Content-Type must be application/json",
	"its client accepts JSON and events":                                           "Accept must include application/json and text/event-stream",
	"its body is not announced as too large":                                       "the body is above the limit of 1000 bytes",
	"its sender is established, and its session is at this node":                   "log in",
	"its body arrives, and is a message or a batch":                                "jsonrpc: parse error",
	"it is no batch":                                                     "a batch is not accepted here",
	"it is no response":                                                  "a response is not accepted here",
	"it names its revision":                                              "_meta: io.modelcontextprotocol/protocolVersion is missing",
	"its headers say the same as its body":                               `Mcp-Protocol-Version is missing: the message has "2026-07-28"`,
	"initialize names no session":                                        "initialize begins a session: Mcp-Session-Id must not be sent",
	"no session is named, because there are none":                        "session not found",
	"initialize is not too large to be kept":                             "initialize is above the limit of 65536 bytes",
	"a session is named":                                                 "Mcp-Session-Id is missing: initialize first",
	"the session is here, and is the sender's, and so is its revision":   "session not found",
	"its revision has sessions":                                          otherRevision,
	"its client accepts events":                                          "Accept must include text/event-stream",
	"there are GET streams of sessions, or it comes back for a response": "method not allowed",
	"its Last-Event-ID is one":                                           "Last-Event-ID is no event id of this server",
	"it is no batch, unless the revision is 2025-03-26":                  "a batch is not accepted here",
	"if it is a batch, that can be read":                                 "jsonrpc: parse error",
	"its response need not be a stream, if there are none":               "this endpoint answers with JSON only, and subscriptions/listen needs a stream of events",
	"the node that it names, if that is another one, does not serve it":  "the node of the request cannot be reached",
	"its sender may do this":                                             "not this",
	"there is a server for it":                                           "there is no such server",
	"its link is open, and speaks its revision":                          "overloaded: shutting down",
	"there is room to serve it, and for its answer":                      "overloaded: too many answers are not read",
}

const otherRevision = `Mcp-Protocol-Version is "1999-01-01": supported with a session are 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25`

// restricted is a caller who may do nothing.
type restricted struct{}

func (restricted) Identity() string { return "" }
func (restricted) Allow(Operation) *Denial {
	return &Denial{Status: http.StatusForbidden, Text: "not this"}
}

// Each check of the table refuses what it says, with one of the responses that it says. Nothing is left behind by a request that was
// refused.
//
// Guarantees: G-0022.8
func TestTheGateRefusesAsItsTableSays(t *testing.T) {
	made := make(map[string]bool)
	for _, test := range gateCases() {
		o := HandlerOptions{MaxBody: 1000}
		if test.options != nil {
			test.options(&o)
		}
		to := newAcceptor(respond)
		h := NewHandler(to, o)
		method := "POST"
		if test.method != "" {
			method = test.method
		}
		r := newRequest(method, test.body, test.header...)
		if test.body == "" {
			r = httptest.NewRequest(method, "http://mcp.example/", nil)
			r.Header = newRequest(method, "", test.header...).Header
		}
		for _, line := range test.header {
			name, value, _ := strings.Cut(line, ": ")
			if r.Header.Set(name, value); value == "-" {
				r.Header.Del(name)
			}
		}
		switch {
		case test.version != "" && o.Stateless:
			r.Header.Set(headerSession, "any")
		case test.version != "":
			begun := httptest.NewRecorder()
			h.ServeHTTP(begun, newRequest("POST", initializeBody(test.version), "X-Begins: 1"))
			r.Header.Set(headerSession, begun.Header().Get(headerSession))
		}
		if test.before != nil {
			test.before(h, r)
		}
		a := h.arrive(httptest.NewRecorder(), r, expectedBody{control: *http.NewResponseController(httptest.NewRecorder())})
		by, refused := walk(a)
		if by == nil || by.what != test.what || (verdict{refused.status, refused.code}) != test.want || refused.allow != test.allow {
			t.Errorf("%s: got %+v by %+v, want %+v", test.what, refused, by, test.want)
		} else if allowed := append(by.may, verdict{by.status, by.code}); !slices.Contains(allowed, test.want) && !slices.Contains(allowed, denied) {
			t.Errorf("%s: refused with %+v, and the table says %+v", test.what, test.want, allowed)
		}
		if refused != nil {
			text, _, _ := strings.Cut(refused.text, ": jsontext")
			wants := gateTexts[test.what]
			if method == "DELETE" && test.want == bad {
				wants = otherRevision
			}
			var id jsonrpc.ID // of the request, once it was read, if the response can name it
			if m, err := jsonrpc.Decode([]byte(test.body), jsonrpc.Limits{}); err == nil && m.Kind == jsonrpc.KindRequest && a.body != nil && refused.code != 0 {
				id = m.ID
			}
			if text != wants || refused.id != id || refused.denied != (refused.status == 401 || refused.status == 403) || refused.again != (test.want == busy) {
				t.Errorf("%s: got %+v, want %q by the id %v", test.what, refused, wants, id)
			}
		}
		made[test.what] = true
		if a.leave(); a.link != nil || h.bodies.held() != 0 {
			t.Errorf("%s: it holds %d bytes and the link %v, want nothing", test.what, h.bodies.held(), a.link)
		}
		h.Close(0)
		to.finish(t)
	}
	for _, c := range slices.Concat(door, gate) {
		if !made[c.what] {
			t.Errorf("no test for %q", c.what)
		}
		if c.of == 0 || (c.step == nil) != (c.refuses != nil) || (c.step != nil) != (len(c.may) > 0) || c.step == nil && c.status == 0 {
			t.Errorf("%q: it is neither a check with one response nor a step", c.what)
		}
	}
}
