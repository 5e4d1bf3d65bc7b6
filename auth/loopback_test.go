package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/internal/testenv"
)

// browser simulates a person's browser. Before it opens the redirect, it calls before, in
// which a test opens other addresses.
func browser(t *testing.T, before func(redirected *url.URL)) func(context.Context, *url.URL) error {
	return func(ctx context.Context, address *url.URL) error {
		response, err := http.DefaultTransport.RoundTrip((&http.Request{Method: http.MethodGet, URL: address, Header: http.Header{}}).WithContext(ctx))
		if err != nil {
			return err
		}
		response.Body.Close()
		redirected, err := response.Location()
		if err != nil {
			return err
		}
		before(redirected)
		if status, text := visit(t, redirected, ""); status != http.StatusOK || !strings.Contains(text, "close this page") || strings.Contains(text, "script") {
			t.Errorf("status %d: %s", status, text)
		}
		if status, _ := visit(t, redirected, ""); status == http.StatusOK {
			t.Error("a second response was accepted")
		}
		return nil
	}
}

func visit(t *testing.T, address *url.URL, host string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	r.Close = true
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return 0, err.Error() // the listener is closed
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

// Guarantees: G-0044.14
func TestLoopbackTakesOneResponse(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := f.login(t, Options{Interact: Loopback(LoopbackOptions{Open: browser(t, func(redirected *url.URL) {
		for name, c := range map[string]struct {
			path, query, host string
			status            int
		}{
			"no state":         {"/callback", "code=x", "", 400},
			"an old state":     {"/callback", "code=x&state=old", "", 400},
			"an error of none": {"/callback", "error=access_denied&error_description=<script>", "", 400},
			"another path":     {"/", redirected.RawQuery, "", 404},
			"another host":     {"/callback", redirected.RawQuery, "evil.test", 400},
		} {
			to := *redirected
			to.Path, to.RawQuery = c.path, c.query
			if status, text := visit(t, &to, c.host); status != c.status || strings.Contains(text, "<script>") {
				t.Errorf("%s: status %d: %s", name, status, text)
			}
		}
	})})})
	if err := a.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := f.as.Sink.Requests(authtest.Authorize)[0].Form.Get("redirect_uri")
	if u, err := url.Parse(first); err != nil || u.Hostname() != "127.0.0.1" || u.Path != "/callback" {
		t.Errorf("redirected to %s", first)
	}
	if err := a.Login(t.Context()); err != nil { // at the same port, so as the same client
		t.Fatal(err)
	}
	if n := len(f.as.Sink.Requests(authtest.Register)); n != 1 {
		t.Errorf("%d registrations", n)
	}
}

// A program that holds hundreds of connections open, each with half a request, does not
// prevent a login: the oldest connections are closed.
//
// Guarantees: G-0044.14
func TestManySlowLoopbackConnections(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	const many = 500
	a := f.login(t, Options{Interact: Loopback(LoopbackOptions{Open: browser(t, func(redirected *url.URL) {
		held := make([]net.Conn, many)
		for i := range held {
			var dialer net.Dialer
			caller, err := dialer.DialContext(t.Context(), "tcp", redirected.Host)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = caller.Close() })
			if _, err := fmt.Fprintf(caller, "GET /callback?%s HTTP/1.1\r\nX-Slow: ", redirected.RawQuery); err != nil && i < maxConns {
				t.Fatal(err)
			}
			held[i] = caller
		}
		for i, caller := range held[:many-maxConns] {
			if _, err := caller.Read(make([]byte, 1)); err == nil {
				t.Errorf("connection %d was answered", i)
			}
		}
	})})})
	if err := a.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Guarantees: G-0044.14
func TestTheOldestCallerMakesRoom(t *testing.T) {
	c := new(openConns)
	connect := func() (here, there net.Conn) {
		here, there = net.Pipe()
		t.Cleanup(func() { _ = errors.Join(here.Close(), there.Close()) })
		c.track(here, http.StateNew)
		return here, there
	}
	gone, _ := connect()
	_, oldest := connect()
	for range maxConns - 2 {
		connect()
	}
	c.track(gone, http.StateActive)
	c.track(gone, http.StateClosed)
	_, latest := connect()
	if len(c.open) != maxConns {
		t.Errorf("%d are open", len(c.open))
	}
	if err := errors.Join(oldest.SetDeadline(time.Unix(1, 0)), latest.SetDeadline(time.Unix(1, 0))); err != nil {
		t.Fatal(err)
	}
	connect()
	if _, err := oldest.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) || len(c.open) != maxConns {
		t.Errorf("the oldest connection is open: %v, of %d", err, len(c.open))
	}
	if _, err := latest.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a later connection is closed: %v", err)
	}
}

// Guarantees: G-0044.14
func TestOnlyPagesAreOpenedInABrowser(t *testing.T) {
	for _, address := range []string{"file:///etc/passwd", "javascript:alert(1)", "data:text/html,x", "vbscript:x", "http://as.test/", "https:as.test", "-h", ""} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := Browse(t.Context(), u); err == nil {
			t.Errorf("%q was opened", address)
		}
	}
}

// A Login whose caller has given up is cancelled.
//
// Guarantees: G-0044.4
func TestALoginEndsWithItsContext(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	opened := make(chan struct{})
	a := f.login(t, Options{Interact: Loopback(LoopbackOptions{Open: func(context.Context, *url.URL) error { close(opened); return nil }})})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Login(ctx) }()
	testenv.Receive(t, opened, "the login page is open")
	cancel()
	if err := testenv.Receive(t, ended, "the login ends"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	a.jobs.goroutines.Wait()
}

// A fastDevice polls as often as the server allows, even more than once a second.
type fastDevice struct{ Device }

func (g fastDevice) token(ctx context.Context, l *login) (*client, *tokenResponse, error) {
	return g.poll(ctx, l, time.Millisecond)
}

// Guarantees: G-0044.1
func TestADevice(t *testing.T) {
	f := newFixture(t, authtest.Options{DevicePolls: 1})
	f.as.Lie(authtest.Device, func(a *authtest.Answer) { a.Object["interval"] = 0.01 })
	shown := make(chan DeviceCode, 1)
	a := f.login(t, Options{Grant: fastDevice{Device{Show: func(_ context.Context, c DeviceCode) error { shown <- c; return nil }}}})
	wantCall(t, a, f.url)
	if c := testenv.Receive(t, shown, "a code is shown"); c.URL == "" || c.Code == "" || time.Until(c.Expires) <= 0 {
		t.Errorf("%+v", c)
	}
	f.as.Lie(authtest.Device, func(a *authtest.Answer) { a.Object["verification_uri"] = "javascript:alert(1)" })
	if err := a.Login(t.Context()); err == nil || len(shown) > 0 {
		t.Errorf("%v", err)
	}
}

// Guarantees: G-0044.15
func TestLogout(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := loggedIn(t, f, Options{})
	e, err := a.Status(t.Context())
	if err != nil || e == nil || e.Issuer != f.as.Issuer() || len(e.Scopes) == 0 {
		t.Fatalf("%+v, %v", e, err)
	}
	if err := a.Logout(t.Context()); err != nil {
		t.Fatal(err)
	}
	revoked := f.as.Sink.Requests(authtest.Revoke)
	if len(revoked) != 2 || revoked[0].Form.Get("token") != e.Refresh.Reveal() || revoked[1].Form.Get("token") != e.Access.Reveal() {
		t.Errorf("%d revocations", len(revoked))
	}
	if e, err := a.Status(t.Context()); e != nil || err != nil {
		t.Errorf("%+v, %v", e, err)
	}
	wantNoToken(t, a)
	wantCall(t, a, f.url) // another login
	f.as.Lie(authtest.Revoke, func(a *authtest.Answer) { a.Status = 503 })
	if err := a.Logout(t.Context()); err == nil {
		t.Error("the server failed to revoke, and Logout returned no error")
	}
	if e, err := a.Status(t.Context()); e != nil || err != nil {
		t.Errorf("%+v, %v", e, err)
	}
	wantNoToken(t, a) // which the server would accept
}

// wantNoToken checks that an Authorizer adds no token to requests.
func wantNoToken(t *testing.T, a *Authorizer) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.resource().String(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	quick := a.Bearer(t.Context(), r.URL)
	if err := a.Authorize(t.Context(), r); err != nil || r.Header.Get("Authorization") != "" || quick != nil {
		t.Errorf("after Logout a request carries a token: %v or %v, %v", quick != nil, r.Header.Get("Authorization") != "", err)
	}
}

// A store that lags holds the results of its calls back.
type laggingStore struct {
	*Memory
	load, locked chan struct{} // a call takes a value when it has its result, and another to return; nil: it does not wait
}

func (s *laggingStore) Load(ctx context.Context, k Key) (*Entry, error) {
	e, err := s.Memory.Load(ctx, k)
	wait(s.load)
	return e, err
}

func (s *laggingStore) Locked(ctx context.Context, k Key, f func(*Entry) (*Entry, error)) error {
	err := s.Memory.Locked(ctx, k, f)
	wait(s.locked)
	return err
}

func wait(c chan struct{}) {
	if c != nil {
		<-c
		<-c
	}
}

// A request that has just read or refreshed the login does not bring it back after Logout.
//
// Guarantees: G-0044.15
func TestALogoutIsNotUndoneByARequest(t *testing.T) {
	for name, refreshes := range map[string]bool{"reading": false, "refreshing": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, authtest.Options{})
			f.as.Lie(authtest.Revoke, answerWith(http.StatusServiceUnavailable, "{}")) // the server would accept the tokens
			s := &laggingStore{Memory: NewMemory()}
			a := loggedIn(t, f, Options{Store: s})
			lag := make(chan struct{})
			if refreshes {
				expireBy(t, a, 2*time.Hour)
				s.locked = lag
			} else {
				a.current.Store(nil)
				s.load = lag
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url, http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				_ = a.Authorize(t.Context(), r) // this request was before Logout, or after it
			}()
			lag <- struct{}{} // the request has its result
			s.load, s.locked = nil, nil
			if err := a.Logout(t.Context()); err == nil {
				t.Error("the server failed to revoke, and Logout returned no error")
			}
			lag <- struct{}{}
			<-ended
			a.jobs.goroutines.Wait()
			wantNoToken(t, a)
		})
	}
}

// Logout succeeds if the server cannot revoke access tokens. If it cannot revoke a refresh
// token, Logout returns an error, but still revokes the access token.
//
// Guarantees: G-0044.15
func TestLogoutWhereATokenCannotBeRevoked(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	for hint, fails := range map[string]bool{"access_token": false, "refresh_token": true} {
		a := loggedIn(t, f, Options{})
		before := len(f.as.Sink.Requests(authtest.Revoke))
		f.as.Lie(authtest.Revoke, func(a *authtest.Answer) {
			if a.Request.Form.Get("token_type_hint") == hint {
				a.Status, a.Body = http.StatusBadRequest, []byte(`{"error":"unsupported_token_type"}`)
			}
		})
		if err := a.Logout(t.Context()); (err != nil) != fails {
			t.Errorf("%s: %v", hint, err)
		}
		if n := len(f.as.Sink.Requests(authtest.Revoke)) - before; n != 2 {
			t.Errorf("%s: %d revocations", hint, n)
		}
	}
}

// If the server is down or overloaded while the person logs in, polling continues.
//
// Guarantees: G-0044.1
func TestADeviceOutlastsFailures(t *testing.T) {
	f := newFixture(t, authtest.Options{DevicePolls: 2})
	f.as.Lie(authtest.Device, func(a *authtest.Answer) { a.Object["interval"] = 0.01 })
	polls := 0
	f.as.Lie(authtest.Token, func(a *authtest.Answer) {
		if status := []int{429, 503, 200}[min(polls, 2)]; status != 200 {
			a.Status, a.Body = status, []byte("<html>later</html>")
		}
		polls++
	})
	a := f.login(t, Options{Grant: fastDevice{Device{Show: func(context.Context, DeviceCode) error { return nil }}}})
	wantCall(t, a, f.url)
	if polls != 3 {
		t.Errorf("%d polls", polls)
	}
}
