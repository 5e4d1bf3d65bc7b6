package registry

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

var (
	// ErrClosed is returned by Register for a Conn that has closed for good.
	ErrClosed = errors.New("registry: the Conn has closed for good")

	errStorePanicked = errors.New("registry: the store panicked")
	errWatchEnded    = errors.New("registry: the store ended a watch without an error")
)

// A TakenError says that a name belongs to somebody else.
type TakenError struct {
	Name   string
	Holder string // Options.Holder of the Registry that has it
}

func (e *TakenError) Error() string {
	if e.Holder == thisProcess {
		return fmt.Sprintf("registry: name %q is taken by another Conn of this process", e.Name)
	}
	return fmt.Sprintf("registry: name %q is taken by %q", e.Name, e.Holder)
}

// A LostError says that the Store has taken a name away from its Conn.
type LostError struct {
	Name string
	Err  error // the reason that the Store gives; may be nil
}

func (e *LostError) Error() string {
	text := fmt.Sprintf("registry: name %q is lost", e.Name)
	if e.Err == nil {
		return text
	}
	return text + ": " + e.Err.Error()
}

func (e *LostError) Unwrap() error { return e.Err }

// MaxName is the length of the longest name, in bytes.
const MaxName = 256

// A NameError says that a name is not valid: it is empty, longer than MaxName,
// not UTF-8, or contains a character that is not printable by unicode.IsPrint,
// such as a line break or a space other than " ".
type NameError struct {
	Name string
	Why  string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("registry: name %.40q %s", e.Name, e.Why)
}

func checkName(name string) error {
	switch {
	case name == "":
		return &NameError{name, "is empty"}
	case len(name) > MaxName:
		return &NameError{name, fmt.Sprintf("has %d bytes, more than %d", len(name), MaxName)}
	case !utf8.ValidString(name):
		return &NameError{name, "is not UTF-8"}
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return &NameError{name, "has characters that do not print"}
	}
	return nil
}
