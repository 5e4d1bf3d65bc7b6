//bowline:pure

package catalogue

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A Filter says what is offered. In its patterns * stands for any text, and ? for one character.
type Filter struct {
	Allow []string // nil: everything
	Deny  []string // wins over Allow
}

// Offers reports whether a name passes.
func (f Filter) Offers(own string) bool {
	return (f.Allow == nil || anyMatches(f.Allow, own)) && !anyMatches(f.Deny, own)
}

func anyMatches(patterns []string, own string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return Matches(pattern, own) })
}

// Matches reports whether a text has the form of a pattern. It needs as many steps as both are long, multiplied.
func Matches(pattern, text string) bool {
	p, t, star, from := 0, 0, -1, 0 // where it is in both; the last *, and what of the text comes after what that stands for
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, t
			p++
		case p < len(pattern) && pattern[p] == '?':
			p, t = p+1, t+widthAt(text, t)
		case p < len(pattern) && pattern[p] == text[t]:
			p, t = p+1, t+1
		case star < 0:
			return false
		default:
			from += widthAt(text, from)
			p, t = star+1, from
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// widthAt returns how many bytes a character has. One that is no UTF-8 is a character.
func widthAt(text string, at int) int {
	_, width := utf8.DecodeRuneInString(text[at:])
	return width
}
