package jsonrpc

import (
	"bytes"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// kindOf returns the kind of the valid JSON value raw, zero if it is empty.
func kindOf(raw []byte) jsontext.Kind { return jsontext.Value(raw).Kind() }

// isInteger reports whether the valid JSON number raw is written without
// fraction or exponent.
func isInteger(raw []byte) bool { return !bytes.ContainsAny(raw, ".eE") }

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
