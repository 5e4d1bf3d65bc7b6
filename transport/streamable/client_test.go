package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// Open refuses a URL that is not an HTTP endpoint, without showing its password.
func TestOpenRefusesInvalidURLs(t *testing.T) {
	for _, url := range []string{"", "localhost:80", "ftp://host/", "http://", "http:///mcp", "http://u:secret@h:x y/", "ws://u:secret@host"} {
		var wrong *transport.URLError
		_, err := (&Client{URL: url}).Open(t.Context())
		if !errors.As(err, &wrong) || wrong.Unwrap() == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want a *transport.URLError, wrong.Unwrap() != nil and no %q in it", url, err, "secret")
		}
		if checked := (&Client{URL: url}).Check(); checked == nil || checked.Error() != err.Error() {
			t.Errorf("%q: Check returned %v, want what Open returns: %v", url, checked, err)
		}
	}
}

// Open fails if its context has ended, and Check finds nothing wrong with a good URL.
func TestOpenFailsIfItsContextHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &Client{URL: "http://host/"}
	if link, err := c.Open(ctx); link != nil || err != context.Canceled {
		t.Errorf("got %v and %v, want no link and %v", link, err, context.Canceled)
	}
	if err := c.Check(); err != nil {
		t.Errorf("Check returned %v, want nothing wrong", err)
	}
}

// A URL may end its host with a colon. Its requests then go to the port of its scheme.
func TestURLWithAnEmptyPort(t *testing.T) {
	r := open(t, &Client{URL: "http://host:/mcp?key=1", HTTP: &http.Client{Transport: tripperFunc(func(req *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("asked %s, named %s", req.URL, req.Host)
	})}})
	r.call(1, 1)
	if f := r.failure(0); f.Err.Error() != "asked http://host/mcp?key=1, named host" {
		t.Errorf("got %v, want the host without a colon", f.Err)
	}
}

// A client is named after the host of its server. Its requests mirror arguments in headers.
func TestTraitsOfAClient(t *testing.T) {
	want := transport.Traits{Name: "host:8080", Endpoint: "https://host:8080", MirrorsArguments: true}
	if got := (&Client{URL: "https://user:secret@host:8080/mcp?key=1"}).Traits(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// elsewhere returns a server that must get no request.
func elsewhere(t *testing.T) string {
	return serve(t, func(_ http.ResponseWriter, req *http.Request) { t.Errorf("asked elsewhere: %v", req.Header) })
}

// A redirect within the host is followed, with method and body.
func TestRedirectsWithinTheHostAreFollowed(t *testing.T) {
	for _, status := range []int{307, 308} {
		r := connect(t, func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path != "/there" {
				http.Redirect(w, req, "/there", status)
				return
			}
			if body, _ := io.ReadAll(req.Body); req.Method != http.MethodPost || len(body) == 0 {
				t.Errorf("%s with %d bytes", req.Method, len(body))
			}
			answerJSON(result(1))(w, req)
		})
		r.wantFrame(0, r.call(1, 1), result(1), true)
	}
}

// Errors contain no credentials, even if the server repeats them in its response.
//
// Guarantees: G-0022.20
func TestErrorsShowNoCredentials(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"body": func(w http.ResponseWriter, req *http.Request) {
			http.Error(w, strings.Repeat("x", 500)+req.Header.Get("Authorization")+" "+req.URL.String(), http.StatusUnauthorized)
		},
		"challenge": func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("WWW-Authenticate", "Bearer realm="+req.URL.Query().Get("key"))
			w.WriteHeader(http.StatusUnauthorized)
		},
		"redirect": func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "https://elsewhere.test/?"+req.URL.RawQuery, http.StatusFound)
		},
		"fault": func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":%q}}`, req.Header.Get("X-Key"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, &Client{URL: serve(t, answer) + "?key=S3CR%20T", Header: http.Header{"Authorization": {"Bearer T0KENT0KEN"}, "X-Key": {"K3YK3Y"}}})
			r.call(1, 1)
			var status *transport.StatusError
			f := r.failure(0)
			if !errors.As(f.Err, &status) {
				t.Fatalf("got %+v, want a *transport.StatusError", f)
			}
			for _, secret := range []string{"S3CR", "T0KEN", "K3Y"} {
				if said := fmt.Sprintf("%v %+v", f.Err, *status); strings.Contains(said, secret) {
					t.Errorf("got the secret %s in %s", secret, said)
				}
			}
		})
	}
}

// A redirect to another host, or with another method, fails the request.
//
// Guarantees: G-0022.7
func TestOtherRedirectsAreNotFollowed(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		to     string
	}{
		"another host":       {307, elsewhere(t)},
		"another host, kept": {308, elsewhere(t)},
		"a GET instead":      {302, "/there"},
		"and another":        {303, "/there"},
		"without end":        {307, "/again"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 10)
			url := serve(t, func(w http.ResponseWriter, req *http.Request) {
				asked <- struct{}{}
				if req.Method != http.MethodPost {
					t.Errorf("got a %s request to the other address, want none", req.Method)
				}
				http.Redirect(w, req, c.to, c.status)
			})
			r := open(t, &Client{URL: url, Header: http.Header{"X-Key": {"secret"}}})
			r.call(1, 1)
			var status *transport.StatusError
			if f := r.failure(0); !errors.As(f.Err, &status) || status.Status != c.status || !strings.Contains(status.Body, c.to) || f.Unsent {
				t.Fatalf("got %+v", f)
			}
			if want := map[string]int{"without end": 1 + 3}[name]; want > 0 && len(asked) != want {
				t.Errorf("got %d requests, want %d", len(asked), want)
			}
		})
	}
}

// If the program's http.Client follows redirects to another host, that host gets no
// header of the program.
//
// Guarantees: G-0022.7
func TestRedirectsOfTheProgramDoNotLeakTheHeader(t *testing.T) {
	other := serve(t, func(w http.ResponseWriter, req *http.Request) {
		for _, name := range []string{"X-Key", "Mcp-Method", "Mcp-Protocol-Version"} {
			if value := req.Header.Get(name); value != "" {
				t.Errorf("another host got %s: %s, want none", name, value)
			}
		}
		answerJSON(result(1))(w, req)
	})
	r := open(t, &Client{
		URL: serve(t, func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, other, http.StatusTemporaryRedirect)
		}),
		Header: http.Header{"X-Key": {"secret"}},
		HTTP:   &http.Client{Transport: transportOf(t), CheckRedirect: func(*http.Request, []*http.Request) error { return nil }},
	})
	r.wantFrame(0, r.call(1, 1), result(1), true)
}

// transportOf returns a connection pool that is emptied at the end of the test.
func transportOf(t *testing.T) *http.Transport {
	pool := &http.Transport{}
	t.Cleanup(pool.CloseIdleConnections)
	return pool
}

func BenchmarkRoundTrip(b *testing.B) {
	frame := request(1, "tools/call", `"name":"echo",`+modernMeta)
	answer := answerJSON(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":%q}]}}`, strings.Repeat("x", 64)))
	server := serve(b, func(w http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		answer(w, req)
	})
	b.Run("floor", func(b *testing.B) {
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		b.ReportAllocs()
		for b.Loop() {
			response, err := client.Post(server, web.TypeJSON, strings.NewReader(frame))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadAll(response.Body); err != nil {
				b.Fatal(err)
			}
			response.Body.Close()
		}
	})
	b.Run("link", func(b *testing.B) {
		link, err := (&Client{URL: server}).Open(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		defer link.Close(0)
		r := &counting{link: link, answers: make(chan struct{}, 1)}
		link.Bind(r)
		o := outbound(1, frame)
		b.ReportAllocs()
		for b.Loop() {
			if err := link.Send(o); err != nil {
				b.Fatal(err)
			}
			link.Grant(r.stream, 1)
			<-r.answers
		}
	})
}

// A counting receiver does almost nothing.
type counting struct {
	transport.Receiver
	link    transport.Link
	stream  transport.Stream
	answers chan struct{}
}

func (r *counting) StreamOpened(stream transport.Stream, _ transport.Tag) { r.stream = stream }
func (r *counting) Receive(transport.Inbound)                             { r.answers <- struct{}{} }
func (r *counting) Lost(transport.Loss)                                   {}

// The session id is not sent to another host.
//
// Guarantees: G-0022.7
func TestSessionIsNotSentToAnotherHost(t *testing.T) {
	const id = "session-that-nobody-else-knows"
	seen := make(chan http.Header, 2)
	other := serve(t, func(w http.ResponseWriter, req *http.Request) {
		seen <- req.Header
		answerJSON(result(2))(w, req)
	})
	s := &legacyServer{session: id, call: func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, other+"/mcp", http.StatusTemporaryRedirect)
	}}
	for name, client := range map[string]*Client{
		"as it comes": {},
		"redirected":  {HTTP: &http.Client{Transport: transportOf(t), CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}},
	} {
		before := len(seen)
		client.URL = serve(t, s.ServeHTTP)
		r := open(t, client)
		r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
		r.send(0, initialized)
		r.callLegacy(2, 1)
		r.await("an end of the call", func() bool { return len(r.received)+len(r.failed) > 1 })
		r.link.Close(hangGuard)
		if went := len(seen) > before; went != (client.HTTP != nil) {
			t.Fatalf("%s: the request reached the other host: %v", name, went)
		}
	}
	for name, values := range <-seen {
		if slices.Contains(values, id) || strings.HasPrefix(name, "Mcp-") {
			t.Errorf("%s: another host got %v, want no session", name, values)
		}
	}
}

// Another host gets no secret, however its header is spelled and whatever the address
// contains.
//
// Guarantees: G-0022.7
func TestSecretsOfAnySpellingAreNotSentToAnotherHost(t *testing.T) {
	seen := make(chan http.Header, 1)
	other := serve(t, func(w http.ResponseWriter, req *http.Request) {
		seen <- req.Header
		answerJSON(result(1))(w, req)
	})
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, other, http.StatusTemporaryRedirect)
	})
	r := open(t, &Client{
		URL:    url + "/mcp?key=secret",
		Header: http.Header{"x-api-key": {"secret"}},
		HTTP:   &http.Client{Transport: transportOf(t), CheckRedirect: func(*http.Request, []*http.Request) error { return nil }},
	})
	r.wantFrame(0, r.call(1, 1), result(1), true)
	for name, values := range <-seen {
		if slices.ContainsFunc(values, func(value string) bool { return strings.Contains(value, "secret") }) {
			t.Errorf("%s: another host got %v, want no secret", name, values)
		}
	}
}
