package command

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/member"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/spf13/cobra"
)

// A protection contains the flags that say who may call the bundled server.
type protection struct {
	issuers   []string
	resource  string
	scopes    []string
	testLogin bool
}

// addFlags adds the flags. Without --issuer and --test-login everybody may call.
func (p *protection) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringArrayVar(&p.issuers, "issuer", nil, "accept only tokens that the authorization server at this `URL` has issued for this server (with --http, may be repeated)")
	flags.StringVar(&p.resource, "resource", "", "the public `URL` of this server, which tokens must name (with --issuer or --test-login; default: the address it listens on)")
	flags.StringArrayVar(&p.scopes, "scope", nil, "allow tool calls only with a token that has this `SCOPE` (with --issuer or --test-login, may be repeated)")
	flags.BoolVar(&p.testLogin, "test-login", false, "for tests: serve an authorization server that approves every login, too, and accept only its tokens (with --http on this machine)")
}

// check refuses flags that do not fit.
func (p *protection) check(overHTTP bool) error {
	switch {
	case p.testLogin && !overHTTP:
		return process.Usage(errors.New("--test-login needs --http: over standard input and output there are no tokens"))
	case p.testLogin && len(p.issuers) > 0:
		return process.Usage(errors.New("--test-login and --issuer cannot be used together: each says whose tokens are accepted"))
	case p.testLogin:
		return nil
	case len(p.issuers) > 0 && !overHTTP:
		return process.Usage(errors.New("--issuer needs --http: over standard input and output there are no tokens"))
	case len(p.issuers) == 0 && (p.resource != "" || len(p.scopes) > 0):
		return process.Usage(errors.New("--resource and --scope need --issuer or --test-login, which say whose tokens are accepted"))
	}
	return nil
}

// apply protects the endpoint at a URL of this machine, and serves its metadata.
func (p *protection) apply(listening string, mux *http.ServeMux, o *streamable.HandlerOptions, node *member.Node) error {
	if len(p.issuers) == 0 && !p.testLogin {
		return nil
	}
	at := cmp.Or(p.resource, listening)
	var issuers []resource.Issuer
	for _, issuer := range p.issuers {
		issuers = append(issuers, resource.Issuer{URL: issuer})
	}
	if p.testLogin {
		issuer, err := p.serveLogins(listening, at, mux)
		if err != nil {
			return process.Usage(err)
		}
		issuers = []resource.Issuer{{URL: issuer}}
	}
	options := guardOf(at, issuers, p.scopes)
	node.Protect(&options)
	guard, err := resource.New(options)
	if err != nil {
		return process.Usage(err)
	}
	public, err := url.Parse(options.URL)
	if err != nil {
		return process.Usage(err)
	}
	o.Check = guard.Check
	allowPublic(o, public)
	mux.Handle("/.well-known/", guard.Metadata())
	return nil
}

// loginPath is where the authorization server of --test-login is found.
const loginPath = "/test-login"

// serveLogins serves an authorization server that issues tokens for one resource to everybody who
// asks, and returns its URL. Therefore only this machine may reach it and the resource.
func (p *protection) serveLogins(listening, resource string, mux *http.ServeMux) (issuer string, err error) {
	for _, address := range []string{listening, resource} {
		if at, err := url.Parse(address); err != nil || !network.IsLoopback(at.Hostname()) {
			return "", fmt.Errorf("--test-login lets everybody log in: it is only for an address of this machine, such as 127.0.0.1:8080, not for %s", address)
		}
	}
	at, err := url.Parse(listening)
	if err != nil {
		return "", err
	}
	logins := authtest.New("http://"+at.Host, authtest.Options{
		Path: loginPath, Resource: resource, Scopes: append([]string{"read", "write", "offline_access"}, p.scopes...),
	})
	handler := guardLogins(at.Host, logins)
	for _, path := range []string{loginPath + "/", "/.well-known/oauth-authorization-server" + loginPath, "/.well-known/openid-configuration" + loginPath} {
		mux.Handle(path, handler)
	}
	return logins.Issuer(), nil
}

const (
	mostLogins   = 10_000   // requests: the authorization server keeps each of them
	largestLogin = 64 << 10 // bytes of a request
)

// guardLogins refuses requests of web pages, and those for another host, which are of web pages
// whose names lead to this machine.
func guardLogins(host string, logins http.Handler) http.Handler {
	var served atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host != host || r.Header.Get("Origin") != "":
			http.Error(w, "this authorization server is for tests on its own machine", http.StatusForbidden)
		case served.Add(1) > mostLogins:
			http.Error(w, "this authorization server is for tests, and has served enough: restart it", http.StatusServiceUnavailable)
		default:
			r.Body = http.MaxBytesReader(w, r.Body, largestLogin)
			logins.ServeHTTP(w, r)
		}
	})
}

// guardOf configures what checks the tokens of some issuers for a URL. Calls of tools need scopes, and everything else a token alone.
func guardOf(at string, issuers []resource.Issuer, scopes []string) resource.Options {
	return resource.Options{URL: at, Issuers: issuers, Scopes: scopes, Needs: func(op streamable.Operation) []string {
		if op.Method == protocol.MethodCallTool {
			return scopes
		}
		return nil
	}}
}

// allowPublic lets clients use the name under which they know an endpoint, which it does not listen at.
func allowPublic(o *streamable.HandlerOptions, public *url.URL) {
	o.AllowedHosts, o.AllowedOrigins = []string{public.Host}, []string{public.Scheme + "://" + public.Host}
}
