package main

import (
	"strings"
	"unicode"
)

// printable replaces the control characters of a peer's text, so that it
// cannot drive the terminal. Lines and tabs stay.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// line is the first line of a peer's text, for where there is room for one.
func line(text string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return printable(strings.ReplaceAll(strings.TrimSpace(first), "\t", " "))
}
