package jsonrpc

import (
	"encoding/json"
	"fmt"
)

// The error codes JSON-RPC 2.0 defines.
const (
	CodeParseError     = -32700 // the frame is not JSON
	CodeInvalidRequest = -32600 // the JSON is not a message
	CodeMethodNotFound = -32601 // there is no such method, or it is not available
	CodeInvalidParams  = -32602 // the params do not fit the method
	CodeInternalError  = -32603 // the receiver failed
)

// IsReservedCode reports whether JSON-RPC reserves the code: -32768 to -32000.
// An application chooses its own codes outside that range.
func IsReservedCode(code int64) bool { return -32768 <= code && code <= -32000 }

// IsServerErrorCode reports whether JSON-RPC leaves the code to the
// implementation or to a protocol built on JSON-RPC: -32099 to -32000.
func IsServerErrorCode(code int64) bool { return -32099 <= code && code <= -32000 }

// An Error is the error object of a response: what one peer tells the other. A
// failure that no peer reported, such as a timeout, is never an Error.
type Error struct {
	Code    int64
	Message string
	Data    json.RawMessage // any value, null included; nil when absent
}

func (e *Error) Error() string { return fmt.Sprintf("jsonrpc: error %d: %s", e.Code, e.Message) }

// Is reports whether target is an *Error of the same code, whatever its message
// and data: errors.Is(err, &Error{Code: CodeMethodNotFound}).
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code
}

// A DecodeError says why a frame, or one message of a batch, was refused, and
// what could still be read of it.
type DecodeError struct {
	// Code is what an error response would carry: CodeParseError for what is not
	// JSON or not UTF-8, CodeInvalidRequest for everything else.
	Code int64
	// ID is the id, if the text is a complete JSON object, at most 10,000 deep,
	// with one valid id. A frame cut short has none: half of an id would be
	// another id.
	ID ID
	// Kind is what the members present make of it, or zero if they contradict
	// one another or say nothing.
	Kind Kind
	// Err is the reason. It may quote a few characters of the frame.
	Err error
}

func (e *DecodeError) Error() string {
	what := "invalid request"
	if e.Code == CodeParseError {
		what = "parse error"
	}
	return fmt.Sprintf("jsonrpc: %s: %v", what, e.Err)
}

// Unwrap returns the reason.
func (e *DecodeError) Unwrap() error { return e.Err }

// ReplyDue reports whether JSON-RPC wants this answered with an error response,
// under ID: not if it was a notification or itself a response.
func (e *DecodeError) ReplyDue() bool { return e.Kind == KindRequest || e.Kind == 0 }
