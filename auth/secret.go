package auth

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
)

// A Secret is a token, a password or a key. It prints, logs and encodes as "•••". Only
// Reveal returns its text.
type Secret struct{ text string }

// NewSecret returns a Secret that holds a text.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal returns the text of the Secret.
func (s Secret) Reveal() string { return s.text }

// IsZero reports whether the Secret is empty.
func (s Secret) IsZero() bool { return s.text == "" }

const hidden = "•••"

func (s Secret) String() string { return hidden }

// Format implements fmt.Formatter, for every verb.
func (s Secret) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, hidden) // Printf reports the error of its writer
}

// MarshalJSON implements json.Marshaler.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(hidden) }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(hidden) }
