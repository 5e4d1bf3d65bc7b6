package jsonrpc

import (
	"encoding/json"
	"fmt"
)

// A Kind is one of the four shapes of a message. Its zero value means unknown.
type Kind uint8

const (
	KindRequest      Kind = iota + 1 // a method and an id: a reply is expected
	KindNotification                 // a method and no id: never replied to
	KindResult                       // an id and a result
	KindError                        // an error, and an id unless the peer could not read it
)

// String returns the kind as one lower-case word.
func (k Kind) String() string {
	switch k {
	case KindRequest:
		return "request"
	case KindNotification:
		return "notification"
	case KindResult:
		return "result"
	case KindError:
		return "error"
	default:
		return "unknown"
	}
}

// A Message is one decoded message. Fields that its kind does not have are zero.
//
// Params, Result and the Data of Error are the exact bytes of the frame they
// were decoded from, with no white space around them; see the package
// documentation for who may modify what.
type Message struct {
	Kind   Kind
	ID     ID              // zero in a notification, and in an error whose id is null or absent
	Method string          // may be empty: the grammar allows it, no method has that name
	Params json.RawMessage // an object or an array; nil when absent or null
	Result json.RawMessage // any value, null included
	Error  *Error
}

// The error codes JSON-RPC 2.0 defines.
const (
	CodeParseError     = -32700 // the frame is not JSON
	CodeInvalidRequest = -32600 // the JSON is not a message
	CodeMethodNotFound = -32601 // there is no such method, or it is not available
	CodeInvalidParams  = -32602 // the params do not fit the method
	CodeInternalError  = -32603 // the receiver failed
)

// CodeOverloaded is Bowline's own code: the receiver has too much to do for now, and
// has not executed the request.
const CodeOverloaded = -32050

// IsReservedCode reports whether JSON-RPC reserves the code: -32768 to -32000.
// An application chooses its own codes outside that range.
func IsReservedCode(code int64) bool { return -32768 <= code && code <= -32000 }

// IsServerErrorCode reports whether JSON-RPC leaves the code to the
// implementation or to a protocol built on JSON-RPC: -32099 to -32000.
func IsServerErrorCode(code int64) bool { return -32099 <= code && code <= -32000 }

// An Error is the error object of a response: the peer sent it. A local failure,
// such as a timeout, is never an Error.
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

// A DecodeError reports why a frame, or one message of a batch, was refused. It
// holds what could still be read of it.
type DecodeError struct {
	// Code is what an error response would carry: CodeParseError for what is not
	// JSON or not UTF-8, CodeInvalidRequest for everything else.
	Code int64
	// ID is the id, if the text is a complete JSON object, at most 10,000 deep,
	// with one valid id. A frame cut short has none: half of an id would be
	// another id.
	ID ID
	// Kind is the kind that follows from the members present, or zero if they
	// contradict one another or say nothing.
	Kind Kind
	// Err is the reason. It may quote a few characters of the frame.
	Err error

	hasMethod bool
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

// IsResponse reports whether the message can only have been meant as the response
// to the request ID: the id could be read, and there is no method. That request gets
// no other response.
func (e *DecodeError) IsResponse() bool { return !e.ID.IsZero() && !e.hasMethod }

// ReplyDue reports whether to answer with an error response, under ID. Do not
// answer a notification or a response.
func (e *DecodeError) ReplyDue() bool { return e.Kind == KindRequest || e.Kind == 0 }
