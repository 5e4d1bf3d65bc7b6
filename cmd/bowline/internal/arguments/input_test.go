package arguments

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestReadInputEndsWithItsContext checks that an interrupt ends the command while it reads
// standard input.
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
		t.Error("input without end was accepted")
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestPropertyOrder checks that properties keep the order of the schema's text.
func TestPropertyOrder(t *testing.T) {
	for text, want := range map[string]string{
		`{"properties": {"b": {"properties": {"x": 1}}, "a": [1], "c": "x"}}`: "b a c",
		`{"properties": {}}`: "",
		`{"properties": 7}`:  "",
		`{}`:                 "",
		`[`:                  "",
	} {
		if got := strings.Join(propertyOrder(json.RawMessage(text)), " "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
