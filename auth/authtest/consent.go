package authtest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
)

// Redirect is the redirect address that Consent uses. Nobody listens there: Consent reads
// the redirect and does not follow it.
const Redirect = "http://127.0.0.1:3456/callback"

// Consent acts as the browser of a person who consents immediately. It works with
// authorization servers that ask no questions, such as those of this package. Pass the
// Start method of an auth.Interaction:
//
//	Interact: func(ctx context.Context, i auth.Interaction) (*url.URL, error) {
//		return authtest.Consent(ctx, i.Start)
//	},
func Consent(ctx context.Context, start func(ctx context.Context, redirect string) (*url.URL, error)) (*url.URL, error) {
	address, err := start(ctx, Redirect)
	if err != nil {
		return nil, err
	}
	return Visit(ctx, address.String())
}

// Visit opens an address as a browser does, and returns the address that the response
// redirects to.
func Visit(ctx context.Context, address string) (*url.URL, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 3 {
		return nil, fmt.Errorf("authtest: %s answers %s, and not with a redirect", request.URL.Host, response.Status)
	}
	return response.Location()
}
