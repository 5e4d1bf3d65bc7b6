package gateway_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authfile"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// another serves a second gateway of the same server, which has the same logins.
func (v *vault) another(entry string) *vault {
	v.t.Helper()
	w := &vault{t: v.t, as: v.as, logins: v.logins}
	o := gateway.Options{Login: v.login, UserLogins: &gateway.UserLogins{For: authfile.Options{Defaults: auth.Options{Store: v.logins, ClientName: "test"}}.For}}
	w.gateway = gateway.New(o)
	front := httptest.NewUnstartedServer(nil)
	w.url = "http://" + front.Listener.Addr().String()
	served := streamable.NewHandler(w.gateway.Server(), streamable.HandlerOptions{Check: v.checkUser})
	mux := http.NewServeMux()
	mux.Handle("/mcp", served)
	mux.Handle("/login/", w.gateway.LoginPages(w.url+"/login"))
	serveAt(v.t, front, mux)
	v.t.Cleanup(func() {
		served.Close(time.Second)
		failOn(v.t, w.gateway.Close(context.Background()))
		http.DefaultClient.CloseIdleConnections()
	})
	_, err := w.gateway.Apply(v.t.Context(), load(v.t, entryOf(v.as.Resource(), entry)))
	failOn(v.t, err)
	return w
}

func entryOf(url, settings string) string {
	return `{"mcpServers":{"a":{"url":"` + url + `","bowline":` + settings + `}}}`
}

// pageIn returns the page that the answer to a call names; "": none.
func pageIn(result *protocol.CallToolResult) string {
	_, rest, _ := strings.Cut(result.Content.Text(), "has to open ")
	page, _, _ := strings.Cut(rest, " ")
	return page
}

// Who has logged in at one gateway is logged in at another one, which has told him before that he is not.
//
// Guarantees: G-0102.4, G-0102.5
func TestALoginAtAnotherGateway(t *testing.T) {
	const entry = `{"login":"user"}`
	v := newVault(t, protocol.Latest, entry, authtest.Options{})
	w := v.another(entry)
	here, there := v.connect(protocol.Latest, "ada", nil), w.connect(protocol.Latest, "ada", nil)
	if page := pageIn(v.call(here, "ada")); page == "" {
		t.Fatal("she is logged in")
	}
	if text := w.visit(pageIn(w.call(there, "ada"))); !strings.Contains(text, "You are logged in") {
		t.Fatal(text)
	}
	if result := v.call(here, "ada"); result.IsError {
		t.Error(result.Content.Text())
	}
	v.as.RevokeAll()
	for range 2 {
		if page := pageIn(v.call(here, "ada")); page == "" {
			t.Error("a login that has ended is not asked for")
		}
	}
}

// A login that is removed from the store, as by another gateway, is missed after a second: where its user has logged in, and where it was found in the store.
//
// Guarantees: G-0102.13
func TestALoginThatIsRemovedFromTheStore(t *testing.T) {
	const entry = `{"login":"user"}`
	v := newVault(t, protocol.Latest, entry, authtest.Options{})
	w := v.another(entry)
	pages := 0
	there := w.connect(protocol.Latest, "ada", nil)
	here := v.connect(protocol.Latest, "ada", func(page string) string {
		if pages++; pages > 1 {
			return protocol.ElicitDecline
		}
		v.visit(page)
		return protocol.ElicitAccept
	})
	if page := pageIn(w.call(there, "ada")); page == "" {
		t.Error("she is logged in")
	}
	calls := map[string]func() *protocol.CallToolResult{
		"where she has logged in": func() *protocol.CallToolResult { return v.call(here, "ada") },
		"at another gateway":      func() *protocol.CallToolResult { return w.call(there, "ada") },
	}
	for _, at := range []string{"where she has logged in", "at another gateway"} {
		if result := calls[at](); result.IsError {
			t.Error(at, result.Content.Text())
		}
	}
	login := auth.Key{Resource: v.as.Resource(), Principal: person("ada").Identity()}
	failOn(t, v.logins.Locked(t.Context(), login, func(*auth.Entry) (*auth.Entry, error) { return nil, nil }))
	for at, call := range calls {
		for began := time.Now(); !call().IsError; {
			if time.Since(began) > time.Minute {
				t.Fatalf("%s, the login is used on", at)
			}
		}
	}
}

// loginsAt starts a gateway over one server at https://a.example/mcp, which is another one on each connection, and where users log in.
func loginsAt(t *testing.T, store auth.Store, each func() *server.Server) *fleet {
	t.Helper()
	const at = "https://a.example/mcp"
	f := newFleetFor(t, protocol.LatestLegacy, map[string]*server.Server{}, gateway.Options{UserLogins: &gateway.UserLogins{For: func(*mcpjson.Server) (auth.Options, error) {
		return auth.Options{Store: store, Resource: at}, nil
	}}}, load(t, `{"mcpServers":{}}`))
	f.each = each
	f.apply(load(t, entryOf(at, `{"login":"user"}`)))
	return f
}

// A connection goes on although its user has no login, since its server wants none. Once he has been seen to have one, he is missed.
//
// Guarantees: G-0102.13
func TestAConnectionWhoseServerWantsNoLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, of := auth.NewMemory(), auth.Key{Resource: "https://a.example/mcp", Principal: "ann"}
		i := new(isle)
		i.fleet = loginsAt(t, store, func() *server.Server { return newKeeper().Server })
		ann := i.clientOf("ann", protocol.LatestLegacy)
		callKeep(t, ann)
		for _, c := range []struct {
			about, want string
			login       *auth.Entry
		}{{"without a login", "x", nil}, {"with one", "x", &auth.Entry{Issuer: "https://as.example", Grant: "authorization_code"}}, {"without the one that was seen", "", nil}, {"again without a login", "y", nil}} {
			failOn(t, store.Locked(t.Context(), of, func(*auth.Entry) (*auth.Entry, error) { return c.login, nil }))
			pass(2 * time.Second)
			if got, err := client.Call[string](t.Context(), ann, "a__read", nil); err != nil || got != c.want {
				t.Errorf("%s, the server has kept %q, %v; want %q", c.about, got, err, c.want)
			}
			if c.want == "" {
				_, err := client.Call[string](t.Context(), ann, "a__keep", map[string]string{"What": "y"})
				failOn(t, err)
			}
		}
	})
}

// A link leads to the server that the file has, and not to one that it had under the same name.
//
// Guarantees: G-0102.1
func TestALinkToAServerThatHasChanged(t *testing.T) {
	v := newVault(t, protocol.Latest, `{"login":"user"}`, authtest.Options{})
	ada := v.connect(protocol.Latest, "ada", nil)
	before := pageIn(v.call(ada, "ada"))
	if same := pageIn(v.call(ada, "ada")); before == "" || same != before {
		t.Fatal(before, same)
	}
	_, err := v.gateway.Apply(t.Context(), load(t, entryOf(v.as.Resource()+"?", `{"login":"user"}`)))
	failOn(t, err)
	if after := pageIn(v.call(ada, "ada")); after == "" || after == before {
		t.Errorf("the page before: %s, after: %s", before, after)
	}
}

// A page names the host of its server, with the port. After its end, a gateway serves no page, and nobody logs in by one that it has told.
//
// Guarantees: G-0102.1
func TestPagesOfAGatewayThatHasEnded(t *testing.T) {
	v := newVault(t, protocol.Latest, `{"login":"user"}`, authtest.Options{})
	page := pageIn(v.call(v.connect(protocol.Latest, "ada", nil), "ada"))
	at, err := url.Parse(v.as.Resource())
	failOn(t, err)
	shown, err := http.Get(page)
	failOn(t, err)
	text, err := io.ReadAll(shown.Body)
	if shown.Body.Close(); err != nil || !bytes.Contains(text, []byte("("+at.Host+")")) {
		t.Errorf("the page does not name the host of the server: %s, %v", text, err)
	}
	failOn(t, v.gateway.Close(t.Context()))
	answer, err := http.Get(page)
	failOn(t, err)
	if answer.Body.Close(); answer.StatusCode != http.StatusNotFound {
		t.Errorf("its page is answered with %s", answer.Status)
	}
}
