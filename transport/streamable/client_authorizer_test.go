package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// A keeper is an Authorizer whose token is one number higher after each challenge.
type keeper struct {
	authorize func(ctx context.Context) error // nil: the token
	challenge func(*transport.StatusError) (bool, error)

	mu    sync.Mutex
	token int
	asked []int // the status of each challenge
}

func (k *keeper) Authorize(ctx context.Context, r *http.Request) error {
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

func (k *keeper) Challenged(_ context.Context, r *http.Request, refused *transport.StatusError) (bool, error) {
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

// A bearing keeper has a header that requests share until the next challenge.
type bearing struct{ *keeper }

func (b bearing) Bearer(context.Context, *url.URL) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.token%2 == 1 { // of every other one it does not say
		return nil
	}
	return []string{fmt.Sprint("Bearer ", b.token)}
}

// authorizers are both kinds, of one keeper each.
func authorizers(make func() *keeper) map[string]keeping {
	return map[string]keeping{"": make(), "bearing": bearing{make()}}
}

type keeping interface {
	Authorizer
	challenges() []int
}

func (k *keeper) challenges() []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.asked)
}

// A guarded server serves whoever has its token, and denies others.
type guarded struct {
	http.Handler
	token  string // "Bearer 1" for instance; empty: nobody has it
	status int    // of the denial; 0 means 401

	mu   sync.Mutex
	seen []string // HTTP method, token, body
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	g.mu.Lock()
	g.seen = append(g.seen, fmt.Sprint(req.Method, " ", req.Header.Get("Authorization"), " ", string(body)))
	g.mu.Unlock()
	if req.Header.Get("Authorization") != g.token {
		w.Header().Set("WWW-Authenticate", `Bearer scope="knots"`)
		w.WriteHeader(max(g.status, http.StatusUnauthorized))
		io.WriteString(w, "who?")
		return
	}
	req.Body = io.NopCloser(strings.NewReader(string(body)))
	g.Handler.ServeHTTP(w, req)
}

func (g *guarded) log() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.seen)
}

// authorized opens a link with an Authorizer to a server.
func authorized(t *testing.T, server http.Handler, k Authorizer) *testReceiver {
	t.Helper()
	return open(t, &Client{URL: serve(t, server.ServeHTTP), Authorizer: k})
}

// Guarantees: G-0040.1
func TestEachRequestIsAuthorized(t *testing.T) {
	g := &guarded{Handler: &legacy{session: "s-1"}, token: "Bearer 0"}
	r := authorized(t, g, new(keeper))
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
			t.Errorf("not authorized: %s", line)
		}
	}
	if want := []string{"POST", "POST", "GET", "POST", "DELETE"}; !slices.Equal(methods, want) {
		t.Errorf("the server saw %q, want %q", methods, want)
	}
}

// Guarantees: G-0040.2
func TestADeniedRequestIsSentAgain(t *testing.T) {
	for _, status := range []int{401, 403} {
		for _, k := range authorizers(func() *keeper { return new(keeper) }) {
			g := &guarded{Handler: answerJSON(result(1)), token: "Bearer 1", status: status}
			r := authorized(t, g, k)
			frame := request(1, "tools/call", `"name":"echo",`+modernMeta)
			r.wantFrame(0, r.request(1, 1, frame), result(1), true)
			if want := []string{"POST Bearer 0 " + frame, "POST Bearer 1 " + frame}; !slices.Equal(g.log(), want) || !slices.Equal(k.challenges(), []int{status}) {
				t.Errorf("challenged by %d, the server saw %q, want %q", k.challenges(), g.log(), want)
			}
		}
	}
}

// Guarantees: G-0040.2, G-0040.3
func TestADenialThatStaysFailsTheMessage(t *testing.T) {
	for name, c := range map[string]struct {
		challenge func(*transport.StatusError) (bool, error)
		status    int
		requests  int
		is        error
	}{
		"for ever":         {nil, 401, 4, nil},
		"for ever, 403":    {nil, 403, 4, nil},
		"given up":         {func(*transport.StatusError) (bool, error) { return false, nil }, 401, 1, nil},
		"given up, 403":    {func(*transport.StatusError) (bool, error) { return false, nil }, 403, 1, nil},
		"a failed refresh": {func(*transport.StatusError) (bool, error) { return true, io.ErrUnexpectedEOF }, 401, 1, io.ErrUnexpectedEOF},
		"a login is due":   {func(*transport.StatusError) (bool, error) { return false, transport.ErrAuthRequired }, 401, 1, transport.ErrAuthRequired},
		"a panic":          {func(*transport.StatusError) (bool, error) { panic("no") }, 401, 1, nil},
	} {
		for kind, k := range authorizers(func() *keeper { return &keeper{challenge: c.challenge} }) {
			t.Run(name+" "+kind, func(t *testing.T) {
				g := &guarded{status: c.status}
				r := authorized(t, g, k)
				for n := range 2 { // the link lives on
					r.call(1+n, 1)
					var refused *transport.StatusError
					f := r.failure(n)
					if !errors.As(f.Err, &refused) || refused.Status != c.status || refused.Body != "who?" || refused.Challenge == "" || !f.Unsent {
						t.Fatalf("%+v", f)
					}
					if c.is != nil && !errors.Is(f.Err, c.is) {
						t.Errorf("%v, want %v too", f.Err, c.is)
					}
				}
				if got := len(g.log()); got != 2*c.requests {
					t.Errorf("%d requests, want %d", got, 2*c.requests)
				}
			})
		}
	}
}

// Guarantees: G-0040.3
func TestWithoutCredentialsNothingIsSent(t *testing.T) {
	for name, authorize := range map[string]func(context.Context) error{
		"an error": func(context.Context) error { return transport.ErrAuthRequired },
		"a panic":  func(context.Context) error { panic(transport.ErrAuthRequired) },
	} {
		t.Run(name, func(t *testing.T) {
			g := new(guarded)
			r := authorized(t, g, &keeper{authorize: authorize})
			for n := range 3 { // more than dials may fail
				r.call(1+n, 1)
				if f := r.failure(n); !f.Unsent || !strings.Contains(f.Err.Error(), transport.ErrAuthRequired.Error()) {
					t.Errorf("%+v", f)
				}
			}
			r.send(9, notification("n"))
			if f := r.failure(3); f.Tag != 9 || !f.Unsent {
				t.Errorf("%+v", f)
			}
			if got := g.log(); len(got) > 0 {
				t.Errorf("the server saw %q", got)
			}
		})
	}
}

// Who looks for credentials is not waited for when nobody needs them any more.
//
// Guarantees: G-0040.4
func TestTheSearchForCredentialsEndsWithTheRequest(t *testing.T) {
	searching, ended := make(chan struct{}, 2), make(chan struct{}, 2)
	k := &keeper{authorize: func(ctx context.Context) error {
		searching <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return context.Cause(ctx)
	}}
	r := authorized(t, new(guarded), k)
	stream := r.call(1, 1)
	wait(t, "a search", searching)
	r.link.End(stream)
	wait(t, "its end", ended)
	r.call(2, 1)
	wait(t, "another search", searching)
	if err := r.link.Close(0); err != nil {
		t.Fatal(err)
	}
	if loss := r.loss(); !slices.Equal(loss.Unsent, []transport.Tag{2}) {
		t.Errorf("%+v", loss)
	}
}

// Guarantees: G-0022.7
func TestCredentialsStayHere(t *testing.T) {
	seen := make(chan http.Header, 1)
	other := serve(t, func(w http.ResponseWriter, req *http.Request) {
		seen <- req.Header
		answerJSON(result(1))(w, req)
	})
	for _, k := range authorizers(func() *keeper { return new(keeper) }) {
		r := open(t, &Client{
			URL: serve(t, func(w http.ResponseWriter, req *http.Request) {
				http.Redirect(w, req, other, http.StatusTemporaryRedirect)
			}),
			Authorizer: k,
			HTTP:       &http.Client{Transport: transportOf(t), CheckRedirect: func(*http.Request, []*http.Request) error { return nil }},
		})
		r.wantFrame(0, r.call(1, 1), result(1), true)
		if got := <-seen; got.Get("Authorization") != "" || got.Get("DPoP") != "" {
			t.Errorf("another host was given %v", got)
		}
	}
}

// What a bearing Authorizer says of one request is sent with no other: a header that the
// program has given is sent when there are no credentials any more.
//
// Guarantees: G-0040.1
func TestSharedCredentialsEndWithTheirRefusal(t *testing.T) {
	g := &guarded{Handler: answerJSON(result(1)), token: "none"}
	k := &keeper{challenge: func(*transport.StatusError) (bool, error) { return true, nil }}
	r := open(t, &Client{URL: serve(t, g.ServeHTTP), Header: http.Header{"Authorization": {"given"}}, Authorizer: forgetful{bearing{k}}})
	r.call(1, 1)
	r.failure(0)
	var seen []string
	for _, line := range g.log() {
		_, line, _ = strings.Cut(line, " ")
		token, _, _ := strings.Cut(line, " {")
		seen = append(seen, token)
	}
	if want := []string{"Bearer 0", "given", "given", "given"}; !slices.Equal(seen, want) {
		t.Errorf("the server saw %q, want %q", seen, want)
	}
}

// A forgetful Authorizer adds nothing.
type forgetful struct{ bearing }

func (forgetful) Authorize(context.Context, *http.Request) error { return nil }

// An older server is as careful: the GET request and the messages are authorized.
//
// Guarantees: G-0040.1, G-0040.2
func TestAnOlderServerIsAskedWithCredentials(t *testing.T) {
	s, k := newOlder(), new(keeper)
	r := authorized(t, &guarded{Handler: s, token: "Bearer 1"}, k)
	r.link.Grant(transport.Main, 1)
	r.request(1, 1, initialize)
	stream(<-s.streams, "data: "+initializeResult+"\n\n")
	r.wantFrame(0, transport.Main, initializeResult, false)
	if got := k.challenges(); !slices.Equal(got, []int{401}) {
		t.Errorf("challenged by %d", got)
	}
}
