package scan

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendQuote appends text as a JSON string, with U+FFFD in place of bytes that
// are not UTF-8. Its output is the same as that of jsontext.AppendQuote.
func AppendQuote(dst []byte, text string) []byte {
	const hex = "0123456789abcdef"
	start := len(dst)
	dst = append(slices.Grow(dst, len(text)+len(`""`)), '"')
	anyWide := false
	for rest := text; ; {
		n, wide := Plain([]byte(rest))
		dst, anyWide = append(dst, rest[:n]...), anyWide || wide
		if n == len(rest) {
			break
		}
		switch c := rest[n]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hex[c>>4], hex[c&0xf])
		}
		rest = rest[n+1:]
	}
	if anyWide && !utf8.ValidString(text) {
		dst, _ = jsontext.AppendQuote(dst[:start], text) // the error only says that U+FFFD was needed
		return dst
	}
	return append(dst, '"')
}

// String reads the next value, which must be a string, and returns it without quotes
// and escapes. Half of a surrogate pair becomes U+FFFD.
func (t *Text) String() string {
	if t.Kind() != '"' {
		t.failed = true
		return ""
	}
	raw := t.Value()
	if raw == nil {
		return ""
	}
	inside := raw[1 : len(raw)-1]
	escape := bytes.IndexByte(inside, '\\')
	if escape < 0 {
		return string(inside)
	}
	if text, ok := unescaped(inside, escape); ok {
		return text
	}
	text, _ := jsontext.AppendUnquote(nil, raw) // the error only says that U+FFFD was needed
	return string(text)
}

// Word is String, but needs no memory if the string is one of these words, which must be
// written without escapes.
func (t *Text) Word(words ...string) string {
	t.space()
	for _, word := range words {
		if end := t.at + len(word) + len(`""`); end <= len(t.all) && t.all[t.at] == '"' && t.all[end-1] == '"' && string(t.all[t.at+1:end-1]) == word {
			if t.Value() == nil {
				return ""
			}
			return word
		}
	}
	return t.String()
}

// Bool reads the next value, which must be true or false.
func (t *Text) Bool() bool {
	raw := t.Value()
	if kind := string(raw); kind != "true" && kind != "false" {
		t.failed = true
	}
	return string(raw) == "true"
}

// unescaped removes the escapes from the inside of a valid string. First is the
// index of the first escape. It reports false if there is one of a surrogate.
func unescaped(inside []byte, first int) (string, bool) {
	var text strings.Builder
	text.Grow(len(inside))
	for first >= 0 {
		text.Write(inside[:first])
		switch c := inside[first+1]; c {
		case 'b':
			text.WriteByte('\b')
		case 'f':
			text.WriteByte('\f')
		case 'n':
			text.WriteByte('\n')
		case 'r':
			text.WriteByte('\r')
		case 't':
			text.WriteByte('\t')
		case 'u':
			r, _ := hexRune(inside[first+2:])
			if utf16.IsSurrogate(r) {
				return "", false
			}
			text.WriteRune(r)
			inside = inside[4:]
		default: // a quote, a backslash or a slash
			text.WriteByte(c)
		}
		inside = inside[first+2:]
		first = bytes.IndexByte(inside, '\\')
	}
	text.Write(inside)
	return text.String(), true
}
