// Package refusal makes the errors that a server answers with, from what a client has sent.
//
// Whatever a peer has sent may be in such an error, as large as a frame. So all of them are made here, where each
// part that repeats a peer's text is shortened, and nothing of the program's types is shown: those mean nothing to
// a peer, and are none of its business. Everything is a pure function.
package refusal

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// These are the maximum lengths of parts of a peer's message that an answer repeats, in
// bytes.
const (
	LongestName    = 256
	LongestMessage = 4 << 10
)

// New returns an error response. Its message is shortened, because it may contain
// text from a peer.
func New(code int64, format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: code, Message: Shorten(fmt.Sprintf(format, args...), LongestMessage)}
}

// Missing refuses params that lack a member that must be a text.
func Missing(method, member, value string) error {
	if value == "" {
		return New(jsonrpc.CodeInvalidParams, "%s: %s is missing", method, member)
	}
	return nil
}

// Shorten cuts a text to at most limit bytes, between two runes, and adds a mark.
func Shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "…"
}

// Explain says what is wrong with a JSON value, and where. It leaves out Go types, which
// mean nothing to a peer.
func Explain(err error) string {
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	var foreign *stdjson.UnmarshalTypeError // from a type's own UnmarshalJSON
	switch {
	case errors.As(err, &semantic):
		return describe(semantic)
	case errors.As(err, &syntactic):
		return strings.TrimPrefix(syntactic.Error(), "jsontext: ")
	case errors.As(err, &foreign):
		return "a JSON " + foreign.Value + " is not expected"
	default:
		return err.Error()
	}
}

func describe(e *json.SemanticError) string {
	text := kindName(e.JSONKind)
	if e.JSONPointer != "" {
		text += fmt.Sprintf(" at %q", Shorten(string(e.JSONPointer), LongestName))
	}
	text += " does not fit"
	if e.Err != nil {
		text += ": " + Explain(e.Err)
	}
	return text
}

func kindName(kind jsontext.Kind) string {
	switch kind {
	case '{', '}':
		return "an object"
	case '[', ']':
		return "an array"
	case '"', '0', 'n':
		return "a " + kind.String()
	case 't', 'f':
		return "a boolean"
	default:
		return "a value"
	}
}
