package web

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/bowline-mcp/bowline/transport"
)

// An Authorizer is documented as streamable.Authorizer.
type Authorizer interface {
	Authorize(ctx context.Context, r *http.Request) error
	Challenged(ctx context.Context, r *http.Request, refused *transport.StatusError) (again bool, err error)
}

// maxChallenges is how often an Authorizer is asked about one message.
const maxChallenges = 3

// Send sends the request that attempt makes, and another while the server denies it
// and the Authorizer, which may be nil, says so. Unsent reports that an error came
// before the last request was sent, so that the server has executed nothing.
func Send(ctx context.Context, client *http.Client, auth Authorizer, attempt func() (*http.Request, error)) (response *http.Response, unsent bool, err error) {
	for challenges := 0; ; challenges++ {
		request, err := attempt()
		if err != nil {
			return nil, true, err
		}
		if auth == nil {
			response, err = Do(client, request)
			return response, false, err
		}
		if err := guard(func() error { return auth.Authorize(ctx, request) }); err != nil {
			return nil, true, fmt.Errorf("authorize the request: %w", err)
		}
		response, err := Do(client, request)
		denied := err == nil && (response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden)
		if !denied || challenges == maxChallenges {
			return response, false, err
		}
		refused, again := readRefusal(response), false
		err = guard(func() (err error) { again, err = auth.Challenged(ctx, request, refused); return err })
		switch {
		case err != nil:
			return nil, true, fmt.Errorf("authorize the request: %w: %w", err, refused)
		case !again:
			return response, false, nil
		}
	}
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
