package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
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

// The listener for the browser answers each request but the redirect with a page that says nothing of it, and which no other page
// can frame, read or keep.
//
// Guarantees: G-0044.14
func TestWhatTheBrowserIsShown(t *testing.T) {
	const refused, taken, nothing = "This response was not accepted. You can close this page.", "The program has the answer. You can close this page.", "There is nothing here."
	for name, c := range map[string]struct {
		method, target, host, state string
		status                      int
		text                        string
	}{
		"the redirect":  {"GET", "/callback?code=x&state=s", "127.0.0.1:1", "s", 200, taken},
		"another host":  {"GET", "/callback?code=x&state=s", "localhost:1", "s", 400, refused},
		"another port":  {"GET", "/callback?code=x&state=s", "127.0.0.1:2", "s", 400, refused},
		"another path":  {"GET", "/callback/?code=x&state=s", "127.0.0.1:1", "s", 404, nothing},
		"a form":        {"POST", "/callback?code=x&state=s", "127.0.0.1:1", "s", 405, refused},
		"only a header": {"HEAD", "/callback?code=x&state=s", "127.0.0.1:1", "s", 405, refused},
		"another state": {"GET", "/callback?code=x&state=t", "127.0.0.1:1", "s", 400, refused},
		"no state":      {"GET", "/callback?code=x", "127.0.0.1:1", "s", 400, refused},
		"no login":      {"GET", "/callback?code=x&state=", "127.0.0.1:1", "", 400, refused},
	} {
		h := &callback{host: "127.0.0.1:1", state: c.state, redirected: make(chan *url.URL, 1)}
		for _, again := range []bool{false, true} {
			if again && c.status == http.StatusOK {
				c.status, c.text = http.StatusBadRequest, refused
			}
			r, w := httptest.NewRequestWithContext(t.Context(), c.method, c.target, nil), httptest.NewRecorder()
			r.Host = c.host
			h.ServeHTTP(w, r)
			if text := w.Body.String(); w.Code != c.status || !strings.Contains(text, "<p>"+c.text+"</p>") {
				t.Errorf("%s, again: %t: status %d, want %d: %s", name, again, w.Code, c.status, text)
			}
			for header, want := range map[string]string{
				"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
			} {
				if got := w.Header().Get(header); got != want {
					t.Errorf("%s: %s: %q, want %q", name, header, got, want)
				}
			}
		}
		select {
		case got := <-h.redirected:
			if want := "http://127.0.0.1:1/callback?code=x&state=s"; got.String() != want || c.text != refused {
				t.Errorf("%s: the program gets %v, want %s", name, got, want)
			}
		default:
			if name == "the redirect" {
				t.Error("the program does not get the redirect")
			}
		}
	}
}

// The redirect address has the port that the program has chosen, or any port if that of the registration is busy. The person has
// five minutes.
//
// Guarantees: G-0044.14
func TestWhereTheBrowserIsRedirectedTo(t *testing.T) {
	var config net.ListenConfig
	busy, err := config.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	taken := busy.Addr().String()
	_, port, err := net.SplitHostPort(taken)
	if err != nil {
		t.Fatal(err)
	}
	busyPort, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop here")
	for name, c := range map[string]struct {
		o          LoopbackOptions
		registered string
		fails      bool
	}{
		"the registered one, busy": {LoopbackOptions{}, "http://" + taken + "/callback", false},
		"of another host":          {LoopbackOptions{}, "http://localhost:1/callback", false},
		"none":                     {LoopbackOptions{}, "", false},
		"one that is no address":   {LoopbackOptions{}, "http://127.0.0.1:x/callback", false},
		"a busy one":               {LoopbackOptions{Port: busyPort}, "", true},
		"a busy one, not another":  {LoopbackOptions{Port: busyPort}, "http://127.0.0.1:0/callback", true},
	} {
		var started string
		c.o.Open = func(ctx context.Context, address *url.URL) error {
			if end, ok := ctx.Deadline(); !ok || time.Until(end) > 5*time.Minute || time.Until(end) < 4*time.Minute {
				t.Errorf("%s: the person has until %v", name, end)
			}
			if address.Host != "as.example" {
				t.Errorf("%s: the browser opens %v", name, address)
			}
			return stop
		}
		_, err := Loopback(c.o)(t.Context(), Interaction{Redirect: c.registered, start: func(_ context.Context, redirect string) (*url.URL, error) {
			started = redirect
			return url.Parse("https://as.example/authorize?state=s")
		}})
		if c.fails {
			if err == nil || errors.Is(err, stop) || !strings.HasPrefix(err.Error(), "auth: listen for the browser: ") || started != "" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if at, err := url.Parse(started); err != nil || at.Scheme != "http" || at.Hostname() != "127.0.0.1" || at.Path != "/callback" || at.Port() == "1" || started == c.registered {
			t.Errorf("%s: the redirect address is %s", name, started)
		}
		if !errors.Is(err, stop) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The listener reads headers of up to 64 KiB, and answers one request on each connection. After the login no connection is left
// open, not even one that has said nothing.
//
// Guarantees: G-0044.14
func TestTheListenerOfALoopbackIsBounded(t *testing.T) {
	var silent net.Conn
	open := func(ctx context.Context, address *url.URL) error {
		redirect, err := url.Parse(address.Query().Get("redirect_uri"))
		if err != nil {
			return err
		}
		var dialer net.Dialer
		if silent, err = dialer.DialContext(ctx, "tcp", redirect.Host); err != nil {
			return err
		}
		for size, want := range map[int]int{60_000: http.StatusBadRequest, 70_000: http.StatusRequestHeaderFieldsTooLarge} {
			r := &http.Request{Method: http.MethodGet, URL: redirect, Header: http.Header{"X-Long": {long(size)}}}
			response, err := http.DefaultTransport.RoundTrip(r.WithContext(ctx))
			if err != nil {
				return err
			}
			if response.Body.Close(); response.StatusCode != want || !response.Close {
				t.Errorf("a header of %d bytes: status %d, the connection is closed: %t", size, response.StatusCode, response.Close)
			}
		}
		redirect.RawQuery = "state=s"
		if status, text := visit(t, redirect, ""); status != http.StatusOK {
			t.Errorf("the redirect: status %d: %s", status, text)
		}
		return nil
	}
	if _, err := Loopback(LoopbackOptions{Open: open})(t.Context(), Interaction{start: func(_ context.Context, redirect string) (*url.URL, error) {
		return url.Parse("https://as.example/authorize?state=s&redirect_uri=" + url.QueryEscape(redirect))
	}}); err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := silent.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection that has said nothing is left open: %v", err)
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
	_, oldest := connect()
	gone, _ := connect()
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
	if _, err := oldest.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest connection is closed, although another one has made room: %v", err)
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
	for _, address := range []string{"file:///etc/passwd", "javascript:alert(1)", "data:text/html,x", "vbscript:x", "http://as.test/", "http://10.0.0.1/", "http://localhost.as.test/", "https:as.test", "https:///x", "file://localhost/etc/passwd", "-h", ""} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := Browse(t.Context(), u); !strings.HasSuffix(errorText(err), "is not opened in a browser") {
			t.Errorf("%q was opened: %v", address, err)
		}
	}
	for _, address := range []string{"https://as.test/a?b", "http://localhost/", "http://127.0.0.1:80/", "http://127.9.9.9/", "http://[::1]/"} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := browsable(u); err != nil {
			t.Errorf("%q: %v", address, err)
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
