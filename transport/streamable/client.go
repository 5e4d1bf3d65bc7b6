package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"github.com/bowline-mcp/bowline/transport"
)

const defaultMaxFrame = 16 << 20

// maxRedirects is how many redirects of one request are followed.
const maxRedirects = 3

// A Client is a [transport.Transport] to one MCP endpoint over Streamable HTTP,
// in every revision that has it. Its fields are read by Open and not changed.
//
// Per link, it holds outbound at most 256 frames of together 16 MiB that are
// not written (one frame always fits), and inbound, per stream, one frame and
// 4 KiB of read-ahead. An idle link has no goroutine; every request under way
// has one, and so has a legacy session's open GET stream.
type Client struct {
	// URL is the endpoint's, http or https.
	URL string

	// HTTP sends the requests; its Transport and Jar are shared, its Timeout is
	// not applied, because streams last. Default: a connection pool of this
	// Client's own, with the proxy and time limits of http.DefaultTransport.
	//
	// Without a CheckRedirect, only redirects 307 and 308 to the endpoint's own
	// scheme and host are followed, three at most; any other is a
	// *transport.StatusError. With one, what belongs to the endpoint (Header and
	// MCP's own) is still not sent to another scheme or host.
	HTTP *http.Client

	// Header is sent with every request, for instance Authorization.
	Header http.Header

	// MaxFrame is the longest frame in either direction, in bytes; default 16 MiB.
	MaxFrame int

	once sync.Once
	own  *http.Transport // when HTTP is not given
}

// A URLError is a Client's URL that is none of an endpoint.
type URLError struct {
	URL string // without its password; empty when it could not be read
	Err error
}

func (e *URLError) Error() string {
	return fmt.Sprintf("streamable: endpoint %q: %v", e.URL, e.Err)
}

func (e *URLError) Unwrap() error { return e.Err }

// Open implements transport.Transport. It does no I/O: an endpoint that cannot
// be reached fails the messages, and then the link. The error is a *URLError,
// or that of an ended context.
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
		l.release = l.http.CloseIdleConnections
	}
	return l, nil
}

// Check implements transport.Checked: it reports, as a *URLError, what is wrong
// with the URL.
func (c *Client) Check() error {
	_, err := parseEndpoint(c.URL)
	return err
}

func parseEndpoint(text string) (*url.URL, error) {
	endpoint, err := url.Parse(text)
	switch {
	case err != nil:
		var parsing *url.Error // it quotes the text, and perhaps a password
		if errors.As(err, &parsing) {
			err = parsing.Err
		}
		return nil, &URLError{Err: err}
	case endpoint.Scheme != "http" && endpoint.Scheme != "https":
		err = fmt.Errorf("the scheme is %q, and not http or https", endpoint.Scheme)
	case endpoint.Hostname() == "":
		err = errors.New("there is no host")
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

// followSameHost is the CheckRedirect of a client that has none.
func followSameHost(next *http.Request, via []*http.Request) error {
	status := next.Response.StatusCode
	keeps := status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
	if !keeps || len(via) > maxRedirects || !sameHost(next.URL, via[0].URL) {
		return http.ErrUseLastResponse
	}
	return nil
}

func sameHost(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

// strip takes out of a header what is for the endpoint alone: what was given,
// however it is spelt, and the endpoint's own address, which may hold a secret.
func strip(header, own http.Header) {
	for name := range own {
		delete(header, name)
		header.Del(name)
	}
	header.Del("Referer")
	for _, name := range []string{headerSession, headerVersion, headerMethod, headerName, headerResume} {
		header.Del(name)
	}
}
