package auth

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/telemetry"
)

// A result says how a login or a refresh has ended; see telemetry.AuthSample.
type result uint8

const (
	succeeded  result = iota
	refused           // the authorization server or the person has refused
	nobody            // no person has logged in
	impossible        // not tried, because the program has neither a Grant nor Interact
	failed            // a temporary failure
	results
)

var resultNames = [results]string{"succeeded", "refused", "nobody", "impossible", "failed"}

// counts contains what an Authorizer has done.
type counts struct {
	refreshes, logins       [results]atomic.Uint64
	unauthorized, forbidden atomic.Uint64
}

func (c *counts) sample(held *credential) *telemetry.AuthSample {
	s := &telemetry.AuthSample{}
	for _, n := range [...]struct {
		from *[results]atomic.Uint64
		to   *[]telemetry.AuthResult
	}{{&c.refreshes, &s.Refreshes}, {&c.logins, &s.Logins}} {
		for i := range n.from {
			if count := n.from[i].Load(); count > 0 {
				*n.to = append(*n.to, telemetry.AuthResult{Result: resultNames[i], Count: count})
			}
		}
	}
	for status, count := range map[int]uint64{http.StatusUnauthorized: c.unauthorized.Load(), http.StatusForbidden: c.forbidden.Load()} {
		if count > 0 {
			s.Denied = append(s.Denied, telemetry.Refused{Status: status, Count: count})
		}
	}
	if held != nil {
		s.Expires = held.entry.Expires
	}
	return s
}

// denied counts a request that the server has refused.
func (c *counts) denied(status int) {
	if status == http.StatusForbidden {
		c.forbidden.Add(1)
	} else {
		c.unauthorized.Add(1)
	}
}

// refreshed counts the exchange of a refresh token.
func (c *counts) refreshed(err error) {
	var answered *TokenError
	switch {
	case err == nil:
		c.refreshes[succeeded].Add(1)
	case errors.As(err, &answered) && answered.Final():
		c.refreshes[refused].Add(1)
	default:
		c.refreshes[failed].Add(1)
	}
}

// loggedIn counts a login that has ended.
func (c *counts) loggedIn(ctx context.Context, err error) {
	var answered *TokenError
	switch {
	case err == nil:
		c.logins[succeeded].Add(1)
	case errors.Is(err, errNoInteraction):
		c.logins[impossible].Add(1)
	case errors.Is(err, ErrUnanswered), errors.Is(context.Cause(ctx), ErrUnanswered):
		c.logins[nobody].Add(1)
	case errors.As(err, new(*ResponseError)), errors.As(err, &answered) && answered.Final():
		c.logins[refused].Add(1)
	default:
		c.logins[failed].Add(1)
	}
}
