package streamable

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// testCaller is a Caller who may use every operation that is not forbidden.
type testCaller string

func (g testCaller) Identity() string { return string(g) }

func (g testCaller) Allow(op Operation) *Denial {
	if op.Method == "forbidden" || op.Name() == "forbidden" {
		return &Denial{Status: http.StatusForbidden, Header: http.Header{"Www-Authenticate": {"more"}}, Text: "not " + op.Method}
	}
	return nil
}

// A callerSite identifies its callers by their Authorization header, and records what
// its handlers serve, and for whom.
type callerSite struct {
	*site
	mu     sync.Mutex
	checks int
	served []string
}

func newCallerSite(t *testing.T, o HandlerOptions) *callerSite {
	g := &callerSite{}
	o.Check = func(r *http.Request) (Caller, *Denial) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.checks++
		name := r.Header.Get("Authorization")
		if name == "" {
			return nil, &Denial{Status: http.StatusUnauthorized, Header: http.Header{"Www-Authenticate": {"who", "else"}}, Text: "who are you?"}
		}
		return testCaller(name), nil
	}
	h := NewHandler(accepting(func(link transport.Link) {
		c := conn.Accept(link, conn.Options{Handler: g, Dialect: batching{}})
		if err := c.Start(context.Background(), func(error) {}); err != nil {
			t.Error(err)
		}
	}), o)
	server := httptest.NewServer(h)
	ctx, cancel := context.WithTimeout(context.Background(), hangLimit)
	t.Cleanup(func() {
		h.Close(0)
		cancel()
		server.Close()
	})
	g.site = &site{t: t, handler: h, server: server, ctx: ctx}
	return g
}

func (g *callerSite) ServeRequest(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
	if in.Method == protocol.MethodInitialize {
		return json.RawMessage(`{"protocolVersion":"2025-03-26"}`), nil
	}
	g.ServeNotification(context.Background(), in)
	return json.RawMessage(`"done"`), nil
}

func (g *callerSite) ServeNotification(_ context.Context, in *conn.Incoming) {
	g.mu.Lock()
	defer g.mu.Unlock()
	caller, _ := in.Origin.Principal.(testCaller)
	g.served = append(g.served, in.Method+" "+string(caller)+" "+in.Origin.Identity)
}

// took returns what was served, and how often Check was called, since its last call.
func (g *callerSite) took() (served []string, checks int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	served, checks, g.served, g.checks = g.served, g.checks, nil, 0
	return served, checks
}

// Check is called for each request to an endpoint. A denied request is not served, and
// a served one has its caller.
//
// Guarantees: G-0046.8
func TestEveryRequestIsChecked(t *testing.T) {
	s := newCallerSite(t, HandlerOptions{})
	session := s.initialize("2025-03-26", "Authorization: ada")
	s.took()
	events := "Accept: text/event-stream"
	for name, denied := range map[string]reply{
		"initialize": s.post(initializeBody("2025-03-26")),
		"request":    s.post(echoBody, session),
		"modern":     s.modern("echo", ""),
		"unreadable": s.post("{", session),
		"GET":        s.do("GET", "", header{session, events}),
		"DELETE":     s.do("DELETE", "", header{session}),
	} {
		if denied.status != http.StatusUnauthorized || !slices.Equal(denied.header["Www-Authenticate"], []string{"who", "else"}) || !strings.Contains(denied.body, "who are you?") {
			t.Errorf("%s without a name: got %+v, want denied.status == %v, %v and %q in it", name, denied, http.StatusUnauthorized, []string{"who", "else"}, "who are you?")
		}
	}
	if served, checks := s.took(); len(served) != 0 || checks != 6 {
		t.Errorf("served %q after a denial, with %d checks; want nothing served", served, checks)
	}

	s.post(echoBody, session, "Authorization: ada")
	s.modern("echo", "", "Authorization: bob")
	want := []string{"echo ada ada", "echo bob bob"}
	if served, _ := s.took(); !slices.Equal(served, want) {
		t.Errorf("served %q, want %q", served, want)
	}
}

// A callerUntil is a caller whose requests end at a given time.
type callerUntil struct {
	testCaller
	until time.Time
}

func (c callerUntil) Until() time.Time { return c.until }

// A request ends when the time of its caller is over.
func TestRequestsEndWithTheTimeOfTheirCaller(t *testing.T) {
	soon := time.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		caller any
		want   time.Time
	}{
		"no end":      {testCaller("ada"), time.Time{}},
		"an end":      {callerUntil{until: soon}, soon},
		"unknown end": {callerUntil{}, time.Time{}},
		"nobody":      {nil, time.Time{}},
	} {
		r, cancel := untilExpiry(httptest.NewRequest("POST", "/", nil), &transport.Origin{Principal: c.caller})
		until, _ := r.Context().Deadline()
		if !until.Equal(c.want) || r.Context().Err() != nil {
			t.Errorf("%s: the request ends at %v: %v", name, until, r.Context().Err())
		}
		if cancel(); (r.Context().Err() != nil) != !c.want.IsZero() {
			t.Errorf("%s: after cancel: got %v", name, r.Context().Err())
		}
	}
}

// If Check returns neither a caller nor a denial, the request is refused and an error
// is logged.
//
// Guarantees: G-0046.8
func TestACheckWithoutACallerIsRefused(t *testing.T) {
	var log bytes.Buffer
	h := NewHandler(accepting(func(transport.Link) { t.Error("a session has begun, want none") }), HandlerOptions{
		Log:   slog.New(slog.NewTextHandler(&log, nil)),
		Check: func(*http.Request) (Caller, *Denial) { return nil, nil },
	})
	defer h.Close(0)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(initializeBody("2025-03-26")))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if said(w) != `500 "" the caller is not known` || strings.Count(log.String(), "Check has returned neither") != 1 {
		t.Errorf("got status %d and the log %q", w.Code, log.String())
	}
}

// Checks that do not depend on the caller come before Check.
//
// Guarantees: G-0046.8
func TestTheCallerIsCheckedAfterTheSource(t *testing.T) {
	s := newCallerSite(t, HandlerOptions{MaxBody: 1000})
	for name, r := range map[string]struct {
		reply
		status int
	}{
		"method": {s.do("PUT", "", nil), http.StatusMethodNotAllowed},
		"origin": {s.post(echoBody, "Origin: https://evil.example"), http.StatusForbidden},
		"host":   {s.post(echoBody, "Host: evil.example"), http.StatusForbidden},
		"size":   {s.post(strings.Repeat(" ", 2000)), http.StatusRequestEntityTooLarge},
	} {
		if r.reply.status != r.status {
			t.Errorf("%s: got %+v, want %v", name, r.reply, r.status)
		}
	}
	if _, checks := s.took(); checks != 0 {
		t.Errorf("Check was called %d times, want 0", checks)
	}
}

// A session of another user gets the same response as an unknown session.
//
// Guarantees: G-0046.6
func TestSessionOfAnotherUserIsUnknown(t *testing.T) {
	s := newCallerSite(t, HandlerOptions{})
	session := s.initialize("2025-11-25", "Authorization: ada")
	for _, send := range []func(session, who string) reply{
		func(session, who string) reply { return s.post(echoBody, session, who) },
		func(session, who string) reply {
			return s.do("GET", "", header{session, "Accept: text/event-stream", who})
		},
		func(session, who string) reply { return s.do("DELETE", "", header{session, who}) },
	} {
		unknown, foreign := send("Mcp-Session-Id: unknown", "Authorization: bob"), send(session, "Authorization: bob")
		if unknown.status != http.StatusNotFound || foreign.status != unknown.status || foreign.body != unknown.body {
			t.Errorf("got %+v for a session of another user and %+v for an unknown one, want equal responses", foreign, unknown)
		}
	}
	if r := s.post(echoBody, session, "Authorization: ada"); r.status != http.StatusOK {
		t.Errorf("the owner: got %+v, want %v", r, http.StatusOK)
	}
}

// The name of an operation is that of the tool, prompt, resource or task that it is about.
func TestNamesOfOperations(t *testing.T) {
	const params = `{"name":"a","uri":"x:b","taskId":"c","cursor":"d"}`
	for method, want := range map[string]string{
		"tools/call": "a", "prompts/get": "a", "resources/read": "x:b", "tasks/get": "c", "tasks/cancel": "c", "tasks/update": "c",
		"tools/list": "", "resources/subscribe": "", "no/such": "",
	} {
		if got := (Operation{Method: method, Params: []byte(params)}).Name(); got != want {
			t.Errorf("%s: got the name %q, want %q", method, got, want)
		}
		if got := (Operation{Method: method}).Name(); got != "" {
			t.Errorf("%s without params: got the name %q, want none", method, got)
		}
	}
}

// If a caller may not use an operation of a batch, nothing of the batch is delivered.
//
// Guarantees: G-0046.8
func TestOperationsAreAllowedBeforeDelivery(t *testing.T) {
	const denied = `{"jsonrpc":"2.0","id":9,"method":"forbidden"}`
	const byName = `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"forbidden"}}`
	const told = `{"jsonrpc":"2.0","method":"forbidden"}`
	legacy := newCallerSite(t, HandlerOptions{})
	session := legacy.initialize("2025-03-26", "Authorization: ada")
	stateless := newCallerSite(t, HandlerOptions{Stateless: true})
	for name, sent := range map[string]struct {
		*callerSite
		reply
	}{
		"request":             {legacy, legacy.post(denied, session, "Authorization: ada")},
		"by its name":         {legacy, legacy.post(byName, session, "Authorization: ada")},
		"notification":        {legacy, legacy.post(told, session, "Authorization: ada")},
		"batch":               {legacy, legacy.post("["+echoBody+","+denied+"]", session, "Authorization: ada")},
		"notification in one": {legacy, legacy.post("["+echoBody+","+told+"]", session, "Authorization: ada")},
		"modern":              {legacy, legacy.modern("forbidden", "", "Authorization: ada")},
		"stateless":           {stateless, stateless.post(denied, "Authorization: ada")},
		"its batch":           {stateless, stateless.post("["+echoBody+","+denied+"]", "Authorization: ada")},
	} {
		if sent.status != http.StatusForbidden || sent.header.Get("Www-Authenticate") != "more" || !strings.HasPrefix(sent.body, "not ") {
			t.Errorf("%s: got %+v", name, sent.reply)
		}
		if served, _ := sent.took(); len(served) != 0 {
			t.Errorf("%s: served %q after a denial, want nothing", name, served)
		}
	}
	legacy.post("["+echoBody+","+echoBody2+"]", session, "Authorization: ada")
	if served, _ := legacy.took(); len(served) != 2 {
		t.Errorf("an allowed batch: served %q, want 2 elements", served)
	}
}

// An endless context is of a program that serves requests without a server of net/http: it does not end with the request.
type endless struct {
	context.Context
	never chan struct{}
}

func (e endless) Done() <-chan struct{} { return e.never }

// A stream whose caller has an end leaves nothing when it is over, whatever its own context does: the bubble ends only without
// goroutines.
func TestNothingIsLeftOfAStreamWithAnEnd(t *testing.T) {
	o := HandlerOptions{Check: func(*http.Request) (Caller, *Denial) {
		return callerUntil{"ada", time.Now().Add(time.Hour)}, nil
	}}
	inBubble(t, o, false, func(t *testing.T, b *bench) {
		session, _ := b.begin()
		w := httptest.NewRecorder()
		var stream sync.WaitGroup
		stream.Go(func() {
			serveHTTP(b.handler, w, newRequest("GET", "", "Accept: text/event-stream", headerSession+": "+session).WithContext(endless{t.Context(), make(chan struct{})}))
		})
		synctest.Wait()
		b.send("DELETE", session)
		stream.Wait()
		if w.Code != http.StatusOK {
			t.Errorf("got %d %s, want 200", w.Code, w.Body)
		}
	})
}

// What stays open ends when its caller's credentials do: the GET stream of a session, and a subscription. Another request
// may take longer.
//
// Guarantees: G-0046.8
func TestWhatStaysOpenEndsWithItsCaller(t *testing.T) {
	for name, test := range map[string]struct {
		method, body string
		lines        []string
		ends         bool
	}{
		"the GET stream": {"GET", "", nil, true},
		"a subscription": {"POST", modernBody("subscriptions/listen", `"notifications":{},`), modernHeader("subscriptions/listen"), true},
		"another one":    {"POST", modernBody("hold", ""), modernHeader("hold"), false},
		"of a session":   {"POST", legacyHold(""), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := HandlerOptions{Check: func(*http.Request) (Caller, *Denial) {
				return callerUntil{"ada", time.Now().Add(time.Hour)}, nil
			}}
			inBubble(t, o, false, func(t *testing.T, b *bench) {
				lines := test.lines
				if lines == nil {
					session, _ := b.begin()
					lines = []string{headerSession + ": " + session}
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				_, done := b.serve(ctx, test.method, test.body, lines...)
				pass(time.Hour - 1)
				synctest.Wait()
				early := wait.IsClosed(done)
				pass(1)
				synctest.Wait()
				if ended := wait.IsClosed(done); early || ended != test.ends {
					t.Errorf("it has ended before its caller's time: %t, and with that: %t; want false and %t", early, ended, test.ends)
				}
				leave()
				<-done
				b.peer(t, 0).returned(0)
			})
		})
	}
}
