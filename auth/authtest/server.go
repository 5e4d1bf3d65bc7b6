package authtest

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// An Endpoint names an endpoint of a Server.
type Endpoint string

// The endpoints of a Server. Their paths are below the path of the issuer, except those
// of the metadata.
const (
	Metadata         Endpoint = "metadata"          // of the authorization server
	ResourceMetadata Endpoint = "resource-metadata" // RFC 9728
	Keys             Endpoint = "/keys"
	Register         Endpoint = "/register"
	Authorize        Endpoint = "/authorize"
	Device           Endpoint = "/device"
	Token            Endpoint = "/token"
	Introspect       Endpoint = "/introspect"
	Revoke           Endpoint = "/revoke"
	Challenge        Endpoint = "challenge" // the refusals of Protect
	elsewhere        Endpoint = ""
)

const (
	wellKnownOAuth    = "/.well-known/oauth-authorization-server"
	wellKnownOpenID   = "/.well-known/openid-configuration"
	wellKnownResource = "/.well-known/oauth-protected-resource"
)

// Options configure a Server. The zero value of each field means its default.
type Options struct {
	Path     string                  // the path of the issuer, such as "/tenant1"; default: none
	Resource string                  // the URL that tokens are for; default: /mcp on the same host
	Subject  string                  // who logs in; default "user"
	Scopes   []string                // the scopes that the server lists; default "read", "write" and "offline_access"
	Life     time.Duration           // the lifetime of access tokens; default 1 h
	Sign     jose.SignatureAlgorithm // the algorithm that signs tokens; default ES256
	Opaque   bool                    // access tokens contain no claims and must be introspected

	Clients   []Client          // the clients that are registered from the start
	Documents map[string]Client // client id metadata documents, by URL; nothing is fetched

	CallsOnly bool // Protect wants tokens for calls of tools only: who has no login sees lists

	KeepRefresh bool // refresh tokens do not rotate
	DPoPNonces  bool // proofs need a nonce
	DevicePolls int  // how many polls of a device are answered with "wait"

	// Trusts are the issuers whose assertions the server accepts for the grant
	// jwt-bearer, such as an identity provider or a platform, with their keys.
	Trusts map[string]func() jose.JSONWebKeySet

	// Sink records the requests. Several servers may share one. Default: a new Sink.
	Sink *Sink
}

// A Server is an authorization server, and an http.Handler for all paths of its host. It
// is safe for concurrent use.
type Server struct {
	Sink *Sink // of the options

	base    string // scheme and host
	options Options

	mu         sync.Mutex
	lies       map[Endpoint]Lie
	keys       []jose.JSONWebKey // newest first
	clients    map[string]Client
	codes      map[string]*grant // authorization codes that were not used
	spent      map[string]*grant // and those that were
	devices    map[string]*device
	refreshes  map[string]*grant // refresh tokens that work
	rotated    map[string]*grant // and those that were replaced
	accesses   map[string]*access
	proofs     map[string]bool // jti of DPoP proofs
	assertions map[string]bool // jti of client assertions
	nonce      string
	serial     int
	issued     []string // secrets
}

// New returns a server for a base URL, such as "https://as.example". Its Client reaches it
// without a network, so it also works in a testing/synctest bubble.
func New(base string, o Options) *Server {
	o.Subject, o.Life, o.Sign = cmp.Or(o.Subject, "user"), cmp.Or(o.Life, time.Hour), cmp.Or(o.Sign, jose.ES256)
	o.Resource = cmp.Or(o.Resource, base+"/mcp")
	if o.Scopes == nil {
		o.Scopes = []string{"read", "write", "offline_access"}
	}
	if o.Sink == nil {
		o.Sink = new(Sink)
	}
	s := &Server{Sink: o.Sink, base: base, options: o,
		lies: make(map[Endpoint]Lie), clients: make(map[string]Client), codes: make(map[string]*grant), spent: make(map[string]*grant),
		devices: make(map[string]*device), refreshes: make(map[string]*grant), rotated: make(map[string]*grant),
		accesses: make(map[string]*access), proofs: make(map[string]bool), assertions: make(map[string]bool), nonce: random()}
	for _, c := range o.Clients {
		s.clients[c.ID] = c
	}
	s.RotateKey(false)
	return s
}

// Start returns a server that listens on a loopback address until the test is over.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	listening := httptest.NewUnstartedServer(nil)
	s := New("http://"+listening.Listener.Addr().String(), o)
	listening.Config.Handler = s
	listening.Start()
	t.Cleanup(listening.Close)
	return s
}

// Issuer returns the issuer identifier of the server.
func (s *Server) Issuer() string { return s.base + s.options.Path }

// Resource returns the URL of the resource that tokens are for.
func (s *Server) Resource() string { return s.options.Resource }

// URL returns the URL of an endpoint.
func (s *Server) URL(e Endpoint) string {
	switch e {
	case Metadata:
		return s.base + wellKnownOAuth + s.options.Path
	case ResourceMetadata:
		return s.base + wellKnownResource + pathOf(s.options.Resource)
	}
	return s.Issuer() + string(e)
}

// Client returns an HTTP client that sends all requests to s, whatever their host, without
// a network. It does not follow redirects.
func (s *Server) Client() *http.Client {
	return &http.Client{
		Transport:     roundTripper{s},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type roundTripper struct{ http.Handler }

func (h roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	served := r.Clone(r.Context())
	served.RequestURI, served.RemoteAddr = r.URL.RequestURI(), "127.0.0.1:1"
	served.Host = cmp.Or(r.Host, r.URL.Host)
	if served.Body == nil {
		served.Body = http.NoBody
	}
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, served)
	response := recorder.Result()
	response.Request = r
	return response, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	endpoint := s.endpointOf(r.URL.Path)
	request := s.Sink.add(s.base, endpoint, r)
	a := s.honest(request)
	a.Request = request
	s.mu.Lock()
	lie := s.lies[endpoint]
	s.mu.Unlock()
	if lie != nil {
		lie(a)
	}
	a.write(w, r)
}

func (s *Server) endpointOf(path string) Endpoint {
	issuer := s.options.Path
	switch path {
	case wellKnownOAuth + issuer, wellKnownOpenID + issuer, issuer + wellKnownOpenID:
		return Metadata
	case wellKnownResource + pathOf(s.options.Resource), wellKnownResource:
		return ResourceMetadata
	}
	for _, e := range []Endpoint{Keys, Register, Authorize, Device, Token, Introspect, Revoke} {
		if path == issuer+string(e) {
			return e
		}
	}
	return elsewhere
}

// methodOf returns the method of the requests to an endpoint.
func methodOf(e Endpoint) string {
	if slices.Contains([]Endpoint{Metadata, ResourceMetadata, Keys, Authorize}, e) {
		return http.MethodGet
	}
	return http.MethodPost
}

// honest answers as the specifications say.
func (s *Server) honest(r *Request) (a *Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.note(a) }()
	switch method := methodOf(r.Endpoint); {
	case r.Endpoint == elsewhere:
		return refuse(http.StatusNotFound, "not_found", "there is no such endpoint")
	case r.Method != method:
		return refuse(http.StatusMethodNotAllowed, "invalid_request", "the method is "+method)
	}
	switch r.Endpoint {
	case Metadata:
		return succeed(s.metadata())
	case ResourceMetadata:
		return succeed(s.resourceMetadata())
	case Keys:
		return succeed(map[string]any{"keys": s.publicKeys().Keys})
	case Register:
		return s.register(r)
	case Authorize:
		return s.authorize(r)
	case Device:
		return s.device(r)
	case Token:
		return s.token(r)
	case Introspect:
		return s.introspect(r)
	default:
		return s.revoke(r)
	}
}

func (s *Server) metadata() map[string]any {
	return map[string]any{
		"issuer":                                           s.Issuer(),
		"authorization_endpoint":                           s.URL(Authorize),
		"token_endpoint":                                   s.URL(Token),
		"registration_endpoint":                            s.URL(Register),
		"device_authorization_endpoint":                    s.URL(Device),
		"introspection_endpoint":                           s.URL(Introspect),
		"revocation_endpoint":                              s.URL(Revoke),
		"jwks_uri":                                         s.URL(Keys),
		"scopes_supported":                                 s.options.Scopes,
		"response_types_supported":                         []string{"code"},
		"subject_types_supported":                          []string{"public"},
		"id_token_signing_alg_values_supported":            []string{string(s.options.Sign)},
		"grant_types_supported":                            grantTypes(),
		"code_challenge_methods_supported":                 []string{"S256"},
		"token_endpoint_auth_methods_supported":            authMethods(),
		"token_endpoint_auth_signing_alg_values_supported": asymmetric(),
		"dpop_signing_alg_values_supported":                asymmetric(),
		"authorization_grant_profiles_supported":           []string{"urn:ietf:params:oauth:grant-profile:id-jag"},
		"authorization_response_iss_parameter_supported":   true,
		"client_id_metadata_document_supported":            true,
	}
}

func (s *Server) resourceMetadata() map[string]any {
	scopes := slices.DeleteFunc(slices.Clone(s.options.Scopes), func(scope string) bool { return scope == "offline_access" })
	return map[string]any{
		"resource":                 s.options.Resource,
		"authorization_servers":    []string{s.Issuer()},
		"scopes_supported":         scopes,
		"bearer_methods_supported": []string{"header"},
	}
}

func asymmetric() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.ES256, jose.ES384, jose.RS256, jose.PS256, jose.EdDSA}
}

func pathOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(u.Path, "/")
}

// random returns 256 random bits.
func random() string {
	var bits [32]byte
	rand.Read(bits[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(bits[:])
}
