//bowline:pure

package sharing

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// member returns where the value of a member is in an object, through the objects that path names.
// It reports false if there is none, and an error if the JSON before it is not valid.
func member(object []byte, path ...string) (begin, end int, found bool, err error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(object))
	for {
		if d.PeekKind() != '{' {
			return 0, 0, false, nil
		}
		if _, err := d.ReadToken(); err != nil {
			return 0, 0, false, err
		}
		for {
			name, err := d.ReadToken()
			if err != nil || name.Kind() == '}' {
				return 0, 0, false, err
			}
			if name.String() == path[0] {
				break
			}
			if err := d.SkipValue(); err != nil {
				return 0, 0, false, err
			}
		}
		if path = path[1:]; len(path) == 0 {
			value, err := d.ReadValue()
			end := int(d.InputOffset())
			return end - len(value), end, err == nil, err
		}
	}
}

// replaced returns a copy of an object whose bytes from begin to end are value.
func replaced(object []byte, begin, end int, value []byte) json.RawMessage {
	return slices.Concat(object[:begin], value, object[end:])
}

// mayHave reports whether an object can have a member of this name at any depth, quickly.
func mayHave(object []byte, name string) bool {
	return bytes.Contains(object, []byte(name)) || bytes.IndexByte(object, '\\') >= 0 // the name may be escaped
}
