// Package header says what can be the header of an HTTP request, and encodes what cannot.
package header

import (
	"strings"
	"unicode"
)

// IsName reports whether a text can be the name of a header (RFC 9110, section
// 5.6.2).
func IsName(name string) bool { return name != "" && !strings.ContainsFunc(name, notOfToken) }

// IsValue reports whether a text can be the value of a header.
func IsValue(value string) bool {
	return !strings.ContainsFunc(value, func(c rune) bool { return unicode.IsControl(c) && c != '\t' })
}

func notOfToken(c rune) bool {
	return c <= ' ' || c > unicode.MaxASCII || strings.ContainsRune(`"(),/:;<=>?@[\]{}`+"\x7f", c)
}
