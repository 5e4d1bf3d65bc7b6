package stdio

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

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
			t.Fatalf("kept %d bytes %.60q, want %d %.60q", len(got), got, len(want), want)
		}
	})
}

// lastLines is what a tail of all is: it starts at a line's start if it is cut
// and that leaves anything.
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
