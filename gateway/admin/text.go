//bowline:pure

package admin

import (
	"strconv"
	"strings"
	"unicode"
)

// printable replaces what could drive a terminal, or reorder what stands beside it: control characters, marks of writing
// direction, and the separators of Unicode. What stands for them is visible, so that a hostile name is seen as one.
func printable(text string) string {
	var out strings.Builder
	for _, c := range text {
		if unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || c == '\u2028' || c == '\u2029' {
			out.WriteString(strings.Trim(strconv.QuoteRuneToASCII(c), "'"))
			continue
		}
		out.WriteRune(c)
	}
	return out.String()
}

func quoted(text string) string { return strconv.QuoteToASCII(text[:min(len(text), 80)]) }
