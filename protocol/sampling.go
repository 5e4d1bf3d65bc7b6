package protocol

import (
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// CreateMessageParams asks a client's model to continue a conversation.
type CreateMessageParams struct {
	RequestParams
	// Messages are at most MaxItems when they are decoded.
	Messages         []SamplingMessage `json:"messages" most:"MaxItems messages of a conversation"`
	ModelPreferences *ModelPreferences `json:"modelPreferences,omitzero"`
	SystemPrompt     string            `json:"systemPrompt,omitzero"`
	IncludeContext   string            `json:"includeContext,omitzero"` // "none", the default; since 2025-11-25, others need SamplingCapability.Context
	Temperature      *float64          `json:"temperature,omitzero"`
	MaxTokens        int64             `json:"maxTokens"` // an upper bound for the client
	StopSequences    []string          `json:"stopSequences,omitzero"`
	Metadata         json.RawMessage   `json:"metadata,omitzero"` // an object for the provider of the model
	// Tools are at most MaxItems when they are decoded, and none of them is nil.
	// Since 2025-11-25; needs SamplingCapability.Tools.
	Tools      []*Tool       `json:"tools,omitzero" most:"MaxItems tools on a page"`
	ToolChoice *ToolChoice   `json:"toolChoice,omitzero"` // since 2025-11-25; needs SamplingCapability.Tools
	Task       *TaskMetadata `json:"task,omitzero"`       // 2025-11-25 only
}

// ModelPreferences says what kind of model a server would like. The client
// decides.
type ModelPreferences struct {
	// Hints are at most MaxParts when they are decoded.
	// In order of preference; the client uses the first that matches.
	Hints                []ModelHint `json:"hints,omitzero" most:"MaxParts model hints"`
	CostPriority         *float64    `json:"costPriority,omitzero"` // 0 to 1, as the two others
	SpeedPriority        *float64    `json:"speedPriority,omitzero"`
	IntelligencePriority *float64    `json:"intelligencePriority,omitzero"`
}

// A ModelHint is part of a model's name.
type ModelHint struct {
	Name string `json:"name,omitzero"`
}

// The modes of a ToolChoice.
const (
	ToolChoiceAuto     = "auto"     // the model decides; the default
	ToolChoiceRequired = "required" // the model uses at least one tool
	ToolChoiceNone     = "none"     // the model uses no tool
)

// ToolChoice says whether the model uses tools.
type ToolChoice struct {
	Mode string `json:"mode,omitzero"`
}

// A SamplingMessage is one message of a conversation with a model.
type SamplingMessage struct {
	Role    Role             `json:"role"`
	Content SamplingContents `json:"content"`
	Meta    Meta             `json:"_meta,omitzero"`
}

// Why a model stopped. The set is open.
const (
	StopEndTurn   = "endTurn"
	StopSequence  = "stopSequence"
	StopMaxTokens = "maxTokens"
	StopToolUse   = "toolUse" // the model wants to use tools: see ToolUseContent
)

// CreateMessageResult is the answer of the model.
type CreateMessageResult struct {
	Meta       Meta             `json:"_meta,omitzero"`
	Role       Role             `json:"role"`
	Content    SamplingContents `json:"content"`
	Model      string           `json:"model"` // its name
	StopReason string           `json:"stopReason,omitzero"`
}

// SamplingContents holds the blocks of a SamplingMessage or CreateMessageResult.
// It is Contents with two differences: a single block is sent without an array,
// the only form before 2025-11-25, and a decoded block may be a *ToolUseContent
// or *ToolResultContent.
type SamplingContents []Content

// Text returns the text of all text blocks, with a line break between them.
func (c SamplingContents) Text() string { return Contents(c).Text() }

// MarshalJSONTo encodes one block as an object and any other number as an array.
func (c SamplingContents) MarshalJSONTo(to *jsontext.Encoder) error {
	if len(c) != 1 {
		return Contents(c).MarshalJSONTo(to)
	}
	raw, err := marshalContent(to.AvailableBuffer(), c[0])
	if err != nil {
		return err
	}
	return to.WriteValue(raw)
}

// UnmarshalJSONFrom decodes an array of at most MaxItems blocks, or one block.
// Null becomes nil.
func (c *SamplingContents) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	if from.PeekKind() == '{' {
		raw, err := from.ReadValue()
		if err == nil {
			*c = SamplingContents{unmarshalContent(raw, newSamplingContent)}
		}
		return err
	}
	blocks, err := readContents(from, newSamplingContent)
	*c = SamplingContents(blocks)
	return err
}
