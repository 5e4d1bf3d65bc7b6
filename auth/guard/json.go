package guard

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth is how deep a document may be nested.
const maxDepth = 32

var errDepth = errors.New("guard: the document is nested too deep")

// DecodeJSON reads one JSON object as package json does, but exactly: names are
// compared by case, no name occurs twice, invalid UTF-8 is refused, and a document is
// nested at most 32 deep.
func DecodeJSON(document []byte, into any) error {
	decoder := jsontext.NewDecoder(bytes.NewReader(document))
	for {
		if _, err := decoder.ReadToken(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if decoder.StackDepth() > maxDepth {
			return errDepth
		}
	}
	return json.Unmarshal(document, into)
}
