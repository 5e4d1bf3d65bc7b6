package registry

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName is the length of the longest name, in bytes.
const MaxName = 256

// A NameError refuses a name that cannot be one: it is empty, longer than
// MaxName, not UTF-8, or has characters that do not print as unicode.IsPrint has
// it: a line break, an escape, a mark that turns the direction of the text, a
// space that is not " ".
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
