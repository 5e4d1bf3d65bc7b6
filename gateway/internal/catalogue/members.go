//bowline:pure

package catalogue

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/gateway/internal/names"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxDepth  = 64  // of an entry: clients limit theirs, and parsers recurse
	shownText = 128 // bytes of a server's text in a notice
)

type span struct{ start, end int }

// text returns a string, or "" if the value is none.
func text(raw []byte, at span) string {
	if at.start == at.end || raw[at.start] != '"' {
		return ""
	}
	unquoted, _ := jsontext.AppendUnquote(nil, raw[at.start:at.end]) // it is valid: members has read it
	return string(unquoted)
}

// members returns where the values of an object are. A name that is repeated is an error: readers differ in which of
// the values they take, and what was checked must be what is used.
func members(raw []byte) (map[string]span, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true))
	if begin, err := d.ReadToken(); err != nil || begin.Kind() != '{' {
		return nil, errors.New("it is no JSON object")
	}
	found := map[string]span{}
	for d.PeekKind() == '"' {
		token, err := d.ReadToken()
		if err != nil {
			return nil, noJSON(err)
		}
		name := token.String()
		value, err := d.ReadValue()
		if err != nil {
			return nil, noJSON(err)
		}
		if _, repeated := found[name]; repeated {
			return nil, fmt.Errorf("it repeats the member %s", shown(name))
		}
		if depth(value) > maxDepth {
			return nil, fmt.Errorf("its member %s is nested deeper than %d", shown(name), maxDepth)
		}
		end := int(d.InputOffset())
		found[name] = span{end - len(value), end}
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, noJSON(err)
	}
	return found, nil
}

func noJSON(err error) error { return fmt.Errorf("it is no JSON: %w", err) }

// depth returns how deep a valid value is nested.
func depth(value []byte) (deepest int) {
	quoted, level := false, 0
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return deepest
}

// splice replaces a value by a text.
func splice(raw []byte, at span, text string) []byte {
	out := append(make([]byte, 0, len(raw)-(at.end-at.start)+len(text)+2), raw[:at.start]...)
	out, _ = jsontext.AppendQuote(out, text) // the error only says that U+FFFD was needed
	return append(out, raw[at.end:]...)
}

// beginning cuts a text between characters.
func beginning(text string, most int) string {
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// shown returns a server's text as it may appear in a notice.
func shown(text string) string { return names.Quote(text, shownText) }
