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

// Options say how a program logs in to one server. With the zero value the Authorizer
// serves the server of its first request, and only uses a login that is already in the
// Store.
type Options struct {
	// Resource is the URL of the server's endpoint. Default: the URL of the first
	// request. Set it if you call Login or Logout before there is a request.
	Resource string

	// ClientName is the name of the program that the authorization server shows when
	// it asks a person for consent. Default: Bowline.
	ClientName string

	// Registered lists the clients that are already registered with authorization
	// servers.
	Registered []Registered

	// MetadataURL is the address of the program's Client ID Metadata Document: an
	// https URL with a path. Authorization servers that support such documents use
	// this URL as the client id.
	MetadataURL string

	// Grant is how to get a token without a browser. Nil: the authorization code
	// flow, with Interact.
	Grant Grant

	// Interact leads a person through a login; see [Loopback]. It returns ErrNobody if
	// nobody logs in. A login that a request has begun continues after the request, or
	// the handshake that the request belongs to, has timed out. The context of the
	// login ends after five minutes. Other requests wait for the login meanwhile. Nil:
	// the program cannot log in, and requests that need a login fail with a
	// [*LoginError].
	Interact func(context.Context, Interaction) (redirected *url.URL, err error)

	// Scopes returns the scopes to ask for. Its argument are the scopes that the
	// server asks for. Nil: ask for exactly those.
	Scopes func(asked []string) []string

	// Offline asks for the scope offline_access, and so for a refresh token, if the
	// authorization server lists that scope.
	Offline bool

	// DPoP binds tokens to a key (RFC 9449), which makes a stolen token useless. The
	// Authorizer then refuses tokens that the authorization server has not bound, and
	// does not use stored logins without a key.
	DPoP bool

	// Store keeps logins. If it cannot save a login, the Authorizer logs the error and
	// keeps the login in memory. Nil: NewMemory.
	Store Store

	// Principal identifies the person that the tokens belong to, in a program that
	// acts for several people. Nobody gets a token of another principal.
	Principal string

	// Guard fetches the URLs that the server and its authorization servers name. Nil:
	// a guard.Guard for Resource.
	Guard *guard.Guard

	// Log receives problems that no caller gets as an error, such as a Store that
	// cannot save. It never receives a secret. Nil: slog.Default.
	Log *slog.Logger
}

// An Interaction is a login that needs a person.
type Interaction struct {
	Resource string   // URL of the server
	Issuer   string   // the authorization server
	Scopes   []string // the scopes to ask for

	// Redirect is the redirect address that the client is registered with; "" if it
	// may be any. Another address may require a new registration.
	Redirect string

	start func(ctx context.Context, redirect string) (*url.URL, error)
}

// Start begins the login and returns the address to open in the browser. The redirect
// is the address to which the authorization server will send the browser afterwards.
// Interact must return the address, with its query, at which the browser has arrived.
func (i Interaction) Start(ctx context.Context, redirect string) (*url.URL, error) {
	return i.start(ctx, redirect)
}

// A LoginError says that a request needs a login and there is none. It wraps
// transport.ErrAuthRequired.
type LoginError struct {
	Resource string // URL of the server
	Err      error  // how the login failed, or why there is none
}

func (e *LoginError) Error() string {
	return fmt.Sprintf("auth: log in to %s first: %v", e.Resource, e.Err)
}

// Unwrap returns transport.ErrAuthRequired and Err.
func (e *LoginError) Unwrap() []error { return []error{transport.ErrAuthRequired, e.Err} }

// An Authorizer manages the login to one server. It implements streamable.Authorizer.
// Create one with [New], and close it.
//
// If the token has expired, a request waits until it is refreshed. After 80 % of its
// lifetime, the token is refreshed in the background. Among all programs that share
// the Store, there is one refresh at a time. A new token is saved before it is used.
type Authorizer struct {
	o      Options
	store  *fallback
	guard  *guard.Guard
	nonces nonces

	shortestInterval time.Duration // of the polls for a device code; shorter in tests

	target  atomic.Pointer[target]
	current atomic.Pointer[credential] // nil: none that is known

	counts counts

	mu       sync.Mutex
	flight   *flight // nil: nothing is under way
	flights  sync.WaitGroup
	closed   bool
	backoff  backoff
	attempts attempts
	onLogin  []func()
	warned   map[string]bool // problems that were logged already
}

// A target identifies the server.
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

// aim sets the server at the first call, and returns it.
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

// errPlain says why there is no login.
var errPlain = errors.New("auth: tokens go over https only, or http on this machine")

// secure reports whether a token may be sent to the server, because nobody can read it
// on the way.
func secure(resource *url.URL) bool {
	host := resource.Hostname()
	ip := net.ParseIP(host)
	return resource.Scheme == "https" || resource.Scheme == "http" && (host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback())
}

// Bearer returns the value of the header Authorization for requests that are sent to an
// address now. It does not wait. It returns nil if there is no valid token yet, or if each
// request needs its own proof (DPoP): call Authorize then. Links call Bearer before
// Authorize.
func (a *Authorizer) Bearer(ctx context.Context, to *url.URL) []string {
	resource, c, now := a.resource(), a.current.Load(), time.Now()
	if resource == nil || c == nil || c.prover != nil || c.ended(now) || !isOf(resource, to) || !secure(resource) {
		return nil
	}
	if c.due(now) {
		a.refreshBehind(ctx, c)
	}
	return c.header
}

// isOf reports whether an address belongs to the server.
func isOf(resource, address *url.URL) bool {
	return address.Scheme == resource.Scheme && strings.EqualFold(address.Host, resource.Host)
}

// Authorize implements streamable.Authorizer. It adds the token, if there is one, and
// refreshes it first if it has expired. Without a token the request does not change:
// the server decides whether it needs one. Requests over http to another machine never
// carry a token, and there are no logins for them.
func (a *Authorizer) Authorize(ctx context.Context, r *http.Request) error {
	resource := a.resource()
	if resource == nil {
		resource = a.aim(r.URL)
	}
	if !isOf(resource, r.URL) {
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

// Challenged implements streamable.Authorizer. It refreshes a refused token once. If
// there is no refresh token, or the new token is refused as well, Challenged logs in
// again, or fails with a *LoginError if it cannot. If the request lacks scopes, it
// logs in with more scopes. If the server keeps refusing the tokens for a set of
// scopes, there are at most two logins for that set in ten minutes.
func (a *Authorizer) Challenged(ctx context.Context, r *http.Request, refused *transport.StatusError) (bool, error) {
	if resource := a.resource(); resource != nil && !secure(resource) {
		return false, &LoginError{Resource: resource.String(), Err: errPlain}
	}
	used := tokenOf(r)
	c := parseChallenge(refused.Challenge)
	if a.nonces.note(r.URL, refused.Nonce) && c.err == "use_dpop_nonce" {
		return true, nil
	}
	a.counts.denied(refused.Status)
	if refused.Status == http.StatusForbidden && c.err != "insufficient_scope" {
		return false, nil
	}
	for {
		if now := a.current.Load(); now != nil && now.access() != used {
			return true, nil // another request was challenged, too
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

// Login logs in now, with Interact or by Grant. When the token is saved, Login calls the
// functions given to OnLogin, which wake the connections that wait for a login. If the
// Store cannot save a login, for instance because the key ring is locked, Login returns
// that error and asks nobody for consent. Login replaces a sealed login or registration
// that it cannot decrypt.
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

// OnLogin registers a function to call after each login that a connection may be
// waiting for. It must not block. Pass conn.Conn.Wake, so that a connection which waits
// for a login tries again immediately.
func (a *Authorizer) OnLogin(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.onLogin = append(a.onLogin, f)
}

// Close waits, for at most half a minute, until running token requests have ended,
// because a refresh token that was exchanged and not saved is lost. It gives up a login
// that waits for a person. After Close, no request is authorized.
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

// warn logs each problem once.
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
