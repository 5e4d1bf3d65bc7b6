package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// A reader walks one JSON object or array in a frame. jsontext does the grammar;
// the reader adds the depth bound and slices the frame.
type reader struct {
	frame  []byte
	source bytes.Buffer // jsontext parses a bytes.Buffer in place
	tokens jsontext.Decoder

	maxDepth  int
	mayBeDeep bool // the frame has enough brackets to nest deeper than maxDepth
	isTooDeep bool // and it does, as far as it was read

	envelope envelope // what Decode reads, here so that a message costs no allocation for it
}

// What jsontext is not asked to check. Repeated names matter only where this
// package reads members, and a lone surrogate escape only in strings it reads;
// UTF-8 is checked for the whole frame at once, which is faster.
var readerOptions = []jsontext.Options{
	jsontext.AllowDuplicateNames(true),
	jsontext.AllowInvalidUTF8(true),
}

// The pool holds readers that are ready for a frame.
var readers = sync.Pool{New: func() any {
	r := new(reader)
	r.tokens.Reset(&r.source, readerOptions...)
	return r
}}

func newReader(frame []byte, maxDepth int) *reader {
	r := readers.Get().(*reader)
	r.frame = frame
	r.source = *bytes.NewBuffer(frame)
	r.maxDepth = maxDepth
	r.mayBeDeep = bytes.Count(frame, []byte{'{'})+bytes.Count(frame, []byte{'['}) > maxDepth
	r.isTooDeep = false
	return r
}

// release forgets the frame, so that the pool keeps none alive.
func (r *reader) release() {
	r.frame, r.envelope = nil, envelope{}
	r.source = bytes.Buffer{}
	r.tokens.Reset(&r.source, readerOptions...)
	readers.Put(r)
}

// members reads one object. slot says where the value of a member goes, or nil
// for a member to ignore. The last repeated member, if any, is returned; its
// value is replaced by null: it is there, but worth nothing.
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
	if r.mayBeDeep {
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

// walk reads one value token by token, without recursion, to see how deep it is.
// It goes on when that is too deep, for the id may be yet to come; jsontext has
// a bound of its own.
func (r *reader) walk() error {
	for outside := r.tokens.StackDepth(); ; {
		if _, err := r.tokens.ReadToken(); err != nil {
			return err
		}
		depth := r.tokens.StackDepth()
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
