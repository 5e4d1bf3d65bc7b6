package jsonrpc

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/bowline-mcp/bowline/internal/scan"
)

// AppendRequest appends a request to dst as one frame. The params must be a JSON object
// or array, and are copied unchanged. If params is empty, the request has no params.
// Bytes of the method that are not UTF-8 become U+FFFD. AppendRequest panics if there
// is no id, because the frame would then be a notification, which nobody answers.
//
// Like every Append function, it does not check that params are valid JSON, and does
// not keep them. The frame contains no line break: line breaks in the white space of
// params become spaces.
func AppendRequest(dst []byte, id ID, method string, params []byte) []byte {
	dst = appendID(slices.Grow(dst, envelopeSize+len(method)+len(params)), id)
	return appendCall(dst, method, params)
}

// A Value encodes itself directly into a frame, which saves a copy.
type Value interface {
	// AppendJSON appends the value, as valid JSON, to dst. If it fails, no frame is
	// sent.
	AppendJSON(dst []byte) ([]byte, error)

	// SizeJSON estimates how many bytes AppendJSON will append. The frame is allocated
	// with room for that many.
	SizeJSON() int
}

// AppendRequestOf is AppendRequest with params that encode themselves. It returns the
// error of params.AppendJSON.
func AppendRequestOf(dst []byte, id ID, method string, params Value) ([]byte, error) {
	dst = appendID(slices.Grow(dst, envelopeSize+len(method)+params.SizeJSON()), id)
	dst = appendMethod(dst, method)
	return appendMember(append(dst, `,"params":`...), params)
}

// AppendNotification appends a notification to dst as one frame. See [AppendRequest]
// for params.
func AppendNotification(dst []byte, method string, params []byte) []byte {
	dst = append(slices.Grow(dst, envelopeSize+len(method)+len(params)), `{"jsonrpc":"2.0"`...)
	return appendCall(dst, method, params)
}

// AppendResult appends a response with a result to dst as one frame. The result may
// have any JSON type; an empty one becomes null. AppendResult panics if there is no id.
func AppendResult(dst []byte, id ID, result []byte) []byte {
	if len(result) == 0 {
		result = []byte("null")
	}
	dst = appendID(slices.Grow(dst, envelopeSize+len(result)), id)
	dst = append(dst, `,"result":`...)
	dst = appendValue(dst, result)
	return append(dst, '}')
}

// AppendResultOf is AppendResult with a result that encodes itself. It returns the
// error of result.AppendJSON.
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

// AppendError appends a response with an error to dst as one frame. If e has no Data,
// the response has none. If there is no id, because the id of the request could not be
// read, the response has none either. JSON-RPC 2.0 requires null there, but protocols
// whose ids are never null, such as MCP, omit it.
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
