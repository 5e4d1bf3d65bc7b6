package protocol

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// These constants limit how many elements a list of a message may have when it is decoded. Without
// them, a large frame could contain millions of small values, each of which takes far more memory
// than its text. Beyond a limit, Unmarshal fails with a [LimitError]. Each field says which one holds.
const (
	MaxItems = 10_000 // resources, templates, prompts, skills, tasks or tools on a page; blocks of content; messages; contents; roots; subscriptions; files of a skill
	MaxParts = 1_000  // arguments of a prompt; icons; questions or answers; revisions; hints; values of a completion, of which servers send at most MaxCompletions
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
	from := jsontext.NewDecoder(bytes.NewBuffer(raw), lenient)
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

// A bound limits a list that is a member of an object. Each struct with such a list has a
// decoder that checks it before reflection decodes the list, which knows no limits. The
// elements are counted without being decoded: they may not take memory beyond the limit.
type bound struct {
	member string
	most   int
	what   string
	whole  bool // no element may be null
}

// boundedFrom decodes an object from within another text, unless a list is beyond its bound.
// Only the lists of the object itself are checked here: those within it are by their own structs.
func boundedFrom(from *jsontext.Decoder, into any, bounds ...bound) error {
	raw, err := from.ReadValue()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(bounds, func(b bound) bool { return b.mayExceed(raw) }) {
		err := readMembers(raw, from.Options(), unbounded, "members", func(name string, value jsontext.Value) error {
			for _, b := range bounds {
				if b.member == name {
					return b.check(value)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return json.Unmarshal(raw, into, from.Options())
}

// mayExceed reports whether an object may have a list beyond the bound: each element takes at least two
// bytes with its comma, and only a text with null in it can have a null element.
func (b bound) mayExceed(object jsontext.Value) bool {
	return object.Kind() == '{' && (len(object) > 2*b.most || b.whole && bytes.Contains(object, []byte("null")))
}

// check leaves it to reflection to refuse what is no array.
func (b bound) check(list jsontext.Value) error {
	if list.Kind() != '[' {
		return nil
	}
	n := 0
	return readArray(list, b.most, b.what, func(element jsontext.Value) error {
		if b.whole && isNull(element) {
			return fmt.Errorf("protocol: %s: number %d is null", b.what, n)
		}
		n++
		return nil
	})
}

// unbounded is the limit of a list that only the size of its message limits.
const unbounded = math.MaxInt

// readMembers calls member for each member of an object. The value is valid
// until the next call. It reads no further than the first error or the limit.
func readMembers(raw []byte, how jsontext.Options, limit int, what string, member func(name string, value jsontext.Value) error) error {
	from := jsontext.NewDecoder(bytes.NewBuffer(raw), how)
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
