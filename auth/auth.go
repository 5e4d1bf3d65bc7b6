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
// # Goroutines
//
// An Authorizer has one while it logs in or refreshes a token, for all requests that wait for it,
// and none otherwise. Close ends that work and waits for it. Functions of Options run on it.
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
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/telemetry"
)

// An Authorizer manages the login to one server. It implements transport.Authorizer.
// Create one with [New], and close it.
//
// If the token has expired, a request waits until it is refreshed. After 80 % of its
// lifetime, the token is refreshed in the background. Among all programs that share
// the Store, there is one refresh at a time. A new token is saved before it is used.
type Authorizer struct {
	o        Options
	store    *storage
	attempts attempts
	jobs     jobs // the running refresh or login
	nonces   nonces
	counts   counts

	target  atomic.Pointer[target]
	current atomic.Pointer[credential] // the token in use; nil if none is known

	mu      sync.Mutex
	onLogin []func()
	logouts int // how often Logout was called
}

// New returns an Authorizer.
func New(o Options) *Authorizer {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Store == nil {
		o.Store = NewMemory()
	}
	a := &Authorizer{o: o, store: &storage{Store: o.Store, memory: NewMemory()}}
	if u, err := url.Parse(o.Resource); err == nil && u.Host != "" {
		a.setTarget(u)
	}
	return a
}

var errNoResource = errors.New("auth: Options.Resource is not set, or no URL")

// setTarget sets the server at the first call, and returns its URL.
func (a *Authorizer) setTarget(u *url.URL) *url.URL {
	if a.target.Load() == nil {
		a.target.CompareAndSwap(nil, newTarget(a, u))
	}
	return a.resource()
}

// resource returns the server's URL, or nil.
func (a *Authorizer) resource() *url.URL {
	if t := a.target.Load(); t != nil {
		return t.resource
	}
	return nil
}

func (a *Authorizer) key() Key { return a.target.Load().key }

// errPlain says why there is no login.
var errPlain = errors.New("auth: tokens go over https only, or http on this machine")

// takesLogins returns why there can be no login to the server, or nil.
func (a *Authorizer) takesLogins() error {
	switch resource := a.resource(); {
	case resource == nil:
		return errNoResource
	case !network.KeepsSecrets(resource):
		return &LoginError{Resource: resource.String(), Err: errPlain}
	default:
		return nil
	}
}

// Bearer returns the value of the header Authorization for requests that are sent to an
// address now. It does not wait. It returns nil if there is no valid token yet, or if each
// request needs its own proof (DPoP): call Authorize then. Links call Bearer before
// Authorize.
func (a *Authorizer) Bearer(ctx context.Context, to *url.URL) []string {
	now := time.Now()
	c := a.held(now) // first: whoever has stored it has known the server
	resource := a.resource()
	if c == nil || c.prover != nil || !isSameServer(resource, to) || !network.KeepsSecrets(resource) {
		return nil
	}
	if c.due(now) {
		a.refreshInBackground(ctx, c)
	}
	return c.header
}

// isSameServer reports whether an address belongs to the server.
func isSameServer(resource, address *url.URL) bool {
	return address.Scheme == resource.Scheme && strings.EqualFold(address.Host, resource.Host)
}

// Authorize implements transport.Authorizer. It adds the token, if there is one, and
// refreshes it first if it has expired. Without a token the request does not change:
// the server decides whether it needs one. Requests over http to another machine never
// carry a token, and there are no logins for them.
func (a *Authorizer) Authorize(ctx context.Context, r *http.Request) error {
	resource := a.setTarget(r.URL)
	if !isSameServer(resource, r.URL) {
		return fmt.Errorf("auth: this login is for %s, and not for %s", resource.Host, r.URL.Host)
	}
	if !network.KeepsSecrets(resource) {
		return nil
	}
	now := time.Now()
	c := a.held(now)
	if c == nil {
		var err error
		if c, err = a.stored(ctx); err != nil || c == nil {
			return err
		}
	}
	if c.due(now) {
		a.refreshInBackground(ctx, c)
	}
	return c.add(r, &a.nonces)
}

// Login logs in now, with Interact or by Grant. When the token is saved, Login calls the
// functions given to OnLogin, which wake the connections that wait for a login. If the
// Store cannot save a login, for instance because the key ring is locked or the disk is
// full, Login returns that error and asks nobody for consent. If the Store fails only
// afterwards, Login returns the error, and the login lasts as long as this program.
//
// Login replaces a sealed login or registration that it cannot decrypt. If the
// authorization server does not accept the stored registration of the program any more,
// Login fails once; the next Login registers again.
func (a *Authorizer) Login(ctx context.Context) error {
	if err := a.takesLogins(); err != nil {
		return err
	}
	a.jobs.cancelDetached()
	for ctx.Err() == nil {
		if started, err := a.jobs.run(ctx, a.loginAsAsked); started {
			return err
		}
	}
	return context.Cause(ctx)
}

// loginAsAsked is the job of Login. It checks first whether the login can be saved, so that the person does not consent to one
// that cannot.
func (a *Authorizer) loginAsAsked(ctx context.Context) error {
	c, err := a.target.Load().probe(ctx)
	if err == nil && a.o.personal() {
		err = a.store.canSave(ctx, a.key())
	}
	if err != nil {
		return err
	}
	a.attempts.forget()
	return a.login(ctx, c, nil, replaced)
}

// OnLogin registers a function to call after each login that a connection may be
// waiting for. It must not block. Pass client.Session.Wake, so that a session which waits
// for a login tries again immediately.
func (a *Authorizer) OnLogin(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.onLogin = append(a.onLogin, f)
}

// Close waits, for at most half a minute, until running token requests have ended,
// because a refresh token that was exchanged and not saved is lost. It gives up a login
// that waits for a person. After Close, no token is requested or refreshed. A token that
// is still valid is added to requests until it expires, so that a session can be ended.
func (a *Authorizer) Close() error {
	a.jobs.close()
	if t := a.target.Load(); t != nil {
		t.guard.Close()
	}
	return nil
}

// Status returns the login in the Store, or nil if there is none. Printing it shows no
// secrets.
func (a *Authorizer) Status(ctx context.Context) (*Entry, error) {
	if a.resource() == nil {
		return nil, errNoResource
	}
	e, err := a.store.Load(ctx, a.key())
	if err != nil || !a.target.Load().clients.usable(e) {
		return nil, err
	}
	return e, nil
}

// Logout deletes the login and its client registration, and asks the authorization server
// to revoke its tokens (RFC 7009), if the server supports that. Many servers cannot revoke
// an access token, which then expires by itself; that is not an error. Logout deletes the
// login even if the server returns an error. It also deletes a sealed login that it cannot decrypt; its
// error then says that nothing was revoked.
func (a *Authorizer) Logout(ctx context.Context) error {
	if a.resource() == nil {
		return errNoResource
	}
	var revoked error
	err := a.store.remove(ctx, a.key(), func(e *Entry) {
		if t := a.target.Load(); t.clients.usable(e) {
			revoked = errors.Join(revoked, t.revoke(ctx, e))
			t.clients.forget(ctx, e.Issuer, e.ClientID)
		}
	})
	a.mu.Lock()
	a.logouts++
	a.current.Store(nil)
	a.mu.Unlock()
	if errors.As(err, new(decryptError)) {
		err = fmt.Errorf("auth: the login is removed, and its tokens are not revoked: %w", err)
	}
	return errors.Join(revoked, err)
}

// Samples yields the counts of the Authorizer as plain values, for telemetry sinks such as
// otel.Telemetry.Watch. Its name is the scheme and the host of the server; before the
// server is known there is nothing to yield. The sample contains no secret, and no path or
// query of an address.
func (a *Authorizer) Samples() iter.Seq[telemetry.Sample] {
	return func(yield func(telemetry.Sample) bool) {
		if resource := a.resource(); resource != nil {
			yield(telemetry.Sample{Name: resource.Scheme + "://" + resource.Host, Auth: a.counts.sample(a.current.Load())})
		}
	}
}
