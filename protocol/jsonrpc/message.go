package jsonrpc

import "encoding/json"

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
	Params json.RawMessage // an object or an array; nil when absent
	Result json.RawMessage // any value, null included
	Error  *Error
}
