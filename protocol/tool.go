package protocol

import (
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// A Tool is a function that a server offers. Its schemas are raw JSON Schema.
// Unknown members are kept.
type Tool struct {
	Name         string           `json:"name"`
	Title        string           `json:"title,omitzero"`
	Description  string           `json:"description,omitzero"`
	InputSchema  json.RawMessage  `json:"inputSchema"`
	OutputSchema json.RawMessage  `json:"outputSchema,omitzero"` // since 2025-06-18
	Annotations  *ToolAnnotations `json:"annotations,omitzero"`
	Execution    *ToolExecution   `json:"execution,omitzero"` // 2025-11-25 only
	// Icons are at most MaxParts when they are decoded.
	Icons []Icon `json:"icons,omitzero" most:"MaxParts icons"`
	Meta  Meta   `json:"_meta,omitzero"`

	Others map[string]json.RawMessage `json:",unknown"`
}

// ToolAnnotations are hints about what a tool does. Ignore them unless you trust
// the server.
type ToolAnnotations struct {
	Title           string `json:"title,omitzero"`
	ReadOnlyHint    bool   `json:"readOnlyHint,omitzero"`
	DestructiveHint *bool  `json:"destructiveHint,omitzero"` // nil means true
	IdempotentHint  bool   `json:"idempotentHint,omitzero"`
	OpenWorldHint   *bool  `json:"openWorldHint,omitzero"` // nil means true
}

// ToolExecution says how a tool may be called.
type ToolExecution struct {
	TaskSupport TaskSupport `json:"taskSupport,omitzero"`
}

// A TaskSupport says whether a call of a tool may become a task.
type TaskSupport string

const (
	TaskForbidden TaskSupport = "forbidden" // never; the default
	TaskOptional  TaskSupport = "optional"
	TaskRequired  TaskSupport = "required"
)

// DisplayName returns the name to show to people.
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

// MetaToolMode is the member of a tool's _meta in which a server states the
// tool's ToolMode. This project defines it.
const MetaToolMode = "io.github.bowline-mcp/mode"

// A ToolMode says whether a call of a tool depends on earlier calls in the same
// session.
type ToolMode string

const (
	Stateless ToolMode = "stateless" // it does not: any session with the server can serve the call
	Stateful  ToolMode = "stateful"  // it does: in another session the call has another meaning, or none
)

// Mode returns the mode that the server states, and "" if it states none or an
// unknown one.
func (t *Tool) Mode() ToolMode {
	raw, ok := t.Meta[MetaToolMode]
	if !ok {
		return ""
	}
	var mode ToolMode
	if Unmarshal(raw, &mode) != nil || mode != Stateless && mode != Stateful {
		return ""
	}
	return mode
}

// ListToolsParams asks for one page of tools.
type ListToolsParams struct {
	RequestParams
	Cursor *string `json:"cursor,omitzero"` // nil for the first page; an empty string is a cursor
}

// ListToolsResult is one page of tools.
type ListToolsResult struct {
	CacheableResult
	// Tools are at most MaxItems when they are decoded, and none of them is nil.
	// Absent ones are nil.
	Tools      []*Tool `json:"tools" most:"MaxItems tools on a page"`
	NextCursor *string `json:"nextCursor,omitzero"` // nil on the last page
}

// CallToolParams calls a tool. Unmarshal decodes null Arguments as nil, because null
// means absent. Marshal encodes Arguments that are empty but not nil as an empty object.
type CallToolParams struct {
	RequestParams
	InputParams
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitzero"` // an object
	Task      *TaskMetadata   `json:"task,omitzero"`      // 2025-11-25: make it a task
}

// written returns the params as Marshal writes them.
func (p *CallToolParams) written() *CallToolParams {
	if p == nil || p.Arguments == nil || len(p.Arguments) > 0 && !isNull(p.Arguments) {
		return p
	}
	copied := *p
	copied.Arguments = json.RawMessage("{}")
	return &copied
}

// CallToolResult is the answer of a tool. If the tool itself failed, IsError is
// set. Unknown members are kept. While Task is set, it is encoded as the
// CreateTaskResult of the tasks extension; decoding never sets Task.
type CallToolResult struct {
	Result
	Content           Contents        `json:"content"`                    // nil when absent; not sent while InputRequired is set
	StructuredContent json.RawMessage `json:"structuredContent,omitzero"` // since 2025-06-18
	IsError           bool            `json:"isError,omitzero"`
	InputRequired     *InputRequired  `json:",inline"` // the server asks; nil in a complete result
	Task              *Task           `json:"-"`       // the call became a task; nil in a complete result

	Others map[string]json.RawMessage `json:",unknown"`
}

// Stamp implements ModernResult.
func (r *CallToolResult) Stamp(serverInfo json.RawMessage) {
	r.InputRequired.stampType(&r.Result)
	if r.Task != nil && r.ResultType == "" {
		r.ResultType = ResultTask
	}
	r.Result.Stamp(serverInfo)
}

// MarshalJSONTo encodes the result. While InputRequired is set, the result type
// is input_required and only InputRequired, _meta and Others are sent.
func (r *CallToolResult) MarshalJSONTo(to *jsontext.Encoder) error {
	if r.InputRequired != nil {
		return r.InputRequired.marshalAs(to, r.Result, r.Others)
	}
	if r.Task != nil {
		return marshalTo(to, &CreateTaskResult{r.Result, *r.Task})
	}
	return marshalTo(to, (*callToolResultMembers)(r))
}
