package gateway_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authfile"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/mcpjson/sessions"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A person is who has the token that ends so.
type person string

func (u person) Identity() string { return "token " + string(u) }

func (u person) token() string { return "of-the-gateway-" + string(u) }

// tokenOf returns the token of a request.
func tokenOf(r *http.Request) string {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), "Bearer ")
	return token
}

// checkUser knows the tokens of persons, and those that the authorization server has issued to one.
func (v *vault) checkUser(r *http.Request) (streamable.Caller, *streamable.Denial) {
	name, ok := strings.CutPrefix(tokenOf(r), person("").token())
	v.mu.Lock()
	defer v.mu.Unlock()
	if as, issued := v.issued[tokenOf(r)]; issued {
		name, ok = string(as), true
	}
	if !ok {
		return nil, &streamable.Denial{Status: http.StatusUnauthorized, Text: "no token"}
	}
	return streamable.NewCaller(person(name).Identity()), nil
}

// A journal is what a gateway logs, which goes on while a test reads it.
type journal struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements io.Writer.
func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all.String()
}

// A vault is a gateway with users, over HTTP, before a server that needs a login.
type vault struct {
	t       *testing.T
	gateway *gateway.Gateway
	url     string // of the gateway, without a path
	as      *authtest.Server
	logins  auth.Store  // of users
	away    atomic.Bool // they cannot be read
	log     journal
	records recorder

	asked    chan string // ids of pages that a client was asked to open
	finished chan string // and of those on which it was told that its user has finished

	wants atomic.Pointer[string] // a scope that calls need; nil: none

	mu     sync.Mutex
	sent   []string          // to the server: headers and bodies
	issued map[string]person // tokens
}

// serveAt serves something until the end of the test.
func serveAt(t *testing.T, listening *httptest.Server, serve http.Handler) {
	listening.Config.Handler = serve
	listening.Start()
	t.Cleanup(listening.Close)
}

// A shelf is the Store of the logins of users.
type shelf struct{ *vault }

func (s shelf) Load(ctx context.Context, k auth.Key) (*auth.Entry, error) {
	if s.away.Load() {
		return nil, errors.New("the store is away")
	}
	return s.logins.Load(ctx, k)
}

func (s shelf) Locked(ctx context.Context, k auth.Key, f func(*auth.Entry) (*auth.Entry, error)) error {
	return s.logins.Locked(ctx, k, f)
}

func newVault(t *testing.T, back, entry string, as authtest.Options) *vault {
	t.Helper()
	v := &vault{t: t, logins: auth.NewMemory(), issued: make(map[string]person), asked: make(chan string, 16), finished: make(chan string, 16)}
	s := server.New(protocol.Implementation{Name: "vault", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "open"}, func(_ context.Context, in struct{ As string }) (string, error) { return "opened for " + in.As, nil })
	behind := httptest.NewUnstartedServer(nil)
	as.Resource = "http://" + behind.Listener.Addr().String() + "/mcp"
	as.Clients = []authtest.Client{{ID: "gateway", Secret: "S3CRET", Auth: "client_secret_basic"}}
	v.as = authtest.Start(t, as)
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{})
	t.Cleanup(func() { endpoint.Close(time.Second) })
	serveAt(t, behind, v.recorded(v.as.Protect(endpoint)))

	o := gateway.Options{Login: v.login, UserLogins: &gateway.UserLogins{Person: func(identity string) string { return strings.TrimSuffix(identity, "-again") }, For: authfile.Options{Defaults: auth.Options{Store: shelf{v}, ClientName: "test"}}.For}}
	o.Client.ProtocolVersion, o.Audit = back, v.records.write
	o.Client.Conn.Log = slog.New(slog.NewTextHandler(&v.log, nil))
	v.gateway = gateway.New(o)
	front := httptest.NewUnstartedServer(nil)
	v.url = "http://" + front.Listener.Addr().String()
	served := streamable.NewHandler(v.gateway.Server(), streamable.HandlerOptions{Check: v.checkUser})
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if token := tokenOf(r); !strings.HasSuffix(token, "-unshown") {
			r = r.WithContext(gateway.WithSubjectToken(r.Context(), token))
		}
		served.ServeHTTP(w, r)
	})
	mux.Handle("/login/", v.gateway.LoginPages(v.url+"/login"))
	serveAt(t, front, mux)
	t.Cleanup(func() {
		served.Close(time.Second)
		if err := v.gateway.Close(context.Background()); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	entry = strings.ReplaceAll(entry, "ISSUER", v.as.Issuer())
	if _, err := v.gateway.Apply(t.Context(), load(t, fmt.Sprintf(`{"mcpServers":{"a":{"url":%q,"bowline":%s}}}`, as.Resource, entry))); err != nil {
		t.Fatal(err)
	}
	return v
}

// login is that of the gateway itself, over whose connection its lists come.
func (v *vault) login(s *mcpjson.Server) (sessions.Login, error) {
	o, err := authfile.Options{}.For(s)
	o.Grant, o.Registered = auth.ClientCredentials{}, []auth.Registered{{ID: "gateway", Secret: auth.NewSecret("S3CRET")}}
	return auth.New(o), err
}

// recorded keeps what the server gets.
func (v *vault) recorded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			v.t.Error(err)
		}
		var all strings.Builder
		_ = r.Header.Write(&all)
		v.mu.Lock()
		v.sent = append(v.sent, r.RequestURI+"\n"+all.String()+"\n"+string(body))
		v.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		_, claims, _ := strings.Cut(tokenOf(r), ".")
		claims, _, _ = strings.Cut(claims, ".")
		allows, _ := base64.RawURLEncoding.DecodeString(claims)
		if scope := v.wants.Load(); scope != nil && len(allows) > 0 && !bytes.Contains(allows, []byte(*scope)) && bytes.Contains(body, []byte(`"tools/call"`)) {
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+*scope+`"`)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// tokensFor returns the tokens with which the server got a text.
func (v *vault) tokensFor(text string) (all []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, sent := range v.sent {
		_, rest, found := strings.Cut(sent, "Authorization: Bearer ")
		token, _, _ := strings.Cut(rest, "\r\n")
		if found && strings.Contains(sent, text) && !slices.Contains(all, token) {
			all = append(all, token)
		}
	}
	return all
}

// withoutToken returns how many messages the server got without a token.
func (v *vault) withoutToken() (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, sent := range v.sent {
		if !strings.Contains(sent, "Authorization: ") && strings.Contains(sent, "jsonrpc") {
			n++
		}
	}
	return n
}

// connect connects a user's client. Opens says what its user does with a page; nil: it cannot be asked.
func (v *vault) connect(version string, as person, opens func(page string) string) *client.Session {
	v.t.Helper()
	return v.connectWith(version, as.token(), opens)
}

func (v *vault) connectWith(version, token string, opens func(page string) string) *client.Session {
	v.t.Helper()
	o := client.Options{ProtocolVersion: version, FailFast: true, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
		if over, ok := e.(*client.ElicitationComplete); ok {
			v.finished <- over.ID
		}
	}}
	if opens != nil {
		o.ElicitURL = func(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			v.asked <- p.ElicitationID
			return &protocol.ElicitResult{Action: opens(p.URL)}, nil
		}
	}
	to := &streamable.Client{URL: v.url + "/mcp", Header: http.Header{"Authorization": {"Bearer " + token}}}
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, o).Connect(timeout(v.t), to)
	failOn(v.t, err)
	v.t.Cleanup(func() { session.Close(context.Background()) })
	return session
}

// wantNothingToExchange has a user call of whose token the program tells the gateway nothing.
func (v *vault) wantNothingToExchange(version string, opens func(page string) string) {
	v.t.Helper()
	sue := v.connect(version, "sue-unshown", opens)
	if result := v.call(sue, "sue"); !result.IsError || !strings.Contains(result.Content.Text(), "the user has no token of an issuer that could be exchanged") || !strings.HasSuffix(result.Content.Text(), "It was not executed") {
		v.t.Error(result.Content.Text())
	}
}

// call calls the tool of the server.
func (v *vault) call(session *client.Session, as string) *protocol.CallToolResult {
	v.t.Helper()
	result, err := session.CallTool(timeout(v.t), &protocol.CallToolParams{Name: "a__open", Arguments: []byte(fmt.Sprintf(`{"As":%q}`, as))})
	failOn(v.t, err)
	return result
}

// visit opens a page, agrees, and logs in, as the browser of a user. It returns the last page.
func (v *vault) visit(page string) string {
	v.t.Helper()
	jar, err := cookiejar.New(nil)
	failOn(v.t, err)
	carrier := &http.Transport{DisableKeepAlives: true}
	browser := &http.Client{Jar: jar, Transport: carrier}
	shown, err := browser.Get(page)
	failOn(v.t, err)
	shown.Body.Close()
	press, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, page, nil)
	failOn(v.t, err)
	press.Header.Set("Sec-Fetch-Site", "same-origin")
	last, err := browser.Do(press)
	failOn(v.t, err)
	defer last.Body.Close()
	text, err := io.ReadAll(last.Body)
	failOn(v.t, err)
	return string(text)
}

// Each user logs in at a server by a page that his client is asked to open, and calls go there with his login only: neither that of another user, nor that of
// the gateway, and never the token that his client has for the gateway.
//
// Guarantees: G-0102.4, G-0102.5, G-0102.6
func TestUsersLogInAtAServer(t *testing.T) {
	for _, c := range []struct{ front, back string }{
		{protocol.LatestLegacy, protocol.LatestLegacy}, {protocol.LatestLegacy, protocol.Latest}, {protocol.Latest, protocol.LatestLegacy}, {protocol.Latest, protocol.Latest},
	} {
		t.Run(c.front+" to "+c.back, func(t *testing.T) {
			v := newVault(t, c.back, `{"login":"user"}`, authtest.Options{})
			pages := map[person]int{}
			for _, who := range []person{"ada", "bob"} {
				session := v.connect(c.front, who, func(page string) string {
					pages[who]++
					if text := v.visit(page); !strings.Contains(text, "You are logged in") {
						t.Error(text)
					}
					if answer, err := http.Get(page); err != nil || answer.Body.Close() != nil || answer.StatusCode != http.StatusNotFound {
						t.Error("the link works twice", err)
					}
					return protocol.ElicitAccept
				})
				for range 2 {
					if result := v.call(session, string(who)); result.IsError || result.Content.Text() != `opened for `+string(who) {
						t.Fatal(result.Content.Text())
					}
				}
			}
			if pages["ada"] != 1 || pages["bob"] != 1 {
				t.Errorf("pages opened: %v", pages)
			}
			for range pages {
				if c.front == protocol.Latest {
					break // which is not told
				}
				if asked, finished := <-v.asked, <-v.finished; asked != finished {
					t.Errorf("asked to open %s, told of the end of %s", asked, finished)
				}
			}
			if got, want := v.records.about("login"), []string{"token ada  a/", "token bob  a/"}; !slices.Equal(got, want) {
				t.Errorf("records of logins: %q", got)
			}
			if got, want := v.records.about("login page"), []string{"/ denied", "/ denied"}; !slices.Equal(got, want) {
				t.Errorf("records of links that were used twice: %q", got)
			}
			if waiting := v.gateway.Report().Questions; len(waiting) > 0 {
				t.Errorf("after the logins, questions wait: %v", waiting)
			}
			own := v.tokensFor(`"tools/list"`)
			adas, bobs := v.tokensFor(`"ada"`), v.tokensFor(`"bob"`)
			if len(adas) != 1 || len(bobs) != 1 || len(own) != 1 || adas[0] == bobs[0] || adas[0] == own[0] || bobs[0] == own[0] {
				t.Errorf("%d tokens of ada, %d of bob, %d of the gateway", len(adas), len(bobs), len(own))
			}
			for _, who := range []person{"ada", "bob"} {
				e, err := v.logins.Load(t.Context(), auth.Key{Resource: v.as.Resource(), Principal: who.Identity()})
				if err != nil || e == nil || !slices.Contains([]string{adas[0], bobs[0]}, e.Access.Reveal()) {
					t.Errorf("the login of %s: %v, %v", who, e, err)
				}
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			if all := strings.Join(v.sent, "\n"); strings.Contains(all, person("").token()) || strings.Contains(all, "bowline-login") {
				t.Error("the server got what is the gateway's alone")
			}
		})
	}
}

// A client that cannot be asked, or cannot be asked to open a page, gets the page in its answer, which is for its user only and says that nothing was executed. So does one whose user has not agreed,
// without the page. The client stays connected.
//
// Guarantees: G-0102.5
func TestWhoCannotBeAskedToLogIn(t *testing.T) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		v := newVault(t, protocol.LatestLegacy, `{"login":"user","share":"client"}`, authtest.Options{})
		ada := v.connect(version, "ada", nil)
		result := v.call(ada, "ada")
		_, rest, found := strings.Cut(result.Content.Text(), "open "+v.url+"/login/")
		secret, _, _ := strings.Cut(rest, " ")
		if meta := string(result.Meta[gateway.MetaOutcome]); !result.IsError || !found || !strings.Contains(meta, `"delivery":"not sent"`) || !strings.Contains(meta, v.url+"/login/"+secret+`"`) {
			t.Fatal(result.Content.Text(), meta)
		}
		forms := client.Options{ProtocolVersion: version, FailFast: true, Elicit: user("eve").Elicit}
		eve, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, forms).Connect(timeout(t), &streamable.Client{URL: v.url + "/mcp", Header: http.Header{"Authorization": {"Bearer " + person("eve").token()}}})
		failOn(t, err)
		if result := v.call(eve, "eve"); !result.IsError || !strings.Contains(result.Content.Text(), "open "+v.url+"/login/") {
			t.Error(result.Content.Text())
		}
		eve.Close(context.Background())
		for _, action := range []string{protocol.ElicitDecline, protocol.ElicitCancel} {
			bob := v.connect(version, "bob", func(string) string { return action })
			if result := v.call(bob, "bob"); !result.IsError || !strings.Contains(result.Content.Text(), "the user has not agreed. It was not executed") || strings.Contains(result.Content.Text(), "/login/") {
				t.Error(result.Content.Text())
			}
		}
		if text := v.visit(v.url + "/login/" + secret); !strings.Contains(text, "You are logged in") {
			t.Fatal(text)
		}
		if result := v.call(ada, "ada"); result.IsError {
			t.Error(result.Content.Text())
		}
		if len(v.tokensFor(`"bob"`)) != 0 {
			t.Error("the call of a user without a login was sent with a token")
		}
		if logged := v.log.String(); strings.Contains(logged, secret) || len(v.as.Printed(logged)) > 0 {
			t.Error("a secret is in the log")
		}
	}
}

// A login that has ended at the server makes its user log in again. While the authorization server is away, a call fails and says when to try again. In
// both cases the client stays connected, and so do those of others.
//
// Guarantees: G-0102.7
func TestALoginThatEnds(t *testing.T) {
	v := newVault(t, protocol.Latest, `{"login":"user"}`, authtest.Options{})
	pages := 0
	ada := v.connect(protocol.Latest, "ada", func(page string) string {
		pages++
		v.visit(page)
		return protocol.ElicitAccept
	})
	if result := v.call(ada, "ada 1"); result.IsError {
		t.Fatal(result.Content.Text())
	}
	v.as.Lie(authtest.Token, func(a *authtest.Answer) { a.Status, a.Object = http.StatusServiceUnavailable, map[string]any{} })
	v.as.RevokeAll()
	if result := v.call(ada, "ada 2"); !result.IsError || !strings.Contains(result.Content.Text(), "status 503") || !strings.Contains(result.Content.Text(), "It was not executed") || pages != 1 {
		t.Error(pages, result.Content.Text())
	}
	v.as.Lie(authtest.Token, nil)
	for {
		result := v.call(ada, "ada 3")
		if !result.IsError {
			break
		}
		if !strings.Contains(result.Content.Text(), "tried again in") {
			t.Fatal(result.Content.Text())
		}
	}
	if pages != 2 || len(v.tokensFor(`"ada 3"`)) == 0 {
		t.Errorf("%d pages were opened", pages)
	}
}

// A login that fails is recorded with its user and its server, and without the text of the authorization server. His client is not told that he has finished.
//
// Guarantees: G-0099.7
func TestAFailedLoginIsRecorded(t *testing.T) {
	v := newVault(t, protocol.Latest, `{"login":"user"}`, authtest.Options{})
	pages := 0
	ada := v.connect(protocol.LatestLegacy, "ada", func(page string) string {
		if pages++; pages == 1 {
			v.as.Lie(authtest.Token, func(a *authtest.Answer) {
				a.Status, a.Object = http.StatusBadRequest, map[string]any{"error": "invalid_grant", "error_description": "s3cret"}
			})
			defer v.as.Lie(authtest.Token, nil)
		}
		if text := v.visit(page); strings.Contains(text, "You are logged in") != (pages == 2) {
			t.Error(pages, text)
		}
		return protocol.ElicitAccept
	})
	if result := v.call(ada, "ada"); !result.IsError {
		t.Error(result.Content.Text())
	}
	if got, want := v.records.about("login"), []string{"token ada  a/ failed"}; !slices.Equal(got, want) {
		t.Errorf("records of logins: %q, want %q", got, want)
	}
	if result := v.call(ada, "ada"); result.IsError {
		t.Error(result.Content.Text())
	}
	if failed, second := <-v.asked, <-v.asked; failed == second || <-v.finished != second {
		t.Error("the client is told that a user has finished who is not logged in")
	}
	v.records.mu.Lock()
	defer v.records.mu.Unlock()
	for _, r := range v.records.all {
		if text, err := json.Marshal(r); err != nil || strings.Contains(string(text), "s3cret") {
			t.Errorf("%s, %v", text, err)
		}
	}
}

// Identities of one person have the same logins: one that comes later, and one that waits. What waits for another person is left alone: nothing has changed for it.
//
// Guarantees: G-0102.4
func TestIdentitiesOfOnePerson(t *testing.T) {
	v := newVault(t, protocol.LatestLegacy, `{"login":"user"}`, authtest.Options{})
	declines := func(string) string { return protocol.ElicitDecline }
	waits, bob := v.connect(protocol.Latest, "ada", declines), v.connect(protocol.Latest, "bob", declines)
	for _, session := range []*client.Session{waits, bob} {
		if result := v.call(session, "ada"); !result.IsError {
			t.Error(result.Content.Text())
		}
	}
	tried := 0
	logsIn := v.connect(protocol.Latest, "ada-again", func(page string) string {
		tried = v.withoutToken()
		v.visit(page)
		return protocol.ElicitAccept
	})
	for _, session := range []*client.Session{logsIn, waits, v.connect(protocol.Latest, "ada", nil)} {
		if result := v.call(session, "ada"); result.IsError {
			t.Error(result.Content.Text())
		}
	}
	if result := v.call(bob, "bob"); !result.IsError {
		t.Error(result.Content.Text())
	}
	if again := v.withoutToken() - tried; again != 0 {
		t.Errorf("after the login of another person, %d messages without a token were sent", again)
	}
	v.away.Store(true) // so it is unknown whether bob has logged in
	if result := v.call(bob, "bob"); !result.IsError {
		t.Error(result.Content.Text())
	}
	v.away.Store(false)
	if again := v.withoutToken() - tried; again != 0 {
		t.Errorf("while the store cannot be read, %d messages without a token were sent", again)
	}
}

// A server that wants more for a call than its users have agreed to has them asked again, for what they had and for that.
//
// Guarantees: G-0102.7
func TestACallThatNeedsMore(t *testing.T) {
	v := newVault(t, protocol.Latest, `{"login":"user"}`, authtest.Options{})
	v.as.Lie(authtest.ResourceMetadata, func(a *authtest.Answer) { a.Object["scopes_supported"] = []string{"read"} })
	pages := 0
	ada := v.connect(protocol.Latest, "ada", func(page string) string {
		pages++
		v.visit(page)
		return protocol.ElicitAccept
	})
	if result := v.call(ada, "ada"); result.IsError || pages != 1 {
		t.Fatal(pages, result.Content.Text())
	}
	write := "write"
	v.wants.Store(&write)
	for range 2 {
		if result := v.call(ada, "ada"); result.IsError {
			t.Fatal(result.Content.Text())
		}
	}
	e, err := v.logins.Load(t.Context(), auth.Key{Resource: v.as.Resource(), Principal: person("ada").Identity()})
	if err != nil || pages != 2 || !slices.Contains(e.Scopes, "read") || !slices.Contains(e.Scopes, "write") {
		t.Errorf("%d pages, %v, %v", pages, e, err)
	}
}

// An entry whose users are to log in is a mistake where nobody can.
//
// Guarantees: G-0102.4
func TestAGatewayWithoutLoginsOfUsers(t *testing.T) {
	file := load(t, `{"mcpServers":{"a":{"url":"http://127.0.0.1:1/mcp","bowline":{"login":"user"}}}}`)
	g := gateway.New(gateway.Options{})
	defer g.Close(context.Background())
	if err := g.Check(file); err == nil || !strings.Contains(err.Error(), "lets no users log in") {
		t.Error(err)
	}
	if err := errors.Join(g.Check(load(t, `{"mcpServers":{}}`))); err != nil {
		t.Error(err)
	}
}

// With an exchange, each user acts at a server with a token that the issuer gives for the one that he has for the gateway, and which goes to nobody but the issuer. It is exchanged once for each user
// while it lasts. A token that the issuer does not take fails the call, and the next one may do; nobody is asked to open a page.
//
// Guarantees: G-0102.6, G-0102.9
func TestTokensOfUsersAreExchanged(t *testing.T) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		t.Run(version, func(t *testing.T) {
			v := newVault(t, version, `{"login":{"exchange":{"issuer":"ISSUER","clientId":"gateway","clientSecret":"S3CRET"}}}`, authtest.Options{})
			issue := func(as person) string {
				token := v.as.Issue(string(as), "")
				v.mu.Lock()
				defer v.mu.Unlock()
				v.issued[token] = as
				return token
			}
			opens := func(string) string {
				t.Error("a page is to be opened")
				return protocol.ElicitDecline
			}
			own := len(v.as.Sink.Requests(authtest.Token)) // unknown how far the gateway's own login is
			var tokens []string
			for _, who := range []person{"ada", "bob"} {
				tokens = append(tokens, issue(who))
				session := v.connectWith(version, tokens[len(tokens)-1], opens)
				for range 2 {
					if result := v.call(session, string(who)); result.IsError {
						t.Fatal(result.Content.Text())
					}
				}
			}
			exchanged := map[string]int{}
			for _, r := range v.as.Sink.Requests(authtest.Token)[own:] {
				if subject := r.Form.Get("subject_token"); subject != "" {
					exchanged[subject]++
				}
			}
			adas, bobs := v.tokensFor(`"ada"`), v.tokensFor(`"bob"`)
			if len(adas) != 1 || len(bobs) != 1 || adas[0] == bobs[0] || exchanged[tokens[0]] != 1 || exchanged[tokens[1]] != 1 || len(exchanged) != 2 {
				t.Errorf("%d tokens of ada, %d of bob, %v", len(adas), len(bobs), exchanged)
			}
			if e, err := v.logins.Load(t.Context(), auth.Key{Resource: v.as.Resource(), Principal: person("ada").Identity()}); e != nil || err != nil {
				t.Errorf("what was exchanged is kept: %v, %v", e, err)
			}
			v.mu.Lock()
			for _, token := range tokens {
				if strings.Contains(strings.Join(v.sent, "\n"), token) {
					t.Error("the server got the token of a user for the gateway")
				}
			}
			v.mu.Unlock()
			eve := v.connect(version, "eve", opens) // whose token is of no issuer
			if result := v.call(eve, "eve"); !result.IsError || !strings.Contains(result.Content.Text(), "invalid_request") || !strings.HasSuffix(result.Content.Text(), "It was not executed") || !strings.Contains(result.Content.Text(), "needs the login of this user") {
				t.Error(result.Content.Text())
			}
			if result := v.call(v.connectWith(version, issue("eve"), opens), "eve"); result.IsError {
				t.Error(result.Content.Text())
			}
			v.wantNothingToExchange(version, opens)
		})
	}
}
