package protocol

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// A Resource is something that a server lets clients read. Unknown members are
// kept.
type Resource struct {
	URI         string       `json:"uri"`
	Name        string       `json:"name"`
	Title       string       `json:"title,omitzero"` // since 2025-06-18
	Description string       `json:"description,omitzero"`
	MIMEType    string       `json:"mimeType,omitzero"`
	Size        *int64       `json:"size,omitzero"` // bytes, before encoding; nil when unknown
	Annotations *Annotations `json:"annotations,omitzero"`
	// Icons are at most MaxParts when they are decoded.
	// Since 2025-11-25.
	Icons []Icon `json:"icons,omitzero" most:"MaxParts icons"`
	Meta  Meta   `json:"_meta,omitzero"`

	Others map[string]json.RawMessage `json:",unknown"`
}

// A ResourceTemplate describes all resources whose URIs match an RFC 6570 template.
// Unknown members are kept.
type ResourceTemplate struct {
	URITemplate string       `json:"uriTemplate"`
	Name        string       `json:"name"`
	Title       string       `json:"title,omitzero"` // since 2025-06-18
	Description string       `json:"description,omitzero"`
	MIMEType    string       `json:"mimeType,omitzero"` // if all of them have the same
	Annotations *Annotations `json:"annotations,omitzero"`
	// Icons are at most MaxParts when they are decoded.
	// Since 2025-11-25.
	Icons []Icon `json:"icons,omitzero" most:"MaxParts icons"`
	Meta  Meta   `json:"_meta,omitzero"`

	Others map[string]json.RawMessage `json:",unknown"`
}

// ListResourcesParams asks for one page of resources.
type ListResourcesParams struct {
	RequestParams
	Cursor *string `json:"cursor,omitzero"` // nil for the first page; an empty string is a cursor
}

// ListResourcesResult is one page of resources.
type ListResourcesResult struct {
	CacheableResult
	// Resources are at most MaxItems when they are decoded, and none of them is nil.
	// Absent ones are nil.
	Resources  []*Resource `json:"resources" most:"MaxItems resources on a page"`
	NextCursor *string     `json:"nextCursor,omitzero"` // nil on the last page
}

// ListResourceTemplatesParams asks for one page of resource templates.
type ListResourceTemplatesParams struct {
	RequestParams
	Cursor *string `json:"cursor,omitzero"` // nil for the first page; an empty string is a cursor
}

// ListResourceTemplatesResult is one page of resource templates.
type ListResourceTemplatesResult struct {
	CacheableResult
	// ResourceTemplates are at most MaxItems when they are decoded, and none of them is nil.
	// Absent ones are nil.
	ResourceTemplates []*ResourceTemplate `json:"resourceTemplates" most:"MaxItems resource templates on a page"`
	NextCursor        *string             `json:"nextCursor,omitzero"` // nil on the last page
}

// ReadResourceParams reads a resource.
type ReadResourceParams struct {
	RequestParams
	InputParams
	URI string `json:"uri"`
}

// ReadResourceResult holds the contents of a resource. A directory may answer
// with several.
type ReadResourceResult struct {
	CacheableResult
	// Contents are at most MaxItems when they are decoded.
	// Absent ones are nil. They are not sent while InputRequired is set.
	Contents      []ResourceContents `json:"contents" most:"MaxItems contents of a resource"`
	InputRequired *InputRequired     `json:",inline"` // the server asks; nil in a complete result
}

// Text returns all texts of the result, with a line break between them.
func (r *ReadResourceResult) Text() string {
	var texts []string
	for _, c := range r.Contents {
		if c.Text != nil {
			texts = append(texts, *c.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// Stamp implements ModernResult.
func (r *ReadResourceResult) Stamp(serverInfo json.RawMessage) {
	r.InputRequired.stampType(&r.Result)
	r.CacheableResult.Stamp(serverInfo)
}

// MarshalJSONTo encodes the result. While InputRequired is set, the result type
// is input_required and only InputRequired and _meta are sent.
func (r *ReadResourceResult) MarshalJSONTo(to *jsontext.Encoder) error {
	if r.InputRequired != nil {
		return r.InputRequired.marshalAs(to, r.Result, nil)
	}
	return marshalTo(to, (*readResourceResultMembers)(r))
}

// ResourceContents is the text or the bytes of a resource. Set exactly one of Text and
// Blob; otherwise encoding fails. Decoding fails if both are set. If neither is set, it
// returns an empty text.
type ResourceContents struct {
	URI      string  `json:"uri"`
	MIMEType string  `json:"mimeType,omitzero"`
	Text     *string `json:"text,omitzero"`
	Blob     []byte  `json:"blob,omitzero"` // base64 on the wire; non-nil but empty for no bytes
	Meta     Meta    `json:"_meta,omitzero"`
}

type checkedContents ResourceContents // without methods

// MarshalJSONTo fails unless exactly one of Text and Blob is set.
func (c *ResourceContents) MarshalJSONTo(to *jsontext.Encoder) error {
	if (c.Text == nil) == (c.Blob == nil) {
		return errors.New("protocol: contents of a resource need either Text or Blob: " + c.URI)
	}
	return marshalTo(to, (*checkedContents)(c))
}

// UnmarshalJSON fails if both Text and Blob are set. Nothing of an old value stays, since one of the two might.
func (c *ResourceContents) UnmarshalJSON(raw []byte) error {
	*c = ResourceContents{}
	if err := Unmarshal(raw, (*checkedContents)(c)); err != nil {
		return err
	}
	return c.check()
}

// check sets an empty text if there is neither Text nor Blob, and refuses both.
func (c *ResourceContents) check() error {
	switch {
	case c.Text == nil && c.Blob == nil:
		c.Text = new(string)
	case c.Text != nil && c.Blob != nil:
		return errors.New("protocol: contents of a resource have both Text and Blob: " + c.URI)
	}
	return nil
}

// SubscribeParams asks a legacy server to report changes of a resource. The
// result is an EmptyResult.
type SubscribeParams struct {
	RequestParams
	URI string `json:"uri"`
}

// UnsubscribeParams ends what SubscribeParams began. The result is an
// EmptyResult.
type UnsubscribeParams struct {
	RequestParams
	URI string `json:"uri"`
}

// ResourceUpdatedParams says that a resource changed: the one subscribed to, or
// one within it.
type ResourceUpdatedParams struct {
	NotificationParams
	URI string `json:"uri"`
}

// ListenParams opens a subscription, which lasts as long as its request
// (2026-07-28 basic/patterns/subscriptions).
type ListenParams struct {
	RequestParams
	Notifications SubscriptionFilter `json:"notifications"`
}

// A SubscriptionFilter names the notifications that a client asks for, or that a
// server grants. Unknown members are kept, since extensions add some.
type SubscriptionFilter struct {
	ToolsListChanged     bool `json:"toolsListChanged,omitzero"`
	PromptsListChanged   bool `json:"promptsListChanged,omitzero"`
	ResourcesListChanged bool `json:"resourcesListChanged,omitzero"`
	// ResourceSubscriptions are at most MaxItems when they are decoded.
	ResourceSubscriptions []string `json:"resourceSubscriptions,omitzero" most:"MaxItems resource subscriptions"`
	// TaskIDs are at most MaxItems when they are decoded.
	// The tasks extension.
	TaskIDs []string                   `json:"taskIds,omitzero" most:"MaxItems task ids"`
	Others  map[string]json.RawMessage `json:",unknown"`
}

// AcknowledgedParams says which notifications a server grants. It is the first
// message of a subscription and carries MetaSubscriptionID, as the others do.
type AcknowledgedParams struct {
	NotificationParams
	Notifications SubscriptionFilter `json:"notifications"`
}

// ListenResult says that the server ends a subscription. It carries
// MetaSubscriptionID. A subscription that ends without it was lost.
type ListenResult struct {
	Result
}
