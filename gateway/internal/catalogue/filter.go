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
	return (f.Allow == nil || anyMatches(f.Allow, own)) && !anyMatches(f.Deny, own)
}

func anyMatches(patterns []string, own string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return Matches(pattern, own) })
}

// Matches reports whether a text has the form of a pattern. It needs as many steps as both are long, multiplied.
func Matches(pattern, text string) bool {
	first, rest, several := strings.Cut(pattern, "*")
	if !several {
		return len(text) == len(pattern) && fits(pattern, text)
	}
	if !fits(first, text) {
		return false
	}
	text = text[len(first):]
	for {
		part, after, more := strings.Cut(rest, "*")
		if !more {
			return len(text) >= len(part) && fits(part, text[len(text)-len(part):])
		}
		for !fits(part, text) {
			if text == "" {
				return false
			}
			text = text[1:]
		}
		text, rest = text[len(part):], after
	}
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
