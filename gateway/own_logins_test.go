package gateway_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

const loginsTool = "bowline_logins"

// askForLogins calls the tool by which a user finds his logins.
func askForLogins(t *testing.T, session *client.Session) *protocol.CallToolResult {
	t.Helper()
	result, err := session.CallTool(timeout(t), &protocol.CallToolParams{Name: loginsTool, Arguments: []byte(`{}`)})
	failOn(t, err)
	return result
}

// A desktop is a browser with its cookies.
type desktop struct {
	t *testing.T
	*http.Client
}

func newDesktop(t *testing.T) *desktop {
	t.Helper()
	jar, err := cookiejar.New(nil)
	failOn(t, err)
	return &desktop{t, &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}}
}

func (d *desktop) read(answer *http.Response, err error) (status int, text string) {
	d.t.Helper()
	failOn(d.t, err)
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	failOn(d.t, err)
	return answer.StatusCode, string(all)
}

// press presses the button of a server on a page.
func (d *desktop) press(page, name string) (status int, text string) {
	d.t.Helper()
	form := strings.NewReader(url.Values{"server": {name}}.Encode())
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, page, form)
	failOn(d.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return d.read(d.Do(r))
}

// A user ends his own login at a server on a page to which a tool of the gateway leads him. It is as if who runs the gateway had done it, and recorded as his own action. Others notice nothing, and
// can do nothing there.
//
// Guarantees: G-0102.14, G-0102.15
func TestAUserLogsHimselfOut(t *testing.T) {
	for _, front := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, canBeAsked := range []bool{false, true} {
			v := newVault(t, protocol.Latest, `{"login":"user"}`, authtest.Options{})
			ada, bob := v.loggedIn("ada"), v.loggedIn("bob")
			key := auth.Key{Resource: v.as.Resource(), Principal: person("ada").Identity()}
			var page string
			var opens func(string) string
			if canBeAsked {
				opens = func(at string) string { page = at; return protocol.ElicitAccept }
			}
			result := askForLogins(t, v.connect(front, "ada", opens))
			if !canBeAsked {
				_, rest, _ := strings.Cut(result.Content.Text(), "let him open ")
				page, _, _ = strings.Cut(rest, " ")
			}
			if result.IsError || !strings.HasPrefix(page, v.url+"/login/") || strings.Contains(result.Content.Text(), "/login/") == canBeAsked {
				t.Fatal(result.Content.Text(), page)
			}
			own, other := newDesktop(t), newDesktop(t)
			if _, text := own.read(own.Get(page)); !strings.Contains(text, "Logins of token ada") || !strings.Contains(text, `value="a"`) {
				t.Fatal(text)
			}
			other.read(other.Get(page))
			v.wantCall(ada, "ada") // to look has ended nothing
			if status, text := own.press(page, "a"); status != http.StatusOK || !strings.Contains(text, "The login is ended") || !strings.Contains(text, "There is no login") {
				t.Fatal(status, text)
			}
			if left, err := v.logins.Load(t.Context(), key); left != nil || err != nil || len(v.as.Sink.Requests(authtest.Revoke)) != 2 {
				t.Errorf("in the store is %v, %v; %d tokens were revoked", left, err, len(v.as.Sink.Requests(authtest.Revoke)))
			}
			if pageIn(v.call(ada, "ada")) == "" {
				t.Error("who has logged out calls as before")
			}
			v.wantCall(bob, "bob")
			if status, text := other.press(page, "a"); status != http.StatusNotFound {
				t.Error(status, text)
			}
			if got, want := v.records.about("logout"), []string{"token ada token ada a/"}; !slices.Equal(got, want) {
				t.Errorf("records: %q", got)
			}
			if got, want := v.records.about("login page"), []string{"token ada / denied"}; !slices.Equal(got, want) || v.gateway.Report().PagesRefused != 1 {
				t.Errorf("records of what was refused: %q", got)
			}
		}
	}
}

// The page of a user has his own logins only, and a user who does not agree to open it ends none.
//
// Guarantees: G-0102.14
func TestThePageOfAnotherUser(t *testing.T) {
	v := newVault(t, protocol.Latest, `{"login":"user"}`, authtest.Options{})
	ada := v.loggedIn("ada")
	var page string
	bob := v.connect(protocol.Latest, "bob", func(at string) string { page = at; return protocol.ElicitDecline })
	if result := askForLogins(t, bob); !result.IsError || !strings.Contains(result.Content.Text(), "No login was ended") {
		t.Error(result.Content.Text())
	}
	browser := newDesktop(t)
	if _, text := browser.read(browser.Get(page)); !strings.Contains(text, "Logins of token bob") || !strings.Contains(text, "There is no login") {
		t.Error(text)
	}
	if _, text := browser.press(page, "a"); !strings.Contains(text, "no such login") {
		t.Error(text)
	}
	v.wantCall(ada, "ada")
	if got := v.records.about("logout"); len(got) > 0 {
		t.Errorf("records: %q", got)
	}
}

// A logout that does not revoke is told to the user without a reason, and recorded with one; the login is removed all the same.
//
// Guarantees: G-0102.14
func TestAUsersLogoutThatCannotRevoke(t *testing.T) {
	v := newVault(t, protocol.Latest, `{"login":"user"}`, authtest.Options{})
	ada := v.loggedIn("ada")
	v.as.Lie(authtest.Revoke, func(a *authtest.Answer) { a.Status = http.StatusServiceUnavailable })
	_, rest, _ := strings.Cut(askForLogins(t, ada).Content.Text(), "let him open ")
	page, _, _ := strings.Cut(rest, " ")
	browser := newDesktop(t)
	browser.read(browser.Get(page))
	if status, text := browser.press(page, "a"); status != http.StatusBadGateway || !strings.Contains(text, "Ask who runs the gateway") || !strings.Contains(text, "There is no login") {
		t.Error(status, text)
	}
	if got, want := v.records.about("logout"), []string{"token ada token ada a/ failed"}; !slices.Equal(got, want) {
		t.Errorf("records: %q", got)
	}
	if pageIn(v.call(ada, "ada")) == "" {
		t.Error("who has logged out calls as before")
	}
}

// The tool is there while users log in at a server by a page, at the endpoint for search, too, and clients are told when that changes. A server whose tool has this name without a prefix keeps
// it.
//
// Guarantees: G-0102.14
func TestWhoHasTheToolForLogins(t *testing.T) {
	v := newVault(t, protocol.Latest, `{"login":"user"}`, authtest.Options{})
	changed := make(chan struct{}, 16)
	connect := func(at string) *client.Session {
		o := client.Options{ProtocolVersion: protocol.LatestLegacy, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if _, tools := e.(*client.ToolsChanged); tools {
				changed <- struct{}{}
			}
		}}
		to := &streamable.Client{URL: at, Header: http.Header{"Authorization": {"Bearer " + person("ada").token()}}}
		session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, o).Connect(timeout(t), to)
		failOn(t, err)
		t.Cleanup(func() { session.Close(context.Background()) })
		return session
	}
	ada := connect(v.url + "/mcp")
	wantTools := func(session *client.Session, want ...string) {
		t.Helper()
		for ctx := timeout(t); ; {
			got := toolNames(t, session)
			if slices.Equal(got, want) {
				return
			}
			if ctx.Err() != nil {
				t.Fatalf("the tools are %q, want %q", got, want)
			}
		}
	}
	wantTools(ada, loginsTool, "a__open")
	searching := streamable.NewHandler(v.gateway.Server(), streamable.HandlerOptions{Check: v.checkUser})
	site := httptest.NewUnstartedServer(nil)
	serveAt(t, site, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		searching.ServeHTTP(w, r.WithContext(gateway.WithSearch(r.Context())))
	}))
	t.Cleanup(func() { searching.Close(time.Second) })
	search := connect("http://" + site.Listener.Addr().String())
	wantTools(search, loginsTool, "call_read_only_tool", "call_tool", "describe_tool", "find_tools")
	if text := askForLogins(t, search).Content.Text(); !strings.Contains(text, v.url+"/login/") {
		t.Error(text)
	}
	entry := func(settings string) {
		t.Helper()
		_, err := v.gateway.Apply(timeout(t), load(t, entryOf(v.as.Resource(), settings)))
		failOn(t, err)
	}
	awaitChange := func() {
		t.Helper()
		select {
		case <-changed:
		case <-timeout(t).Done():
			t.Fatal("clients are not told")
		}
	}
	const exchange = `{"login":{"exchange":{"issuer":"https://login.example.com","clientId":"gateway","clientSecret":"S3CRET"}}}`
	for range 2 { // one notification may be of what was before
		entry(exchange)
		wantTools(ada, "a__open")
		awaitChange()
		entry(`{"login":"user"}`)
		wantTools(ada, loginsTool, "a__open")
		awaitChange()
	}
	entry(exchange)
	if _, err := ada.CallTool(timeout(t), &protocol.CallToolParams{Name: loginsTool}); err == nil || !strings.Contains(err.Error(), "unknown tool") {
		t.Error(err)
	}
	entry(`{"login":"user","prefix":"","tools":{"rename":{"open":"` + loginsTool + `"}}}`)
	wantTools(ada, loginsTool)
	if text := askForLogins(t, ada).Content.Text(); strings.Contains(text, "let him open") {
		t.Error(text)
	}
}

// Each request at the page of a login that is not of the browser which has begun it, or comes a second time, is refused over HTTP, counted, and recorded with its address and why, and without the link. The user
// logs in all the same.
//
// Guarantees: G-0102.2, G-0102.15
func TestAPageOfALoginThatIsNotTheBrowsers(t *testing.T) {
	v := newVault(t, protocol.Latest, `{"login":"user"}`, authtest.Options{})
	ada := v.connect(protocol.Latest, "ada", nil)
	page := pageIn(v.call(ada, "ada"))
	if !strings.HasPrefix(page, v.url+"/login/") {
		t.Fatal(page)
	}
	own, other := newDesktop(t), newDesktop(t)
	for _, d := range []*desktop{own, other} {
		d.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	open := func(d *desktop, method, at, from string) (status int, next string) {
		t.Helper()
		r, err := http.NewRequestWithContext(timeout(t), method, at, nil)
		failOn(t, err)
		r.Header.Set("Sec-Fetch-Site", from)
		answer, err := d.Do(r)
		status, _ = d.read(answer, err)
		return status, answer.Header.Get("Location")
	}
	refused := 0
	wantRefused := func(name string, d *desktop, method, at, from string, want int, user, why string) {
		t.Helper()
		before := len(v.records.records())
		if status, next := open(d, method, at, from); status != want || next != "" {
			t.Errorf("%s: %d, and the browser is sent to %q", name, status, next)
		}
		if refused++; v.gateway.Report().PagesRefused != int64(refused) {
			t.Errorf("%s: the report counts %d, want %d", name, v.gateway.Report().PagesRefused, refused)
		}
		records := v.records.records()[before:]
		if len(records) != 1 {
			t.Errorf("%s: %d records", name, len(records))
			return
		}
		got := records[0]
		if got.Event != "login page" || got.Outcome != "denied" || got.Name != user || !strings.HasPrefix(got.Address, "127.0.0.1:") || !strings.Contains(got.Reason, why) {
			t.Errorf("%s: %+v", name, got)
		}
		shown, err := url.Parse(at)
		failOn(t, err)
		for _, secret := range []string{strings.TrimPrefix(page, v.url+"/login/"), cmp.Or(shown.Query().Get("state"), page), cmp.Or(shown.Query().Get("code"), page)} {
			if text := fmt.Sprintf("%+v", got); strings.Contains(text, secret) {
				t.Errorf("%s: what was shown is in the record", name)
			}
		}
	}
	const link, comes = "there is no such link", "no login of this browser"
	guessed := page[:len(page)-1] + map[bool]string{true: "B", false: "A"}[strings.HasSuffix(page, "A")]
	wantRefused("a guessed link", own, http.MethodGet, guessed, "none", http.StatusNotFound, "", link)
	wantRefused("a browser that was not shown what it agrees to", other, http.MethodPost, page, "same-origin", http.StatusForbidden, "token ada", "another browser")
	if status, _ := open(own, http.MethodGet, page, "none"); status != http.StatusOK {
		t.Fatal(status)
	}
	wantRefused("the form of another site", own, http.MethodPost, page, "cross-site", http.StatusForbidden, "token ada", "another site")
	status, issuer := open(own, http.MethodPost, page, "same-origin")
	if status != http.StatusSeeOther {
		t.Fatal(status)
	}
	wantRefused("a second time", own, http.MethodGet, page, "none", http.StatusNotFound, "", link)
	wantRefused("a second time, pressed", own, http.MethodPost, page, "same-origin", http.StatusNotFound, "", link)
	wantRefused("from another browser", other, http.MethodGet, page, "none", http.StatusNotFound, "", link)
	wantRefused("a forged state", own, http.MethodGet, v.url+"/login/callback?code=stolen&state=forged", "cross-site", http.StatusNotFound, "", comes)
	_, back := open(own, http.MethodGet, issuer, "cross-site")
	if !strings.HasPrefix(back, v.url+"/login/callback?") {
		t.Fatal(back)
	}
	wantRefused("another browser comes back", other, http.MethodGet, back, "cross-site", http.StatusNotFound, "", comes)
	if status, _ := open(own, http.MethodGet, back, "cross-site"); status != http.StatusOK {
		t.Fatal(status)
	}
	wantRefused("a state a second time", own, http.MethodGet, back, "cross-site", http.StatusNotFound, "", comes)
	v.wantCall(ada, "ada")
}
