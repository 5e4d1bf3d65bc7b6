package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

func TestSplit(t *testing.T) {
	for command, want := range map[string][]string{
		`a b`:                {"a", "b"},
		`a "b c" 'd "e"'`:    {"a", "b c", `d "e"`},
		`a "" b\ c`:          {"a", "", "b c"},
		"a $HOME `b` $(c)":   {"a", "$HOME", "`b`", "$(c)"},
		`'C:\Program Files'`: {`C:\Program Files`},
		`a # b`:              {"a", "#", "b"},
		`a 'b;c'`:            {"a", "b;c"},
	} {
		if got, err := split(command); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", command, got, err, want)
		}
	}
}

// TestReadInputEndsWithItsContext: an interrupt ends the command even when
// nothing comes from standard input.
func TestReadInputEndsWithItsContext(t *testing.T) {
	silent, closer := io.Pipe()
	defer closer.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	cancel(interrupted)
	if _, err := readInput(ctx, silent); !errors.Is(err, interrupted) {
		t.Errorf("the error is %v", err)
	}
}

func TestReadInputIsBounded(t *testing.T) {
	if _, err := readInput(t.Context(), endless{}); err == nil {
		t.Error("endless input was read")
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestPrintableLeavesNoControlCharacters(t *testing.T) {
	if got, want := printable("a\x1b\x07\u009b\r\n\tb"), "a\uFFFD\uFFFD\uFFFD\uFFFD\n\tb"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestProgressOnATerminalIsOneLine: redrawn, and gone in the end.
func TestProgressOnATerminalIsOneLine(t *testing.T) {
	var out bytes.Buffer
	p := &progress{out: &out, terminal: true}
	p.show(&protocol.ProgressParams{Progress: 1, Total: 2})
	p.show(&protocol.ProgressParams{Progress: 1.5, Message: "half\nway"})
	p.end()
	if want := "\r\x1b[Kprogress: 1 of 2\r\x1b[Kprogress: 1.5: half\r\x1b[K"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
