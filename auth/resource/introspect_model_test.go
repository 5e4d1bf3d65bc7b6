package resource_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/auth/resource"
)

// An introspectionModel is a Guard, its issuer, who answers when the model says so, and the requests with
// tokens of which the Guard must ask.
type introspectionModel struct {
	g         *resource.Guard
	addresses int
	tokens    []*opaqueToken
	own       map[int][]*introspected // that wait for a slot of their address, in the order in which they came
	all       []*introspected         // that have one, and wait for a slot of the Guard
	running   []*introspected
	held      map[int]int // slots of each address
	sent      int

	mu      sync.Mutex
	arrived map[string][]chan introspection // the questions that the issuer has not answered
}

// An opaqueToken is a token, what the issuer says of it, and until when the Guard remembers that.
type opaqueToken struct {
	text              string
	revoked           bool
	expires           time.Time
	accepted, refused time.Time
}

// An introspected is a request that is under way.
type introspected struct {
	token       *opaqueToken
	address     int
	leave       context.CancelFunc
	status      chan int // receives once
	over, asked time.Time
}

type introspection struct {
	status int
	body   string
}

// The Guard asks about the tokens that the model says, when the model says so: as many at a time as have a slot, in the
// order of each address, and none of which it knows the answer. Meanwhile tokens are revoked and expire, the
// issuer takes its time or is down, and clients leave.
//
// Guarantees: G-0046.5, G-0046.10
func TestIntrospectionAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			// Four addresses never wait for one another. If more do, the model does not know which of two requests with
			// one token is first: each has its own.
			m := &introspectionModel{addresses: rapid.SampledFrom([]int{4, 6}).Draw(t, "addresses"), own: map[int][]*introspected{}, held: map[int]int{}, arrived: map[string][]chan introspection{}}
			about := &resource.Introspection{URL: modelIssuer + "/introspect", ClientID: "server", ClientSecret: "secret"}
			var err error
			m.g, err = resource.New(resource.Options{URL: modelURL, Issuers: []resource.Issuer{{URL: modelIssuer, Introspect: about}}, HTTP: &http.Client{Transport: m}})
			if err != nil {
				t.Fatal(err)
			}
			defer m.end()
			t.Repeat(map[string]func(*rapid.T){
				"new":   func(t *rapid.T) { m.send(t, m.token(t), m.from(t)) },
				"storm": m.storm,
				"again": func(t *rapid.T) {
					if len(m.tokens) == 0 || m.addresses > 4 && len(m.running) > 0 {
						t.Skip("no token")
					}
					token := m.tokens[rapid.IntRange(max(0, len(m.tokens)-3), len(m.tokens)-1).Draw(t, "token")]
					m.send(t, token, m.from(t))
				},
				"revoke": func(t *rapid.T) { m.one(t).token.revoked = true },
				"answer": func(t *rapid.T) { m.answer(t, m.one(t), "") },
				"answer all": func(t *rapid.T) {
					for m.one(t); len(m.running) > 0; {
						m.answer(t, m.running[0], "")
					}
				},
				"down":  func(t *rapid.T) { m.answer(t, m.one(t), "down") },
				"leave": m.leave,
				"pass":  m.pass,
				"":      m.check,
			})
		})
	})
}

func (m *introspectionModel) from(t *rapid.T) int {
	return rapid.IntRange(1, m.addresses).Draw(t, "address")
}

func (m *introspectionModel) token(t *rapid.T) *opaqueToken {
	life := rapid.SampledFrom([]time.Duration{20 * time.Second, time.Hour}).Draw(t, "life")
	token := &opaqueToken{text: fmt.Sprint("token", len(m.tokens)), expires: time.Now().Add(life).Truncate(time.Second)}
	m.tokens = append(m.tokens, token)
	return token
}

// one is a request of which the issuer was asked.
func (m *introspectionModel) one(t *rapid.T) *introspected {
	if len(m.running) == 0 {
		t.Skip("the issuer is not asked")
	}
	return rapid.SampledFrom(m.running).Draw(t, "request")
}

// known is the answer that the Guard remembers of a token, or 0.
func (o *opaqueToken) known() int {
	switch now := time.Now(); {
	case now.Before(o.accepted):
		return http.StatusOK
	case now.Before(o.refused):
		return http.StatusUnauthorized
	}
	return 0
}

// settle gives away slots, as long as some are free.
func (m *introspectionModel) settle(t *rapid.T) {
	for {
		for address := range m.addresses + 1 {
			for m.held[address] < 16 && len(m.own[address]) > 0 {
				m.all, m.own[address] = append(m.all, m.own[address][0]), m.own[address][1:]
				m.held[address]++
			}
		}
		if len(m.running) == 64 || len(m.all) == 0 {
			return
		}
		next := m.all[0]
		m.all = m.all[1:]
		if status := next.token.known(); status != 0 {
			m.over(t, next, status)
			continue
		}
		next.asked = time.Now()
		m.running = append(m.running, next)
	}
}

// over takes a request out of the model, which must have been answered.
func (m *introspectionModel) over(t *rapid.T, a *introspected, status int) {
	is := func(b *introspected) bool { return a == b }
	if waits := slices.ContainsFunc(m.own[a.address], is); !waits {
		m.held[a.address]--
	}
	m.own[a.address] = slices.DeleteFunc(m.own[a.address], is)
	m.all, m.running = slices.DeleteFunc(m.all, is), slices.DeleteFunc(m.running, is)
	synctest.Wait()
	select {
	case got := <-a.status:
		if got != status {
			t.Fatalf("%s from address %d gets %d, want %d", a.token.text, a.address, got, status)
		}
	default:
		t.Fatalf("%s from address %d has no answer, want %d", a.token.text, a.address, status)
	}
}

// send makes a request. No two come at the same time, so that none are over at the same time.
func (m *introspectionModel) send(t *rapid.T, token *opaqueToken, address int) {
	m.until(t, time.Now().Add(time.Millisecond))
	m.sent++
	ctx, leave := context.WithCancel(context.Background())
	a := &introspected{token: token, address: address, leave: leave, status: make(chan int, 1), over: time.Now().Add(10 * time.Second)}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", http.NoBody)
	r.RemoteAddr = fmt.Sprintf("198.51.100.%d:%d", address, m.sent)
	r.Header.Set("Authorization", "Bearer "+token.text)
	go func() {
		defer leave()
		if _, denied := m.g.Check(r); denied != nil {
			a.status <- denied.Status
			return
		}
		a.status <- http.StatusOK
	}()
	synctest.Wait()
	m.own[address] = append(m.own[address], a)
	if status := token.known(); status != 0 {
		m.over(t, a, status)
	}
	m.settle(t)
}

// storm makes many requests from one address, in part with one token, or from all of them.
func (m *introspectionModel) storm(t *rapid.T) {
	from, same := []int{m.from(t)}, m.addresses == 4 && rapid.Bool().Draw(t, "same")
	if rapid.Bool().Draw(t, "all") {
		from = []int{1, 2, 3, 4, 5, 6}[:m.addresses]
	}
	token := m.token(t)
	for range rapid.IntRange(2, 24).Draw(t, "requests") {
		for _, address := range from {
			m.send(t, token, address)
			if !same {
				token = m.token(t)
			}
		}
	}
}

// answer lets the issuer answer one of the questions that it was asked, which are alike if they have one token.
func (m *introspectionModel) answer(t *rapid.T, a *introspected, trouble string) {
	token := a.token
	a = m.running[slices.IndexFunc(m.running, func(b *introspected) bool { return b.token == token })]
	valid, status := !token.revoked && time.Now().Before(token.expires), http.StatusUnauthorized
	body := introspection{http.StatusOK, fmt.Sprintf(`{"active":%t,"sub":"ada","aud":%q,"exp":%d}`, valid, modelURL, token.expires.Unix())}
	switch {
	case trouble != "":
		body.status, status = http.StatusInternalServerError, http.StatusServiceUnavailable
	case valid:
		status, token.accepted = http.StatusOK, a.asked.Add(30*time.Second)
		if token.expires.Before(token.accepted) {
			token.accepted = token.expires
		}
	default:
		token.refused = a.asked.Add(5 * time.Second)
	}
	m.mu.Lock()
	question := m.arrived[token.text][0]
	m.arrived[token.text] = m.arrived[token.text][1:]
	m.mu.Unlock()
	question <- body
	m.over(t, a, status)
	m.settle(t)
}

func (m *introspectionModel) leave(t *rapid.T) {
	if len(m.pending()) == 0 {
		t.Skip("nobody waits")
	}
	for range rapid.SampledFrom([]int{1, 1, 30}).Draw(t, "leave") {
		if pending := m.pending(); len(pending) > 0 {
			a := pending[rapid.IntRange(0, len(pending)-1).Draw(t, "who")]
			a.leave()
			m.over(t, a, http.StatusServiceUnavailable)
			m.settle(t)
		}
	}
}

// pending are the requests without an answer, in the order in which they came.
func (m *introspectionModel) pending() []*introspected {
	pending := slices.Concat(append(slices.Collect(maps.Values(m.own)), m.all, m.running)...)
	slices.SortFunc(pending, func(a, b *introspected) int { return a.over.Compare(b.over) })
	return pending
}

// pass lets time pass, often until just before or when the Guard forgets what it knows of a token.
func (m *introspectionModel) pass(t *rapid.T) {
	then := time.Now().Add(rapid.SampledFrom([]time.Duration{time.Second, 4 * time.Second, 11 * time.Second}).Draw(t, "time"))
	for _, token := range m.tokens[max(0, len(m.tokens)-3):] {
		for _, ends := range []time.Time{token.accepted, token.refused} {
			if ends.After(time.Now()) && rapid.Bool().Draw(t, "until it is forgotten") {
				then = ends.Add(rapid.SampledFrom([]time.Duration{-2 * time.Millisecond, -time.Millisecond}).Draw(t, "before")) // send waits for one
			}
		}
	}
	m.until(t, then)
}

// until lets time pass. A request without an answer after ten seconds gives up.
func (m *introspectionModel) until(t *rapid.T, then time.Time) {
	for _, a := range m.pending() {
		if a.over.After(then) {
			break
		}
		if !slices.Contains(m.pending(), a) {
			continue // it has got the answer to another one
		}
		sleep(time.Until(a.over))
		m.over(t, a, http.StatusServiceUnavailable)
		m.settle(t)
	}
	sleep(time.Until(then))
}

// check compares what the issuer is asked.
func (m *introspectionModel) check(t *rapid.T) {
	synctest.Wait()
	var want, got []string
	for _, a := range m.running {
		want = append(want, a.token.text)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for text, questions := range m.arrived {
		got = append(got, slices.Repeat([]string{text}, len(questions))...)
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Fatalf("the issuer is asked about %s, want %s", strings.Join(got, " "), strings.Join(want, " "))
	}
}

func (m *introspectionModel) end() {
	for _, a := range m.pending() {
		a.leave()
	}
	synctest.Wait()
}

// RoundTrip is the issuer.
func (m *introspectionModel) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.ParseForm(); err != nil {
		return nil, err
	}
	text, question := r.PostForm.Get("token"), make(chan introspection, 1)
	m.mu.Lock()
	m.arrived[text] = append(m.arrived[text], question)
	m.mu.Unlock()
	select {
	case answer := <-question:
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(answer.status)
		w.WriteString(answer.body)
		return w.Result(), nil
	case <-r.Context().Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		m.arrived[text] = slices.DeleteFunc(m.arrived[text], func(q chan introspection) bool { return q == question })
		return nil, r.Context().Err()
	}
}
