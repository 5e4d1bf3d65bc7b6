package protocol

import (
	"encoding/json"
	"maps"
)

// Meta is the _meta member: open, and kept as it is.
type Meta map[string]json.RawMessage

// Members of _meta that the protocol names (2026-07-28 basic/index). All but
// MetaProgressToken are of the modern revisions.
const (
	MetaProgressToken      = "progressToken"                              // of a request that asks for progress
	MetaProtocolVersion    = "io.modelcontextprotocol/protocolVersion"    // of every request
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities" // of every request
	MetaClientInfo         = "io.modelcontextprotocol/clientInfo"         // of a request
	MetaLogLevel           = "io.modelcontextprotocol/logLevel"           // of a request that asks for log messages
	MetaServerInfo         = "io.modelcontextprotocol/serverInfo"         // of a result
	MetaSubscriptionID     = "io.modelcontextprotocol/subscriptionId"     // of all that subscriptions/listen yields: its id
)

// RequestParams are the members that the params of every request may have.
type RequestParams struct {
	Meta Meta `json:"_meta,omitzero"`
}

// NotificationParams are the members that the params of every notification may
// have, and all that a list_changed has.
type NotificationParams struct {
	Meta Meta `json:"_meta,omitzero"`
}

// SetMeta sets one member of _meta. It never changes a map that is shared.
func (p *RequestParams) SetMeta(key string, value json.RawMessage) {
	p.Meta = p.Meta.with(1)
	p.Meta[key] = value
}

// AddMeta sets several members of _meta. It never changes a map that is shared,
// and keeps none of the maps it is given.
func (p *RequestParams) AddMeta(members Meta) {
	p.Meta = p.Meta.with(len(members))
	maps.Copy(p.Meta, members)
}

// with is a copy to which some members more can be added.
func (m Meta) with(more int) Meta {
	meta := make(Meta, len(m)+more)
	maps.Copy(meta, m)
	return meta
}
