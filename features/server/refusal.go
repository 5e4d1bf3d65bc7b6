package server

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

// Bounds of what is echoed to a peer, in bytes.
const (
	longestName    = 256
	longestMessage = 4 << 10
)

// refuse is an error response. What a peer has sent may be part of the message:
// it is cut.
func refuse(code int64, format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: code, Message: shorten(fmt.Sprintf(format, args...), longestMessage)}
}

// shorten cuts a text to at most limit bytes and a mark, between two runes.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "…"
}

// misfit says what is wrong with a JSON value, and where. The Go types that it
// does not fit are nothing to a peer.
func misfit(err error) string {
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	var foreign *stdjson.UnmarshalTypeError // of a type's own UnmarshalJSON
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
		text += fmt.Sprintf(" at %q", shorten(string(e.JSONPointer), longestName))
	}
	text += " does not fit"
	if e.Err != nil {
		text += ": " + misfit(e.Err)
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
