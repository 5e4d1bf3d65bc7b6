package web

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/bowline-mcp/bowline/transport"
)

// A Bearer is an Authorizer whose requests can share their headers. That saves a copy of the headers for
// each request, so links ask for it first. It is no part of transport.Authorizer, because a program that
// fetches credentials itself has nothing to gain from it.
type Bearer interface {
	transport.Authorizer

	// Bearer returns the values of the Authorization header for requests that are sent to
	// an address now. Callers do not change them. If it returns nil, the link calls
	// Authorize. Bearer does not wait.
	Bearer(ctx context.Context, to *url.URL) []string
}

// BearerOf returns the result of Bearer, or nil for an Authorizer without that method.
func BearerOf(ctx context.Context, auth transport.Authorizer, to *url.URL) (value []string) {
	if bearer, ok := auth.(Bearer); ok {
		_ = guard(func() error { value = bearer.Bearer(ctx, to); return nil }) // if it panics, the link calls Authorize, which reports what is wrong
	}
	return value
}

// maxChallenges is how often an Authorizer is asked about one message.
const maxChallenges = 3

// Send sends the request that attempt returns. If the server denies access and the
// Authorizer, which may be nil, asks for it, Send sends another one. Otherwise the link gets
// the response that denies access, as it gets any other refusal: see IsRefusal. Unsent reports
// that an error came before the last request was sent, so that the server has executed
// nothing.
func Send(ctx context.Context, client *http.Client, auth transport.Authorizer, attempt func() (*http.Request, error)) (response *http.Response, unsent bool, err error) {
	request, err := attempt()
	if err != nil {
		return nil, true, err
	}
	if auth != nil {
		if err := guard(func() error { return auth.Authorize(ctx, request) }); err != nil {
			return nil, true, fmt.Errorf("authorize the request: %w", err)
		}
	}
	response, err = Do(client, request)
	if auth == nil || !Denied(response, err) {
		return response, false, err
	}
	return SendAgain(ctx, client, auth, request, response, attempt)
}

// Denied reports whether a response denies access.
func Denied(response *http.Response, err error) bool {
	return err == nil && (response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden)
}

// SendAgain is Send after a request that was denied.
func SendAgain(ctx context.Context, client *http.Client, auth transport.Authorizer, request *http.Request, response *http.Response, attempt func() (*http.Request, error)) (_ *http.Response, unsent bool, err error) {
	for range maxChallenges {
		refused, again := readRefusal(response), false
		err = guard(func() (err error) { again, err = auth.Challenged(ctx, request, refused); return err })
		switch {
		case err != nil:
			return nil, true, fmt.Errorf("authorize the request: %w: %w", err, refused)
		case !again:
			return response, false, nil
		}
		if request, err = attempt(); err != nil {
			return nil, true, err
		}
		if err := guard(func() error { return auth.Authorize(ctx, request) }); err != nil {
			return nil, true, fmt.Errorf("authorize the request: %w", err)
		}
		if response, err = Do(client, request); !Denied(response, err) {
			return response, false, err
		}
	}
	return response, false, nil
}

// readRefusal reads the beginning of a body, so that the connection can be used
// again, and puts it back.
func readRefusal(response *http.Response) *transport.StatusError {
	body := Excerpt(response)
	response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	return NewStatusError(response, body)
}

// guard turns a panic of the program's own code into an error.
func guard(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v", value)
		}
	}()
	return f()
}
