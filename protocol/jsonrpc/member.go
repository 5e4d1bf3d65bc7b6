package jsonrpc

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Member returns the JSON text of an object's first member with the given name, or nil if
// there is none. It also reports whether there is another member with that name. It
// allocates nothing, and is much faster than decoding the object.
//
// The object must be valid JSON, such as the params of a decoded message or a part of
// them. If it is not an object, it has no members.
func Member(object []byte, name string) (value []byte, repeated bool) {
	at := skipSpace(object, 0)
	if at == len(object) || object[at] != '{' {
		return nil, false
	}
	at = skipSpace(object, at+1)
	for at < len(object) && object[at] == '"' {
		end := skipString(object, at)
		begin := skipSpace(object, skipSpace(object, end)+1) // behind the colon
		last := skipValue(object, begin)
		if begin < last && isName(object[at:end], name) {
			if value != nil {
				return value, true
			}
			value = object[begin:last:last]
		}
		if at = skipSpace(object, last); at < len(object) && object[at] == ',' {
			at = skipSpace(object, at+1)
		}
	}
	if at == len(object) || object[at] != '}' {
		return nil, false // it was cut
	}
	return value, false
}

// isName reports whether a JSON string is a name.
func isName(quoted []byte, name string) bool {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return len(quoted) == len(name)+2 && string(quoted[1:len(quoted)-1]) == name
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	return err == nil && string(text) == name
}

// skipSpace returns where the white space ends that begins at a place.
func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r') {
		at++
	}
	return min(at, len(text))
}

// skipString returns where a string ends.
func skipString(text []byte, at int) int {
	for begin := at + 1; ; {
		next := bytes.IndexByte(text[begin:], '"')
		if next < 0 {
			return len(text)
		}
		quote := begin + next
		escapes := 0
		for quote-escapes-1 > at && text[quote-escapes-1] == '\\' {
			escapes++
		}
		if begin = quote + 1; escapes%2 == 0 {
			return begin
		}
	}
}

// skipValue returns where a value ends.
func skipValue(text []byte, at int) int {
	for open := 0; at < len(text); {
		switch text[at] {
		case '"':
			at = skipString(text, at)
		case '{', '[':
			open++
			at++
			continue
		case '}', ']':
			if open--; open < 0 {
				return at
			}
			at++
		case ' ', '\t', '\n', '\r', ',', ':':
			if open == 0 {
				return at
			}
			at++
			continue
		default:
			for at++; at < len(text) && !isDelimiter(text[at]); at++ {
			}
		}
		if open == 0 {
			return at
		}
	}
	return len(text)
}

// countValues returns how many values a valid JSON text contains, and how many of them are objects
// with members.
func countValues(text []byte) (values, objects int) {
	values = 1
	for at := 0; at < len(text); {
		switch c := text[at]; c {
		case '"':
			at = skipString(text, at)
			continue
		case ',':
			values++
		case '{', '[':
			if first := text[skipSpace(text, at+1)]; first == '}' || first == ']' {
				break
			}
			if values++; c == '{' {
				objects++
			}
		}
		at++
	}
	return values, objects
}

// isDelimiter reports whether a character ends a number or a literal.
func isDelimiter(c byte) bool {
	switch c {
	case ' ', '\t', '\n', '\r', ',', '}', ']', ':':
		return true
	default:
		return false
	}
}
