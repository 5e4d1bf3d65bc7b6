package protocol

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// These constants limit what one message may contain when it is decoded. Without them, a
// large frame could contain millions of small values, each of which takes far more memory
// than its text. Beyond a limit, Unmarshal fails with a [LimitError].
const (
	MaxPageItems        = 10_000 // resources, templates, prompts, skills or tasks on one page
	MaxPageTools        = 10_000 // tools on one page, or offered to a model
	MaxBlocks           = 10_000 // blocks of content in one result or message
	MaxMessages         = 10_000 // messages of one prompt or sampling request
	MaxContents         = 10_000 // contents in one answer to resources/read
	MaxRoots            = 10_000 // roots of one client
	MaxResourceURIs     = 10_000 // resources that one subscription names
	MaxSkillFiles       = 10_000 // files of one skill
	MaxInputs           = 1_000  // questions in one result, or answers in one request
	MaxArguments        = 1_000  // arguments that one prompt declares
	MaxVersions         = 1_000  // revisions that one server supports
	MaxIcons            = 1_000  // icons of one tool, implementation or link
	MaxCompletionValues = 1_000  // values of one completion; servers send at most MaxCompletions
)

// A LimitError says that a message exceeds one of these limits.
type LimitError struct {
	What  string // for instance "tools on a page"
	Limit int
}

func (e *LimitError) Error() string { return fmt.Sprintf("protocol: more than %d %s", e.Limit, e.What) }

// readArray calls element for each element of an array. The element is valid
// until the next call. It reads no further than the first error or the limit.
func readArray(raw []byte, limit int, what string, element func(jsontext.Value) error) error {
	from := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowInvalidUTF8(true))
	opening, err := from.ReadToken()
	if err != nil {
		return err
	}
	return readElements(from, opening, limit, what, element)
}

// readElements is readArray for an array whose opening token was read already.
func readElements(from *jsontext.Decoder, opening jsontext.Token, limit int, what string, element func(jsontext.Value) error) error {
	if opening.Kind() != '[' {
		return fmt.Errorf("protocol: %s: not an array", what)
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

// readList decodes an array of values. Null becomes a nil slice.
func readList[E any](raw []byte, limit int, what string) ([]E, error) {
	if isNull(raw) {
		return nil, nil
	}
	all := []E{}
	err := readArray(raw, limit, what, func(value jsontext.Value) error {
		var element E
		all = append(all, element)
		return Unmarshal(value, &all[len(all)-1])
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// readPointers decodes an array of objects, none of which may be null. Null in
// place of the array becomes a nil slice.
func readPointers[E any](raw []byte, limit int, what string) ([]*E, error) {
	if isNull(raw) {
		return nil, nil
	}
	all := []*E{}
	err := readArray(raw, limit, what, func(value jsontext.Value) error {
		if isNull(value) {
			return fmt.Errorf("protocol: %s: number %d is null", what, len(all))
		}
		element := new(E)
		all = append(all, element)
		return Unmarshal(value, element)
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// readMembers calls member for each member of an object. The value is valid
// until the next call. It reads no further than the first error or the limit.
func readMembers(raw []byte, limit int, what string, member func(name string, value jsontext.Value) error) error {
	from := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowInvalidUTF8(true))
	opening, err := from.ReadToken()
	if err != nil {
		return err
	}
	if opening.Kind() != '{' {
		return fmt.Errorf("protocol: %s: not an object", what)
	}
	for n := 0; from.PeekKind() != '}'; n++ {
		if n == limit {
			return &LimitError{what, limit}
		}
		token, err := from.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		value, err := from.ReadValue()
		if err != nil {
			return err
		}
		if err := member(name, value); err != nil {
			return err
		}
	}
	_, err = from.ReadToken() // the closing brace
	return err
}
