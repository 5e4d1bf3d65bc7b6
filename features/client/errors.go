package client

import (
	"errors"
	"fmt"
)

// MaxPages is how many pages one range over Session.Tools fetches.
const MaxPages = 1000

var (
	// ErrRepeatedCursor ends a list whose next cursor is the one just used:
	// the list would never end.
	ErrRepeatedCursor = errors.New("client: the next cursor is the one just used")

	// ErrStaleCursor ends a list that was begun with a server that is gone: a
	// cursor is of no use in another session (2025-11-25
	// server/utilities/pagination).
	ErrStaleCursor = errors.New("client: the cursor is of a server session that is over")
)

// A ResultError is a result that does not fit its method: the request was made
// and answered, and the answer cannot be read.
type ResultError struct{ Err error }

func (e *ResultError) Error() string {
	return fmt.Sprintf("client: the result cannot be read: %v", e.Err)
}

func (e *ResultError) Unwrap() error { return e.Err }

// A CapabilityError is a request that the server does not offer to serve. It
// was not sent.
type CapabilityError struct{ Capability string }

func (e *CapabilityError) Error() string {
	return fmt.Sprintf("client: the server does not offer %q", e.Capability)
}
