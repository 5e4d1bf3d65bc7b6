package protocol

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of what one message may hold. A frame of the largest size could name
// millions of small things, each of which takes far more memory than bytes.
const (
	MaxPageTools    = 10_000 // tools on one page
	MaxBlocks       = 10_000 // blocks of content in one result
	MaxResourceURIs = 10_000 // resources that one subscription names
	MaxVersions     = 1_000  // revisions that one server says it speaks
	MaxIcons        = 1_000  // icons of one tool, implementation or link
)

// A LimitError refuses what holds more than a stated bound.
type LimitError struct {
	What  string // for instance "tools on a page"
	Limit int
}

func (e *LimitError) Error() string { return fmt.Sprintf("protocol: more than %d %s", e.Limit, e.What) }

// readArray hands over the elements of an array one by one, each valid until
// the next. It reads no further than the first error or the limit.
func readArray(raw []byte, limit int, what string, element func(jsontext.Value) error) error {
	from := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowInvalidUTF8(true))
	opening, err := from.ReadToken()
	if err != nil {
		return err
	}
	return readElements(from, opening, limit, what, element)
}

// readElements is readArray behind its opening token.
func readElements(from *jsontext.Decoder, opening jsontext.Token, limit int, what string, element func(jsontext.Value) error) error {
	if opening.Kind() != '[' {
		return fmt.Errorf("protocol: %s are no array", what)
	}
	for n := 0; from.PeekKind() != ']'; n++ {
		if n == limit {
			return &LimitError{what, limit}
		}
		value, err := from.ReadValue()
		if err != nil {
			return err
		}
		if err := element(value); err != nil {
			return err
		}
	}
	_, err := from.ReadToken() // the closing bracket
	return err
}

// readStrings reads an array of strings. It makes nil of null.
func readStrings(raw []byte, limit int, what string) ([]string, error) {
	if isNull(raw) {
		return nil, nil
	}
	all := []string{}
	err := readArray(raw, limit, what, func(value jsontext.Value) error {
		all = append(all, "")
		return Unmarshal(value, &all[len(all)-1])
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// isNull reports whether a value is null: as good as absent.
func isNull(raw []byte) bool { return jsontext.Value(raw).Kind() == 'n' }
