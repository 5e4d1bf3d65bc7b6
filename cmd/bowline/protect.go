package main

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/spf13/cobra"
)

// A protection contains the flags that say who may call the bundled server.
type protection struct {
	issuers  []string
	resource string
	scopes   []string
}

func (p *protection) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringArrayVar(&p.issuers, "issuer", nil, "accept only tokens that the authorization server at this `URL` has issued for this server (with --http, may be repeated)")
	flags.StringVar(&p.resource, "resource", "", "the public `URL` of this server, which tokens must name (with --issuer; default: the address it listens on)")
	flags.StringArrayVar(&p.scopes, "scope", nil, "allow tool calls only with a token that has this `SCOPE` (with --issuer, may be repeated)")
}

// check refuses flags that do not fit.
func (p *protection) check(overHTTP bool) error {
	switch {
	case len(p.issuers) > 0 && !overHTTP:
		return usageFailure(errors.New("--issuer needs --http: over standard input and output there are no tokens"))
	case len(p.issuers) == 0 && (p.resource != "" || len(p.scopes) > 0):
		return usageFailure(errors.New("--resource and --scope need --issuer, which names whose tokens are accepted"))
	}
	return nil
}

// apply protects the endpoint at a URL of this machine, and serves its metadata.
func (p *protection) apply(listening string, mux *http.ServeMux, o *streamable.HandlerOptions) error {
	if len(p.issuers) == 0 {
		return nil
	}
	options := resource.Options{URL: p.resource, Scopes: p.scopes, Needs: p.needs}
	if options.URL == "" {
		options.URL = listening
	}
	for _, issuer := range p.issuers {
		options.Issuers = append(options.Issuers, resource.Issuer{URL: issuer})
	}
	guard, err := resource.New(options)
	if err != nil {
		return usageFailure(err)
	}
	public, err := url.Parse(options.URL)
	if err != nil {
		return usageFailure(err)
	}
	o.Check = guard.Check
	o.AllowedHosts, o.AllowedOrigins = []string{public.Host}, []string{public.Scheme + "://" + public.Host}
	mux.Handle("/.well-known/", guard.Metadata())
	return nil
}

func (p *protection) needs(op streamable.Operation) []string {
	if op.Method == protocol.MethodCallTool {
		return p.scopes
	}
	return nil
}
