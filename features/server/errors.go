package server

import (
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/features/server/internal/catalog"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

var (
	// ErrClosed is returned by Serve when the server was already closed. It is the cause of the
	// context of a task that runs when the server closes.
	ErrClosed = errors.New("server: closed")

	// ErrNotFound is for a resource handler to return when there is no such resource.
	// The client gets the error code of its revision. fs.ErrNotExist has the same
	// effect.
	ErrNotFound = catalog.ErrNotFound

	// ErrNoRequest is returned by Confirm, Elicit and the other questions when they
	// are called outside of a request.
	ErrNoRequest = errors.New("server: there is no request to ask in")

	// ErrNotAsking is returned by questions when the feature was added without Asks.
	ErrNotAsking = errors.New("server: the feature has to say how it asks: add it with Asks(Waits, …) or Asks(Reruns, …)")

	// ErrUnsupported matches an UnsupportedError: the client cannot be asked this.
	ErrUnsupported = errors.New("the client does not support it")

	// ErrDeclined means that the user said no.
	ErrDeclined = errors.New("the user declined")

	// ErrDismissed means that the user gave no answer: in MCP the action "cancel".
	ErrDismissed = errors.New("the user gave no answer")

	// ErrUnanswered means that no answer came and none will come: the question
	// expired, or the server is closing. The error text says which.
	ErrUnanswered = asking.ErrUnanswered

	// ErrKeyUsed means that a call asked two different questions under one key.
	ErrKeyUsed = asking.ErrKeyUsed

	// ErrInputRequired is the context cause of a handler with Reruns after it has
	// asked a new question. The handler runs again when the client has answered.
	ErrInputRequired = asking.ErrInputRequired
)

// A reportedPanic is the error of work that ended with a panic, which was reported where it
// happened. Peers get an internal error; a Conn does not report the panic again.
type reportedPanic struct{ panicked *conn.PanicError }

// Error does not reveal the text of the panic, because the error may be sent to a peer.
func (*reportedPanic) Error() string { return "internal error" }

func (e *reportedPanic) Unwrap() error { return e.panicked }

func isPanic(err error) bool { return errors.As(err, new(*reportedPanic)) }

// An UnsupportedError says that the client cannot be asked, because it lacks a
// capability. It matches ErrUnsupported.
type UnsupportedError struct {
	Capability string // such as "sampling" or "elicitation.url"

	required protocol.ClientCapabilities
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%v: it did not declare the capability %s", ErrUnsupported, e.Capability)
}

// Is matches ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }

// An AnswerError says that an answer from the client does not fit its question: the one with the key Key, by the reason Err.
type AnswerError = asking.AnswerError

// errLate refuses a request that has waited for too long, and for which nothing was done.
var errLate = refusal.New(jsonrpc.CodeOverloaded, "overloaded: the request has waited for too long")
