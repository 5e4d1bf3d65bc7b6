// Package web contains what the transports over HTTP share. For clients: addresses,
// connections, authorization, and what a status means. For servers: which pages may call
// them, event streams, limits, and shutting down. Only shutting down has goroutines, one for each
// step: what does not end in time is named and left.
package web

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/polling"
)

// maxHeaders is how many bytes of headers a response may have: net/http's own limit
// is 10 MB, for each request of each session.
const maxHeaders = 1 << 20

const (
	// pingPatience is how long a connection over HTTP/2 may be silent before it is asked for
	// a sign of life, and how long that may take. Both together are not more than a message
	// that is not a request may take, so the message after it gets another connection.
	pingPatience = 5 * time.Second

	// streamBuffer is how many bytes of a response over HTTP/2 a server may send before
	// they are read. net/http's own limit is 4 MiB, for each stream of each session.
	streamBuffer = 64 << 10
)

// maxRedirects is how many redirects of one request are followed.
const maxRedirects = 3

// ParseEndpoint returns the address of an endpoint, or a *transport.URLError.
func ParseEndpoint(text string) (*url.URL, error) { return Parse(text, "http", "https") }

// Parse returns an address that has a host and one of two schemes, or a *transport.URLError.
func Parse(text, plain, secure string) (*url.URL, error) {
	endpoint, err := url.Parse(text)
	switch {
	case err != nil:
		var parsing *url.Error // the text of this error contains the URL, perhaps with a password
		if errors.As(err, &parsing) {
			err = parsing.Err
		}
		return nil, &transport.URLError{Err: err}
	case endpoint.Scheme != plain && endpoint.Scheme != secure:
		err = fmt.Errorf("the scheme is %q, not %s or %s", endpoint.Scheme, plain, secure)
	case endpoint.Hostname() == "":
		err = errors.New("the host is missing")
	default:
		return endpoint, nil
	}
	return nil, &transport.URLError{URL: endpoint.Redacted(), Err: err}
}

// CheckEndpoint returns the error of ParseEndpoint.
func CheckEndpoint(text string) error {
	_, err := ParseEndpoint(text)
	return err
}

// HostOf returns the host of an endpoint, with its port if the address has one. It
// returns "" for an address that is invalid.
func HostOf(text string) string {
	endpoint, err := ParseEndpoint(text)
	if err != nil {
		return ""
	}
	return endpoint.Host
}

// LocationOf returns the scheme and the host of an endpoint, or "" for an address that
// is invalid.
func LocationOf(text string) string {
	endpoint, err := ParseEndpoint(text)
	if err != nil {
		return ""
	}
	return endpoint.Scheme + "://" + endpoint.Host
}

// A Pool keeps the HTTP connections of one transport whose user gives no
// http.Client. The zero value is ready to use.
type Pool struct {
	once sync.Once
	own  *http.Transport
}

// Client returns the http.Client of one link. It has the Transport, Jar and
// CheckRedirect of theirs, which may be nil, and no Timeout, because streams last.
// Without a CheckRedirect it follows only redirects 307 and 308 to the host of the
// endpoint. With one, another host gets the headers Accept and Content-Type alone.
func (p *Pool) Client(theirs *http.Client, endpoint *url.URL) *http.Client {
	if theirs == nil {
		p.once.Do(func() { p.own = newTransport() })
		return &http.Client{Transport: p.own, CheckRedirect: followSameHost}
	}
	check := followSameHost
	if given := theirs.CheckRedirect; given != nil {
		check = func(next *http.Request, via []*http.Request) error {
			if !SameHost(next.URL, endpoint) {
				strip(next.Header)
			}
			return given(next, via)
		}
	}
	return &http.Client{Transport: theirs.Transport, Jar: theirs.Jar, CheckRedirect: check}
}

func newTransport() *http.Transport {
	pool := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if standard, ok := http.DefaultTransport.(*http.Transport); ok {
		pool = standard.Clone()
	}
	pool.MaxIdleConnsPerHost = pool.MaxIdleConns // the client talks to one host only
	new(polling.Group).Join(pool)
	pool.MaxResponseHeaderBytes = maxHeaders
	pool.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingPatience, PingTimeout: pingPatience, MaxReceiveBufferPerStream: streamBuffer}
	return pool
}

// followSameHost is the CheckRedirect of a Client without one.
func followSameHost(next *http.Request, via []*http.Request) error {
	status := next.Response.StatusCode
	keeps := status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
	if !keeps || len(via) > maxRedirects || !SameHost(next.URL, via[0].URL) {
		return http.ErrUseLastResponse
	}
	return nil
}

// SameHost reports whether two addresses have one origin.
func SameHost(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && portOf(a) == portOf(b)
}

// portOf returns the port of an address over HTTP, which may be the default.
func portOf(address *url.URL) string {
	standard := "80"
	if address.Scheme == "https" {
		standard = "443"
	}
	return cmp.Or(address.Port(), standard)
}

// strip removes the headers that only the endpoint may see: those that the user gave,
// those of an Authorizer, MCP's own, and the Referer, which may contain a secret.
func strip(header http.Header) {
	for name := range header {
		if name != "Accept" && name != "Content-Type" {
			delete(header, name)
		}
	}
}

// Do sends a request. Its error does not quote the address, which may hold secrets,
// and wraps transport.ErrUntrusted if the peer does not prove who it is.
func Do(client *http.Client, request *http.Request) (*http.Response, error) {
	response, err := do(client, request)
	switch {
	case err == nil && response.StatusCode == http.StatusSwitchingProtocols && request.Header.Get("Upgrade") == "": // the body is the connection itself, which no context ends
		_ = response.Body.Close()
		return nil, &transport.StatusError{Status: response.StatusCode, Body: "it switches to another protocol"}
	case err == nil:
		return response, nil
	}
	var detail *url.Error
	if errors.As(err, &detail) {
		err = detail.Err
	}
	if errors.As(err, new(*tls.CertificateVerificationError)) || errors.Is(err, http.ErrSchemeMismatch) {
		err = fmt.Errorf("%w: %w", transport.ErrUntrusted, err)
	}
	return response, unreachable(request, err)
}

// unreachable says so if no connection could be made. The end of the request's context is
// no such failure.
func unreachable(request *http.Request, err error) error {
	var dial *net.OpError
	if request.Context().Err() != nil || !errors.As(err, &dial) || dial.Op != "dial" && dial.Op != "proxyconnect" {
		return err
	}
	address := request.URL.Host
	for inner := dial; inner != nil && errors.As(inner.Err, &inner); { // a proxy that cannot be reached is within
		dial = inner
	}
	var lookup *net.DNSError
	switch {
	case errors.As(err, &lookup):
		address = lookup.Name
	case dial.Addr != nil:
		address = dial.Addr.String()
	}
	return &transport.UnreachableError{Address: address, Err: err}
}

// do does what client.Do does. But it prepares for a redirect, for instance by a copy of
// all headers, only when there is one.
func do(client *http.Client, request *http.Request) (*http.Response, error) {
	if client.Jar != nil || request.URL.User != nil {
		return client.Do(request)
	}
	over := cmp.Or(client.Transport, http.DefaultTransport)
	response, err := over.RoundTrip(request)
	switch {
	case err != nil:
		var record tls.RecordHeaderError
		if errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/" {
			err = http.ErrSchemeMismatch
		}
		return nil, err
	case response == nil:
		return nil, fmt.Errorf("the RoundTripper, a %T, returned neither a response nor an error", over)
	case response.Body == nil:
		response.Body = http.NoBody
	}
	if !isRedirect(response.StatusCode) {
		return response, nil
	}
	following := *client
	following.Transport = &redirected{first: response, then: over}
	return following.Do(request)
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	default:
		return false
	}
}

// A redirected RoundTripper has the response to the first request already.
type redirected struct {
	first *http.Response // the first response; nil after it was returned
	then  http.RoundTripper
}

func (r *redirected) RoundTrip(request *http.Request) (response *http.Response, err error) {
	if r.first == nil {
		return r.then.RoundTrip(request)
	}
	response, r.first = r.first, nil
	return response, nil
}
