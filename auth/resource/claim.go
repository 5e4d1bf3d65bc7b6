package resource

import (
	"encoding/json"

	"github.com/bowline-mcp/bowline/protocol"
)

// textsOf returns all claims that are texts, or lists of them. What is neither is left out, or has none: whoever asks for it gets nothing, and is not told that a
// number or an object was taken for a text. If a claim is there twice, it is not known which of the two the issuer meant, so all are left out.
func textsOf(claims json.RawMessage) map[string][]string {
	// A token was issued by somebody who is trusted, and its size is bounded, so there is no further bound here.
	var all map[string]json.RawMessage
	if protocol.Unmarshal(claims, &all) != nil {
		return nil
	}
	texts := make(map[string][]string)
	for name, raw := range all {
		var one string
		var several []string
		// A null decodes into everything. It is no text, and a list of none.
		if protocol.Unmarshal(raw, &one) == nil && raw[0] == '"' {
			texts[name] = []string{one}
		} else if protocol.Unmarshal(raw, &several) == nil {
			texts[name] = several
		}
	}
	return texts
}
