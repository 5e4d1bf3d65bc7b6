package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// A tokenAuthorizer is an Authorizer that counts its token up after each challenge.
type tokenAuthorizer struct {
	authorize func(ctx context.Context) error // nil: adds the token
	challenge func(*transport.StatusError) (bool, error)

	mu    sync.Mutex
	token int
	asked []int // the status of each challenge
}

func (k *tokenAuthorizer) Authorize(ctx context.Context, r *http.Request) error {
	if k.authorize != nil {
		if err := k.authorize(ctx); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	r.Header.Set("Authorization", fmt.Sprint("Bearer ", k.token))
	r.Header.Set("DPoP", "proof")
	return nil
}

func (k *tokenAuthorizer) Challenged(_ context.Context, r *http.Request, refused *transport.StatusError) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.token++
	k.asked = append(k.asked, refused.Status)
	if r.Header.Get("Authorization") == "" {
		return false, errors.New("the refused request is not given")
	}
	if k.challenge != nil {
		return k.challenge(refused)
	}
	return true, nil
}

// A tokenBearer is also a Bearer: its header is shared by requests until the next
// challenge.
type tokenBearer struct{ *tokenAuthorizer }

func (b tokenBearer) Bearer(context.Context, *url.URL) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.token%2 == 1 { // every second token has no shared header
		return nil
	}
	return []string{fmt.Sprint("Bearer ", b.token)}
}

// authorizers returns an Authorizer of both kinds, each with its own keeper.
func authorizers(make func() *tokenAuthorizer) map[string]challengedAuthorizer {
	return map[string]challengedAuthorizer{"": make(), "bearing": tokenBearer{make()}}
}

type challengedAuthorizer interface {
	transport.Authorizer
	challenges() []int
}

func (k *tokenAuthorizer) challenges() []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.asked)
}

// A tokenServer accepts its token and denies other requests.
type tokenServer struct {
	http.Handler
	token  string // for example "Bearer 1"; empty: all are denied
	status int    // of the denial; 0 means 401

	mu   sync.Mutex
	seen []string // HTTP method, token, body
}

func (g *tokenServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	g.mu.Lock()
	g.seen = append(g.seen, fmt.Sprint(req.Method, " ", req.Header.Get("Authorization"), " ", string(body)))
	g.mu.Unlock()
	if req.Header.Get("Authorization") != g.token {
		w.Header().Set("WWW-Authenticate", `Bearer scope="knots"`)
		w.Header().Set("DPoP-Nonce", "once")
		w.WriteHeader(max(g.status, http.StatusUnauthorized))
		io.WriteString(w, "who?")
		return
	}
	req.Body = io.NopCloser(strings.NewReader(string(body)))
	g.Handler.ServeHTTP(w, req)
}

func (g *tokenServer) log() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.seen)
}

// authorized opens a link with an Authorizer to a server.
func authorized(t *testing.T, server http.Handler, k transport.Authorizer) *testReceiver {
	t.Helper()
	return open(t, &Client{URL: serve(t, server.ServeHTTP), Authorizer: k})
}

// Each request of a link is authorized: POST, GET and DELETE.
//
// Guarantees: G-0040.1
func TestEachRequestIsAuthorized(t *testing.T) {
	g := &tokenServer{Handler: &legacyServer{session: "s-1"}, token: "Bearer 0"}
	r := authorized(t, g, new(tokenAuthorizer))
	r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
	r.send(0, initialized)
	r.wantFrame(1, r.callLegacy(2, 1), result(2), true)
	if err := r.link.Close(hangGuard); err != nil {
		t.Fatal(err)
	}
	var methods []string
	for _, line := range g.log() {
		method, rest, _ := strings.Cut(line, " ")
		if methods = append(methods, method); !strings.HasPrefix(rest, "Bearer 0 ") {
			t.Errorf("got %s without authorization, want the prefix %q", line, "Bearer 0 ")
		}
	}
	if want := []string{"POST", "POST", "GET", "POST", "DELETE"}; !slices.Equal(methods, want) {
		t.Errorf("the server saw %q, want %q", methods, want)
	}
}

// A request that is denied is sent once more after the challenge, with the new token.
//
// Guarantees: G-0040.2
func TestADeniedRequestIsSentAgain(t *testing.T) {
	for _, status := range []int{401, 403} {
		for _, k := range authorizers(func() *tokenAuthorizer { return new(tokenAuthorizer) }) {
			g := &tokenServer{Handler: answerJSON(result(1)), token: "Bearer 1", status: status}
			r := authorized(t, g, k)
			frame := request(1, "tools/call", `"name":"echo",`+modernMeta)
			r.wantFrame(0, r.request(1, 1, frame), result(1), true)
			if want := []string{"POST Bearer 0 " + frame, "POST Bearer 1 " + frame}; !slices.Equal(g.log(), want) || !slices.Equal(k.challenges(), []int{status}) {
				t.Errorf("got the challenges %d and the requests %q, want the requests %q", k.challenges(), g.log(), want)
			}
		}
	}
}

// If the server denies the request again, or the Authorizer gives up, the message fails
// and the link stays usable.
//
// Guarantees: G-0040.2, G-0040.3
func TestADenialThatStaysFailsTheMessage(t *testing.T) {
	for name, c := range map[string]struct {
		challenge func(*transport.StatusError) (bool, error)
		status    int
		requests  int
		is        error
	}{
		"always":           {nil, 401, 4, nil},
		"always, 403":      {nil, 403, 4, nil},
		"given up":         {func(*transport.StatusError) (bool, error) { return false, nil }, 401, 1, nil},
		"given up, 403":    {func(*transport.StatusError) (bool, error) { return false, nil }, 403, 1, nil},
		"a failed refresh": {func(*transport.StatusError) (bool, error) { return true, io.ErrUnexpectedEOF }, 401, 1, io.ErrUnexpectedEOF},
		"a login is due":   {func(*transport.StatusError) (bool, error) { return false, transport.ErrAuthRequired }, 401, 1, transport.ErrAuthRequired},
		"a panic":          {func(*transport.StatusError) (bool, error) { panic("no") }, 401, 1, nil},
	} {
		for kind, k := range authorizers(func() *tokenAuthorizer { return &tokenAuthorizer{challenge: c.challenge} }) {
			t.Run(name+" "+kind, func(t *testing.T) {
				g := &tokenServer{status: c.status}
				r := authorized(t, g, k)
				for n := range 2 { // the link stays usable
					r.call(1+n, 1)
					var refused *transport.StatusError
					f := r.failure(n)
					if !errors.As(f.Err, &refused) || refused.Status != c.status || refused.Body != "who?" || refused.Challenge == "" || refused.Nonce != "once" || !f.Unsent {
						t.Fatalf("got the failure %+v", f)
					}
					if c.is != nil && !errors.Is(f.Err, c.is) {
						t.Errorf("got %v, want also %v", f.Err, c.is)
					}
				}
				if got := len(g.log()); got != 2*c.requests {
					t.Errorf("%d requests, want %d", got, 2*c.requests)
				}
			})
		}
	}
}

// A message that was denied, and finds no connection when it is sent again, was certainly not sent.
//
// Guarantees: G-0003.2, G-0040.2
func TestADeniedMessageWithoutAConnectionIsUnsent(t *testing.T) {
	for kind, k := range authorizers(func() *tokenAuthorizer { return new(tokenAuthorizer) }) {
		t.Run(kind, func(t *testing.T) {
			var dials atomic.Int32
			pool := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				if dials.Add(1) > 1 {
					return nil, errors.New("no way")
				}
				return new(net.Dialer).DialContext(ctx, network, address)
			}}
			r := open(t, &Client{URL: serve(t, new(tokenServer).ServeHTTP), Authorizer: k, HTTP: &http.Client{Transport: pool}})
			r.call(1, 1)
			if f := r.failure(0); f.Tag != 1 || !f.Unsent || !strings.Contains(f.Err.Error(), "no way") {
				t.Errorf("got %+v, want a failure of the dial, unsent", f)
			}
			if got := k.challenges(); !slices.Equal(got, []int{401}) {
				t.Errorf("got the challenges %d, want one", got)
			}
		})
	}
}

// A message whose server hangs up may have been executed, with credentials as without.
//
// Guarantees: G-0003.2
func TestAnAuthorizedMessageThatBreaksOffMayBeSent(t *testing.T) {
	for kind, k := range authorizers(func() *tokenAuthorizer { return new(tokenAuthorizer) }) {
		t.Run(kind, func(t *testing.T) {
			r := authorized(t, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				io.Copy(io.Discard, req.Body)
				panic(http.ErrAbortHandler)
			}), k)
			r.call(1, 1)
			if f := r.failure(0); f.Tag != 1 || f.Unsent {
				t.Errorf("got %+v, want a failure that may have been sent", f)
			}
		})
	}
}

// If the Authorizer fails, nothing is sent, and the message fails as unsent.
//
// Guarantees: G-0040.3
func TestWithoutCredentialsNothingIsSent(t *testing.T) {
	for name, authorize := range map[string]func(context.Context) error{
		"an error": func(context.Context) error { return transport.ErrAuthRequired },
		"a panic":  func(context.Context) error { panic(transport.ErrAuthRequired) },
	} {
		t.Run(name, func(t *testing.T) {
			g := new(tokenServer)
			r := authorized(t, g, &tokenAuthorizer{authorize: authorize})
			for n := range 3 { // more than the dials that may fail
				r.call(1+n, 1)
				if f := r.failure(n); !f.Unsent || !strings.Contains(f.Err.Error(), transport.ErrAuthRequired.Error()) {
					t.Errorf("got %+v", f)
				}
			}
			r.send(9, notification("n"))
			if f := r.failure(3); f.Tag != 9 || !f.Unsent {
				t.Errorf("got %+v", f)
			}
			if got := g.log(); len(got) > 0 {
				t.Errorf("the server saw %q, want none", got)
			}
		})
	}
}

// If a request ends, the Authorizer's search for credentials ends too.
//
// Guarantees: G-0040.4
func TestSearchForCredentialsEndsWithTheRequest(t *testing.T) {
	searching, ended := make(chan struct{}, 2), make(chan struct{}, 2)
	k := &tokenAuthorizer{authorize: func(ctx context.Context) error {
		searching <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return context.Cause(ctx)
	}}
	r := authorized(t, new(tokenServer), k)
	stream := r.call(1, 1)
	receive(t, "a search", searching)
	r.link.End(stream)
	receive(t, "its end", ended)
	r.call(2, 1)
	receive(t, "another search", searching)
	if err := r.link.Close(0); err != nil {
		t.Fatal(err)
	}
	if loss := r.loss(); !slices.Equal(loss.Unsent, []transport.Tag{2}) {
		t.Errorf("got %+v, want %v", loss, []transport.Tag{2})
	}
}

// Credentials are not sent to another host, to which the server redirects.
//
// Guarantees: G-0022.7
func TestCredentialsAreNotSentToAnotherHost(t *testing.T) {
	seen := make(chan http.Header, 1)
	other := serve(t, func(w http.ResponseWriter, req *http.Request) {
		seen <- req.Header
		answerJSON(result(1))(w, req)
	})
	for _, k := range authorizers(func() *tokenAuthorizer { return new(tokenAuthorizer) }) {
		r := open(t, &Client{
			URL: serve(t, func(w http.ResponseWriter, req *http.Request) {
				http.Redirect(w, req, other, http.StatusTemporaryRedirect)
			}),
			Authorizer: k,
			HTTP:       &http.Client{Transport: transportOf(t), CheckRedirect: func(*http.Request, []*http.Request) error { return nil }},
		})
		r.wantFrame(0, r.call(1, 1), result(1), true)
		if got := <-seen; got.Get("Authorization") != "" || got.Get("DPoP") != "" {
			t.Errorf("another host got %v, want no credentials", got)
		}
	}
}

// The header of a Bearer is used for later requests only until it is denied. What an Authorizer adds to one attempt is in no
// other. Without credentials, the header that the program has set is sent again, or none.
//
// Guarantees: G-0040.1
func TestSharedCredentialsEndWithTheirRefusal(t *testing.T) {
	for name, c := range map[string]struct {
		given string   // by the program; "": none
		adds  []string // what the Authorizer adds to each attempt; "": nothing
		bears bool
		want  []string
	}{
		"a header":              {"given", nil, true, []string{"Bearer 0", "given", "given", "given"}},
		"none":                  {"", nil, true, []string{"Bearer 0", "", "", ""}},
		"then one of its own":   {"given", []string{"own"}, true, []string{"Bearer 0", "own", "given", "given"}},
		"its own without one":   {"", []string{"own"}, true, []string{"Bearer 0", "own", "", ""}},
		"nothing that it bears": {"", []string{"first", "", "third"}, false, []string{"first", "", "third", ""}},
		"beside a header":       {"given", []string{"", "second"}, false, []string{"given", "second", "given", "given"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := &tokenServer{Handler: answerJSON(result(1)), token: "none"}
			k := new(tokenAuthorizer)
			client := &Client{URL: serve(t, g.ServeHTTP), Authorizer: &addingAuthorizer{k, c.adds}}
			if c.bears {
				client.Authorizer = &addingBearer{tokenBearer{k}, client.Authorizer}
			}
			if c.given != "" {
				client.Header = http.Header{"Authorization": {c.given}}
			}
			r := open(t, client)
			r.call(1, 1)
			r.failure(0)
			var seen []string
			for _, line := range g.log() {
				_, line, _ = strings.Cut(line, " ")
				token, _, _ := strings.Cut(line, " {")
				seen = append(seen, token)
			}
			if !slices.Equal(seen, c.want) {
				t.Errorf("the server saw %q, want %q", seen, c.want)
			}
		})
	}
}

// An addingAuthorizer adds a header to each attempt, as long as it has any. The attempts of one request come one after the other.
type addingAuthorizer struct {
	*tokenAuthorizer
	adds []string
}

func (k *addingAuthorizer) Authorize(_ context.Context, r *http.Request) error {
	if len(k.adds) == 0 {
		return nil
	}
	if k.adds[0] != "" {
		r.Header.Set("Authorization", k.adds[0])
	}
	k.adds = k.adds[1:]
	return nil
}

func (k *addingAuthorizer) Challenged(context.Context, *http.Request, *transport.StatusError) (bool, error) {
	return true, nil
}

// An addingBearer is also a Bearer.
type addingBearer struct {
	tokenBearer
	adds transport.Authorizer
}

func (b *addingBearer) Authorize(ctx context.Context, r *http.Request) error {
	return b.adds.Authorize(ctx, r)
}

func (b *addingBearer) Challenged(ctx context.Context, r *http.Request, refused *transport.StatusError) (bool, error) {
	return b.adds.Challenged(ctx, r, refused)
}

// After a fallback to HTTP+SSE, the GET request and the messages are authorized too.
//
// Guarantees: G-0040.1, G-0040.2
func TestSSEServerGetsCredentials(t *testing.T) {
	s, k := newSSEServer(), new(tokenAuthorizer)
	r := authorized(t, &tokenServer{Handler: s, token: "Bearer 1"}, k)
	r.link.Grant(transport.Main, 1)
	r.request(1, 1, initialize)
	stream(<-s.streams, "data: "+initializeResult+"\n\n")
	r.wantFrame(0, transport.Main, initializeResult, false)
	if got := k.challenges(); !slices.Equal(got, []int{401}) {
		t.Errorf("got the challenges %d, want %v", got, []int{401})
	}
}
