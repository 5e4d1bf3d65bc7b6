package stdio

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The tail keeps the last whole lines of standard error.
//
// Guarantees: G-0014.9
func TestTailKeepsTheLastLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []byte
		var kept tail
		for _, size := range rapid.SliceOfN(rapid.IntRange(0, 3*tailSize), 0, 6).Draw(t, "sizes") {
			chunk := []byte(strings.Repeat(rapid.SampledFrom([]string{"x", "line\n"}).Draw(t, "text"), size))[:size]
			all = append(all, chunk...)
			kept.add(chunk)
		}
		if got, want := kept.String(), lastLines(all); got != want {
			t.Fatalf("got %d bytes %.60q, want %d %.60q", len(got), got, len(want), want)
		}
	})
}

// lastLines returns what a tail should keep: if it is cut, it begins with a whole line
// unless nothing would be left.
func lastLines(all []byte) string {
	if len(all) <= tailSize {
		return string(all)
	}
	last := all[len(all)-tailSize:]
	if _, lines, found := bytes.Cut(last, []byte("\n")); found && len(lines) > 0 {
		return string(lines)
	}
	return string(last)
}
