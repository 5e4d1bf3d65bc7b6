package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/guard"
	"github.com/bowline-mcp/bowline/transport"
)

// A loginModel is a protected server, its authorization server and a person, two programs that share a
// Store, and what they may do.
type loginModel struct {
	as       *authtest.Server
	server   http.Handler
	store    *Memory
	programs [2]*program

	mu       sync.Mutex
	person   string            // "consents", "refuses", "is away", "is slow", or "has no browser"
	endpoint string            // what the token endpoint does: "", "down", "hangs", or "late"
	broken   bool              // the server refuses all tokens
	needs    string            // a scope
	scopes   map[string]string // of the access tokens that were not revoked
	spent    map[string]bool   // the refresh tokens that were exchanged
	live     map[string]bool   // the refresh tokens that work
	renewed  int               // how many refreshes have succeeded
	last     *Entry            // in the Store, after the last step
	breaches []string
}

type byLogin struct{} // the context key of Login

// Two programs that share a Store refresh, log in and log out while tokens are revoked, answers are late or
// lost, callers leave, the server wants more scopes or refuses everything, and the person refuses. A request
// succeeds whenever the model says that it can, and asks for no more than it needs.
//
// Guarantees: G-0044.3, G-0044.4, G-0044.5, G-0044.6, G-0044.8, G-0044.9, G-0044.15, G-0044.18
func TestLoginsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := newLoginModel(rapid.Bool().Draw(t, "DPoP"))
			defer func() {
				for _, p := range m.programs {
					p.a.Close()
				}
			}()
			set := func(what string, to func(string), values ...string) func(*rapid.T) {
				return func(t *rapid.T) {
					value := rapid.SampledFrom(values).Draw(t, what)
					m.mu.Lock()
					defer m.mu.Unlock()
					to(value)
				}
			}
			t.Repeat(map[string]func(*rapid.T){
				"call":     m.call,
				"storm":    m.storm,
				"login":    m.login,
				"logout":   m.logout,
				"pass":     m.pass,
				"person":   set("person", func(v string) { m.person = v }, "consents", "consents", "refuses", "is away", "is slow", "has no browser"),
				"endpoint": set("endpoint", func(v string) { m.endpoint = v }, "", "", "down", "hangs", "late"),
				"server":   set("server", func(v string) { m.broken = v == "broken" }, "", "", "broken"),
				"needs":    set("needs", func(v string) { m.needs = v }, "read", "write"),
				"nonce":    func(*rapid.T) { m.as.RotateNonce() },
				"revoke": func(*rapid.T) {
					m.as.RevokeAll()
					clear(m.scopes)
					clear(m.live)
					m.programs[0].asks, m.programs[1].asks = nil, nil
				},
				"": m.check,
			})
		})
	})
}

func newLoginModel(dpop bool) *loginModel {
	m := &loginModel{store: NewMemory(), person: "consents", needs: "read", scopes: map[string]string{}, spent: map[string]bool{}, live: map[string]bool{}}
	m.as = authtest.New("https://as.example", authtest.Options{Resource: "https://mcp.example/mcp", DPoPNonces: dpop})
	m.as.Lie(authtest.Challenge, func(a *authtest.Answer) {
		if text := a.Header.Get("WWW-Authenticate"); strings.HasPrefix(text, "Bearer") {
			a.Header.Set("WWW-Authenticate", text+`, scope="read"`)
		}
	})
	m.server = m.as.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		metadata := `, resource_metadata="` + m.as.URL(authtest.ResourceMetadata) + `"`
		switch {
		case m.broken:
			w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token", scope="read"`+metadata)
			w.WriteHeader(http.StatusUnauthorized)
		case !strings.Contains(m.scopes[token], m.needs):
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+m.needs+`"`+metadata)
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	for n := range m.programs {
		p := &program{loginModel: m}
		p.a = New(Options{Resource: m.as.Resource(), Store: m.store, Interact: p.interact, Offline: true, DPoP: dpop,
			Guard: guard.New(guard.Options{Endpoint: m.as.Resource(), Transport: p}), Log: slog.New(slog.DiscardHandler)})
		m.programs[n] = p
	}
	return m
}

// answers reports whether the token endpoint works.
func (m *loginModel) answers() bool { return m.endpoint == "" || m.endpoint == "late" }

// comes reports whether the person logs in when asked.
func (m *loginModel) comes() bool { return m.person == "consents" || m.person == "is slow" }

func (m *loginModel) breach(format string, values ...any) {
	m.breaches = append(m.breaches, fmt.Sprintf(format, values...))
}

// settle waits until no program has anything to do but to wait for a person who is away.
func (m *loginModel) settle() {
	for _, p := range m.programs {
		for busy := true; busy; {
			synctest.Wait()
			p.a.jobs.mu.Lock()
			busy = p.a.jobs.running != nil && !p.away
			p.a.jobs.mu.Unlock()
			if busy {
				sleep(time.Second)
			}
		}
	}
}

func (m *loginModel) draw(t *rapid.T) (p *program, patience time.Duration) {
	return m.programs[rapid.IntRange(0, 1).Draw(t, "program")], rapid.SampledFrom([]time.Duration{time.Second, time.Hour}).Draw(t, "patience")
}

func (m *loginModel) entry() *Entry {
	e, _ := m.store.Load(context.Background(), m.programs[0].a.key())
	return e
}

// call sends a request of one program.
func (m *loginModel) call(t *rapid.T) {
	p, patience := m.draw(t)
	e, now := m.entry(), time.Now()
	var valid, suffices, due, renewable bool
	if e != nil {
		_, known := m.scopes[e.Access.Reveal()]
		valid = known && now.Before(e.Expires.Add(-untilEnd)) && !m.broken
		suffices = slices.Contains(e.Scopes, m.needs)
		due = !e.Refresh.IsZero() && now.After(e.Issued.Add(e.Expires.Sub(e.Issued)*4/5))
		renewable = m.live[e.Refresh.Reveal()]
	}
	mayRefresh := m.answers() && now.Sub(p.failedAt) >= delay(p.row)
	mayAsk := m.comes() && !p.away && now.Sub(p.refusedAt) > 10*time.Minute && now.Sub(p.limited) > 10*time.Minute
	held := p.a.current.Load()
	early := !due
	due = due && (held == nil || held.access() == e.Access.Reveal()) // otherwise it uses the stored one first
	refreshes, logins := p.refreshes, p.logins
	status, err := p.request(patience)
	if err == nil && status != http.StatusOK { // each message is sent four times, and more may be needed
		status, err = p.request(patience)
	}
	m.settle()
	what := fmt.Sprintf("status %d, %v; the stored token is valid: %v, enough: %v, due: %v, renewable: %v", status, err, valid, suffices, due, renewable)
	refreshes, logins = p.refreshes-refreshes, p.logins-logins
	switch {
	case valid && suffices && (status != http.StatusOK || logins > 0 || refreshes > 1 || early && refreshes > 0):
		t.Fatalf("%d refreshes and %d logins: %s", refreshes, logins, what)
	case valid && suffices && due && mayRefresh && !p.away && m.entry().Access.Reveal() == e.Access.Reveal():
		t.Fatalf("it is not refreshed: %s", what)
	case patience == time.Hour && !m.broken && mayRefresh && mayAsk && status != http.StatusOK:
		t.Fatalf("a request fails: %s", what)
	case renewable && suffices && !m.broken && logins > 0:
		t.Fatalf("the person is asked: %s", what)
	case valid && !suffices && status == http.StatusOK && len(without(e.Scopes, m.entry().Scopes)) > 0:
		t.Fatalf("the step-up has lost scopes: %s", what)
	case logins > 0 && m.comes() && m.answers() && (m.entry() == nil || e != nil && m.entry().Access == e.Access):
		t.Fatalf("the login has ended with its request: %s", what)
	case renewable && suffices && !m.broken && errors.Is(err, transport.ErrAuthRequired):
		t.Fatalf("the login is given up: %s", what)
	}
}

// storm sends requests of both programs at once.
func (m *loginModel) storm(t *rapid.T) {
	var all sync.WaitGroup
	renewed := m.renewed
	for range rapid.IntRange(2, 6).Draw(t, "requests") {
		p, patience := m.draw(t)
		all.Go(func() { p.request(patience) })
	}
	all.Wait()
	if m.settle(); !m.broken && m.renewed > renewed+1 {
		t.Fatalf("a token was refreshed %d times", m.renewed-renewed)
	}
}

func (m *loginModel) login(t *rapid.T) {
	p, patience := m.draw(t)
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), byLogin{}, true), patience)
	defer cancel()
	patient := patience == time.Hour
	works := (m.endpoint == "" || m.endpoint == "late" && patient) && (m.person == "consents" || m.person == "is slow" && patient)
	p.limited, p.asks = time.Time{}, nil
	err := p.a.Login(ctx)
	m.settle()
	if (err == nil) != works {
		t.Fatalf("Login returns %v", err)
	}
}

func (m *loginModel) logout(t *rapid.T) {
	p, _ := m.draw(t)
	e := m.entry()
	if err := p.a.Logout(context.Background()); err != nil && m.answers() {
		t.Fatalf("Logout returns %v", err)
	}
	p.loggedOut = true
	m.programs[0].asks, m.programs[1].asks = nil, nil
	if m.entry() != nil {
		t.Fatal("Logout leaves the login in the Store")
	}
	if e != nil && m.endpoint == "" && (m.scopes[e.Access.Reveal()] != "" || m.live[e.Refresh.Reveal()]) {
		t.Fatal("Logout revokes nothing")
	}
}

func (m *loginModel) pass(t *rapid.T) {
	until := []time.Time{time.Now().Add(time.Second), time.Now().Add(10*time.Minute + 1)}
	if e := m.entry(); e != nil {
		until = append(until, e.Issued.Add(e.Expires.Sub(e.Issued)*4/5), e.Expires)
	}
	for _, p := range m.programs {
		until = append(until, p.failedAt.Add(delay(p.row)))
	}
	at := rapid.SampledFrom(until).Draw(t, "until")
	sleep(time.Until(at.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "after")))))
}

func (m *loginModel) check(t *rapid.T) {
	m.settle()
	if len(m.breaches) > 0 {
		t.Fatal(m.breaches)
	}
	e, last := m.entry(), m.last
	if m.last = e; e != nil && last != nil && e.Refresh.IsZero() && m.live[last.Refresh.Reveal()] {
		t.Fatal("a refresh token is given up that works")
	}
	if e != nil && m.spent[e.Refresh.Reveal()] {
		t.Fatal("the Store has a refresh token that was used")
	}
	for _, p := range m.programs {
		p.loggedOut = p.loggedOut && e == nil
		if held := p.a.current.Load(); p.loggedOut && held != nil {
			t.Fatal("a program goes on with its token after its logout")
		}
	}
}
