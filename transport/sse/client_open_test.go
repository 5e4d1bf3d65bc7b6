package sse

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// The client posts only to the origin that it has opened. Any other endpoint fails
// Open.
//
// Guarantees: G-0034.1
func TestEndpointIsOfTheSameOrigin(t *testing.T) {
	for name, test := range map[string]struct{ first, want string }{
		"another host":     {"event: endpoint\ndata: http://evil.example/m\n\n", "is not of the origin"},
		"no scheme":        {"event: endpoint\ndata: //evil.example/m\n\n", "is not of the origin"},
		"another scheme":   {"event: endpoint\ndata: javascript:alert(1)\n\n", "is not of the origin"},
		"another port":     {"event: endpoint\ndata: http://127.0.0.1:1/m\n\n", "is not of the origin"},
		"no address":       {"event: endpoint\ndata: http://[::1\n\n", "cannot be parsed"},
		"no endpoint":      {"data: {}\n\n", `of type "message", not endpoint`},
		"control sequence": {"event: endpoint\ndata: http://\x1b[31mevil/\n\n", "cannot be parsed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&Client{URL: scriptedServer{get: says(test.first)}.serve(t)}).Open(t.Context())
			var wrong *EndpointError
			if !errors.As(err, &wrong) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\x1b") {
				t.Fatalf("got %v, want a *EndpointError, %v in it and no %q in it", err, test.want, "\x1b")
			}
		})
	}
}

// The endpoint is resolved against the address of the stream.
//
// Guarantees: G-0034.1
func TestEndpointIsResolved(t *testing.T) {
	for reference, want := range map[string]string{
		"/messages?sessionId=1": "/messages?sessionId=1",
		"messages?sessionId=1":  "/mcp/messages?sessionId=1",
		"?sessionId=1":          "/mcp/sse?sessionId=1",
		"$/m":                   "/m",
	} {
		posted := make(chan string, 1)
		var address string
		s := scriptedServer{
			get: func(w http.ResponseWriter, r *http.Request) {
				says("event: endpoint\ndata: "+strings.ReplaceAll(reference, "$", address)+"\n\n")(w, r)
			},
			post: func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusAccepted)
				posted <- r.RequestURI
			},
		}
		address = s.serve(t)
		link, _ := open(t, &Client{URL: address + "/mcp/sse"})
		if err := link.Send(notification(0)); err != nil {
			t.Fatal(err)
		}
		if got := testenv.Receive(t, posted, "the POST"); got != want {
			t.Errorf("%s: got a POST to %s, want %s", reference, got, want)
		}
	}
}

// Open returns why the server is not an HTTP+SSE server, with its status if it has one.
//
// Guarantees: G-0034.2
func TestOpenReturnsWhyThereIsNoServer(t *testing.T) {
	status := func(code int, body string) scriptedServer {
		return scriptedServer{get: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, body, code)
		}}
	}
	for name, test := range map[string]struct {
		stage scriptedServer
		want  int
	}{
		"not found": {status(404, "nothing here"), 404},
		"denied":    {status(401, "who are you?"), 401},
		"a page":    {status(200, "<html>"), 200},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&Client{URL: test.stage.serve(t)}).Open(t.Context())
			var refused *transport.StatusError
			if !errors.As(err, &refused) || refused.Status != test.want {
				t.Fatalf("got %v, want a *transport.StatusError and refused.Status == %v", err, test.want)
			}
		})
	}
	t.Run("the stream ends", func(t *testing.T) {
		_, err := (&Client{URL: scriptedServer{get: func(http.ResponseWriter, *http.Request) {}}.serve(t)}).Open(t.Context())
		if !errors.Is(err, transport.ErrPeerClosed) {
			t.Fatal(err)
		}
	})
	t.Run("too long", func(t *testing.T) {
		_, err := (&Client{URL: scriptedServer{get: says("data: " + strings.Repeat("x", 100))}.serve(t), MaxFrame: 64}).Open(t.Context())
		if !errors.As(err, new(*transport.OversizedError)) {
			t.Fatal(err)
		}
	})
	t.Run("silence", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		s := scriptedServer{get: func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).Flush()
			cancel(enough)
			<-r.Context().Done()
		}}
		if _, err := (&Client{URL: s.serve(t)}).Open(ctx); !errors.Is(err, enough) {
			t.Fatal(err)
		}
	})
	t.Run("no URL", func(t *testing.T) {
		_, err := (&Client{URL: "localhost:80"}).Open(t.Context())
		if !errors.As(err, new(*transport.URLError)) {
			t.Fatal(err)
		}
	})
}

// If Open fails, its error says what the server did, shortened, and nothing of the request goes on: neither its context
// nor the body of the response.
//
// Guarantees: G-0034.2
func TestWhatOpenSaysAndLeaves(t *testing.T) {
	long := strings.Repeat("x", 300)
	stream := http.Header{"Content-Type": {web.TypeEvents}}
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		status int
		header http.Header
		body   io.Reader
		err    error // of the RoundTripper
		kind   error // which Open's wraps
		want   string
	}{
		"no connection":     {0, nil, nil, broken, broken, "sse: open the stream: broken"},
		"refused":           {503, stream, strings.NewReader("later"), nil, nil, "sse: open the stream: " + (&transport.StatusError{Status: 503, Body: "later"}).Error()},
		"accepted":          {202, stream, strings.NewReader("ok"), nil, nil, "sse: open the stream: " + (&transport.StatusError{Status: 202, Body: "ok"}).Error()},
		"a page":            {200, http.Header{"Content-Type": {"text/html; charset=utf-8"}}, strings.NewReader("<html>"), nil, nil, "sse: open the stream: " + (&transport.StatusError{Status: 200, Body: `a GET was answered with "text/html", which is no event stream`}).Error()},
		"a long type":       {200, http.Header{"Content-Type": {long}}, strings.NewReader(""), nil, nil, "sse: open the stream: " + (&transport.StatusError{Status: 200, Body: `a GET was answered with "` + long[:200] + `", which is no event stream`}).Error()},
		"no event":          {200, stream, strings.NewReader(": hello\n\n"), nil, transport.ErrPeerClosed, "sse: the stream ended before its first event: " + transport.ErrPeerClosed.Error()},
		"it breaks":         {200, stream, failingBody{strings.NewReader("data: "), broken}, nil, broken, "sse: read the stream: broken"},
		"a long endpoint":   {200, stream, strings.NewReader("event: endpoint\ndata: http://" + long + "/\n\n"), nil, transport.ErrUntrusted, `sse: the endpoint "http://` + long[:193] + `" that the server names: ` + transport.ErrUntrusted.Error() + ": it is not of the origin http://there.test"},
		"a long event type": {200, stream, strings.NewReader("event: " + long + "\ndata: 1\n\n"), nil, nil, `sse: the endpoint "1" that the server names: the first event is of type "` + long[:200] + `", not endpoint`},
		"no address":        {200, stream, strings.NewReader("event: endpoint\ndata: http://[::1\n\n"), nil, nil, `sse: the endpoint "http://[::1" that the server names: it cannot be parsed`},
	} {
		t.Run(name, func(t *testing.T) {
			var request *http.Request
			body := &closedBody{Reader: test.body}
			_, err := (&Client{URL: "http://there.test/sse", HTTP: &http.Client{Transport: tripper(func(r *http.Request) (*http.Response, error) {
				if request = r; test.err != nil {
					return nil, test.err
				}
				return &http.Response{StatusCode: test.status, Header: test.header, Body: body}, nil
			})}}).Open(t.Context())
			if err == nil || err.Error() != test.want || test.kind != nil && !errors.Is(err, test.kind) {
				t.Errorf("got %v\nwant %v", err, test.want)
			}
			if request.Context().Err() == nil || test.err == nil && !body.closed {
				t.Errorf("Open leaves its request: its context has ended with %v, and that its body is closed is %t", request.Context().Err(), body.closed)
			}
		})
	}
}

// A closedBody records that it was closed.
type closedBody struct {
	io.Reader
	closed bool
}

// Open with a context that has ended sends nothing.
func TestOpenAfterItsContext(t *testing.T) {
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	c := &Client{URL: "http://there.test/sse", HTTP: &http.Client{Transport: tripper(func(*http.Request) (*http.Response, error) {
		t.Error("a request was sent")
		return nil, enough
	})}}
	if _, err := c.Open(ctx); err != enough {
		t.Errorf("got %v, want %v", err, enough)
	}
}

// The context of Open bounds opening only. Later changes of the header do not reach a link that is open.
//
// Guarantees: G-0034.2
func TestALinkOutlivesItsOpening(t *testing.T) {
	posted := make(chan string, 1)
	s := scriptedServer{
		get: func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Cache-Control"); got != "no-store" {
				t.Errorf("the stream is asked for with Cache-Control %q", got)
			}
			says(endpoint)(w, r)
		},
		post: func(_ http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Cache-Control"); got != "" {
				t.Errorf("a message is sent with Cache-Control %q, which is for the stream", got)
			}
			posted <- r.Header.Get("X-Key")
		},
	}
	c := &Client{URL: s.serve(t), Header: http.Header{"X-Key": {"first"}}}
	ctx, cancel := context.WithCancel(t.Context())
	link, err := c.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder()
	link.Bind(r)
	cancel()
	c.Header.Set("X-Key", "second")
	if err := link.Send(notification(1)); err != nil {
		t.Fatal(err)
	}
	if got := testenv.Receive(t, posted, "the POST"); got != "first" {
		t.Errorf("the message was sent with the header %q, want %q", got, "first")
	}
	if err := link.Close(hangLimit); err != nil || r.lost[0].Reason != transport.ErrClosed {
		t.Errorf("Close returned %v after %+v, want nil and %v", err, r.lost, transport.ErrClosed)
	}
}

// What a client and its link say about themselves.
func TestFactsOfAClient(t *testing.T) {
	for address, want := range map[string]struct {
		name, endpoint string
		valid          bool
	}{
		"https://user:secret@there.test:8443/sse?key=secret": {"there.test:8443", "https://there.test:8443", true},
		"http://there.test/sse":                              {"there.test", "http://there.test", true},
		"there.test:80":                                      {"", "", false},
		"ftp://there.test/":                                  {"", "", false},
	} {
		c := &Client{URL: address}
		err := c.Check()
		is := c.Traits()
		if is.Name != want.name || is.Endpoint != want.endpoint || (err == nil) != want.valid || err != nil && !errors.As(err, new(*transport.URLError)) {
			t.Errorf("%s: got the name %q, the endpoint %q and %v, want %+v", address, is.Name, is.Endpoint, err, want)
		}
	}
	s := newSite(t, HandlerOptions{})
	began := time.Now()
	client, _ := open(t, &Client{URL: s.url})
	server, _ := s.session(0)
	is := transport.LinkTraitsOf(client)
	if got, want := is.Network, (transport.Network{HTTP: "1.1"}); got != want {
		t.Errorf("the client's link says it is over %+v, want %+v", got, want)
	}
	if got, want := transport.LinkTraitsOf(server).Network, (transport.Network{HTTP: "1.1"}); got != want {
		t.Errorf("the server's link says it is over %+v, want %+v", got, want)
	}
	if !is.RequestPerMessage {
		t.Error("the client's link does not say that each message is a request")
	}
	if !is.RecordsReads || is.LastRead.Before(began) {
		t.Errorf("the client has heard of the server at %v, %t, want after %v", is.LastRead, is.RecordsReads, began)
	}
}

// A tripper is a RoundTripper for all requests of a client.
type tripper func(*http.Request) (*http.Response, error)

// If Open fails, the connection is closed that its request has used, unless the program may use it.
func TestAFailedOpenKeepsNoConnection(t *testing.T) {
	states := make(chan http.ConnState, 10)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) { states <- state }
	server.Start()
	defer server.Close()
	if link, err := (&Client{URL: server.URL}).Open(t.Context()); err == nil {
		t.Fatalf("got %v, want an error", link)
	}
	for testenv.Receive(t, states, "the connection is closed") != http.StateClosed {
	}
}
