package transport

import (
	"context"
	"net/http"
)

// An Authorizer adds credentials to the HTTP requests of a client: an *auth.Authorizer is one. Links call it on the
// goroutine of each request, several at the same time. A panic fails the message.
//
// If an Authorizer returns an error, or the server still denies access, only that
// message fails, and it was not executed. In the handshake of a session, the reason
// is then conn.AuthRequired, if the server denied access or the error wraps
// ErrAuthRequired. Call Conn.Wake when there are credentials.
type Authorizer interface {
	// Authorize adds credentials to a request, such as a token. It may fetch one, until
	// ctx ends. If it returns an error, the message fails and is not sent.
	Authorize(ctx context.Context, r *http.Request) error

	// Challenged receives a response with status 401 or 403, and reports whether to send
	// the request again, after another call of Authorize. It may refresh a token, until
	// ctx ends. Links call it at most three times for one message.
	Challenged(ctx context.Context, r *http.Request, refused *StatusError) (again bool, err error)
}
