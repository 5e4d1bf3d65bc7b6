package resource_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
)

const (
	modelURL    = "https://mcp.example/mcp"
	modelIssuer = "https://as.example"
)

// A keyModel is an issuer that rotates, moves and loses its keys, a Guard that trusts it, and what the
// Guard must know about it.
type keyModel struct {
	g    *resource.Guard
	pool []jose.JSONWebKey // all keys that the issuer has now and then
	sent []*modelToken

	published map[int]bool // which keys of the pool the issuer has now
	address   int          // number of the address at which it has them
	life      string       // Cache-Control of its keys

	mu      sync.Mutex
	trouble map[string]string // of "metadata" and of "keys": "", "down", "slow" or "hangs"
	asked   map[string]int    // the requests to them

	known       map[int]bool
	fetched     bool
	fresh, next time.Time // until when the known keys are fresh, and when they may be fetched again
	knownAt     int       // the known address; 0: none
	want        map[string]int
}

// A modelToken is a token that was sent.
type modelToken struct {
	text  string
	key   int
	until time.Time // the Guard remembers until then that the token is valid
}

// A Guard has the keys that the model says, and fetches them when the model says so, while its issuer
// publishes others, moves them, is down or hangs, and while callers leave.
//
// Guarantees: G-0046.2, G-0046.4, G-0046.5
func TestKeysAgainstModel(t *testing.T) {
	var pool []jose.JSONWebKey
	for n := range 3 {
		pool = append(pool, jose.JSONWebKey{Key: newKey(t), KeyID: fmt.Sprint("key-", n), Algorithm: "ES256", Use: "sig"})
	}
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := &keyModel{pool: pool, published: map[int]bool{0: true}, address: 1, trouble: map[string]string{}, asked: map[string]int{}, want: map[string]int{}}
			var err error
			m.g, err = resource.New(resource.Options{URL: modelURL, Issuers: []resource.Issuer{{URL: modelIssuer}}, HTTP: &http.Client{Transport: m}})
			if err != nil {
				t.Fatal(err)
			}
			m.token(0)
			t.Repeat(map[string]func(*rapid.T){
				"send":  m.send,
				"storm": m.storm,
				"rotate": func(t *rapid.T) {
					m.published = map[int]bool{}
					for _, n := range rapid.SliceOfN(rapid.IntRange(0, len(pool)-1), 0, 3).Draw(t, "keys") {
						m.published[n] = true
					}
					m.life = rapid.SampledFrom([]string{"", "max-age=1", "max-age=3600", "no-cache, max-age=99999999999"}).Draw(t, "life")
				},
				"move": func(*rapid.T) { m.address++ },
				"trouble": func(t *rapid.T) {
					m.trouble[rapid.SampledFrom([]string{"metadata", "keys"}).Draw(t, "at")] = rapid.SampledFrom([]string{"", "", "down", "hangs"}).Draw(t, "trouble")
				},
				"pass": m.pass,
				"": func(t *rapid.T) {
					if !maps.Equal(m.asked, m.want) {
						t.Fatalf("the issuer got the requests %v, want %v", m.asked, m.want)
					}
				},
			})
		})
	})
}

// pass lets time pass, often until just before or when something changes.
func (m *keyModel) pass(t *rapid.T) {
	const day = 24 * time.Hour
	now, remembered := time.Now(), m.sent[len(m.sent)-1].until
	until := rapid.SampledFrom([]time.Time{now.Add(6 * time.Second), now.Add(day), m.next, m.fresh, m.fresh.Add(day), remembered}).Draw(t, "until")
	if rapid.Bool().Draw(t, "just before") {
		until = until.Add(-1)
	}
	sleep(time.Until(until))
}

// RoundTrip is the issuer.
func (m *keyModel) RoundTrip(r *http.Request) (*http.Response, error) {
	what, body := "keys", any(nil)
	switch r.URL.Path {
	case "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration":
		what, body = "metadata", map[string]any{"issuer": modelIssuer, "jwks_uri": fmt.Sprintf("%s/keys-%d", modelIssuer, m.address)}
	case fmt.Sprintf("/keys-%d", m.address):
		keys := []jose.JSONWebKey{}
		for n := range m.published {
			keys = append(keys, m.pool[n].Public())
		}
		body = map[string]any{"keys": keys}
	}
	m.mu.Lock()
	if m.asked[what]++; m.asked[what] > m.want[what]+2 {
		panic("the issuer is asked again and again for its " + what)
	}
	trouble := m.trouble[what]
	m.mu.Unlock()
	switch trouble {
	case "slow":
		sleep(8 * time.Second)
	case "hangs":
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	if w.Header().Set("Cache-Control", m.life); trouble == "down" || body == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if err := json.NewEncoder(w).Encode(body); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// fetch is how a Guard fetches the keys at a time. It returns when that has ended.
func (m *keyModel) fetch(now time.Time) time.Time {
	ok := true
	ask := func(what string, requests int) {
		if !ok {
			return
		}
		m.want[what] += requests
		now = now.Add(map[string]time.Duration{"slow": 8 * time.Second, "hangs": 10 * time.Second}[m.trouble[what]])
		ok = m.trouble[what] == "" || m.trouble[what] == "slow"
	}
	if m.knownAt == 0 {
		requests := 1
		if m.trouble["metadata"] != "" {
			requests = 2 // at two addresses
		}
		if ask("metadata", requests); ok {
			m.knownAt = m.address
		}
	}
	ask("keys", 1)
	if ok = ok && m.knownAt == m.address; !ok {
		m.knownAt, m.next = 0, now.Add(5*time.Second)
		return now
	}
	m.known, m.fetched, m.next = maps.Clone(m.published), true, now.Add(30*time.Second)
	life := map[string]time.Duration{"max-age=3600": time.Hour, "no-cache, max-age=99999999999": 24 * time.Hour}[m.life]
	m.fresh = now.Add(max(life, 5*time.Minute))
	return now
}

// usable reports whether known keys are used at a time, if they cannot be fetched again.
func (m *keyModel) usable(now time.Time) bool {
	return m.fetched && now.Before(m.fresh.Add(24*time.Hour))
}

// expect returns the status of a request with a token, and when it comes.
func (m *keyModel) expect(token *modelToken) (status int, at time.Time) {
	at = time.Now()
	if at.Before(token.until) {
		return http.StatusOK, at
	}
	if trusted := m.known[token.key] && m.fetched && at.Before(m.fresh); !trusted && !at.Before(m.next) {
		at = m.fetch(at)
	}
	switch {
	case !m.usable(at):
		return http.StatusServiceUnavailable, at
	case !m.known[token.key]:
		return http.StatusUnauthorized, at
	}
	token.until = at.Add(time.Minute)
	return http.StatusOK, at
}

// token returns a new token.
func (m *keyModel) token(key int) *modelToken {
	claims := map[string]any{"iss": modelIssuer, "sub": "ada", "aud": modelURL, "exp": int64(1) << 33, "jti": fmt.Sprint(len(m.sent))}
	token := &modelToken{text: authtest.Sign(m.pool[key], jose.ES256, "at+jwt", claims), key: key}
	m.sent = append(m.sent, token)
	return token
}

func (m *keyModel) check(ctx context.Context, token *modelToken) int {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+token.text)
	if _, denied := m.g.Check(r); denied != nil {
		return denied.Status
	}
	return http.StatusOK
}

// send sends a new token, or one of the last ones again.
func (m *keyModel) send(t *rapid.T) {
	key := rapid.IntRange(-3, len(m.pool)-1).Draw(t, "key")
	token := m.sent[max(0, len(m.sent)+min(key, -1))]
	if key >= 0 {
		token = m.token(key)
	}
	want, at := m.expect(token)
	if got := m.check(context.Background(), token); got != want || !time.Now().Equal(at) {
		t.Fatalf("a token of key %d gets %d at %v, want %d at %v", token.key, got, time.Now(), want, at)
	}
}

// storm sends new tokens of one key while the issuer takes its time. The first request fetches the keys, if
// that is due. Meanwhile the known keys are good enough for the others, and those that have to wait may leave.
func (m *keyModel) storm(t *rapid.T) {
	before := m.trouble["keys"]
	m.trouble["keys"] = rapid.SampledFrom([]string{"slow", "hangs"}).Draw(t, "keys")
	defer func() { m.trouble["keys"] = before }()
	token := m.token(rapid.IntRange(0, len(m.pool)-1).Draw(t, "key"))
	late := rapid.SampledFrom([]time.Duration{0, 6 * time.Second}).Draw(t, "late")
	patience := rapid.SampledFrom([]time.Duration{time.Second, time.Hour}).Draw(t, "patience")
	start := time.Now()
	meanwhile := m.known[token.key] && m.usable(start.Add(late))
	status, end := m.expect(token)
	want := fmt.Sprint(status, " after ", end.Sub(start))
	wantOthers := want
	if end.Equal(start) {
		late, meanwhile = 0, false
	}
	switch {
	case meanwhile:
		wantOthers = fmt.Sprint("200 after ", late)
	case start.Add(late + patience).Before(end):
		wantOthers = fmt.Sprint("503 after ", late+patience)
	}
	var all sync.WaitGroup
	send := func(token *modelToken, patience time.Duration, want string) {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			got := fmt.Sprint(m.check(ctx, token), " after ", time.Since(start))
			if got != want {
				t.Errorf("a token of key %d gets %q, want %q", token.key, got, want)
			}
			if strings.HasPrefix(got, "200 ") {
				token.until = time.Now().Add(time.Minute)
			}
		})
	}
	send(token, patience, want) // it fetches on, even if its caller leaves
	synctest.Wait()
	sleep(late)
	for range 8 {
		send(m.token(token.key), patience, wantOthers)
	}
	all.Wait()
}
