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
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// guest is a Caller who may do all but what is forbidden.
type guest string

func (g guest) Identity() string { return string(g) }

func (g guest) Allow(op Operation) *Denial {
	if op.Method == "forbidden" || op.Name() == "forbidden" {
		return &Denial{Status: http.StatusForbidden, Header: http.Header{"Www-Authenticate": {"more"}}, Text: "not " + op.Method}
	}
	return nil
}

// A checked site knows its callers by their Authorization header, and records what its
// handlers serve, and for whom.
type checked struct {
	*site
	mu     sync.Mutex
	checks int
	served []string
}

func newChecked(t *testing.T, o HandlerOptions) *checked {
	g := &checked{}
	o.Check = func(r *http.Request) (Caller, *Denial) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.checks++
		name := r.Header.Get("Authorization")
		if name == "" {
			return nil, &Denial{Status: http.StatusUnauthorized, Header: http.Header{"Www-Authenticate": {"who", "else"}}, Text: "who are you?"}
		}
		return guest(name), nil
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

func (g *checked) ServeRequest(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
	if in.Method == protocol.MethodInitialize {
		return json.RawMessage(`{"protocolVersion":"2025-03-26"}`), nil
	}
	g.ServeNotification(context.Background(), in)
	return json.RawMessage(`"done"`), nil
}

func (g *checked) ServeNotification(_ context.Context, in *conn.Incoming) {
	g.mu.Lock()
	defer g.mu.Unlock()
	caller, _ := in.Origin.Principal.(guest)
	g.served = append(g.served, in.Method+" "+string(caller)+" "+in.Origin.Identity)
}

// took returns what was served and how often Check was asked since it was last called.
func (g *checked) took() (served []string, checks int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	served, checks, g.served, g.checks = g.served, g.checks, nil, 0
	return served, checks
}

// Each way into an endpoint is checked, what is denied is not served, and what is served
// has its caller.
//
// Guarantees: G-0046.8
func TestEveryRequestIsChecked(t *testing.T) {
	s := newChecked(t, HandlerOptions{})
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
			t.Errorf("%s without a name: %+v", name, denied)
		}
	}
	if served, checks := s.took(); len(served) != 0 || checks != 6 {
		t.Errorf("denied, and yet served: %q; %d checks", served, checks)
	}

	s.post(echoBody, session, "Authorization: ada")
	s.modern("echo", "", "Authorization: bob")
	want := []string{"echo ada ada", "echo bob bob"}
	if served, _ := s.took(); !slices.Equal(served, want) {
		t.Errorf("served %q, want %q", served, want)
	}
}

// A caller for a time is one whose requests end with that time.
type callerUntil struct {
	guest
	until time.Time
}

func (c callerUntil) Until() time.Time { return c.until }

func TestCallersHaveTheirTime(t *testing.T) {
	soon := time.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		caller any
		want   time.Time
	}{
		"for good":          {guest("ada"), time.Time{}},
		"for a time":        {callerUntil{until: soon}, soon},
		"for no known time": {callerUntil{}, time.Time{}},
		"nobody":            {nil, time.Time{}},
	} {
		r, cancel := untilExpiry(httptest.NewRequest("POST", "/", nil), &transport.Origin{Principal: c.caller})
		until, _ := r.Context().Deadline()
		if !until.Equal(c.want) || r.Context().Err() != nil {
			t.Errorf("%s: the request ends at %v: %v", name, until, r.Context().Err())
		}
		if cancel(); (r.Context().Err() != nil) != !c.want.IsZero() {
			t.Errorf("%s: %v after cancel", name, r.Context().Err())
		}
	}
}

// A Check that decides nothing lets nobody in, and says so.
//
// Guarantees: G-0046.8
func TestACheckWithoutACallerIsRefused(t *testing.T) {
	var log bytes.Buffer
	h := NewHandler(accepting(func(transport.Link) { t.Error("a session has begun") }), HandlerOptions{
		Log:   slog.New(slog.NewTextHandler(&log, nil)),
		Check: func(*http.Request) (Caller, *Denial) { return nil, nil },
	})
	defer h.Close(0)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(initializeBody("2025-03-26")))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusInternalServerError || strings.Count(log.String(), "Check has returned neither") != 1 {
		t.Errorf("status %d, log %q", w.Code, log.String())
	}
}

// What decides ahead of the caller is checked ahead of it.
//
// Guarantees: G-0046.8
func TestTheCallerIsCheckedAfterTheSource(t *testing.T) {
	s := newChecked(t, HandlerOptions{MaxBody: 1000})
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
			t.Errorf("%s: %+v", name, r.reply)
		}
	}
	if _, checks := s.took(); checks != 0 {
		t.Errorf("the caller was checked %d times", checks)
	}
}

// A session of another user gets the same answer as an unknown session.
//
// Guarantees: G-0046.6
func TestAnothersSessionIsUnknown(t *testing.T) {
	s := newChecked(t, HandlerOptions{})
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
			t.Errorf("a foreign session: %+v, an unknown one: %+v", foreign, unknown)
		}
	}
	if r := s.post(echoBody, session, "Authorization: ada"); r.status != http.StatusOK {
		t.Errorf("its owner: %+v", r)
	}
}

// A caller who may not do something does nothing of the same batch either.
//
// Guarantees: G-0046.8
func TestOperationsAreAllowedBeforeDelivery(t *testing.T) {
	const denied = `{"jsonrpc":"2.0","id":9,"method":"forbidden"}`
	const byName = `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"forbidden"}}`
	const told = `{"jsonrpc":"2.0","method":"forbidden"}`
	legacy := newChecked(t, HandlerOptions{})
	session := legacy.initialize("2025-03-26", "Authorization: ada")
	stateless := newChecked(t, HandlerOptions{Stateless: true})
	for name, sent := range map[string]struct {
		*checked
		reply
	}{
		"request":      {legacy, legacy.post(denied, session, "Authorization: ada")},
		"by its name":  {legacy, legacy.post(byName, session, "Authorization: ada")},
		"notification": {legacy, legacy.post(told, session, "Authorization: ada")},
		"batch":        {legacy, legacy.post("["+echoBody+","+denied+"]", session, "Authorization: ada")},
		"told in one":  {legacy, legacy.post("["+echoBody+","+told+"]", session, "Authorization: ada")},
		"modern":       {legacy, legacy.modern("forbidden", "", "Authorization: ada")},
		"stateless":    {stateless, stateless.post(denied, "Authorization: ada")},
		"its batch":    {stateless, stateless.post("["+echoBody+","+denied+"]", "Authorization: ada")},
	} {
		if sent.status != http.StatusForbidden || sent.header.Get("Www-Authenticate") != "more" {
			t.Errorf("%s: %+v", name, sent.reply)
		}
		if served, _ := sent.took(); len(served) != 0 {
			t.Errorf("%s: denied, and yet served: %q", name, served)
		}
	}
	legacy.post("["+echoBody+","+echoBody2+"]", session, "Authorization: ada")
	if served, _ := legacy.took(); len(served) != 2 {
		t.Errorf("an allowed batch: %q", served)
	}
}
