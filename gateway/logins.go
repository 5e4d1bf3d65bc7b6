package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/gateway/internal/logins"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
)

// UserLogins let users log in at servers, each for himself. A user is who transport.Origin.Identity names; all who have not logged in at the
// gateway are one.
type UserLogins struct {
	// For returns the options of the login to a server, as authfile.Options.For does. The gateway sets Principal and Interact, and makes an
	// Authorizer for each connection of a user. Store must be set, to the same one each time, which nobody but this gateway uses: it has
	// the logins by the names of users. For may be called by several goroutines at once.
	For func(*mcpjson.Server) (auth.Options, error)

	// Person returns the name under which the logins of an identity are kept: several identities may be those of one person. Nil: the identity.
	Person func(identity string) string

	// Reach returns what forwards the request of a browser to a node of Options.Server.Node, such as ReachNode of a streamable.Router, if several gateways serve users at one
	// URL. They need one Store then. Nil: this gateway is the only one.
	Reach func(node string) http.Handler
}

var (
	// errEnded is why a connection gets no login: without its owner, it would be that of somebody else.
	errEnded = errors.New("gateway: the connection has ended already")

	errNoStore  = errors.New("gateway: UserLogins.For returns no Store")
	errNoPages  = errors.New("this gateway has no pages for that: it serves hosts only, or the file does not say at which url browsers reach it")
	errNotAsked = errors.New("the client of this call cannot be asked to open a page")
	errDeclined = errors.New("the user has not agreed")
)

// A desk is where users log in at servers.
type desk struct {
	given *UserLogins                                  // nil: they do not
	pages atomic.Pointer[served]                       // nil: nobody serves them
	wake  func(ctx context.Context, server, of string) // makes the connections of a user with a server try again

	ended func(ctx context.Context, server, of string, err error) // hears of how each login of a user has ended

	anywhere atomic.Bool  // users log in by pages at a server of the file
	refused  atomic.Int64 // requests of browsers
}

// served are pages that somebody serves.
type served struct {
	*logins.Pages
	ownerOf func(identity string) logins.Owner
}

// reach is nil if users do not log in.
func (u *UserLogins) reach() func(node string) http.Handler {
	if u == nil {
		return nil
	}
	return u.Reach
}

// close ends the logins that are open, so that calls which wait for them end.
func (d *desk) close() {
	if pages := d.pages.Load(); pages != nil {
		pages.Close()
	}
}

// person returns whose logins an identity has.
func (d *desk) person(identity string) string {
	if d.given == nil || d.given.Person == nil {
		return identity
	}
	return d.given.Person(identity)
}

// options returns those of a user's login at a server. Requests do not log in: their goroutines know no browser.
func (d *desk) options(s *mcpjson.Server, user string) (auth.Options, error) {
	o, err := d.given.For(s)
	if err == nil && o.Store == nil {
		err = errNoStore
	}
	o.Principal, o.Grant, o.Interact = user, nil, nil
	return o, err
}

// login returns the login of a user for one connection with a server. What was exchanged for his token is kept in memory only, and ends with the connection.
func (d *desk) login(s *mcpjson.Server, identity string, subject *subject) (*auth.Authorizer, error) {
	o, err := d.options(s, d.person(identity))
	if err != nil {
		return nil, err
	}
	if x := s.Settings.Exchange; x != nil {
		o.Grant, o.Store = subject.grant(x), nil
		o.Registered = []auth.Registered{{Issuer: x.Issuer, ID: x.ClientID, Secret: auth.NewSecret(x.ClientSecret)}}
		if o.Scopes = nil; x.Scopes != nil {
			o.Scopes = func([]string) []string { return x.Scopes }
		}
	}
	return auth.New(o), nil
}

// lookAgain is between two looks at the store, by one connection, for whether its user is still logged in.
const lookAgain = time.Second

// A seenLogin is what a connection knows of the login of its user. Only where a login was seen, it can be missed: some servers want none.
type seenLogin struct {
	seen   atomic.Bool
	looked atomic.Pointer[time.Time]
}

// mayLook reports whether to look at the store at this time.
func (l *seenLogin) mayLook() bool {
	last := l.looked.Load()
	if last != nil && time.Since(*last) < lookAgain {
		return false
	}
	now := time.Now()
	return l.looked.CompareAndSwap(last, &now)
}

// note keeps that the user has logged in just now.
func (l *seenLogin) note() {
	now := time.Now()
	l.looked.Store(&now)
	l.seen.Store(true)
}

type subjectKey struct{}

// WithSubjectToken returns the context for a request whose client has shown this access token, or identity token. It is exchanged at servers whose entries say so, and sent to the issuer
// or provider that they name only. Give it to requests whose token streamable.HandlerOptions.Check looks at, and which an issuer has given:
//
//	mcp.ServeHTTP(w, r.WithContext(gateway.WithSubjectToken(r.Context(), token)))
func WithSubjectToken(ctx context.Context, token string) context.Context {
	return context.WithValue(ctx, subjectKey{}, token)
}

// A subject has the last token with which the user of a connection has come. The zero value has none.
type subject struct{ last atomic.Pointer[string] }

// note keeps the token of a request, and reports whether it is another one.
func (s *subject) note(ctx context.Context) (isNew bool) {
	token, given := ctx.Value(subjectKey{}).(string)
	if before := s.last.Load(); !given || before != nil && *before == token {
		return false
	}
	s.last.Store(&token)
	return true
}

var errNoSubject = errors.New("the user has no token of an issuer that could be exchanged")

func (s *subject) token(context.Context) (auth.Secret, error) {
	last := s.last.Load()
	if last == nil {
		return auth.Secret{}, errNoSubject
	}
	return auth.NewSecret(*last), nil
}

// grant returns how this token becomes one for a server.
func (s *subject) grant(x *mcpjson.Exchange) auth.Grant {
	p := x.Provider
	if p == nil {
		return auth.Exchange{Subject: s.token, Audience: x.Audience}
	}
	kind := "urn:ietf:params:oauth:token-type:" + cmp.Or(p.Subject, mcpjson.Subjects()[0])
	return auth.IDJAG{
		TokenEndpoint: p.TokenEndpoint, Client: auth.Registered{ID: p.ClientID, Secret: auth.NewSecret(p.ClientSecret)}, Audience: x.Audience,
		Subject: func(ctx context.Context) (auth.Secret, string, error) {
			token, err := s.token(ctx)
			return token, kind, err
		},
	}
}

// logIn lets the user of a call log in at a server, for these scopes among others, and waits for that. If there is a page that the client cannot be asked to open, it is returned with the error.
func (d *desk) logIn(ctx context.Context, s *mcpjson.Server, identity string, scopes []string) (page string, err error) {
	link, err := d.open(s, d.person(identity), scopes)
	if err != nil {
		return "", err
	}
	switch err := askToOpen(ctx, fmt.Sprintf("The server %q needs your login. Open the page, and log in there.", s.Name), link.ID, link.URL); {
	case errors.Is(err, errNotAsked):
		return link.URL, err
	case err != nil:
		return "", err
	}
	err = link.Wait(ctx)
	if session := server.RequestFrom(ctx).Session; session != nil && err == nil {
		_ = session.ElicitationComplete(ctx, link.ID) // it has left, or cannot be told
	}
	return "", err
}

// has reports whether who has an identity has a login at a server, which the server may not accept any more. What was exchanged is kept nowhere.
func (d *desk) has(ctx context.Context, s *mcpjson.Server, identity string) (bool, error) {
	o, err := d.options(s, d.person(identity))
	if err != nil || s.Settings.Exchange != nil {
		return false, err
	}
	login := auth.New(o)
	defer login.Close()
	e, err := login.Status(ctx)
	return e != nil, err
}

// open returns a link for the login of a user. One to a server that had the name before is another one.
func (d *desk) open(s *mcpjson.Server, user string, scopes []string) (*logins.Link, error) {
	pages := d.pages.Load()
	if pages == nil {
		return nil, errNoPages
	}
	of := logins.Login{User: user, Server: s.Name, Wants: urlOf(s) + " " + strings.Join(scopes, " ")}
	of.Run = func(ctx context.Context, visit logins.Visit) error { return d.run(ctx, s, user, scopes, visit) }
	if at, err := url.Parse(urlOf(s)); err == nil {
		of.Place = at.Host
	}
	return pages.Open(of)
}

// run logs in with the browser of a user. The Authorizer is not that of a connection, which may end meanwhile: they share what the store has.
func (d *desk) run(ctx context.Context, s *mcpjson.Server, user string, scopes []string, visit logins.Visit) error {
	o, err := d.options(s, user)
	if err != nil {
		return err
	}
	o.Interact = func(ctx context.Context, i auth.Interaction) (*url.URL, error) { return visit(ctx, i.Start) }
	if o.Scopes == nil { // else the file says which
		o.Scopes = func(asked []string) []string { return append(asked, scopes...) }
	}
	login := auth.New(o)
	defer login.Close()
	err = login.Login(ctx)
	if d.ended(ctx, s.Name, user, err); err == nil {
		d.wake(ctx, s.Name, user)
	}
	return err
}

// askToOpen asks the user of a call to open a page. Nil: he has agreed, which does not mean that he has done anything there.
func askToOpen(ctx context.Context, why, id, address string) error {
	page := &protocol.ElicitParams{Mode: protocol.ElicitURL, URL: address, ElicitationID: id, Message: why}
	answers, err := server.Ask(ctx, protocol.InputRequests{id: page})
	switch {
	case errors.Is(err, server.ErrNotAsking), errors.As(err, new(*server.UnsupportedError)):
		return errNotAsked
	case err != nil:
		return err
	}
	if answer, ok := answers[id].(*protocol.ElicitResult); !ok || answer.Action != protocol.ElicitAccept {
		return errDeclined
	}
	return nil
}

// loginsTool is the gateway's own tool, by which a user finds the page of his logins. Its name is that of no tool of a server, unless such a server has no prefix: then the tool is the server's.
const loginsTool = "bowline_logins"

// loginsItem is its entry in the list.
var loginsItem = catalogue.Item{Name: loginsTool, Raw: json.RawMessage(`{"name":"` + loginsTool + `","title":"Log out of servers","description":"Show the user a page of this gateway with the servers where he is logged in. There he can end each login. Nothing is ended before he does that.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"openWorldHint":false}}`)}

// offers reports whether a client that sees these tools has that for its user's logins, too: there is a page for them, at a server at least. Policies are about servers: who may not use one any more may still
// take his login from it.
func (d *desk) offers(seen *catalogue.Snapshot) bool {
	if !d.anywhere.Load() || d.pages.Load() == nil {
		return false
	}
	_, taken := seen.Find(catalogue.Tools, loginsTool)
	return !taken
}

// show serves a call of that tool. Only a browser ends a login: the call may be the idea of a model, or of a text that it has read.
func (d *desk) show(ctx context.Context) (json.RawMessage, error) {
	pages := d.pages.Load()
	link, err := pages.Own(pages.ownerOf(server.RequestFrom(ctx).Origin.Identity))
	if err != nil {
		return textResult("There is no page now: "+err.Error(), true)
	}
	switch err := askToOpen(ctx, "Here you see at which servers you are logged in, and can end these logins.", link.ID, link.URL); {
	case errors.Is(err, errNotAsked):
		return textResult("To see at which servers the user is logged in, and to end a login, let him open "+link.URL+" within ten minutes.", false)
	case err != nil:
		return textResult("The page was not opened: "+err.Error()+". No login was ended.", true)
	}
	return textResult("The user was shown the page. He ends logins there, or leaves them.", false)
}

func textResult(text string, failed bool) (json.RawMessage, error) {
	return protocol.Marshal(&protocol.CallToolResult{Content: protocol.Contents{protocol.Text(text)}, IsError: failed})
}
