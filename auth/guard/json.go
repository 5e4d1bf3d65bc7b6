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

var errDepth = errors.New("the document is nested too deep")

// DecodeJSON decodes one JSON object as encoding/json does, but strictly: names are
// case-sensitive, and it refuses repeated names, invalid UTF-8, and documents nested more
// than 32 deep.
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
