package jsonrpc

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/bowline-mcp/bowline/internal/scan"
)

// AppendRequest appends a request to dst as one frame. The params are a JSON
// object or array, copied as they are; none are sent if params is empty. The
// method's bytes that are not UTF-8 become U+FFFD.
//
// Like every Append function, it takes params to be valid JSON, does not keep
// them, and writes a frame without a line break in it: breaks in the white space
// of params become spaces. It panics if there is no id, since what it would
// write is a notification, and nobody would answer.
func AppendRequest(dst []byte, id ID, method string, params []byte) []byte {
	dst = appendID(slices.Grow(dst, envelopeSize+len(method)+len(params)), id)
	return appendCall(dst, method, params)
}

// A Value appends itself to a frame, so that it is not encoded apart and copied.
type Value interface {
	// AppendJSON appends the value, as valid JSON, to dst. If it fails there is no
	// frame.
	AppendJSON(dst []byte) ([]byte, error)

	// SizeJSON is about how many bytes that will be. A frame begins with room for as
	// many.
	SizeJSON() int
}

// AppendRequestOf is AppendRequest with params that append themselves. It fails if they
// do.
func AppendRequestOf(dst []byte, id ID, method string, params Value) ([]byte, error) {
	dst = appendID(slices.Grow(dst, envelopeSize+len(method)+params.SizeJSON()), id)
	dst = appendMethod(dst, method)
	return appendMember(append(dst, `,"params":`...), params)
}

// AppendNotification appends a notification to dst as one frame, with params as
// for [AppendRequest].
func AppendNotification(dst []byte, method string, params []byte) []byte {
	dst = append(slices.Grow(dst, envelopeSize+len(method)+len(params)), `{"jsonrpc":"2.0"`...)
	return appendCall(dst, method, params)
}

// AppendResult appends a response that carries a result, of any JSON type, to
// dst as one frame. A response has to carry something: an empty result is sent
// as null. It panics if there is no id.
func AppendResult(dst []byte, id ID, result []byte) []byte {
	if len(result) == 0 {
		result = []byte("null")
	}
	dst = appendID(slices.Grow(dst, envelopeSize+len(result)), id)
	dst = append(dst, `,"result":`...)
	dst = appendValue(dst, result)
	return append(dst, '}')
}

// AppendResultOf is AppendResult with a result that appends itself. It fails if that
// does.
func AppendResultOf(dst []byte, id ID, result Value) ([]byte, error) {
	dst = appendID(slices.Grow(dst, envelopeSize+result.SizeJSON()), id)
	return appendMember(append(dst, `,"result":`...), result)
}

// appendMember appends the value of the last member of a message.
func appendMember(dst []byte, value Value) ([]byte, error) {
	start := len(dst)
	dst, err := value.AppendJSON(dst)
	if err != nil {
		return nil, err
	}
	joinLines(dst[start:])
	return append(dst, '}'), nil
}

// AppendError appends a response that carries an error to dst as one frame.
// Without data, none is sent. Without an id, because that of the request could
// not be read, none is sent either: JSON-RPC 2.0 says null there, but protocols
// whose ids are never null, MCP among them, leave it out.
func AppendError(dst []byte, id ID, e *Error) []byte {
	if id.IsZero() {
		dst = append(dst, `{"jsonrpc":"2.0"`...)
	} else {
		dst = appendID(dst, id)
	}
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, e.Code, 10)
	dst = append(dst, `,"message":`...)
	dst = appendString(dst, e.Message)
	if len(e.Data) > 0 {
		dst = append(dst, `,"data":`...)
		dst = appendValue(dst, e.Data)
	}
	return append(dst, "}}"...)
}

// envelopeSize is enough for what goes around a method and params, or a result,
// unless the id is long.
const envelopeSize = 80

func appendID(dst []byte, id ID) []byte {
	if id.IsZero() {
		panic("jsonrpc: a request or result without an id")
	}
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	return id.Append(dst)
}

func appendCall(dst []byte, method string, params []byte) []byte {
	dst = appendMethod(dst, method)
	if len(params) > 0 {
		dst = append(dst, `,"params":`...)
		dst = appendValue(dst, params)
	}
	return append(dst, '}')
}

func appendMethod(dst []byte, method string) []byte {
	return appendString(append(dst, `,"method":`...), method)
}

// appendValue appends valid JSON without its line breaks.
func appendValue(dst, value []byte) []byte {
	start := len(dst)
	dst = append(dst, value...)
	joinLines(dst[start:])
	return dst
}

// joinLines replaces the line breaks in valid JSON by spaces. Inside a string they are
// always escaped, so a raw one is white space.
func joinLines(value []byte) {
	for _, lineBreak := range []byte{'\n', '\r'} {
		rest := value
		for i := bytes.IndexByte(rest, lineBreak); i >= 0; i = bytes.IndexByte(rest, lineBreak) {
			rest[i] = ' '
			rest = rest[i+1:]
		}
	}
}

// appendString appends text as a JSON string, with U+FFFD for what is not UTF-8.
func appendString(dst []byte, text string) []byte { return scan.AppendQuote(dst, text) }
