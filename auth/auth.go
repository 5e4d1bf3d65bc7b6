// Package auth logs a program in to MCP servers by OAuth, as the specification defines it
// in every revision.
//
//	login := auth.New(auth.Options{Resource: url, Interact: auth.Loopback(auth.LoopbackOptions{})})
//	defer login.Close()
//	session, err := c.Connect(ctx, &streamable.Client{URL: url, Authorizer: login})
//
// An [Authorizer] finds the authorization server of an MCP server, registers as its client,
// gets a token, refreshes it before it expires, and keeps it in a [Store]. Give it to a
// streamable.Client or a sse.Client. Programs without a user set Options.Grant; the
// bowline command logs in with "bowline login".
//
// [ADR-0044] lists the guarantees, and [ADR-0045] says which URLs are fetched and which are
// not. docs/guide/login.md is a guide to this package.
//
// [ADR-0044]: https://github.com/bowline-mcp/bowline/blob/main/docs/adr/0044-logins.md
// [ADR-0045]: https://github.com/bowline-mcp/bowline/blob/main/docs/adr/0045-guarded-fetching.md
package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/auth/guard"
	"github.com/bowline-mcp/bowline/transport"
)

// Options say how a program logs in to one server. The zero value works with a server
// whose URL the first request has, and to which somebody else has logged in.
type Options struct {
	// Resource is the URL of the server's endpoint. Default: that of the first
	// request. Login and Logout need it before there is one.
	Resource string

	// ClientName is what a person reads who is asked for consent. Default: Bowline.
	ClientName string

	// Registered lists the clients that are already registered with authorization
	// servers.
	Registered []Registered

	// MetadataURL is where the program publishes its Client ID Metadata Document:
	// https, with a path. An authorization server that reads such documents takes
	// the URL for the client id.
	MetadataURL string

	// Grant is how to get a token without a browser. Nil: the authorization code
	// flow, with Interact.
	Grant Grant

	// Interact leads a person through a login, for instance [Loopback]. Nil: a login
	// is somebody else's. A request without a token then fails with a [*LoginError].
	// A login that a request has begun goes on when that request, or the handshake it is
	// part of, has run out of time: for five minutes, then its context ends. Requests
	// that come meanwhile wait for it. If nobody logs in, Interact returns ErrNobody.
	Interact func(context.Context, Interaction) (redirected *url.URL, err error)

	// Scopes returns the scopes to ask for, given those that the server asks for.
	// Nil: ask for exactly those.
	Scopes func(asked []string) []string

	// Offline asks for the scope offline_access, and so for a refresh token, of
	// authorization servers that list it.
	Offline bool

	// DPoP binds tokens to a key (RFC 9449), so that a stolen token is worthless. A
	// token that the authorization server has not bound is refused, and a stored login
	// without a key is not used.
	DPoP bool

	// Store keeps logins. If it does not save, the Authorizer logs that and goes on in
	// memory. Nil: NewMemory.
	Store Store

	// Principal says whose tokens these are, in a program that acts for several
	// people. Nobody gets a token of another principal.
	Principal string

	// Guard fetches what the server and its authorization servers name. Nil: a
	// guard.Guard for Resource.
	Guard *guard.Guard

	// Log is told of what a program cannot mend, such as a Store that does not save.
	// It is never told a secret. Nil: slog.Default.
	Log *slog.Logger
}

// An Interaction is a login that needs a person.
type Interaction struct {
	Resource string   // URL of the server
	Issuer   string   // of the authorization server
	Scopes   []string // that are asked for

	// Redirect is where the program's client is registered to be redirected to; ""
	// if that is free. Another address may cost a new registration.
	Redirect string

	start func(ctx context.Context, redirect string) (*url.URL, error)
}

// Start begins the login with the address to which the authorization server will
// redirect the browser, and returns the address to open. Interact returns the address
// that the browser was redirected to, with its query.
func (i Interaction) Start(ctx context.Context, redirect string) (*url.URL, error) {
	return i.start(ctx, redirect)
}

// A LoginError reports that a request needs a login that is missing. It wraps
// transport.ErrAuthRequired.
type LoginError struct {
	Resource string // URL of the server
	Err      error  // how a login has failed, or why there is none
}

func (e *LoginError) Error() string {
	return fmt.Sprintf("auth: log in to %s first: %v", e.Resource, e.Err)
}

// Unwrap returns transport.ErrAuthRequired and Err.
func (e *LoginError) Unwrap() []error { return []error{transport.ErrAuthRequired, e.Err} }

// An Authorizer has the login to one server. It implements streamable.Authorizer. Make
// one with [New], and close it.
//
// A request waits for a token that has ended until it is refreshed; one that ends soon
// is refreshed behind it, at 80 % of its life. There is one refresh at a time, among
// all programs that share the Store. A token is saved before it is used.
type Authorizer struct {
	o      Options
	store  *fallback
	guard  *guard.Guard
	nonces nonces

	shortestInterval time.Duration // of a device's questions; shorter in tests

	target  atomic.Pointer[target]
	current atomic.Pointer[credential] // nil: none that is known

	mu       sync.Mutex
	flight   *flight // nil: nothing is under way
	flights  sync.WaitGroup
	closed   bool
	backoff  backoff
	attempts attempts
	onLogin  []func()
	warned   map[string]bool // of what the log has been told
}

// A target is the server.
type target struct {
	resource *url.URL
	guard    *guard.Guard
}

// New returns an Authorizer.
func New(o Options) *Authorizer {
	a := &Authorizer{o: o, store: &fallback{Store: o.Store, memory: NewMemory()}, guard: o.Guard, shortestInterval: shortestInterval}
	if o.Store == nil {
		a.store.Store = NewMemory()
	}
	if a.o.Log == nil {
		a.o.Log = slog.Default()
	}
	if u, err := url.Parse(o.Resource); err == nil && u.Host != "" {
		a.aim(u)
	}
	return a
}

var errNoResource = errors.New("auth: Options.Resource is not set, or no URL")

// aim sets the server, once.
func (a *Authorizer) aim(u *url.URL) *url.URL {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.target.Load(); t != nil {
		return t.resource
	}
	resource := &url.URL{Scheme: strings.ToLower(u.Scheme), Host: strings.ToLower(u.Host), Path: u.Path, RawPath: u.RawPath}
	if a.guard == nil {
		a.guard = guard.New(guard.Options{Endpoint: resource.String()})
	}
	a.target.Store(&target{resource: resource, guard: a.guard})
	return resource
}

// resource returns the server's URL, or nil.
func (a *Authorizer) resource() *url.URL {
	if t := a.target.Load(); t != nil {
		return t.resource
	}
	return nil
}

func (a *Authorizer) key() Key {
	return Key{Resource: a.resource().String(), Principal: a.o.Principal}
}

// errPlain is why there is no login.
var errPlain = errors.New("auth: tokens go over https only, or http on this machine")

// secure reports whether a token may be sent to the server: nobody in between reads it.
func secure(resource *url.URL) bool {
	host := resource.Hostname()
	ip := net.ParseIP(host)
	return resource.Scheme == "https" || resource.Scheme == "http" && (host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback())
}

// Authorize implements streamable.Authorizer. It adds the token, if there is one, and
// refreshes it if it has ended. Without a token the request goes as it is: the server
// decides whether it needs one. So does every request over http to another machine,
// and there are no logins for that.
func (a *Authorizer) Authorize(ctx context.Context, r *http.Request) error {
	resource := a.resource()
	if resource == nil {
		resource = a.aim(r.URL)
	}
	if r.URL.Scheme != resource.Scheme || !strings.EqualFold(r.URL.Host, resource.Host) {
		return fmt.Errorf("auth: this login is for %s, and not for %s", resource.Host, r.URL.Host)
	}
	if !secure(resource) {
		return nil
	}
	now := time.Now()
	c := a.current.Load()
	if c == nil || c.ended(now) {
		var err error
		if c, err = a.stored(ctx); err != nil || c == nil {
			return err
		}
	}
	if c.due(now) {
		a.refreshBehind(ctx, c)
	}
	return c.add(r, &a.nonces)
}

// Challenged implements streamable.Authorizer. A refused token is refreshed, once; if
// there is no refresh, or it does not help, a new login is made, or is missing. A
// request that lacks scopes is a login with more scopes. At most two logins in ten
// minutes are made for one set of scopes whose tokens the server keeps refusing.
func (a *Authorizer) Challenged(ctx context.Context, r *http.Request, refused *transport.StatusError) (bool, error) {
	if resource := a.resource(); resource != nil && !secure(resource) {
		return false, &LoginError{Resource: resource.String(), Err: errPlain}
	}
	used := tokenOf(r)
	c := parseChallenge(refused.Challenge)
	if a.nonces.note(r.URL, refused.Nonce) && c.err == "use_dpop_nonce" {
		return true, nil
	}
	if refused.Status == http.StatusForbidden && c.err != "insufficient_scope" {
		return false, nil
	}
	for {
		if now := a.current.Load(); now != nil && now.access() != used {
			return true, nil // somebody else was challenged too
		}
		mine, err := a.fly(ctx, func(ctx context.Context) error { return a.renew(ctx, used, c, refused.Status) })
		switch {
		case errors.Is(err, errInVain):
			return false, nil
		case mine || err != nil:
			return err == nil, err
		}
	}
}

// Login logs in now: with Interact, or as Grant says. It returns when the token is
// saved. Connections that wait for a login are then woken, see OnLogin. Nobody is asked
// for consent if the Store cannot save a login, for instance because its key ring is
// locked: that is the error. A sealed login or registration that cannot be opened is
// replaced.
func (a *Authorizer) Login(ctx context.Context) error {
	switch resource := a.resource(); {
	case resource == nil:
		return errNoResource
	case !secure(resource):
		return &LoginError{Resource: resource.String(), Err: errPlain}
	}
	a.giveUp()
	for {
		mine, err := a.fly(ctx, func(ctx context.Context) error {
			c, err := a.probe(ctx)
			if err != nil {
				return err
			}
			if err := a.canSave(ctx); err != nil {
				return err
			}
			a.forgetAttempts()
			return a.login(ctx, c, nil, replaced)
		})
		if mine || ctx.Err() != nil {
			return err
		}
	}
}

// OnLogin has f called after each login that was missing, on a goroutine that f must
// not hold up. Pass conn.Conn.Wake, so that a connection which waits for a login tries
// again at once.
func (a *Authorizer) OnLogin(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.onLogin = append(a.onLogin, f)
}

// Close waits until no exchange is under way, at most half a minute: a refresh token
// that is exchanged but not saved is lost. A login that waits for a person is given
// up. Requests are not authorized any more.
func (a *Authorizer) Close() error {
	a.mu.Lock()
	a.closed = true
	if a.flight != nil {
		a.flight.cancel(errClosed)
	}
	a.mu.Unlock()
	a.flights.Wait()
	if t := a.target.Load(); t != nil {
		t.guard.Close()
	}
	return nil
}

var errClosed = errors.New("auth: the Authorizer is closed")

// warn logs something once.
func (a *Authorizer) warn(what string, err error) {
	a.mu.Lock()
	told := a.warned[what]
	if a.warned == nil {
		a.warned = make(map[string]bool)
	}
	a.warned[what] = true
	a.mu.Unlock()
	if told {
		return
	}
	said := []any{"resource", a.resource().String(), "error", err}
	if errors.As(err, new(unopened)) {
		said = append(said, "hint", "Login replaces it")
	}
	a.o.Log.Warn("auth: "+what, said...)
}
