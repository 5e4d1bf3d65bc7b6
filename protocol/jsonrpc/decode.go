package jsonrpc

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/internal/scan"
)

// The defaults of [Limits].
const (
	defaultMaxDepth  = 512
	defaultMaxValues = 1 << 20
	defaultMaxBatch  = 1024
)

// deepestLimit is the largest possible MaxDepth: jsontext itself refuses more
// than 10,000 levels.
const deepestLimit = 9_999

// Limits are the limits on what a frame contains. The transport limits its size.
type Limits struct {
	// MaxDepth is how deep objects and arrays may be nested in a frame, including
	// the message itself and the array of a batch. Zero means 512; more
	// than 9,999 means 9,999.
	MaxDepth int
	// MaxValues is how many values a frame may contain: objects, arrays, strings,
	// numbers, booleans and nulls at any depth. A value of two bytes in the frame can
	// take a hundred bytes of memory when decoded. Zero means 1,048,576.
	MaxValues int
	// MaxBatch is how many messages one batch may contain. Zero means
	// 1,024.
	MaxBatch int
}

func (l Limits) maxDepth() int {
	if l.MaxDepth <= 0 {
		return defaultMaxDepth
	}
	return min(l.MaxDepth, deepestLimit)
}

func (l Limits) maxValues() int {
	if l.MaxValues <= 0 {
		return defaultMaxValues
	}
	return l.MaxValues
}

func (l Limits) maxBatch() int {
	if l.MaxBatch <= 0 {
		return defaultMaxBatch
	}
	return l.MaxBatch
}

var (
	// ErrTooDeep refuses a frame that nests deeper than Limits.MaxDepth.
	ErrTooDeep = errors.New("nested too deeply")
	// ErrTooManyValues refuses a frame that holds more than Limits.MaxValues.
	ErrTooManyValues = errors.New("too many values")
	// ErrBatch refuses an array where a single message is expected.
	ErrBatch = errors.New("a batch is not accepted here")

	errNotUTF8   = errors.New("not valid UTF-8")
	errNotObject = errors.New("a message is an object")
	errMarked    = errors.New("the message begins with a byte order mark")
)

// Decode decodes a frame that contains one message. White space around it is
// allowed, a batch is not. The Message refers to the bytes of the frame; see the
// package documentation.
//
// The error is always a *[DecodeError].
func Decode(frame []byte, limits Limits) (Message, error) {
	if m, sure := decodeSure(frame, limits); sure {
		return m, nil
	}
	return decodeAny(frame, limits)
}

// decodeSure is decodeAny for messages as most peers write them, and several times as
// fast. It refuses nothing: of any other message it is not sure.
func decodeSure(frame []byte, limits Limits) (m Message, sure bool) {
	text := scan.Of(frame)
	text.Limit(limits.maxDepth())
	var e envelope
	for name := range text.Members {
		value := text.Value()
		if place := e.slot(name); place != nil && *place == nil {
			*place = value
		} else if place != nil || !isPlain(name) {
			text.Fail()
		}
	}
	if !text.End() || text.Values() > limits.maxValues() {
		return Message{}, false
	}
	m, err := e.message(nil)
	m.Memory = memoryOf(text.Values(), text.Objects())
	return m, err == nil
}

// decodeAny is Decode, token by token.
func decodeAny(frame []byte, limits Limits) (Message, error) {
	r := newReader(frame, limits.maxDepth(), limits.maxValues())
	defer r.release()
	if r.tokens.PeekKind() != '{' {
		if unmarked, marked := bytes.CutPrefix(frame, byteOrderMark); marked {
			return Message{}, refuseMarked(unmarked, limits)
		}
		return Message{}, r.refuseNonObject()
	}
	e := &r.envelope
	repeated, err := r.members(e.slot)
	if err == nil {
		err = r.end()
	}
	if refused := r.refusal(err); refused != nil {
		if err == nil {
			e.describe(refused, frame)
		}
		return Message{}, refused
	}
	m, err := e.message(repeated)
	if err != nil {
		refused := &DecodeError{Code: CodeInvalidRequest, Err: err}
		e.describe(refused, frame)
		return Message{}, refused
	}
	m.Memory = memoryOf(scan.CountValues(frame))
	return m, nil
}

// byteOrderMark is U+FEFF. JSON text must not begin with it (RFC 8259, section 8.1).
var byteOrderMark = []byte("\xef\xbb\xbf")

// refuseMarked refuses a frame that begins with a byte order mark, and reads what comes
// after it for the id and the kind.
func refuseMarked(frame []byte, limits Limits) *DecodeError {
	refused := &DecodeError{Code: CodeParseError, Err: errMarked}
	if bytes.HasPrefix(frame, byteOrderMark) { // otherwise a frame of marks would recurse once for each
		return refused
	}
	m, err := decodeAny(frame, limits)
	if within := new(DecodeError); errors.As(err, &within) {
		refused.ID, refused.IDs, refused.Kind, refused.hasMethod = within.ID, within.IDs, within.Kind, within.hasMethod
	} else {
		refused.ID, refused.Kind, refused.hasMethod = m.ID, m.Kind, m.Kind == KindRequest // a notification has no id to answer
	}
	return refused
}

// refusal returns what is wrong with the text of the frame, and nil if nothing
// is. The frame was read with err as the outcome.
func (r *reader) refusal(err error) *DecodeError {
	switch {
	case r.isTooDeep:
		return &DecodeError{Code: CodeInvalidRequest, Err: ErrTooDeep}
	case r.values > r.maxValues:
		return &DecodeError{Code: CodeInvalidRequest, Err: ErrTooManyValues}
	case err != nil:
		return &DecodeError{Code: CodeParseError, Err: err}
	case !utf8.Valid(r.frame):
		return &DecodeError{Code: CodeParseError, Err: errNotUTF8}
	default:
		return nil
	}
}

// refuseNonObject returns what is wrong with a frame that is not an object.
func (r *reader) refuseNonObject() *DecodeError {
	_, err := r.value()
	if err == nil {
		err = r.end()
	}
	if refused := r.refusal(err); refused != nil {
		return refused
	}
	if IsBatch(r.frame) {
		return &DecodeError{Code: CodeInvalidRequest, Err: ErrBatch}
	}
	return &DecodeError{Code: CodeInvalidRequest, Err: errNotObject}
}

// An Item is one element of a batch: a message, or an error.
type Item struct {
	Message Message
	Err     *DecodeError // nil for a message
}

// IsBatch reports whether frame begins like an array. The replies to such a frame
// must be in an array, too, even if it contains a single message.
func IsBatch(frame []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(frame, " \t\r\n"), []byte("["))
}

// DecodeBatch decodes a frame that contains an array of messages, or a single message,
// and returns the messages in order. It is for protocols that allow batches, such as MCP
// 2025-03-26.
//
// An element that is not a message becomes an Item with an error, and does not affect
// the others. DecodeBatch refuses the whole frame, with a *[DecodeError], if it is not
// UTF-8 or not JSON, is an empty array, or exceeds limits.
func DecodeBatch(frame []byte, limits Limits) ([]Item, error) {
	if !IsBatch(frame) {
		m, err := Decode(frame, limits)
		if err != nil {
			return nil, err
		}
		return []Item{{Message: m}}, nil
	}
	elements, err := splitBatch(frame, limits)
	if err != nil {
		return nil, err
	}
	items := make([]Item, len(elements))
	for i, element := range elements {
		items[i] = decodeItem(element, limits)
	}
	return items, nil
}

// decodeItem decodes an element of a batch. A batch within a batch is no message.
func decodeItem(element []byte, limits Limits) (item Item) {
	m, err := Decode(element, limits)
	item.Message = m
	if errors.As(err, &item.Err) && IsBatch(element) {
		item.Err.Err = errNotObject
	}
	return item
}

// splitBatch returns the elements of a valid JSON array, within limits.
func splitBatch(frame []byte, limits Limits) ([][]byte, error) {
	r := newReader(frame, limits.maxDepth(), limits.maxValues())
	defer r.release()
	elements, err := r.elements(limits.maxBatch())
	if err == errBatchTooLong {
		return nil, &DecodeError{Code: CodeInvalidRequest, Err: err}
	}
	if refused := r.refusal(err); refused != nil {
		return nil, refused
	}
	if len(elements) == 0 {
		return nil, &DecodeError{Code: CodeInvalidRequest, Err: errBatchEmpty}
	}
	return elements, nil
}
