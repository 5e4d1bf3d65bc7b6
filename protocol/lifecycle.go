package protocol

import (
	"encoding/json"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/go-json-experiment/json/jsontext"
)

// Implementation names a client or server. It is what the peer says of itself:
// for people and logs, not for decisions.
type Implementation struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitzero"`
	Version     string `json:"version"`
	Description string `json:"description,omitzero"`
	WebsiteURL  string `json:"websiteUrl,omitzero"`
	Icons       Icons  `json:"icons,omitzero"`
}

// An Icon is an image that stands for a tool or implementation.
type Icon struct {
	Source   string   `json:"src"`
	MIMEType string   `json:"mimeType,omitzero"`
	Sizes    []string `json:"sizes,omitzero"`
	Theme    string   `json:"theme,omitzero"`
}

// Icons are alternatives, at most MaxIcons when decoded.
type Icons []Icon

// UnmarshalJSON fails with a *LimitError above MaxIcons. It makes nil of null.
func (i *Icons) UnmarshalJSON(raw []byte) error {
	*i = nil
	if isNull(raw) {
		return nil
	}
	icons := Icons{}
	err := readArray(raw, MaxIcons, "icons", func(value jsontext.Value) error {
		icons = append(icons, Icon{})
		return Unmarshal(value, &icons[len(icons)-1])
	})
	if err != nil {
		return err
	}
	*i = icons
	return nil
}

// ClientCapabilities are what a client offers. Members unknown here are kept.
type ClientCapabilities struct {
	Experimental map[string]json.RawMessage `json:"experimental,omitzero"`
	Extensions   map[string]json.RawMessage `json:"extensions,omitzero"`
	Roots        *RootsCapability           `json:"roots,omitzero"`
	Sampling     json.RawMessage            `json:"sampling,omitzero"`
	Elicitation  json.RawMessage            `json:"elicitation,omitzero"`
	Others       map[string]json.RawMessage `json:",unknown"`
}

// RootsCapability says that a client can list its roots.
type RootsCapability struct {
	ListChanged bool `json:"listChanged,omitzero"`
}

// ServerCapabilities are what a server offers. Members unknown here are kept.
type ServerCapabilities struct {
	Experimental map[string]json.RawMessage `json:"experimental,omitzero"`
	Extensions   map[string]json.RawMessage `json:"extensions,omitzero"`
	Tools        *ListCapability            `json:"tools,omitzero"`
	Prompts      *ListCapability            `json:"prompts,omitzero"`
	Resources    *ResourcesCapability       `json:"resources,omitzero"`
	Logging      json.RawMessage            `json:"logging,omitzero"`
	Completions  json.RawMessage            `json:"completions,omitzero"`
	Others       map[string]json.RawMessage `json:",unknown"`
}

// ListCapability says that a server has a list, and whether it tells of changes.
type ListCapability struct {
	ListChanged bool `json:"listChanged,omitzero"`
}

// ResourcesCapability says that a server has resources.
type ResourcesCapability struct {
	Subscribe   bool `json:"subscribe,omitzero"`
	ListChanged bool `json:"listChanged,omitzero"`
}

// InitializeParams open a legacy session.
type InitializeParams struct {
	RequestParams
	ProtocolVersion string             `json:"protocolVersion"`
	Capabilities    ClientCapabilities `json:"capabilities"`
	ClientInfo      Implementation     `json:"clientInfo"`
}

// InitializeResult is the server's side of a legacy session.
type InitializeResult struct {
	Meta            Meta               `json:"_meta,omitzero"`
	ProtocolVersion string             `json:"protocolVersion"`
	Capabilities    ServerCapabilities `json:"capabilities"`
	ServerInfo      Implementation     `json:"serverInfo"`
	Instructions    string             `json:"instructions,omitzero"`
}

// PingParams ask for a sign of life.
type PingParams struct {
	RequestParams
}

// CancelledParams say that the sender has abandoned a request of its own.
type CancelledParams struct {
	RequestID jsonrpc.ID `json:"requestId"`
	Reason    string     `json:"reason,omitzero"`
}

// ProgressParams say how far a request has come.
type ProgressParams struct {
	ProgressToken jsonrpc.ID `json:"progressToken"`
	Progress      float64    `json:"progress"`
	Total         float64    `json:"total,omitzero"` // 0 when unknown
	Message       string     `json:"message,omitzero"`
}
