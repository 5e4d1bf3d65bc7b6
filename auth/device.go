package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/bowline-mcp/bowline/auth/guard"
)

// Device is a Grant that lets a person log in with a browser on another machine (RFC
// 8628). The authorization server must support it. MCP does not specify it.
type Device struct {
	// Show tells the person where to go, and which code to enter there.
	Show func(context.Context, DeviceCode) error
}

// A DeviceCode is what a person needs for a login on another machine.
type DeviceCode struct {
	URL     string // the address to open
	Code    string // the code to enter there
	Whole   string // the address with the code in it; "" for none
	Expires time.Time
}

func (Device) name() string { return grantDevice }

// A deviceDocument is the response of a device authorization endpoint.
type deviceDocument struct {
	Device   string         `json:"device_code"`
	User     string         `json:"user_code"`
	URL      string         `json:"verification_uri"`
	Whole    string         `json:"verification_uri_complete"`
	Life     jsontext.Value `json:"expires_in"`
	Interval jsontext.Value `json:"interval"`
}

const (
	defaultInterval  = 5 * time.Second
	shortestInterval = time.Second
	longestInterval  = time.Minute

	shortestCode = time.Minute // the minimum lifetime of a code, because a person needs time to enter it
	longestCode  = 30 * time.Minute
)

// interval returns how long to wait between two polls. It is at least a second, except
// in tests, because the token endpoint may belong to another service, which must not be
// flooded.
func (d *deviceDocument) interval(shortest time.Duration) time.Duration {
	if asked := lifeOf(d.Interval); asked > 0 {
		return min(max(asked, shortest), longestInterval)
	}
	return defaultInterval
}

func (g Device) token(ctx context.Context, l *login) (*client, *tokenResponse, error) {
	return g.poll(ctx, l, shortestInterval)
}

// poll shows the person a code, and requests the token until the person has logged in.
func (g Device) poll(ctx context.Context, l *login, shortest time.Duration) (*client, *tokenResponse, error) {
	if l.discovered.server.Device == "" {
		return nil, nil, &MetadataError{URL: l.discovered.server.Issuer, Rule: "it has no logins for devices"}
	}
	c, err := l.clients.clientAt(ctx, l, "")
	if err != nil {
		return nil, nil, err
	}
	d, err := l.endpoint.deviceCode(ctx, l, c)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, min(max(lifeOf(d.Life), shortestCode), longestCode), ErrUnanswered)
	defer cancel()
	expires, _ := ctx.Deadline()
	if err := g.Show(ctx, DeviceCode{URL: d.URL, Code: d.User, Whole: d.Whole, Expires: expires}); err != nil {
		return nil, nil, err
	}
	token, err := l.endpoint.poll(ctx, l, c, d, d.interval(shortest))
	return c, token, err
}

// deviceCode requests a code.
func (n *endpoint) deviceCode(ctx context.Context, l *login, c *client) (*deviceDocument, error) {
	form := url.Values{}
	l.addParameters(form)
	endpoint, err := url.Parse(l.discovered.server.Device)
	if err != nil {
		return nil, err
	}
	response, err := n.post(ctx, &tokenRequest{endpoint: l.discovered.server.Device, issuer: l.discovered.server.Issuer, client: c, form: form}, endpoint)
	if err != nil {
		return nil, err
	}
	if response.Status != http.StatusOK {
		_, err := readToken(endpoint.Host, response, "", time.Now())
		return nil, err // with the error code of the server
	}
	d := new(deviceDocument)
	err = guard.DecodeJSON(response.Body, d)
	if err != nil || d.Device == "" || !isCode(d.User) || !isCode(d.URL) || d.Whole != "" && !isCode(d.Whole) {
		return nil, &TokenError{Endpoint: endpoint.Host, Status: response.Status, Rule: "its answer has no code for a device"}
	}
	for _, address := range []string{d.URL, d.Whole} {
		if u, err := url.Parse(address); address != "" && (err != nil || browsable(u) != nil) {
			return nil, &TokenError{Endpoint: endpoint.Host, Status: response.Status, Rule: "its address for the person is not https"}
		}
	}
	return d, nil
}

// isCode reports whether a text may be shown to a person.
func isCode(text string) bool {
	return text != "" && len(text) <= 2<<10 && !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
}

// poll requests the token repeatedly, until the person has logged in.
func (n *endpoint) poll(ctx context.Context, l *login, c *client, d *deviceDocument, interval time.Duration) (*tokenResponse, error) {
	bare := *l
	bare.scopes = nil // the request for the code has named the scopes
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		form := url.Values{"grant_type": {grantDevice}, "device_code": {d.Device}}
		exchange, cancel := exchangeContext(ctx)
		_, token, err := n.grant(exchange, &bare, c, form)
		cancel()
		var failed *TokenError
		switch {
		case err == nil:
			return token, nil
		case !errors.As(err, &failed), failed.Status >= 500, failed.Status == http.StatusTooManyRequests:
			// The network failed, or the server is down or overloaded.
			interval = min(2*interval, longestInterval)
		case failed.Code == "slow_down":
			interval = min(interval+defaultInterval, longestInterval)
		case failed.Code == "access_denied":
			return nil, &ResponseError{Issuer: l.discovered.server.Issuer, Code: failed.Code}
		case failed.Code == "expired_token":
			return nil, fmt.Errorf("%w: %w", ErrUnanswered, err)
		case failed.Code != "authorization_pending":
			return nil, err
		}
		timer.Reset(interval)
	}
}
