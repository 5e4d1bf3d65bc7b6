package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// An audit collects the records of a server, as lines.
type audit struct {
	t       *testing.T
	records chan string
	panics  chan telemetry.Panic // one for each record
}

func newAudit(t *testing.T) *audit { return &audit{t: t, records: make(chan string, 100)} }

// take is the Options.Audit. It panics on purpose: no answer depends on it.
func (a *audit) take(_ context.Context, r server.Record) {
	if r.Origin == nil || r.Time.IsZero() || r.Duration < 0 {
		a.t.Errorf("got %+v, want an Origin, a Time, and no negative Duration", r)
	}
	who := r.Origin.Identity
	if r.Client != nil && r.Client.Info.Name != "" {
		who += "/" + r.Client.Info.Name
	}
	a.records <- fmt.Sprintf("%s %s %v %s %d %d %s", r.Method, r.Name, r.ID, r.Outcome, r.Code, r.Status, who)
	panic(lostRecord)
}

const lostRecord = "the record is lost"

// want checks the next records, in any order.
func (a *audit) want(about string, want ...string) {
	a.t.Helper()
	got := make([]string, len(want))
	for i := range want {
		got[i] = within(a.t, a.records)
	}
	a.wantPanics(about, len(want))
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		a.t.Errorf("%s: got the records %q, want %q", about, got, want)
	}
}

// wantPanics checks that each panic of take was reported. Those of tools are reported, too.
func (a *audit) wantPanics(about string, n int) {
	a.t.Helper()
	for n > 0 {
		switch p := within(a.t, a.panics); {
		case p.Value != lostRecord:
		case p.Where != "Audit" || !strings.Contains(string(p.Stack), "take"):
			a.t.Errorf("%s: got the panic of %q with the stack %s, want that of %q with take in its stack", about, p.Where, p.Stack, "Audit")
			n--
		default:
			n--
		}
	}
}

// wantNothing checks that there are no further records.
func (a *audit) wantNothing() {
	a.t.Helper()
	for len(a.records) > 0 {
		a.t.Errorf("got one more record: %s", <-a.records)
	}
}

// auditedServer has a tool for each way in which a call can end.
func auditedServer(a *audit, o server.Options) *server.Server {
	o.Audit = a.take
	o, a.panics = reporting(o)
	s := newServer(o)
	for name, end := range map[string]func() (string, error){
		"works":   func() (string, error) { return "done", nil },
		"fails":   func() (string, error) { return "", errors.New("broken") },
		"refuses": func() (string, error) { return "", &jsonrpc.Error{Code: -32000, Message: "no"} },
		"panics":  func() (string, error) { panic("broken") },
	} {
		server.AddTool(s, protocol.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return end() })
	}
	return s
}

// A carrier carries single messages to a server, and waits for their answers.
type carrier struct {
	modern bool
	who    string // the client that the records name
	start  func(t *testing.T, a *audit, s *server.Server) (exchange func(method, name, frame string) (answer string))
}

// frame returns a request in the era of the carrier.
func (c carrier) frame(id, method, params string) string {
	if c.modern {
		return modern(id, method, params)
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + `}}`
}

var carriers = map[string]carrier{
	"memory": {who: "/raw", start: func(t *testing.T, a *audit, s *server.Server) func(_, _, frame string) string {
		w := dial(t, s)
		w.initialize(protocol.Version20250326)
		a.want("initialize", `initialize  "init" answered 0 0 /raw`)
		return func(_, _, frame string) string {
			w.send(frame)
			return w.next()
		}
	}},
	"memory, modern": {modern: true, who: "/modern", start: func(t *testing.T, _ *audit, s *server.Server) func(_, _, frame string) string {
		w := dial(t, s)
		return func(_, _, frame string) string {
			w.send(frame)
			return w.next()
		}
	}},
	"stdio": {who: "/raw", start: func(t *testing.T, a *audit, s *server.Server) func(_, _, frame string) string {
		theirIn, ourOut, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		ourIn, theirOut, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- s.Run(context.Background(), &stdio.Server{In: theirIn, Out: theirOut}) }()
		t.Cleanup(func() {
			ourOut.Close()
			<-served
			ourIn.Close()
		})
		lines := bufio.NewReader(ourIn)
		exchange := func(_, _, frame string) string {
			fmt.Fprintln(ourOut, frame)
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			return line
		}
		exchange("", "", strings.Replace(initializeFrame, "VERSION", protocol.Version20250326, 1))
		a.want("initialize", `initialize  "init" answered 0 0 /raw`)
		return exchange
	}},
	"HTTP, session": {who: "alice/raw", start: func(t *testing.T, a *audit, s *server.Server) func(_, _, frame string) string {
		site := newAuditedSite(t, s, streamable.HandlerOptions{})
		response, _ := site.post(http.Header{}, strings.Replace(initializeFrame, "VERSION", protocol.Version20250326, 1))
		a.want("initialize", `initialize  "init" answered 0 0 alice/raw`)
		return func(_, _, frame string) string {
			_, answer := site.post(http.Header{"Mcp-Session-Id": response.Header["Mcp-Session-Id"]}, frame)
			return answer
		}
	}},
	"HTTP, stateless": {who: "alice/stateless", start: func(t *testing.T, _ *audit, s *server.Server) func(_, _, frame string) string {
		site := newAuditedSite(t, s, streamable.HandlerOptions{Stateless: true})
		return func(_, _, frame string) string {
			_, answer := site.post(http.Header{}, frame)
			return answer
		}
	}},
	"HTTP, modern": {modern: true, who: "alice/modern", start: func(t *testing.T, _ *audit, s *server.Server) func(method, name, frame string) string {
		site := newAuditedSite(t, s, streamable.HandlerOptions{})
		return func(method, name, frame string) string {
			_, answer := site.post(modernHeader(method, name), frame)
			return answer
		}
	}},
	"HTTP+SSE": {who: "alice/raw", start: func(t *testing.T, a *audit, s *server.Server) func(_, _, frame string) string {
		h := sse.NewHandler(s, sse.HandlerOptions{Identify: identityOf})
		web := httptest.NewServer(h)
		t.Cleanup(func() {
			h.Shutdown(context.Background(), nil)
			web.Close()
		})
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL, nil)
		request.Header.Set("X-User", "alice")
		response, err := web.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		lines := bufio.NewScanner(response.Body)
		data := func() string {
			for lines.Scan() {
				if text, found := strings.CutPrefix(lines.Text(), "data: "); found {
					return text
				}
			}
			t.Fatal("the stream has ended")
			return ""
		}
		site := &auditedSite{t, web, web.URL + data()}
		exchange := func(_, _, frame string) string {
			site.post(http.Header{}, frame)
			return data()
		}
		exchange("", "", strings.Replace(initializeFrame, "VERSION", protocol.Version20250326, 1))
		a.want("initialize", `initialize  "init" answered 0 0 alice/raw`)
		return exchange
	}},
}

// An auditedSite serves HTTP.
type auditedSite struct {
	t   *testing.T
	web *httptest.Server
	url string
}

func identityOf(r *http.Request) string { return r.Header.Get("X-User") }

func newAuditedSite(t *testing.T, s *server.Server, o streamable.HandlerOptions) *auditedSite {
	t.Helper()
	if o.Check == nil {
		o.Identify = identityOf
	}
	h := streamable.NewHandler(s, o)
	web := httptest.NewServer(h)
	t.Cleanup(func() {
		h.Shutdown(context.Background(), nil)
		web.Close()
	})
	return &auditedSite{t, web, web.URL}
}

// post POSTs a message of alice's, unless the header names somebody else.
func (s *auditedSite) post(header http.Header, body string) (*http.Response, string) {
	s.t.Helper()
	return s.do(http.MethodPost, header, body)
}

func (s *auditedSite) do(method string, header http.Header, body string) (*http.Response, string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "X-User": "alice"} {
		if request.Header.Set(name, value); header[name] != nil {
			request.Header[name] = header[name]
		}
	}
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := s.web.Client().Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response, string(answer)
}

// modernHeader returns the headers that mirror a modern request.
func modernHeader(method, name string) http.Header {
	header := http.Header{"Mcp-Protocol-Version": {protocol.Version20260728}, "Mcp-Method": {method}}
	if name != "" {
		header["Mcp-Name"] = []string{name}
	}
	return header
}

// Whatever carries a request, and however it ends, there is exactly one record of it. A panic of
// Audit changes no answer.
//
// Guarantees: G-0071.1, G-0071.2, G-0071.5
func TestEveryRequestHasOneRecord(t *testing.T) {
	for over, c := range carriers {
		t.Run(over, func(t *testing.T) {
			a := newAudit(t)
			exchange := c.start(t, a, auditedServer(a, server.Options{}))
			for _, test := range []struct{ id, method, name, params, want, answer string }{
				{`1`, "tools/call", "works", `"name":"works"`, `tools/call works 1 answered 0 0 `, `done`},
				{`"a"`, "tools/call", "fails", `"name":"fails"`, `tools/call fails "a" tool error 0 0 `, `isError`},
				{`2`, "tools/call", "refuses", `"name":"refuses"`, `tools/call refuses 2 failed -32000 0 `, `-32000`},
				{`3`, "tools/call", "panics", `"name":"panics"`, `tools/call panics 3 panicked -32603 0 `, `-32603`},
				{`4`, "tools/call", "none", `"name":"none"`, `tools/call none 4 failed -32602 0 `, `-32602`},
				{`5`, "tools/call", "", `"name":3`, `tools/call  5 invalid -32602 0 `, `-32602`},
				{`6`, "no/such", "", ``, `no/such  6 invalid -32601 0 `, `-32601`},
				{`7`, "tools/list", "", ``, `tools/list  7 answered 0 0 `, `works`},
			} {
				answer := exchange(test.method, test.name, c.frame(test.id, test.method, test.params))
				if !strings.Contains(answer, test.answer) {
					t.Errorf("%s: got the answer %s, want %s in it", test.params, answer, test.answer)
				}
				a.want(test.method+" "+test.params, test.want+c.who)
			}
			if !c.modern {
				exchange("ping", "", `{"jsonrpc":"2.0","id":8,"method":"ping"}`)
				a.want("a probe", "ping  8 answered 0 0 "+c.who)
			}
			a.wantNothing()
		})
	}
}

// A frame that is no message has a record, as each message of a batch has.
//
// Guarantees: G-0071.1
func TestMalformedFramesHaveRecords(t *testing.T) {
	for over, c := range carriers {
		t.Run(over, func(t *testing.T) {
			a := newAudit(t)
			exchange := c.start(t, a, auditedServer(a, server.Options{}))
			status, who := "0", c.who
			if strings.HasPrefix(over, "HTTP, ") {
				status, who = "400", "alice"
			} else if c.modern {
				who = ""
			}
			exchange("tools/call", "works", `not JSON`)
			a.want("not JSON", "  none invalid -32700 "+status+" "+who)
			exchange("tools/call", "works", `{"jsonrpc":"1.0","id":9,"method":"tools/list"}`)
			a.want("not JSON-RPC 2.0", "  9 invalid -32600 "+status+" "+who)
			if !c.modern {
				exchange("", "", `[`+c.frame("1", "tools/call", `"name":"works"`)+`,{"jsonrpc":"2.0","id":2},`+
					`{"jsonrpc":"2.0","method":"notifications/x"},`+c.frame("3", "no/such", "")+`]`)
				a.want("a batch", "tools/call works 1 answered 0 0 "+c.who, "  2 invalid -32600 0 "+c.who, "no/such  3 invalid -32601 0 "+c.who)
			}
			a.wantNothing()
		})
	}
}

// What an HTTP handler refuses before any session has the message has a record, with the identity
// as far as it was established.
//
// Guarantees: G-0071.3
func TestRefusalsOfHTTPHaveRecords(t *testing.T) {
	a := newAudit(t)
	s := auditedServer(a, server.Options{})
	site := newAuditedSite(t, s, streamable.HandlerOptions{MaxBody: 10_000, Check: func(r *http.Request) (streamable.Caller, *streamable.Denial) {
		if identityOf(r) == "mallory" {
			return nil, &streamable.Denial{Status: http.StatusUnauthorized, Text: "log in"}
		}
		return reader(identityOf(r)), nil
	}})
	list := modern(`1`, "tools/list", ``)
	call := modern(`2`, "tools/call", `"name":"works"`)
	session := func(initialize string) http.Header {
		response, _ := site.post(http.Header{}, initialize)
		a.want("initialize", `initialize  "init" answered 0 0 alice/raw`)
		return http.Header{"Mcp-Session-Id": response.Header["Mcp-Session-Id"]}
	}(strings.Replace(initializeFrame, "VERSION", protocol.Version20250326, 1))
	with := func(header http.Header, name, value string) http.Header {
		header = header.Clone()
		header[name] = []string{value}
		return header
	}
	for _, test := range []struct {
		about, method string
		header        http.Header
		body          string
		status        int
		want          []string
	}{
		{"not logged in", "POST", with(modernHeader("tools/list", ""), "X-User", "mallory"), list, 401, []string{"  none denied 0 401 "}},
		{"not logged in, GET", "GET", with(session, "X-User", "mallory"), "", 401, []string{"  none denied 0 401 "}},
		{"not allowed", "POST", modernHeader("tools/call", "works"), call, 403, []string{"tools/call works 2 denied 0 403 alice"}},
		{"not allowed, in a batch", "POST", session, `[{"jsonrpc":"2.0","id":1,"method":"tools/list"},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"works"}}]`, 403,
			[]string{"tools/list  1 denied 0 403 alice", "tools/call works 2 denied 0 403 alice"}},
		{"another user's session", "POST", with(session, "X-User", "bob"), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, 404, []string{"tools/list  1 denied -32600 404 bob"}},
		{"another site", "POST", with(modernHeader("tools/list", ""), "Origin", "https://evil.example"), list, 403, []string{"  none denied 0 403 "}},
		{"no such session", "POST", http.Header{"Mcp-Session-Id": {"x"}}, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, 404, []string{"tools/list  1 refused -32600 404 alice"}},
		{"wrong header", "POST", modernHeader("tools/call", ""), list, 400, []string{"tools/list  1 invalid -32020 400 alice"}},
		{"wrong revision", "POST", with(modernHeader("tools/list", ""), "Mcp-Protocol-Version", "2099-01-01"), strings.ReplaceAll(list, protocol.Version20260728, "2099-01-01"), 400,
			[]string{"tools/list  1 invalid -32022 0 alice"}},
		{"wrong type", "POST", with(modernHeader("tools/list", ""), "Content-Type", "text/plain"), list, 415, []string{"  none invalid 0 415 "}},
		{"wrong method", "PUT", http.Header{}, "", 405, []string{"  none invalid 0 405 "}},
		{"no event stream accepted, GET", "GET", with(session, "Accept", "application/json"), "", 406, []string{"  none invalid 0 406 alice"}},
		{"wrong event id, GET", "GET", with(session, "Last-Event-ID", "x"), "", 400, []string{"  none invalid 0 400 alice"}},
		{"too large", "POST", modernHeader("tools/list", ""), list + strings.Repeat(" ", 10_000), 413, []string{"  none refused -32600 413 "}},
	} {
		if response, answer := site.do(test.method, test.header, test.body); response.StatusCode != test.status {
			t.Errorf("%s: got the status %d (%s), want %d", test.about, response.StatusCode, answer, test.status)
		}
		a.want(test.about, test.want...)
	}
	s.Close(t.Context())
	site.post(modernHeader("tools/list", ""), list)
	a.want("closed", "tools/list  1 refused -32050 503 alice")
	a.wantNothing()
}

// A reader may only list tools, and begin a session.
type reader string

func (r reader) Identity() string { return string(r) }

func (reader) Allow(op streamable.Operation) *streamable.Denial {
	if op.Method == protocol.MethodCallTool {
		return &streamable.Denial{Status: http.StatusForbidden, Text: "no calls"}
	}
	return nil
}

// A refusal of HTTP+SSE has a record, too.
//
// Guarantees: G-0071.3
func TestRefusalsOfSSEHaveRecords(t *testing.T) {
	a := newAudit(t)
	h := sse.NewHandler(auditedServer(a, server.Options{}), sse.HandlerOptions{Identify: identityOf, MaxSessions: 1})
	web := httptest.NewServer(h)
	defer web.Close()
	site := &auditedSite{t, web, web.URL}
	site.do("PUT", http.Header{}, "")
	a.want("PUT", "  none invalid 0 405 ")
	site.url += "?sessionId=x"
	site.post(http.Header{}, `{}`)
	a.want("no session", "  none refused 0 404 alice")
	site.post(http.Header{"Origin": {"https://evil.example"}}, `{}`)
	a.want("another site", "  none denied 0 403 ")
	a.wantNothing()
}

// A request that is cancelled, left behind or refused has one record, whether its handler runs,
// waits or never returns.
//
// Guarantees: G-0071.1, G-0071.2
func TestUnansweredRequestsHaveRecords(t *testing.T) {
	for name, test := range map[string]struct {
		stubborn bool // the handler returns only at the end of the test
		end      func(w *rawPeer, s *server.Server)
		want     []string
	}{
		"cancelled": {end: func(w *rawPeer, _ *server.Server) {
			w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		}, want: []string{"tools/call blocks 1 cancelled 0 0 /raw", "tools/call blocks 2 cancelled 0 0 /raw"}},
		"left": {end: func(w *rawPeer, _ *server.Server) { w.link.Close(0) },
			want: []string{"tools/call blocks 1 cancelled 0 0 /raw", "tools/call blocks 2 cancelled 0 0 /raw"}},
		"stuck": {stubborn: true, end: func(w *rawPeer, _ *server.Server) {
			w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
			pass(time.Hour)
		}, want: []string{"tools/call blocks 1 cancelled 0 0 /raw", "tools/call blocks 2 cancelled 0 0 /raw"}},
		"closed": {stubborn: true, end: func(_ *rawPeer, s *server.Server) { s.Close(context.Background()) },
			want: []string{"tools/call blocks 1 cancelled 0 0 /raw", "tools/call blocks 2 refused -32050 0 /raw"}},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.Bubble(t, func(t *testing.T) {
				a := newAudit(t)
				finish := make(chan struct{})
				s := auditedServer(a, server.Options{Conn: conn.Tuning{MaxServing: 1, MaxWaiting: 1}})
				server.AddTool(s, protocol.Tool{Name: "blocks"}, func(ctx context.Context, _ struct{}) (string, error) {
					if test.stubborn {
						<-finish
					}
					select {
					case <-finish:
					case <-ctx.Done():
					}
					return "done", nil
				})
				w := accept(t, s)
				w.initialize(protocol.Version20251125)
				a.want("initialize", `initialize  "init" answered 0 0 /raw`)
				for _, id := range []string{"1", "2", "3", "1"} {
					w.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"blocks"}}`)
					synctest.Wait()
				}
				a.want("overload, and an id that is in use", "tools/call blocks 3 refused -32050 0 /raw", "tools/call blocks 1 invalid -32600 0 /raw")
				test.end(w, s)
				synctest.Wait()
				a.want(name, test.want...)
				close(finish)
				w.link.Close(0)
				synctest.Wait()
				a.wantNothing()
			})
		})
	}
}

// A client that leaves while it is asked has cancelled its requests: whatever the handlers make of their questions, their contexts have ended.
//
// Guarantees: G-0071.2, G-0003.18
func TestClientThatLeavesWhileItIsAskedHasCancelled(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		const calls = 32 // so that many questions end between the first one and the end of the handlers
		a := newAudit(t)
		s := auditedServer(a, server.Options{})
		server.AddTool(s, protocol.Tool{Name: "asks"}, func(ctx context.Context, _ struct{}) (string, error) {
			return "", server.Confirm(ctx, "Sure?")
		}, server.Asks(server.Waits, forms))
		for range 20 {
			w := accept(t, s)
			w.initializeWith(protocol.Version20251125, `{"elicitation":{}}`)
			a.want("initialize", `initialize  "init" answered 0 0 /raw`)
			var want []string
			for id := range calls {
				w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"asks"}}`, id))
				w.want("elicitation/create")
				want = append(want, fmt.Sprintf("tools/call asks %d cancelled 0 0 /raw", id))
			}
			w.link.Close(0)
			synctest.Wait()
			a.want("left", want...)
		}
	})
}

// A call for whose handler there is no place is recorded as refused.
//
// Guarantees: G-0071.2
func TestCallsWithoutAPlaceAreRefused(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		a := newAudit(t)
		s := auditedServer(a, server.Options{Tasks: &server.TaskOptions{MaxRunning: 1}, Asking: server.AskingOptions{MaxWaitingBytes: 1}})
		server.AddTool(s, protocol.Tool{Name: "long", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(ctx context.Context, _ struct{}) (string, error) { <-ctx.Done(); return "", ctx.Err() })
		server.AddTool(s, protocol.Tool{Name: "waits"},
			func(ctx context.Context, _ struct{}) (string, error) { return "", server.Confirm(ctx, "Sure?") }, server.Asks(server.Waits, forms))
		w := dial(t, s)
		for _, test := range []struct{ id, tool, want string }{
			{"1", "long", "tools/call long 1 answered 0 0 /modern"},
			{"2", "long", "tools/call long 2 refused -32050 0 /modern"},
			{"3", "waits", "tools/call waits 3 refused -32050 0 /modern"},
		} {
			w.ask(withTasks(test.id, "tools/call", `"name":"`+test.tool+`"`))
			a.want(test.tool, test.want)
		}
		s.Close(t.Context())
		a.wantNothing()
	})
}

// A modern client that leaves has cancelled its request.
//
// Guarantees: G-0071.1
func TestClientThatLeavesHasARecord(t *testing.T) {
	a, begun := newAudit(t), make(chan struct{})
	s := auditedServer(a, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "blocks"}, func(ctx context.Context, _ struct{}) (string, error) {
		close(begun)
		<-ctx.Done()
		return "", ctx.Err()
	})
	site := newAuditedSite(t, s, streamable.HandlerOptions{})
	ctx, leave := context.WithCancel(t.Context())
	request, _ := http.NewRequestWithContext(ctx, http.MethodPost, site.url, strings.NewReader(modern(`1`, "tools/call", `"name":"blocks"`)))
	request.Header = modernHeader("tools/call", "blocks")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-User", "alice")
	left := make(chan error, 1)
	go func() {
		_, err := site.web.Client().Do(request)
		left <- err
	}()
	within(t, begun)
	leave()
	if err := within(t, left); err == nil {
		t.Error("the client got an answer, want none")
	}
	a.want("the client has left", "tools/call blocks 1 cancelled 0 0 alice/modern")
	a.wantNothing()
}

// Neither Audit nor middleware sees the initialize that a handler without sessions makes up.
//
// Guarantees: G-0071.4
func TestMiddlewareSeesOnlyWhatClientsSend(t *testing.T) {
	a, seen := newAudit(t), make(chan string, 100)
	s := auditedServer(a, server.Options{Middleware: []server.Middleware{func(next server.Handler) server.Handler {
		return func(ctx context.Context, r *server.Request) (any, error) {
			seen <- r.Method
			return next(ctx, r)
		}
	}}})
	site := newAuditedSite(t, s, streamable.HandlerOptions{Stateless: true})
	site.post(http.Header{}, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"works"}}`)
	site.post(http.Header{}, strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1))
	close(seen)
	if got := slices.Collect(func(yield func(string) bool) {
		for method := range seen {
			yield(method)
		}
	}); !slices.Equal(got, []string{"tools/call", "initialize"}) {
		t.Errorf("middleware has seen %q, want what the client has sent: tools/call, initialize", got)
	}
	a.want("both", "tools/call works 1 answered 0 0 alice/stateless", `initialize  "init" answered 0 0 alice/raw`)
	a.wantNothing()
}

// A middleware gets a panic of a feature as an error. It is reported once.
//
// Guarantees: G-0029.13
func TestMiddlewareGetsPanicsAsErrors(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		var got error
		o, panics := reporting(server.Options{Middleware: []server.Middleware{func(next server.Handler) server.Handler {
			return func(ctx context.Context, r *server.Request) (result any, err error) {
				result, err = next(ctx, r)
				if r.Method == protocol.MethodCallTool {
					got = err
				}
				return result, err
			}
		}}})
		s := newServer(o)
		server.AddTool(s, protocol.Tool{Name: "panics"}, func(context.Context, struct{}) (string, error) {
			panicBroken()
			return "", nil
		})
		w := dial(t, s)
		w.initialize(protocol.Version20251125)
		if a := w.call("panics", `{}`); a.Error.Code != jsonrpc.CodeInternalError || strings.Contains(a.Error.Message, "broken") {
			t.Errorf("got %+v, want an internal error that does not tell what happened", a)
		}
		if panicked := new(conn.PanicError); !errors.As(got, &panicked) || panicked.Value != "broken" {
			t.Errorf("the middleware got %v, want a *conn.PanicError with the value %q", got, "broken")
		}
		wantPanics(t, panics, "tools/call")
	})
}

var _ transport.Auditor = (*server.Server)(nil)
