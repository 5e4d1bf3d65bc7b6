package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/auth/guard"
)

// These are the well-known paths of metadata (RFC 9728, RFC 8414, OpenID Connect
// Discovery).
const (
	wellKnownResource = "/.well-known/oauth-protected-resource"
	wellKnownServer   = "/.well-known/oauth-authorization-server"
	wellKnownOpenID   = "/.well-known/openid-configuration"
)

// resourceMetadata contains the members of protected resource metadata that are used.
type resourceMetadata struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`
}

// serverMetadata contains the members of authorization server metadata that are used.
type serverMetadata struct {
	Issuer        string   `json:"issuer"`
	Authorization string   `json:"authorization_endpoint,omitzero"`
	Token         string   `json:"token_endpoint,omitzero"`
	Registration  string   `json:"registration_endpoint,omitzero"`
	Revocation    string   `json:"revocation_endpoint,omitzero"`
	Device        string   `json:"device_authorization_endpoint,omitzero"`
	AuthMethods   []string `json:"token_endpoint_auth_methods_supported,omitzero"`
	Challenges    []string `json:"code_challenge_methods_supported,omitzero"`
	Scopes        []string `json:"scopes_supported,omitzero"`
	DPoP          []string `json:"dpop_signing_alg_values_supported,omitzero"`
	NamesIssuer   bool     `json:"authorization_response_iss_parameter_supported,omitzero"`
	TakesMetadata bool     `json:"client_id_metadata_document_supported,omitzero"`
}

// errAbsent is why there is no document at an address.
var errAbsent = errors.New("there is no such document")

// A discovered result says where and how to get a token for the server.
type discovered struct {
	resource        string         // the parameter resource; empty for a server of 2025-03-26
	server          serverMetadata // the metadata, which was checked
	scopes          []string       // the scopes that the resource lists
	onUndecryptable change         // what to do with a registration there that cannot be decrypted
}

// resourceCandidates returns the addresses where a resource's metadata may be, in order:
// the one in the challenge or, if there is none, the well-known ones.
func resourceCandidates(resource *url.URL, c challenge) []string {
	if c.metadata != "" {
		return []string{c.metadata}
	}
	root := origin(resource)
	if path := strings.TrimSuffix(resource.EscapedPath(), "/"); path != "" {
		return []string{root + wellKnownResource + path, root + wellKnownResource}
	}
	return []string{root + wellKnownResource}
}

// serverCandidates returns the addresses where an issuer's metadata may be, in order.
func serverCandidates(issuer *url.URL) []string {
	root, path := origin(issuer), strings.TrimSuffix(issuer.EscapedPath(), "/")
	if path == "" {
		return []string{root + wellKnownServer, root + wellKnownOpenID}
	}
	return []string{root + wellKnownServer + path, root + wellKnownOpenID + path, root + path + wellKnownOpenID}
}

func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// covers reports whether the resource that metadata names is the server, or a parent of
// it.
func covers(named string, server *url.URL) bool {
	u, err := url.Parse(named)
	if err != nil || u.Fragment != "" || u.RawQuery != "" || u.User != nil ||
		!strings.EqualFold(u.Scheme, server.Scheme) || !strings.EqualFold(u.Host, server.Host) {
		return false
	}
	parent := strings.TrimSuffix(u.EscapedPath(), "/")
	rest, ok := strings.CutPrefix(server.EscapedPath(), parent)
	return ok && (rest == "" || rest[0] == '/')
}

// check returns the rule that the metadata breaks, or "".
func (m *resourceMetadata) check(server *url.URL) string {
	switch {
	case m.Resource == "":
		return "it names no resource"
	case !covers(m.Resource, server):
		return fmt.Sprintf("it is about another resource: the server at %s calls itself %q, so log in to that if you trust it", origin(server)+server.EscapedPath(), m.Resource)
	case len(m.Servers) == 0:
		return "it names no authorization server"
	default:
		return ""
	}
}

// check returns what is wrong with the metadata of an issuer, or nil.
func (m *serverMetadata) check(issuer string, may func(string) error) error {
	if m.Issuer != issuer {
		return errors.New("its issuer is another")
	}
	if m.Token == "" {
		return errors.New("it has no token endpoint")
	}
	for _, endpoint := range []string{m.Authorization, m.Token, m.Registration, m.Revocation, m.Device} {
		if endpoint == "" {
			continue
		}
		if err := may(endpoint); err != nil {
			return err
		}
	}
	return nil
}

// chooseIssuer returns the authorization server to use. If the resource lists one that a
// token or a client comes from, it chooses that, and otherwise the first one that may be
// fetched from.
func chooseIssuer(listed []string, known []string, may func(string) error) (string, error) {
	var refused error
	allowed := []string{}
	for _, issuer := range listed[:min(len(listed), maxServers)] {
		if u, err := url.Parse(issuer); err != nil || u.RawQuery != "" || u.Fragment != "" {
			refused = errors.New("an issuer is no URL without query and fragment")
		} else if err := may(issuer); err != nil {
			refused = err
		} else {
			allowed = append(allowed, issuer)
		}
	}
	for _, issuer := range known {
		if slices.Contains(allowed, issuer) {
			return issuer, nil
		}
	}
	if len(allowed) == 0 {
		return "", refused
	}
	return allowed[0], nil
}

// maxServers is how many authorization servers of a resource are considered.
const maxServers = 16

// A discovery finds authorization servers.
type discovery struct{ guard *guard.Guard }

// discover finds out where and how to get a token for the server. It prefers the known
// issuers.
func (d *discovery) discover(ctx context.Context, resource *url.URL, c challenge, known []string) (*discovered, error) {
	document, at, err := d.resourceMetadata(ctx, resource, c)
	if errors.Is(err, errAbsent) && c.metadata == "" {
		return d.discoverOlder(ctx, resource)
	}
	if err != nil {
		return nil, err
	}
	issuer, err := chooseIssuer(document.Servers, known, d.guard.Check)
	if err != nil {
		return nil, &MetadataError{URL: at, Rule: "it names no authorization server that may be asked", Err: err}
	}
	server, err := d.serverMetadata(ctx, issuer)
	if err != nil {
		return nil, err
	}
	return &discovered{resource: document.Resource, server: *server, scopes: cleanScopes(document.Scopes)}, nil
}

func (d *discovery) resourceMetadata(ctx context.Context, resource *url.URL, c challenge) (*resourceMetadata, string, error) {
	var failed error
	for _, at := range resourceCandidates(resource, c) {
		document := new(resourceMetadata)
		err := d.fetch(ctx, at, document)
		if errors.Is(err, errAbsent) {
			failed = err
			continue
		}
		if err != nil {
			return nil, at, err
		}
		if rule := document.check(resource); rule != "" {
			return nil, at, &MetadataError{URL: at, Rule: rule}
		}
		return document, at, nil
	}
	return nil, "", failed
}

func (d *discovery) serverMetadata(ctx context.Context, issuer string) (*serverMetadata, error) {
	u, err := url.Parse(issuer)
	if err != nil {
		return nil, &MetadataError{URL: "the issuer", Rule: "it is no URL"}
	}
	failed := errAbsent
	for _, at := range serverCandidates(u) {
		document, err := d.fetchServer(ctx, at, issuer)
		if !errors.Is(err, errAbsent) {
			return document, err
		}
		failed = err
	}
	return nil, failed
}

// fetchServer fetches the metadata of an issuer from an address, and checks that they are that.
func (d *discovery) fetchServer(ctx context.Context, at, issuer string) (*serverMetadata, error) {
	document := new(serverMetadata)
	if err := d.fetch(ctx, at, document); err != nil {
		return nil, err
	}
	if err := document.check(issuer, d.guard.Check); err != nil {
		return nil, &MetadataError{URL: at, Rule: "it is not that of the authorization server", Err: err}
	}
	return document, nil
}

// discoverOlder implements revision 2025-03-26, in which servers have no resource
// metadata. The server's origin is the authorization server, and has its endpoints at
// fixed paths unless it has metadata.
func (d *discovery) discoverOlder(ctx context.Context, resource *url.URL) (*discovered, error) {
	issuer := origin(resource)
	if err := d.guard.Check(issuer); err != nil {
		return nil, err
	}
	document, err := d.fetchServer(ctx, issuer+wellKnownServer, issuer)
	switch {
	case errors.Is(err, errAbsent):
		document = &serverMetadata{
			Issuer: issuer, Authorization: issuer + "/authorize", Token: issuer + "/token", Registration: issuer + "/register",
			Challenges: []string{"S256"},
		}
	case err != nil:
		return nil, err
	}
	return &discovered{server: *document}, nil
}

// fetch fetches a JSON document. The error wraps errAbsent if the server has none.
func (d *discovery) fetch(ctx context.Context, at string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return &MetadataError{URL: "the address", Rule: "it is no URL"}
	}
	request.Header.Set("Accept", "application/json")
	response, err := d.guard.Do(request)
	if err != nil {
		return err
	}
	if response.Status != http.StatusOK || !response.JSON() {
		return refusalOf(at, response)
	}
	if err := guard.DecodeJSON(response.Body, into); err != nil {
		return &MetadataError{URL: at, Rule: "it cannot be read", Err: err}
	}
	return nil
}

// refusalOf returns why a response is no document. Without one at this address, there may be one at the next.
func refusalOf(at string, response *guard.Response) error {
	refuse := &MetadataError{URL: at, Rule: fmt.Sprintf("status %d", response.Status)}
	switch {
	case response.Status == http.StatusOK:
		refuse.Rule, refuse.Err = "it is not JSON", errAbsent // some sites return a page for every path
	case response.Status/100 == 4 && response.Status != http.StatusTooManyRequests:
		refuse.Err = errAbsent
	}
	return refuse
}
