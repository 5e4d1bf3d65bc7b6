package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// A reader walks one JSON object or array in a frame. jsontext does the grammar;
// the reader adds the depth bound and slices the frame.
type reader struct {
	frame  []byte
	source bytes.Buffer // jsontext parses a bytes.Buffer in place
	tokens jsontext.Decoder

	maxDepth  int
	maxValues int
	mustWalk  bool // the frame has enough brackets or commas to exceed a limit
	isTooDeep bool // as far as the frame was read; so is values
	values    int  // counted only if mustWalk is set

	envelope envelope // what Decode reads, here so that a message costs no allocation for it
}

// readerOptions turns checks of jsontext off. This package refuses repeated names
// only among the members that it reads, and lone surrogate escapes only in strings
// that it reads. It checks UTF-8 for the whole frame at once, which is faster.
var readerOptions = []jsontext.Options{
	jsontext.AllowDuplicateNames(true),
	jsontext.AllowInvalidUTF8(true),
}

// readers holds readers that are ready for a frame. It is a variable of the package
// because Decode is a function: passed in, it would be a parameter of every function that
// decodes. It holds no state that a caller could notice, only memory.
var readers = sync.Pool{New: func() any {
	r := new(reader)
	r.tokens.Reset(&r.source, readerOptions...)
	return r
}}

func newReader(frame []byte, maxDepth, maxValues int) *reader {
	r := readers.Get().(*reader)
	r.frame = frame
	r.source = *bytes.NewBuffer(frame)
	r.maxDepth, r.maxValues = maxDepth, maxValues
	brackets := bytes.Count(frame, []byte{'{'}) + bytes.Count(frame, []byte{'['})
	r.mustWalk = brackets > maxDepth
	if len(frame)/2 >= maxValues { // a value takes two bytes, but for the last
		r.mustWalk = r.mustWalk || brackets+bytes.Count(frame, []byte{','}) >= maxValues
	}
	r.isTooDeep, r.values = false, 1 // the message itself
	return r
}

// release forgets the frame, so that the pool does not keep it alive.
func (r *reader) release() {
	r.frame, r.envelope = nil, envelope{}
	r.source = bytes.Buffer{}
	r.tokens.Reset(&r.source, readerOptions...)
	readers.Put(r)
}

// members reads one object. slot returns where the value of a member goes, and nil
// for a member to ignore. If a member is repeated, its value becomes null and
// members returns the last such name.
func (r *reader) members(slot func(name []byte) *[]byte) (repeated []byte, err error) {
	if _, err := r.tokens.ReadToken(); err != nil { // the opening brace
		return nil, err
	}
	for r.tokens.PeekKind() != '}' {
		name, err := r.value()
		if err != nil {
			return nil, err
		}
		value, err := r.value()
		if err != nil {
			return nil, err
		}
		name = memberName(name)
		switch place := slot(name); {
		case place == nil:
		case *place == nil:
			*place = value
		default:
			*place, repeated = []byte("null"), name
		}
	}
	_, err = r.tokens.ReadToken()
	return repeated, err
}

// elements reads one array of at most limit elements, and the end of the frame.
func (r *reader) elements(limit int) (elements [][]byte, err error) {
	if _, err := r.tokens.ReadToken(); err != nil { // the opening bracket
		return nil, err
	}
	for r.tokens.PeekKind() != ']' {
		element, err := r.value()
		if err != nil {
			return nil, err
		}
		if len(elements) == limit {
			return nil, errBatchTooLong
		}
		elements = append(elements, element)
	}
	if _, err := r.tokens.ReadToken(); err != nil {
		return nil, err
	}
	return elements, r.end()
}

// value reads one value, or the name of a member, and returns its bytes in the
// frame.
func (r *reader) value() ([]byte, error) {
	if r.mustWalk {
		return r.walkValue()
	}
	value, err := r.tokens.ReadValue() // faster, and recurses no deeper than maxDepth
	if err != nil {
		return nil, err
	}
	end := r.tokens.InputOffset()
	return r.frame[end-int64(len(value)) : end : end], nil
}

func (r *reader) walkValue() ([]byte, error) {
	start := r.tokens.InputOffset()
	if err := r.walk(); err != nil {
		return nil, err
	}
	end := r.tokens.InputOffset()
	return bytes.TrimLeft(r.frame[start:end:end], " \t\r\n,:"), nil
}

// walk reads one value token by token, without recursion, to see how deep it is
// and to count what is in it. Beyond a limit it goes on, since the id may come
// later; jsontext has a limit of depth of its own.
func (r *reader) walk() error {
	for outside := r.tokens.StackDepth(); ; {
		depth := r.tokens.StackDepth()
		container, length := r.tokens.StackIndex(depth)
		token, err := r.tokens.ReadToken()
		if err != nil {
			return err
		}
		if kind := token.Kind(); kind != '}' && kind != ']' && (container != '{' || length%2 != 0) {
			r.values++
		}
		depth = r.tokens.StackDepth()
		r.isTooDeep = r.isTooDeep || depth > r.maxDepth
		if depth == outside {
			return nil
		}
	}
}

var (
	errTrailingData = errors.New("data after the end of the message")
	errBatchTooLong = errors.New("the batch has too many messages")
	errBatchEmpty   = errors.New("the batch is empty")
)

// end checks that nothing but white space is left.
func (r *reader) end() error {
	switch _, err := r.tokens.ReadToken(); err {
	case io.EOF:
		return nil
	case nil:
		return errTrailingData
	default:
		return err
	}
}

// kindOf returns the kind of the valid JSON value raw, zero if it is empty.
func kindOf(raw []byte) jsontext.Kind { return jsontext.Value(raw).Kind() }

// isNull reports whether the JSON value raw is null.
func isNull(raw []byte) bool { return kindOf(raw) == 'n' }

// unquote returns the text of the valid JSON string raw. Text that is no Unicode,
// from bytes that are not UTF-8 or the escape of a lone surrogate, is an error;
// it is then returned with U+FFFD in its place.
func unquote(raw []byte) (string, error) {
	if text := raw[1 : len(raw)-1]; isPlain(text) && utf8.Valid(text) {
		return string(text), nil
	}
	text, err := jsontext.AppendUnquote(nil, raw)
	return string(text), err
}

// memberName returns the text of the valid JSON string raw, which may be raw
// itself. What is no Unicode is no name this package knows.
func memberName(raw []byte) []byte {
	if text := raw[1 : len(raw)-1]; isPlain(text) {
		return text
	}
	name, _ := jsontext.AppendUnquote(nil, raw) // the error only says that U+FFFD was needed
	return name
}

// isPlain reports whether the inside of a JSON string has no escapes.
func isPlain(text []byte) bool { return bytes.IndexByte(text, '\\') < 0 }
