package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/transport"
)

// A program is one of several that share a Store. It is also the network that the program sees.
type program struct {
	*loginModel
	a         *Authorizer
	asking    int         // how often the person is being asked
	away      bool        // the person is asked, and does not come
	asks      []time.Time // when requests have asked the person although the server is broken
	limited   time.Time   // when the server has refused a token
	refusedAt time.Time   // when the person has refused, or has not come
	failures  int         // how many refreshes have failed in a row, at least
	row       int         // and at most
	failedAt  time.Time
	refreshes int  // all of them
	logins    int  // how often the person was asked
	loggedOut bool // the last thing that it did was a logout
}

// interact is the person in front of a program.
func (p *program) interact(ctx context.Context, i Interaction) (*url.URL, error) {
	p.mu.Lock()
	requested := ctx.Value(byLogin{}) == nil
	if p.asking++; p.asking > 1 {
		p.breach("the person is asked twice at once")
	}
	if requested && !p.refusedAt.IsZero() && time.Since(p.refusedAt) <= 10*time.Minute {
		p.breach("the person is asked again %v after a refusal", time.Since(p.refusedAt))
	}
	if p.logins++; requested && p.broken && p.answers() && p.comes() {
		p.asks = slices.DeleteFunc(append(p.asks, time.Now()), func(at time.Time) bool { return time.Since(at) > 10*time.Minute })
	}
	if len(p.asks) > 1+maxRefusals {
		p.breach("a server that refuses everything has made a program ask %d times in ten minutes", len(p.asks))
	}
	person := p.person
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.asking--; !requested {
			p.refusedAt = time.Time{}
		}
		if person == "refuses" || person == "is away" && errors.Is(context.Cause(ctx), ErrUnanswered) {
			p.refusedAt = time.Now()
		}
	}()
	if person == "has no browser" {
		return nil, errors.New("no browser")
	}
	address, err := i.Start(ctx, authtest.Redirect)
	if err != nil {
		return nil, err
	}
	switch person {
	case "refuses":
		answer := url.Values{"state": {address.Query().Get("state")}, "iss": {p.as.Issuer()}, "error": {"access_denied"}}
		return url.Parse(authtest.Redirect + "?" + answer.Encode())
	case "is away":
		p.setAway(true)
		defer p.setAway(false)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	case "is slow":
		if pause(ctx, 20*time.Second); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	response, err := p.as.Client().Get(address.String())
	if err != nil {
		return nil, err
	}
	return response.Location()
}

func (p *program) setAway(away bool) {
	p.a.jobs.mu.Lock()
	defer p.a.jobs.mu.Unlock()
	p.away = away
}

// RoundTrip sends a request of the program.
func (p *program) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.URL.Path != "/token" && r.URL.Path != "/revoke" {
		return p.serve(r), nil
	}
	if err := r.ParseForm(); err != nil {
		return nil, err
	}
	spent := r.PostForm.Get("refresh_token")
	r.Body = io.NopCloser(strings.NewReader(r.PostForm.Encode()))
	p.mu.Lock()
	endpoint := p.endpoint
	if spent != "" {
		if wait := delay(p.failures); time.Since(p.failedAt) < wait {
			p.breach("a refresh is tried %v after failure %d in a row, want %v", time.Since(p.failedAt), p.failures, wait)
		}
		if p.spent[spent] {
			p.breach("a refresh token is used twice")
		}
	}
	p.mu.Unlock()
	response := &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody, Header: http.Header{}}
	switch endpoint {
	case "hangs":
		<-r.Context().Done()
	case "", "late":
		response = p.serve(r)
		p.mu.Lock()
		if token := r.PostForm.Get("token"); token != "" {
			delete(p.live, token)
			delete(p.scopes, token)
		}
		p.mu.Unlock()
	}
	var answer struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
		Scope   string `json:"scope"`
		Error   string `json:"error"`
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	_ = json.Unmarshal(text, &answer) // there is no JSON in some answers
	response.Body = io.NopCloser(bytes.NewReader(text))
	p.mu.Lock()
	if spent != "" && answer.Error != "use_dpop_nonce" {
		p.refreshes++
	}
	switch {
	case answer.Access != "":
		p.spent[spent], p.live[answer.Refresh], p.scopes[answer.Access] = spent != "", true, answer.Scope
		delete(p.live, spent)
		p.renewed += min(len(spent), 1)
		for _, each := range p.programs {
			each.failures = 0 // it may use this token
		}
		p.row = 0
	case answer.Error == "invalid_grant":
		p.failures, p.row = 0, 0
	case spent != "" && answer.Error == "":
		p.failures, p.row, p.failedAt = p.failures+1, p.row+1, time.Now()
	}
	p.mu.Unlock()
	if endpoint == "late" {
		sleep(3 * time.Second)
	}
	return response, r.Context().Err()
}

func (p *program) serve(r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	r = r.Clone(r.Context())
	if r.Body == nil {
		r.Body = http.NoBody
	}
	if r.URL.Path == "/mcp" {
		p.server.ServeHTTP(w, r)
		if p.mu.Lock(); r.Header.Get("Authorization") != "" && w.Code != http.StatusOK && !strings.Contains(w.Header().Get("WWW-Authenticate"), "nonce") {
			p.limited = time.Now()
		}
		p.mu.Unlock()
	} else {
		p.as.ServeHTTP(w, r)
	}
	return w.Result()
}

// delay is how long no refresh follows so many failures in a row.
func delay(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	return min(time.Second<<(failures-1), time.Minute)
}

func sleep(d time.Duration) { <-time.NewTimer(d).C }

// request sends a request as a link does.
func (p *program) request(patience time.Duration) (status int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	start := time.Now()
	defer func() {
		if took := time.Since(start); took > patience {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.breach("a request whose caller left after %v ended after %v", patience, took)
		}
	}()
	for tries := 0; ; tries++ {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.as.Resource(), http.NoBody)
		if err != nil {
			return 0, err
		}
		if err := p.a.Authorize(ctx, r); err != nil {
			return 0, err
		}
		response := p.serve(r)
		refused := &transport.StatusError{Status: response.StatusCode, Challenge: response.Header.Get("WWW-Authenticate"), Nonce: response.Header.Get("DPoP-Nonce")}
		if !refused.Denied() || tries == 3 {
			return response.StatusCode, nil
		}
		if again, err := p.a.Challenged(ctx, r, refused); err != nil || !again {
			return response.StatusCode, err
		}
	}
}
