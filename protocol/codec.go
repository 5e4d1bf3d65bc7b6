package protocol

import (
	stdjson "encoding/json"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Marshal encodes a value for the wire. Nil slices become empty arrays, and
// what is not UTF-8 becomes U+FFFD, as in encoding/json: a stray byte in a
// tool's output shall not cost the whole result.
func Marshal(value any) (stdjson.RawMessage, error) {
	if p, ok := value.(plain); ok {
		if raw, ok := p.appendPlain(nil); ok {
			return raw, nil
		}
	}
	raw, err := json.Marshal(value, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, fmt.Errorf("protocol: encode %T: %w", value, err)
	}
	return raw, nil
}

// Unmarshal decodes what a peer has sent. Names are case-sensitive, duplicate
// names are refused, unknown members are ignored. Absent params decode as an
// empty object. Half of a surrogate pair, which some encoders emit, becomes
// U+FFFD; frames are known to be UTF-8 already (ADR-0016).
func Unmarshal(raw []byte, into any) error {
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	if err := json.Unmarshal(raw, into, jsontext.AllowInvalidUTF8(true)); err != nil {
		return fmt.Errorf("protocol: decode %T: %w", into, err)
	}
	return nil
}
