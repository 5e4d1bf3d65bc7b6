package scan

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Member returns the JSON text of an object's first member with the given name, or nil if
// there is none. It also reports whether there is another member with that name. It
// allocates nothing, and is much faster than decoding the object. It is jsonrpc.Member.
//
// The object must be valid JSON, such as the params of a decoded message or a part of
// them. If it is not an object, it has no members. Of a text that is cut there is none
// either, but where another member has the same name.
func Member(object []byte, name string) (value []byte, repeated bool) {
	w := Over(object)
	for w.Next() {
		if w.begin == w.end || !w.Is(name) {
			continue
		}
		if value != nil {
			return value, true
		}
		value = w.Value()
	}
	if !w.isWhole() {
		return nil, false
	}
	return value, false
}

// Alias returns the first of these names that an object has in other upper and lower case, or "".
// Who reads names in any case may take that member for the one of this name: encoding/json does,
// and the last of the two counts there. The object must be valid JSON.
func Alias(object []byte, names ...string) string {
	for w := Over(object); w.Next(); {
		for _, name := range names {
			if w.isAlias(name) {
				return name
			}
		}
	}
	return ""
}

// Replace returns a copy of an object in which the first member with a name has another value.
// All else stays as it is, white space too. It returns nil if there is no such member. The object
// must be valid JSON.
func Replace(object []byte, name string, value []byte) []byte {
	for w := Over(object); w.Next(); {
		if w.Is(name) {
			copied := append(make([]byte, 0, len(object)-(w.end-w.begin)+len(value)), object[:w.begin]...)
			return append(append(copied, value...), object[w.end:]...)
		}
	}
	return nil
}

// AppendMembers appends the members of an object, but those with one of these names, to another
// object, of which dst has at least the opening brace and not yet the closing one. The members are
// not changed. The object must be valid JSON.
func AppendMembers(dst, object []byte, without ...string) []byte {
	w := Over(object)
next:
	for w.Next() {
		for _, name := range without {
			if w.Is(name) {
				continue next
			}
		}
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(dst, object[w.name:w.end]...)
	}
	return dst
}

// A Walk goes through the members of an object. It is for who looks for several of them.
type Walk struct {
	object                    []byte
	at                        int // behind the last member, and the comma after it
	name, nameEnd, begin, end int
}

// Over begins before the first member. It has no members if the text is no object. The object must be
// valid JSON.
func Over(object []byte) Walk {
	at := skipSpace(object, 0)
	if at == len(object) || object[at] != '{' {
		return Walk{}
	}
	return Walk{object: object, at: skipSpace(object, at+1)}
}

// Next goes on to the next member, and reports whether there is one.
func (w *Walk) Next() bool {
	if w.at == len(w.object) || w.object[w.at] != '"' {
		return false
	}
	w.name, w.nameEnd = w.at, skipString(w.object, w.at)
	w.begin = skipSpace(w.object, skipSpace(w.object, w.nameEnd)+1) // behind the colon
	w.end = skipValue(w.object, w.begin)
	if w.at = skipSpace(w.object, w.end); w.at < len(w.object) && w.object[w.at] == ',' {
		w.at = skipSpace(w.object, w.at+1)
	}
	return true
}

// Is reports whether the member has a name.
func (w *Walk) Is(name string) bool { return isName(w.object[w.name:w.nameEnd], name) }

// Value returns the value of the member, a slice of the object whose capacity is its length.
func (w *Walk) Value() []byte { return w.object[w.begin:w.end:w.end] }

func (w *Walk) isAlias(name string) bool {
	quoted := w.object[w.name:w.nameEnd]
	if bytes.IndexByte(quoted, '\\') < 0 {
		text := quoted[1 : len(quoted)-1]
		return string(text) != name && bytes.EqualFold(text, []byte(name))
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	return err == nil && string(text) != name && bytes.EqualFold(text, []byte(name))
}

// isWhole reports whether the object ends where the walk has ended. Else it was cut.
func (w *Walk) isWhole() bool { return w.at < len(w.object) && w.object[w.at] == '}' }

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

// CountValues returns how many values a valid JSON text contains, and how many of them are objects
// with members.
func CountValues(text []byte) (values, objects int) {
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
