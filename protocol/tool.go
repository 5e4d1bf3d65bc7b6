package protocol

import (
	"encoding/json"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// A Tool is a function that a server offers. Its schemas are raw JSON Schema.
// Members unknown here are kept.
type Tool struct {
	Name         string           `json:"name"`
	Title        string           `json:"title,omitzero"`
	Description  string           `json:"description,omitzero"`
	InputSchema  json.RawMessage  `json:"inputSchema"`
	OutputSchema json.RawMessage  `json:"outputSchema,omitzero"`
	Annotations  *ToolAnnotations `json:"annotations,omitzero"`
	Icons        Icons            `json:"icons,omitzero"`
	Meta         Meta             `json:"_meta,omitzero"`

	Others map[string]json.RawMessage `json:",unknown"`
}

// ToolAnnotations are hints. They bind nobody, and count only for servers that
// the application trusts.
type ToolAnnotations struct {
	Title           string `json:"title,omitzero"`
	ReadOnlyHint    bool   `json:"readOnlyHint,omitzero"`
	DestructiveHint *bool  `json:"destructiveHint,omitzero"` // nil means true
	IdempotentHint  bool   `json:"idempotentHint,omitzero"`
	OpenWorldHint   *bool  `json:"openWorldHint,omitzero"` // nil means true
}

// DisplayName is what people are shown.
func (t *Tool) DisplayName() string {
	switch {
	case t.Title != "":
		return t.Title
	case t.Annotations != nil && t.Annotations.Title != "":
		return t.Annotations.Title
	default:
		return t.Name
	}
}

// ListToolsParams ask for one page of tools.
type ListToolsParams struct {
	RequestParams
	Cursor *string `json:"cursor,omitzero"` // nil for the first page; an empty string is a cursor
}

// Tools are the tools of one page: at most MaxPageTools when decoded, and none
// of them nil.
type Tools []*Tool

// UnmarshalJSON refuses a null among the tools, and fails with a *LimitError
// above MaxPageTools. It makes nil of null.
func (t *Tools) UnmarshalJSON(raw []byte) error {
	*t = nil
	if isNull(raw) {
		return nil
	}
	tools := Tools{}
	err := readArray(raw, MaxPageTools, "tools on a page", func(value jsontext.Value) error {
		if isNull(value) {
			return fmt.Errorf("protocol: tool %d is null", len(tools))
		}
		tool := new(Tool)
		tools = append(tools, tool)
		return Unmarshal(value, tool)
	})
	if err != nil {
		return err
	}
	*t = tools
	return nil
}

// ListToolsResult is one page of tools.
type ListToolsResult struct {
	CacheableResult
	Tools      Tools   `json:"tools"`               // nil when absent
	NextCursor *string `json:"nextCursor,omitzero"` // nil on the last page
}

// CallToolParams call a tool.
type CallToolParams struct {
	RequestParams
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitzero"` // an object
}

// CallToolResult is what a tool has answered, a failure of its own included.
// Members unknown here are kept.
type CallToolResult struct {
	Result
	Content           Contents        `json:"content"` // nil when absent
	StructuredContent json.RawMessage `json:"structuredContent,omitzero"`
	IsError           bool            `json:"isError,omitzero"`

	Others map[string]json.RawMessage `json:",unknown"`
}
