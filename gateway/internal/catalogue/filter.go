//bowline:pure

package catalogue

import (
	"slices"
	"strings"
)

// A Filter says what is offered. In its patterns * stands for any text, and ? for one character.
type Filter struct {
	Allow []string // nil: everything
	Deny  []string // wins over Allow
}

// Offers reports whether a name passes.
func (f Filter) Offers(own string) bool {
	is := func(pattern string) bool { return matches(pattern, own) }
	return (f.Allow == nil || slices.ContainsFunc(f.Allow, is)) && !slices.ContainsFunc(f.Deny, is)
}

// matches reports whether a text has the form of a pattern. It needs as many steps as both are long, multiplied.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	if last == 0 {
		return len(text) == len(pattern) && fits(pattern, text)
	}
	if len(text) < len(parts[0])+len(parts[last]) || !fits(parts[0], text) || !fits(parts[last], text[len(text)-len(parts[last]):]) {
		return false
	}
	text = text[len(parts[0]) : len(text)-len(parts[last])]
	for _, part := range parts[1:last] {
		for !fits(part, text) {
			if text == "" {
				return false
			}
			text = text[1:]
		}
		text = text[len(part):]
	}
	return true
}

// fits reports whether a text begins with a pattern without *.
func fits(pattern, text string) bool {
	if len(text) < len(pattern) {
		return false
	}
	for i := range len(pattern) {
		if pattern[i] != '?' && pattern[i] != text[i] {
			return false
		}
	}
	return true
}
