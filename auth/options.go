package auth

import (
	"cmp"
	"context"
	"log/slog"
	"net/url"

	"github.com/bowline-mcp/bowline/auth/guard"
)

// Options say how a program logs in to one server. With the zero value the Authorizer
// serves the server of its first request, and only uses a login that is already in the
// Store.
type Options struct {
	// Resource is the URL of the server's endpoint. Default: the URL of the first
	// request. Set it if you call Login or Logout before there is a request.
	Resource string

	// ClientName is the name of the program that the authorization server shows when
	// it asks a person for consent. Programs that share a Store, but not this name,
	// register separately. Default: Bowline.
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

	// Interact leads a person through a login; see [Loopback]. It returns ErrUnanswered if
	// nobody logs in. A login that a request has begun continues after the request, or
	// the handshake that the request belongs to, has timed out. The context of the
	// login ends after five minutes. Other requests wait for the login meanwhile. Nil:
	// the program cannot log in, and requests that need a login fail with a
	// [*LoginError].
	Interact func(context.Context, Interaction) (redirected *url.URL, err error)

	// Scopes returns the scopes to ask for. Its argument are the scopes that the
	// server asks for. If it leaves out scopes that a request requires (403), and
	// returns no others for them, that request fails and nobody is asked to log in.
	// Nil: ask for exactly those that the server asks for.
	Scopes func(asked []string) []string

	// Offline asks for the scope offline_access, and so for a refresh token, if the
	// authorization server lists that scope.
	Offline bool

	// DPoP binds tokens to a key (RFC 9449), which makes a stolen token useless. The
	// Authorizer then refuses tokens that the authorization server has not bound, and
	// does not use stored logins without a key.
	DPoP bool

	// Store keeps logins. If it cannot save a login, the Authorizer logs the error and
	// keeps the login in memory; Login also returns the error. Nil: NewMemory.
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

// clientName returns the name to register with.
func (o *Options) clientName() string { return cmp.Or(o.ClientName, "Bowline") }

// personal reports whether a person must log in.
func (o *Options) personal() bool { return o.Grant == nil || o.Grant.name() == grantDevice }

// grantName returns the kind of login. A login with a device is the same kind as one
// with a browser.
func (o *Options) grantName() string {
	if o.personal() {
		return bearerFlow
	}
	return o.Grant.name()
}
