package jsonrpc

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/bowline-mcp/bowline/internal/scan"
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
// Params, Result and the Data of Error are slices of the frame, without white space
// around them. See the package documentation for when the frame may be modified.
//
// Memory counts what the whole message would take as values of type any, which is often many
// times what it takes as text. Decoding sets it.
type Message struct {
	Kind   Kind
	Memory uint32          // how many bytes its values take when decoded, in addition to the frame; an estimate
	ID     ID              // zero in a notification, and in an error whose id is null or absent
	Method string          // may be empty, which JSON-RPC allows; no method has that name
	Params json.RawMessage // an object or an array; nil when absent or null
	Result json.RawMessage // any value, null included
	Error  *Error
}

// What values take in memory when they are decoded into values of type any, in addition to
// their text, measured with github.com/go-json-experiment/json on a machine of 64 bits: an element of
// an array 19 bytes if it is 0, true or "", 27 if it is another number, 35 as a text, 43 as [], and
// 67 as {}; an object with 1 to 8 members 330 to 360 bytes, one with 20 members 1,500.
const (
	valueMemory  = 36
	objectMemory = 280 // of an object with members, in addition
)

// memoryOf returns what values take in memory, of which some are objects with members.
func memoryOf(values, objects int) uint32 {
	return uint32(min(uint64(values)*valueMemory+uint64(objects)*objectMemory, math.MaxUint32))
}

// The error codes JSON-RPC 2.0 defines.
const (
	CodeParseError     = -32700 // the frame is not JSON
	CodeInvalidRequest = -32600 // the JSON is not a message
	CodeMethodNotFound = -32601 // there is no such method, or it is not available
	CodeInvalidParams  = -32602 // the params do not fit the method
	CodeInternalError  = -32603 // the receiver failed
)

// CodeOverloaded is a code of Bowline's own. It means that the receiver is overloaded at
// the moment or shuts down, and has not executed the request. A sender may repeat it.
const CodeOverloaded = -32050

// CodeAnswerDropped is a code of Bowline's own. It means that the receiver has executed the request, at
// least in part, and has dropped the answer, because there was no room for it: its peer has left too much unread, or a task
// found none in its store.
const CodeAnswerDropped = -32051

// An Error is the error object of a response from the peer. A local failure, such as a
// timeout, is never an Error.
type Error struct {
	Code    int64
	Message string
	Data    json.RawMessage // any value, null included; nil when absent
}

func (e *Error) Error() string { return fmt.Sprintf("jsonrpc: error %d: %s", e.Code, e.Message) }

// Is reports whether target is an *Error with the same code. It ignores message and data.
// Example: errors.Is(err, &Error{Code: CodeMethodNotFound}).
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code
}

// A DecodeError says why a frame, or one message of a batch, was refused. It contains the
// parts that could be decoded nevertheless.
type DecodeError struct {
	// Code is the code for an error response: CodeParseError if the frame is not JSON
	// or not UTF-8, and otherwise CodeInvalidRequest.
	Code int64
	// ID is the id, if the text is a complete JSON object, nested at most 10,000
	// deep, with exactly one valid id. A truncated frame has none, because half of an
	// id could be another id.
	ID ID
	// IDs are the different valid ids, at most four, if the text has several. ID is
	// then zero.
	IDs []ID
	// Kind is the kind that follows from the members of the message. It is zero if
	// they contradict each other, or if no kind follows from them.
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

// IsResponse reports whether the message can only be an invalid response to the request
// ID, or to one of IDs: it has a valid id and no method. No other response to that request
// will come.
func (e *DecodeError) IsResponse() bool {
	return (!e.ID.IsZero() || len(e.IDs) > 0) && !e.hasMethod
}

// ReplyDue reports whether to answer with an error response to ID. It returns false for
// notifications and responses, which must not be answered.
func (e *DecodeError) ReplyDue() bool { return e.Kind == KindRequest || e.Kind == 0 }

// Member returns the JSON text of an object's first member with the given name, or nil if
// there is none. It also reports whether there is another member with that name. It
// allocates nothing, and is much faster than decoding the object.
//
// The object must be valid JSON, such as the params of a decoded message or a part of
// them. If it is not an object, it has no members.
func Member(object []byte, name string) (value []byte, repeated bool) {
	return scan.Member(object, name)
}
