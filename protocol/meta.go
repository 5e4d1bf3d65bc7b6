package protocol

import (
	"encoding/json"
	"maps"
)

// Meta is the _meta member: open, and kept as it is.
type Meta map[string]json.RawMessage

// MetaProgressToken asks for progress of a request under a token.
const MetaProgressToken = "progressToken"

// RequestParams are the members that the params of every request may have.
type RequestParams struct {
	Meta Meta `json:"_meta,omitzero"`
}

// SetMeta sets one member of _meta. It never changes a map that is shared.
func (p *RequestParams) SetMeta(key string, value json.RawMessage) {
	meta := maps.Clone(p.Meta)
	if meta == nil {
		meta = make(Meta, 1)
	}
	meta[key] = value
	p.Meta = meta
}
