package jsonrpc

import (
	"errors"
	"unicode/utf8"
)

// The defaults of [Limits].
const (
	DefaultMaxDepth = 512
	DefaultMaxBatch = 1024
)

// jsontext refuses a depth above 10,000 by itself; what is one less is ours to tell.
const deepestLimit = 9_999

// Limits bounds what a peer may send. The length of a frame is bounded by
// whoever reads it from the network.
type Limits struct {
	// MaxDepth is how many objects and arrays may be open at once in a frame,
	// counting the message itself and the array of a batch. Zero means
	// DefaultMaxDepth; more than 9,999 means 9,999.
	MaxDepth int
	// MaxBatch is how many messages one batch may hold. Zero means
	// DefaultMaxBatch.
	MaxBatch int
}

func (l Limits) maxDepth() int {
	if l.MaxDepth <= 0 {
		return DefaultMaxDepth
	}
	return min(l.MaxDepth, deepestLimit)
}

func (l Limits) maxBatch() int {
	if l.MaxBatch <= 0 {
		return DefaultMaxBatch
	}
	return l.MaxBatch
}

var (
	// ErrTooDeep is the reason of a frame that nests deeper than its limit.
	ErrTooDeep = errors.New("nested too deeply")
	// ErrBatch is the reason of a batch that was not asked for.
	ErrBatch = errors.New("a batch is not accepted here")

	errNotUTF8   = errors.New("not valid UTF-8")
	errNotObject = errors.New("a message is an object")
)

// Decode reads the one message that frame holds. White space around it is
// allowed, a batch is not. The Message refers to the frame's bytes: see the
// package documentation.
//
// The error is always a *[DecodeError].
func Decode(frame []byte, limits Limits) (Message, error) {
	r := newReader(frame, limits.maxDepth())
	defer r.release()
	if r.tokens.PeekKind() != '{' {
		return Message{}, r.refuseNonObject()
	}
	e := &r.envelope
	repeated, err := r.members(e.slot)
	if err == nil {
		err = r.end()
	}
	if refused := r.refusal(err); refused != nil {
		if err == nil {
			e.describe(refused)
		}
		return Message{}, refused
	}
	m, err := e.message(repeated)
	if err != nil {
		refused := &DecodeError{Code: CodeInvalidRequest, Err: err}
		e.describe(refused)
		return Message{}, refused
	}
	return m, nil
}

// refusal says what is wrong with the frame as a text, once it was read, with
// err as the outcome. It returns nil if nothing is.
func (r *reader) refusal(err error) *DecodeError {
	switch {
	case r.isTooDeep:
		return &DecodeError{Code: CodeInvalidRequest, Err: ErrTooDeep}
	case err != nil:
		return &DecodeError{Code: CodeParseError, Err: err}
	case !utf8.Valid(r.frame):
		return &DecodeError{Code: CodeParseError, Err: errNotUTF8}
	default:
		return nil
	}
}

// refuseNonObject says what is wrong with a frame that is no object.
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
