// Package render prints what peers say for people and programs: as text that cannot drive a terminal,
// as tables, as JSON, and as completions of a shell. It starts no goroutine.
//
// Everything here that returns or writes a line of text makes a peer's part of it printable. What a
// peer says reaches standard output or standard error by no other way; only to a file or a pipe it
// goes as it is.
package render

import (
	"strings"
	"unicode"
)

// Flat turns a text into one printable line without leaving out anything.
func Flat(text string) string {
	return Printable(strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(text))
}

// Quote returns a text as one word of a shell, on one line.
func Quote(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@,+%", r)
	}) {
		return text
	}
	return InQuotes(text)
}

// InQuotes returns a text in the quotes of a shell, in which nothing has a meaning.
func InQuotes(text string) string { return "'" + strings.ReplaceAll(Flat(text), "'", `'\''`) + "'" }

// Line returns the first line of a peer's text, for where there is room for one.
func Line(text string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return Printable(strings.ReplaceAll(strings.TrimSpace(first), "\t", " "))
}

// Printable replaces everything in a peer's text that could drive the terminal
// or reorder what stands on it: control characters, marks of writing direction,
// and the separators of Unicode. Line breaks and tabs stay.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case isTrick(r):
			return unicode.ReplacementChar
		default:
			return r
		}
	}, text)
}

// isTrick reports whether a character could drive a terminal, or reorder what stands on it.
func isTrick(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// Indented indents a text by two spaces.
func Indented(text string) string {
	return "  " + strings.ReplaceAll(text, "\n", "\n  ")
}

// Message makes a text for standard error. Only its first line is not
// indented, so that a peer's text cannot imitate a message of this command.
func Message(text string) string {
	return "bowline: " + strings.ReplaceAll(Printable(strings.TrimRight(text, "\n")), "\n", "\n  ")
}
