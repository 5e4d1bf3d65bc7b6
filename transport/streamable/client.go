package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/transport"
)

const (
	// defaultMaxFrame is the longest message, in bytes.
	defaultMaxFrame = 16 << 20

	// maxRedirects is how many redirects of one request are followed.
	maxRedirects = 3
)

// A Client is a [transport.Transport] to one MCP endpoint over Streamable HTTP, in
// every revision. Its links read the fields; do not change them after the first
// Open.
//
// A link queues 256 messages and 16 MiB that are not written yet (one always
// fits); beyond, Send returns transport.ErrBusy. It holds one inbound frame and
// 4 KiB of read-ahead per stream. An idle link has no goroutine. Every request
// under way has one, as has the open GET stream of a legacy session.
type Client struct {
	// URL is the address of the endpoint; http or https.
	URL string

	// HTTP sends the requests. A link uses its Transport, Jar and CheckRedirect,
	// and ignores its Timeout, because streams last. Default: a connection pool
	// of this Client, with the proxy and time limits of http.DefaultTransport.
	//
	// If HTTP has no CheckRedirect, a link follows only redirects 307 and 308 to
	// the scheme and host of URL, at most three in a row. Any other redirect
	// fails the message with a *transport.StatusError. If HTTP has one, it may
	// lead to other hosts; Header and MCP's own headers are not sent there.
	HTTP *http.Client

	// Header is sent with every request: Authorization, for instance.
	Header http.Header

	// MaxFrame is the longest message in either direction, in bytes; zero and
	// less mean the default of 16 MiB. A longer response fails its request; Send
	// refuses a longer message with a *transport.OversizedError.
	MaxFrame int

	once sync.Once
	own  *http.Transport // if HTTP is nil
}

// A URLError reports a Client.URL that cannot be the address of an endpoint.
type URLError struct {
	URL string // without its password; empty if it cannot be parsed
	Err error
}

func (e *URLError) Error() string {
	return fmt.Sprintf("streamable: endpoint %q: %v", e.URL, e.Err)
}

func (e *URLError) Unwrap() error { return e.Err }

// Open implements transport.Transport. It does no I/O: if the endpoint cannot be
// reached, the first messages fail, and then the link is lost. Open fails with a
// *URLError, or with the error of an ended context.
func (c *Client) Open(ctx context.Context) (transport.Link, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	endpoint, err := parseEndpoint(c.URL)
	if err != nil {
		return nil, err
	}
	limit := c.MaxFrame
	if limit <= 0 {
		limit = defaultMaxFrame
	}
	l := newClientLink(endpoint, c.client(endpoint), c.Header.Clone(), limit)
	if c.HTTP == nil {
		l.release = l.remote.client.CloseIdleConnections
	}
	return l, nil
}

// Check implements transport.Checked. It returns what is wrong with the URL, as a
// *URLError.
func (c *Client) Check() error {
	_, err := parseEndpoint(c.URL)
	return err
}

// MirrorsArguments implements transport.Mirror.
func (*Client) MirrorsArguments() bool { return true }

func parseEndpoint(text string) (*url.URL, error) {
	endpoint, err := url.Parse(text)
	switch {
	case err != nil:
		var parsing *url.Error // its own text quotes the URL, perhaps with a password
		if errors.As(err, &parsing) {
			err = parsing.Err
		}
		return nil, &URLError{Err: err}
	case endpoint.Scheme != "http" && endpoint.Scheme != "https":
		err = fmt.Errorf("the scheme is %q, not http or https", endpoint.Scheme)
	case endpoint.Hostname() == "":
		err = errors.New("the host is missing")
	default:
		return endpoint, nil
	}
	return nil, &URLError{URL: endpoint.Redacted(), Err: err}
}

// client returns the http.Client of one link.
func (c *Client) client(endpoint *url.URL) *http.Client {
	if c.HTTP == nil {
		c.once.Do(func() { c.own = newHTTPTransport() })
		return &http.Client{Transport: c.own, CheckRedirect: followSameHost}
	}
	check, own := followSameHost, c.Header.Clone()
	if theirs := c.HTTP.CheckRedirect; theirs != nil {
		check = func(next *http.Request, via []*http.Request) error {
			if !sameHost(next.URL, endpoint) {
				strip(next.Header, own)
			}
			return theirs(next, via)
		}
	}
	return &http.Client{Transport: c.HTTP.Transport, Jar: c.HTTP.Jar, CheckRedirect: check}
}

func newHTTPTransport() *http.Transport {
	pool := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if standard, ok := http.DefaultTransport.(*http.Transport); ok {
		pool = standard.Clone()
	}
	pool.MaxIdleConnsPerHost = pool.MaxIdleConns // there is one host
	return pool
}

// followSameHost is the CheckRedirect of a Client without one.
func followSameHost(next *http.Request, via []*http.Request) error {
	status := next.Response.StatusCode
	keeps := status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
	if !keeps || len(via) > maxRedirects || !sameHost(next.URL, via[0].URL) {
		return http.ErrUseLastResponse
	}
	return nil
}

func sameHost(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

// strip removes what is for the endpoint alone: the given headers, however they are
// spelt, MCP's own, and the endpoint's address, which may hold a secret.
func strip(header, own http.Header) {
	for name := range own {
		delete(header, name)
		header.Del(name)
	}
	header.Del("Referer")
	for _, name := range []string{headerSession, headerVersion, headerMethod, headerName, headerLastEventID} {
		header.Del(name)
	}
	for name := range header {
		if strings.HasPrefix(name, headerArgument) {
			delete(header, name)
		}
	}
}
