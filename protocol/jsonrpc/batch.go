package jsonrpc

import (
	"bytes"
	"errors"
)

// An Item is one element of a batch: a message, or why it is none.
type Item struct {
	Message Message
	Err     *DecodeError // nil for a message
}

// IsBatch reports whether frame begins as an array, so that the replies to it
// belong in an array too, even if it holds a single message.
func IsBatch(frame []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(frame, " \t\r\n"), []byte("["))
}

// DecodeBatch reads the messages that frame holds: the elements of an array, in
// order, or a single message. It is for protocols that allow batches, such as
// MCP 2025-03-26.
//
// An element that is no message is an Item with an error, and the others stand.
// The frame as a whole is refused, with a *[DecodeError], if it is not UTF-8 or
// not JSON, nests too deeply, is an empty array, or has more elements than
// limits allow.
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
		m, err := Decode(element, limits)
		items[i].Message = m
		if errors.As(err, &items[i].Err) && IsBatch(element) {
			items[i].Err.Err = errNotObject
		}
	}
	return items, nil
}

// splitBatch returns the elements of a valid JSON array, within limits.
func splitBatch(frame []byte, limits Limits) ([][]byte, error) {
	r := newReader(frame, limits.maxDepth())
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
