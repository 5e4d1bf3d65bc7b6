package auth

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A LoginError says that a request needs a login and there is none. It wraps
// transport.ErrAuthRequired.
type LoginError struct {
	Resource string   // URL of the server
	Scopes   []string // what a login must allow for the request, as the server has said in its refusal; nil: it has not
	Err      error    // how the login failed, or why there is none
}

func (e *LoginError) Error() string {
	return fmt.Sprintf("auth: log in to %s first: %v", e.Resource, e.Err)
}

// Unwrap returns transport.ErrAuthRequired and Err.
func (e *LoginError) Unwrap() []error { return []error{transport.ErrAuthRequired, e.Err} }

// ErrUnanswered says that a person was asked to log in, but did not do so in time. If
// Interact returns it, requests do not call Interact again for ten minutes, as after a
// refusal. Login calls it at any time.
var ErrUnanswered = errors.New("auth: nobody has logged in")

// errNoInteraction is why a program without Interact and Grant has no login.
var errNoInteraction = errors.New("nobody is there to log in")

// A MetadataError says that a metadata document was refused. No request was sent to
// the authorization server that the document names.
type MetadataError struct {
	URL  string // the URL of the document
	Rule string // the rule that the document breaks
	Err  error  // more detail; nil if there is none
}

func (e *MetadataError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("auth: metadata at %s: %s: %v", e.URL, e.Rule, e.Err)
	}
	return fmt.Sprintf("auth: metadata at %s: %s", e.URL, e.Rule)
}

func (e *MetadataError) Unwrap() error { return e.Err }

// A RegistrationError says that the program is not registered with an authorization
// server, and could not register itself.
type RegistrationError struct {
	Issuer string
	Status int    // the HTTP status that refused the registration; 0: none was tried
	Code   string // the error parameter; "" for none
	Reason string
}

func (e *RegistrationError) Error() string {
	text := fmt.Sprintf("auth: no client at %s: %s", e.Issuer, e.Reason)
	switch {
	case e.Status != 0 && e.Code != "":
		text += fmt.Sprintf(" (status %d, %s)", e.Status, e.Code)
	case e.Status != 0:
		text += fmt.Sprintf(" (status %d)", e.Status)
	}
	return text
}

// A ResponseError says that an authorization response was refused, or that the
// authorization server denied the login. The code was not sent anywhere.
type ResponseError struct {
	Issuer string
	Code   string // the error parameter of a genuine response, for instance "access_denied"; "" for none
	Rule   string // the rule that the response breaks; "" if it is genuine
}

func (e *ResponseError) Error() string {
	if e.Rule != "" {
		return fmt.Sprintf("auth: the authorization response of %s is not accepted: %s", e.Issuer, e.Rule)
	}
	return fmt.Sprintf("auth: %s gives no authorization: %s", e.Issuer, e.Code)
}

// A TokenError says that a token endpoint returned no token that can be used.
type TokenError struct {
	Endpoint   string // the host of the token endpoint
	Status     int
	Code       string        // the error parameter, for instance "invalid_grant"; "" for none
	Rule       string        // the rule that a response with a token breaks; "" for none
	RetryAfter time.Duration // the delay that the server asked for; 0 for none
	Skew       time.Duration // how far the server's clock is ahead of this machine's, if more than five minutes
}

func (e *TokenError) Error() string {
	text := fmt.Sprintf("auth: %s gave no token: status %d", e.Endpoint, e.Status)
	if e.Code != "" {
		text += ", " + e.Code
	}
	if e.Rule != "" {
		text += ", " + e.Rule
	}
	if e.Skew != 0 {
		text += fmt.Sprintf(" (its clock differs from the one here by %v)", e.Skew.Round(time.Second))
	}
	return text
}

// Final reports whether the server would refuse the same request again, because the
// grant can no longer be used.
func (e *TokenError) Final() bool {
	return e.Code == "invalid_grant" && e.Status == http.StatusBadRequest
}

// isClientRefused reports whether an authorization server does not accept the client any
// more.
func isClientRefused(err error) bool {
	var code string
	if refused := (*TokenError)(nil); errors.As(err, &refused) {
		code = refused.Code
	} else if refused := (*ResponseError)(nil); errors.As(err, &refused) {
		code = refused.Code
	}
	return code == "invalid_client" || code == "unauthorized_client"
}
