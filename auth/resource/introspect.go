package resource

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
)

// introspect asks an issuer who a token speaks for (RFC 7662). An issuer that cannot say so is
// away: the token may be good.
func (g *Guard) introspect(ctx context.Context, token string) (*Principal, time.Time, error) {
	from := g.asked
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	select {
	case from.slots <- struct{}{}:
		defer func() { <-from.slots }()
	case <-ctx.Done():
		return nil, time.Time{}, unavailable("too many tokens are being checked")
	}
	address := from.of.Introspect.URL
	if address == "" {
		found, err := from.discover(ctx)
		if err != nil || found.Introspect == "" {
			return nil, time.Time{}, unavailable("the authorization server cannot be asked about the token now")
		}
		address = found.Introspect
	}
	form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, time.Time{}, unavailable("the authorization server cannot be asked about the token")
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth(url.QueryEscape(from.of.Introspect.ClientID), url.QueryEscape(from.of.Introspect.ClientSecret))
	asked := time.Now()
	answer, err := from.fetch.do(request)
	if err != nil || protocol.Unmarshal(answer.body, new(map[string]any)) != nil {
		return nil, time.Time{}, unavailable("the authorization server cannot be asked about the token now")
	}
	p, err := g.read(from, answer.body)
	return p, asked.Add(introspectedLife), err
}
