package render

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

func TestPrintableLeavesNoControlCharacters(t *testing.T) {
	if got, want := Printable("a\x1b\x07\u009b\r\n\tb"), "a\uFFFD\uFFFD\uFFFD\uFFFD\n\tb"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPrintableLeavesNoTricks checks that characters for direction and line separation are
// replaced.
func TestPrintableLeavesNoTricks(t *testing.T) {
	if got, want := Printable("a\u202eb\u2066c\u200fd\u2028e\u061cf é👩‍🚀"), "a\uFFFDb\uFFFDc\uFFFDd\uFFFDe\uFFFDf é👩‍🚀"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestJSONLeavesNoTricks checks that JSON on a terminal cannot drive it either, and is the same to a program.
func TestJSONLeavesNoTricks(t *testing.T) {
	const text = "a\x1b[2J\u009b2J \u202e\u2028é\u007f𝄞\n"
	var out bytes.Buffer
	if err := JSON(&out, map[string]string{"text": text}); err != nil {
		t.Fatal(err)
	}
	var back struct{ Text string }
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.Text != text || Printable(out.String()) != out.String() || !strings.Contains(out.String(), "é") {
		t.Errorf("%q: %q, %v", out.String(), back.Text, err)
	}
}

// TestProgressOnATerminalIsOneLine checks that the line is redrawn, and cleared at the end.
func TestProgressOnATerminalIsOneLine(t *testing.T) {
	var out bytes.Buffer
	p := &progress{out: &out, terminal: true}
	p.Show(&protocol.ProgressParams{Progress: 1, Total: 2})
	p.Show(&protocol.ProgressParams{Progress: 1.5, Message: "half\nway"})
	p.End()
	if want := "\r\x1b[Kprogress: 1 of 2\r\x1b[Kprogress: 1.5: half\r\x1b[K"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestServerLogMarksEveryLine checks that each line is marked, for writes of any size.
func TestServerLogMarksEveryLine(t *testing.T) {
	text := "one\nbowline: tw\x1bo é\n\nend"
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		log := ServerLog(&out)
		for chunk := range slices.Chunk([]byte(text), size) {
			if _, err := log.Write(chunk); err != nil {
				t.Fatal(err)
			}
		}
		if want := "| one\n| bowline: tw\uFFFDo é\n| \n| end"; out.String() != want {
			t.Errorf("in pieces of %d: %q, want %q", size, out.String(), want)
		}
	}
}
