// Package guard safely fetches URLs that the peer of a connection has named: the metadata,
// the token endpoint and the keys of an authorization server.
//
// A hostile server could name an address inside the network of your program, and so make
// your program read or change what only that network can reach (server-side request
// forgery, SSRF). Every request to such a URL goes through a [Guard], which allows only
// permitted addresses and limits the size and time of each fetch.
//
// A Guard checks the address that is dialled, after name resolution. So an attacker gains
// nothing by changing the address of a name in between. [ADR-0045] has the rules.
//
// [ADR-0045]: https://github.com/bowline-mcp/bowline/blob/main/docs/adr/0045-guarded-fetching.md
package guard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The bounds of one fetch.
const (
	Timeout    = 10 * time.Second // the time for one fetch, redirects included
	MaxBody    = 256 << 10        // the size of the body in bytes, after decompression
	maxHeader  = 32 << 10         // the size of the response's header in bytes
	maxRefetch = 2                // how many redirects of one GET request are followed
)

// Options say which URLs a Guard allows. The zero value allows public hosts, over https.
type Options struct {
	// Endpoint is the URL of the MCP server, as its user has configured it. The Guard
	// allows the origin of Endpoint even if its address is a loopback address, a
	// private address, or one of 100.64.0.0/10 (carrier-grade NAT). If Endpoint
	// contains such an address itself, or localhost, the Guard also allows other
	// hosts of the same class, and http between loopback hosts.
	Endpoint string

	// AllowHosts lists names and addresses of hosts, without a port, that may have a
	// loopback or private address. Link-local addresses are never allowed.
	AllowHosts []string

	// TLS configures how certificates are checked. Its InsecureSkipVerify holds only for
	// the origin of Endpoint, because authorization servers get codes and secrets. With
	// a function of its own to verify connections, TLS holds for all hosts as it is. Nil:
	// the defaults of crypto/tls.
	TLS *tls.Config

	// Proxy chooses the proxy of a request, as in http.Transport. Nil:
	// http.ProxyFromEnvironment. A proxy looks up names and dials itself, so it must
	// decide which addresses are allowed. The Guard then only checks URLs that contain
	// an address in place of a name.
	Proxy func(*http.Request) (*url.URL, error)

	// Resolver looks up names. Nil: net.DefaultResolver.
	Resolver *net.Resolver

	// Transport sends the requests, for instance that of authtest.Server.Client in a test without
	// a network. Like a proxy, it must decide which addresses are allowed. TLS, Proxy, Resolver
	// and IdleConns have no effect then. Nil: the Guard dials.
	Transport http.RoundTripper

	// IdleConns is how many idle connections to one host stay open for the next
	// request, for 30 s. Default: 1.
	IdleConns int
}

// A Guard fetches documents. Create one with [New]. It is safe for concurrent use.
type Guard struct {
	endpoint *url.URL // the URL in Options.Endpoint, which may be empty; nil if it is not a URL
	class    class    // the class of the endpoint's host, if the host is written as an address or is localhost
	hosts    []string
	proxy    func(*http.Request) (*url.URL, error)
	dialing  func(address netip.AddrPort) error // called after the check, for tests; may be nil

	transports            // for all hosts but the endpoint's
	toEndpoint transports // others only if their certificates are checked differently
}

// transports send requests with one configuration of TLS.
type transports struct{ direct, proxied *http.Transport }

// An Error says that a request was not sent, or that its response was refused.
type Error struct {
	URL  string // without user, query and fragment, which may hold secrets
	Rule string // the rule that the request or response broke
	Err  error  // more detail; nil if there is none
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.URL, e.Rule, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.URL, e.Rule)
}

func (e *Error) Unwrap() error { return e.Err }

// A Response is the complete response to a request. It is within the bounds.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// JSON reports whether the Content-Type of the response is JSON.
func (r *Response) JSON() bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && (kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"))
}

// New returns a Guard. It ignores an Endpoint that is not a URL.
func New(o Options) *Guard {
	g := &Guard{proxy: o.Proxy}
	if g.proxy == nil {
		g.proxy = http.ProxyFromEnvironment
	}
	for _, host := range o.AllowHosts {
		g.hosts = append(g.hosts, hostOf(host))
	}
	if endpoint, err := url.Parse(o.Endpoint); err == nil {
		g.endpoint, g.class = endpoint, classOfHost(endpoint.Hostname())
	}
	g.transports = g.newTransports(o)
	g.toEndpoint = g.transports
	if o.TLS != nil && o.TLS.InsecureSkipVerify && o.TLS.VerifyConnection == nil && o.TLS.VerifyPeerCertificate == nil {
		o.TLS = o.TLS.Clone()
		o.TLS.InsecureSkipVerify = false
		g.transports = g.newTransports(o)
	}
	return g
}

func (g *Guard) newTransports(o Options) transports {
	transport := func() *http.Transport {
		return &http.Transport{
			TLSClientConfig: o.TLS.Clone(), ForceAttemptHTTP2: true,
			MaxResponseHeaderBytes: maxHeader, MaxIdleConnsPerHost: max(o.IdleConns, 1), IdleConnTimeout: 30 * time.Second,
			TLSHandshakeTimeout: Timeout, ResponseHeaderTimeout: Timeout,
		}
	}
	if o.Transport != nil {
		given := &http.Transport{TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
		given.RegisterProtocol("http", o.Transport)
		given.RegisterProtocol("https", o.Transport)
		return transports{given, given}
	}
	t := transports{direct: transport(), proxied: transport()}
	t.proxied.Proxy = g.proxy
	t.direct.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		dialer := &net.Dialer{Timeout: Timeout, Resolver: o.Resolver, ControlContext: func(_ context.Context, _, dialled string, _ syscall.RawConn) error {
			return g.admit(host, port, dialled)
		}}
		return dialer.DialContext(ctx, network, address)
	}
	return t
}

// Check checks whether a URL may be fetched, without looking up its host: the scheme, the
// form, and the host if that is an address. It returns nil or an [*Error].
func (g *Guard) Check(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return &Error{URL: "an address", Rule: "it is no URL"}
	}
	return g.check(u)
}

func (g *Guard) check(u *url.URL) error {
	host := u.Hostname()
	refuse := func(rule string) error { return &Error{URL: shown(u), Rule: rule} }
	switch {
	case host == "":
		return refuse("it has no host")
	case u.User != nil:
		return refuse("it has a user or password in it")
	case u.Scheme == "http" && !g.plain(u):
		return refuse("http is for loopback hosts only: use https")
	case u.Scheme != "http" && u.Scheme != "https":
		return refuse("only https is fetched")
	}
	if c := classOfHost(host); !g.allows(c, host, g.isEndpoint(host, port(u))) {
		return refuse(c.rule())
	}
	return nil
}

// plain reports whether http will do: it stays on this machine.
func (g *Guard) plain(u *url.URL) bool {
	return g.class == loopback && classOfHost(u.Hostname()) == loopback
}

// isEndpoint reports whether a host and port are those that the user configured.
func (g *Guard) isEndpoint(host, number string) bool {
	return g.endpoint != nil && hostOf(host) == hostOf(g.endpoint.Hostname()) && number == port(g.endpoint)
}

// allows reports whether an address of a class may be dialled for a host.
func (g *Guard) allows(c class, host string, endpoint bool) bool {
	switch c {
	case public:
		return true
	case linkLocal:
		return false
	case loopback, private, shared:
		return endpoint || c == g.class || slices.Contains(g.hosts, hostOf(host))
	default:
		return slices.Contains(g.hosts, hostOf(host))
	}
}

// admit decides about an address just before it is dialled. Host is what the URL said. The URL of
// an [*Error] is missing: see fetching.
func (g *Guard) admit(host, number, dialled string) error {
	address, err := netip.ParseAddrPort(dialled)
	if err != nil {
		return err
	}
	if c := classOf(address.Addr()); !g.allows(c, host, g.isEndpoint(host, number)) {
		return &Error{Rule: c.rule()}
	}
	if g.dialing != nil {
		return g.dialing(address)
	}
	return nil
}

// Do sends a request, which must have a context, and reads the response. For a GET
// request it follows at most two redirects. It checks each redirect, and sends no header
// but Accept with it. For other requests it follows none. The error is an [*Error].
func (g *Guard) Do(request *http.Request) (*Response, error) {
	ctx, cancel := context.WithTimeout(request.Context(), Timeout)
	defer cancel()
	request = request.WithContext(ctx)
	for redirects := 0; ; redirects++ {
		if err := g.check(request.URL); err != nil {
			return nil, err
		}
		response, err := g.roundTrip(request)
		if err != nil {
			return nil, err
		}
		to := response.Header.Get("Location")
		if response.Status/100 != 3 || to == "" || request.Method != http.MethodGet {
			return response, nil
		}
		if request, err = redirected(request, to, redirects); err != nil {
			return nil, err
		}
	}
}

// redirected returns the GET request that follows a redirect, after so many others. It has no header of the first one but Accept: the
// others may be secrets, which are for that server alone.
func redirected(request *http.Request, to string, redirects int) (*http.Request, error) {
	next, err := request.URL.Parse(to)
	switch {
	case err != nil:
		return nil, &Error{URL: shown(request.URL), Rule: "it redirects to what is no URL"}
	case redirects == maxRefetch:
		return nil, &Error{URL: shown(request.URL), Rule: "it redirects too often"}
	case request.URL.Scheme == "https" && next.Scheme != "https":
		return nil, &Error{URL: shown(request.URL), Rule: "it redirects from https to another scheme"}
	}
	onward := &http.Request{Method: http.MethodGet, URL: next, Header: http.Header{}}
	if accept := request.Header.Get("Accept"); accept != "" {
		onward.Header.Set("Accept", accept)
	}
	return onward.WithContext(request.Context()), nil
}

// roundTrip sends one request, and reads the response. It follows no redirect.
func (g *Guard) roundTrip(request *http.Request) (*Response, error) {
	transport, err := g.transportFor(request)
	if err != nil {
		return nil, fetching(request, err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fetching(request, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, MaxBody+1))
	switch {
	case err != nil:
		return nil, fetching(request, err)
	case len(body) > MaxBody:
		return nil, &Error{URL: shown(request.URL), Rule: fmt.Sprintf("its answer has more than %d bytes", MaxBody)}
	}
	return &Response{Status: response.StatusCode, Header: response.Header, Body: body}, nil
}

// transportFor returns the transport for a request: its rules about addresses differ for the endpoint, and for a proxy.
func (g *Guard) transportFor(request *http.Request) (*http.Transport, error) {
	via := g.transports
	if g.isEndpoint(request.URL.Hostname(), port(request.URL)) {
		via = g.toEndpoint
	}
	proxy, err := g.proxy(request)
	if proxy != nil {
		return via.proxied, err
	}
	return via.direct, err
}

// fetching returns the error of a request that has failed. A rule that was broken deep within the transport, when an
// address was dialled, is named; the URL is always that of the request.
func fetching(request *http.Request, err error) error {
	var refused *Error
	if errors.As(err, &refused) {
		return &Error{URL: shown(request.URL), Rule: refused.Rule}
	}
	return &Error{URL: shown(request.URL), Rule: "it cannot be fetched", Err: err}
}

// Close closes the connections that no request uses.
func (g *Guard) Close() {
	for _, t := range []transports{g.transports, g.toEndpoint} {
		t.direct.CloseIdleConnections()
		t.proxied.CloseIdleConnections()
	}
}

// shown returns the part of a URL that is safe in an error: scheme, host and path.
func shown(u *url.URL) string {
	if u.Host == "" {
		return fmt.Sprintf("an address of scheme %.20q", u.Scheme)
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// port is the port of a URL, written or not.
func port(u *url.URL) string {
	switch number := u.Port(); {
	case number != "":
		return number
	case u.Scheme == "https":
		return "443"
	default:
		return "80"
	}
}

// hostOf folds what names of one host may differ in.
func hostOf(host string) string {
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}
