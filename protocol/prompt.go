package protocol

import (
	stdjson "encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// A Prompt is a template of messages that a server offers. Unknown members are
// kept.
type Prompt struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitzero"` // since 2025-06-18
	Description string `json:"description,omitzero"`
	// Arguments are at most MaxParts when they are decoded.
	Arguments []PromptArgument `json:"arguments,omitzero" most:"MaxParts arguments of a prompt"`
	// Icons are at most MaxParts when they are decoded.
	// Since 2025-11-25.
	Icons []Icon `json:"icons,omitzero" most:"MaxParts icons"`
	Meta  Meta   `json:"_meta,omitzero"`

	Others map[string]stdjson.RawMessage `json:",unknown"`
}

// A PromptArgument describes one argument of a prompt. All arguments are strings.
type PromptArgument struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitzero"` // since 2025-06-18
	Description string `json:"description,omitzero"`
	Required    bool   `json:"required,omitzero"`
}

// ListPromptsParams asks for one page of prompts.
type ListPromptsParams struct {
	RequestParams
	Cursor *string `json:"cursor,omitzero"` // nil for the first page; an empty string is a cursor
}

// ListPromptsResult is one page of prompts.
type ListPromptsResult struct {
	CacheableResult
	// Prompts are at most MaxItems when they are decoded, and none of them is nil.
	// Absent ones are nil.
	Prompts    []*Prompt `json:"prompts" most:"MaxItems prompts on a page"`
	NextCursor *string   `json:"nextCursor,omitzero"` // nil on the last page
}

// GetPromptParams asks for the messages of a prompt.
type GetPromptParams struct {
	RequestParams
	InputParams
	Name      string            `json:"name"`
	Arguments map[string]string `json:"arguments,omitzero"`
}

// GetPromptResult holds the messages of a prompt.
type GetPromptResult struct {
	Result
	Description string `json:"description,omitzero"`
	// Messages are at most MaxItems when they are decoded.
	// Absent ones are nil. They are not sent while InputRequired is set.
	Messages      []PromptMessage `json:"messages" most:"MaxItems messages of a prompt"`
	InputRequired *InputRequired  `json:",inline"` // the server asks; nil in a complete result
}

// Stamp implements ModernResult.
func (r *GetPromptResult) Stamp(serverInfo stdjson.RawMessage) {
	r.InputRequired.stampType(&r.Result)
	r.Result.Stamp(serverInfo)
}

// MarshalJSONTo encodes the result. While InputRequired is set, the result type
// is input_required and only InputRequired and _meta are sent.
func (r *GetPromptResult) MarshalJSONTo(to *jsontext.Encoder) error {
	if r.InputRequired != nil {
		return r.InputRequired.marshalAs(to, r.Result, nil)
	}
	return marshalTo(to, (*getPromptResultMembers)(r))
}

// A PromptMessage is one message of a prompt. Content must not be nil when it is
// encoded.
type PromptMessage struct {
	Role    Role
	Content Content
}

// A promptMessage is a PromptMessage as it is on the wire.
type promptMessage struct {
	Role    Role           `json:"role"`
	Content jsontext.Value `json:"content"`
}

// MarshalJSONTo fails if there is no content.
func (m PromptMessage) MarshalJSONTo(to *jsontext.Encoder) error {
	content, err := marshalContent(nil, m.Content)
	if err != nil {
		return err
	}
	return marshalTo(to, promptMessage{m.Role, content})
}

// UnmarshalJSON leaves Content nil if there is none. It decodes content with an unknown
// type or a malformed member as an *UnknownContent.
func (m *PromptMessage) UnmarshalJSON(raw []byte) error {
	var wire promptMessage
	if err := Unmarshal(raw, &wire); err != nil {
		return err
	}
	*m = PromptMessage{Role: wire.Role}
	if wire.Content != nil {
		m.Content = unmarshalContent(wire.Content, newContent)
	}
	return nil
}

// The types of a CompleteReference.
const (
	ReferencePrompt   = "ref/prompt"
	ReferenceResource = "ref/resource"
)

// CompleteParams asks for completions of an argument that the user is typing.
type CompleteParams struct {
	RequestParams
	Ref      CompleteReference `json:"ref"`
	Argument CompleteArgument  `json:"argument"`
	Context  *CompleteContext  `json:"context,omitzero"` // since 2025-06-18
}

// A CompleteReference names what the argument belongs to: a prompt by its name,
// or a resource template by its text.
type CompleteReference struct {
	Type  string `json:"type"`           // ReferencePrompt or ReferenceResource
	Name  string `json:"name,omitzero"`  // of a prompt
	Title string `json:"title,omitzero"` // of a prompt; since 2025-06-18
	URI   string `json:"uri,omitzero"`   // of a resource or template
}

// A CompleteArgument is an argument, and what the user has typed of its value.
type CompleteArgument struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// CompleteContext holds the arguments that the user has chosen already.
type CompleteContext struct {
	Arguments map[string]string `json:"arguments,omitzero"`
}

// CompleteResult proposes values.
type CompleteResult struct {
	Result
	Completion Completion `json:"completion"`
}

// MaxCompletions is how many values a server may send in one completion.
const MaxCompletions = 100

// A Completion proposes values, best first.
type Completion struct {
	// Values are at most MaxParts when they are decoded.
	// Absent ones are nil.
	Values  []string `json:"values" most:"MaxParts values of a completion"`
	Total   *int64   `json:"total,omitzero"` // how many there are; nil when unknown
	HasMore bool     `json:"hasMore,omitzero"`
}
