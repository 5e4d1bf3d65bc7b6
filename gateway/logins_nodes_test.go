package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authfile"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/gateway"
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
