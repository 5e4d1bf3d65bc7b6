//bowline:pure

package search

import (
	"strings"
	"unicode"
)

// Bounds of what counts: a server or a client may send anything.
const (
	longestText     = 4 << 10 // bytes of a text
	longestWord     = 32      // runes
	mostParameters  = 64
	mostQueryWords  = 32
	mostCompletions = 16
	shortestPrefix  = 3 // runes of a word that may stand for those that begin with it
)

// empty are words that say nothing about what a tool does.
var empty = map[string]bool{
	"a": true, "an": true, "and": true, "are": true, "as": true, "be": true, "by": true, "for": true, "from": true, "i": true, "in": true, "is": true, "it": true,
	"me": true, "my": true, "of": true, "on": true, "or": true, "that": true, "the": true, "this": true, "to": true, "with": true, "you": true,
}

// wordsOf returns the words of a text that say something, without endings.
func wordsOf(text string) (words []string) {
	split(text[:min(len(text), longestText)], func(word []rune) {
		if w := stem(string(word[:min(len(word), longestWord)])); !empty[w] {
			words = append(words, w)
		}
	})
	return words
}

// split finds the words of a text, in lower case: also those that are joined as in create_issue, createIssue and OAuth2. Each is in memory that is used again.
func split(text string, found func(word []rune)) {
	var word []rune
	end := func() {
		if len(word) > 0 {
			found(word)
			word = word[:0]
		}
	}
	before := ' '
	for _, r := range text {
		separates := !unicode.IsLetter(r) && !unicode.IsDigit(r)
		if separates || unicode.IsUpper(r) && unicode.IsLower(before) || unicode.IsDigit(r) != unicode.IsDigit(before) {
			end()
		}
		if !separates {
			word = append(word, unicode.ToLower(r))
		}
		before = r
	}
	end()
}

// stem removes what English adds to a noun in the plural, or to a verb. It need not be right, only the same for the query and the tool.
func stem(word string) string {
	for _, ending := range [...]struct{ from, to string }{{"ies", "y"}, {"sses", "ss"}, {"ing", ""}, {"ed", ""}, {"es", "e"}, {"s", ""}} {
		if rest, ok := strings.CutSuffix(word, ending.from); ok && len(rest) >= 3 && !strings.HasSuffix(word, "ss") {
			word = rest + ending.to
			break
		}
	}
	if rest, ok := strings.CutSuffix(word, "e"); ok && len(rest) >= 3 {
		return rest
	}
	return word
}

// hasPrefix reports whether a word begins with another one that is long enough to mean it.
func hasPrefix(word, prefix string) bool {
	return len([]rune(prefix)) >= shortestPrefix && strings.HasPrefix(word, prefix)
}
