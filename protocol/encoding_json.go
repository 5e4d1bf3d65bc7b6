package protocol

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// This file lets encoding/json keep what Marshal and Unmarshal keep. It does not know the
// tags "unknown" and "inline": it would drop unknown members, and write "Others":null.
// Each type has two methods for go-json-experiment, which prefers them, and two for
// encoding/json, which call Marshal and Unmarshal. Those of lists are in list.go.
//
// Name the field where a struct holds one of these types. A struct that embeds one has its
// MarshalJSON, which writes the embedded value and none of the other fields.

// unmarshalFrom decodes a value from within another.
func unmarshalFrom(from *jsontext.Decoder, into any) error { return json.UnmarshalDecode(from, into) }

// The same types without methods, so that no method calls itself.
type (
	capabilityMembers            Capability
	clientCapabilitiesMembers    ClientCapabilities
	rootsCapabilityMembers       RootsCapability
	samplingCapabilityMembers    SamplingCapability
	elicitationCapabilityMembers ElicitationCapability
	tasksCapabilityMembers       TasksCapability
	serverCapabilitiesMembers    ServerCapabilities
	listCapabilityMembers        ListCapability
	resourcesCapabilityMembers   ResourcesCapability
	toolMembers                  Tool
	resourceMembers              Resource
	resourceTemplateMembers      ResourceTemplate
	promptMembers                Prompt
	skillMembers                 Skill
	subscriptionFilterMembers    SubscriptionFilter
)

// MarshalJSONTo encodes unknown members beside the others.
func (c *Capability) MarshalJSONTo(to *jsontext.Encoder) error {
	return marshalTo(to, (*capabilityMembers)(c))
}

// UnmarshalJSONFrom keeps unknown members.
func (c *Capability) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*capabilityMembers)(c))
}

// MarshalJSON does what Marshal does, for encoding/json.
func (c Capability) MarshalJSON() ([]byte, error) { return Marshal(&c) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (c *Capability) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, c) }

// MarshalJSONTo encodes unknown members beside the others.
func (c *ClientCapabilities) MarshalJSONTo(to *jsontext.Encoder) error {
	return marshalTo(to, (*clientCapabilitiesMembers)(c))
}

// UnmarshalJSONFrom keeps unknown members.
func (c *ClientCapabilities) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*clientCapabilitiesMembers)(c))
}

// MarshalJSON is Marshal, for encoding/json.
func (c ClientCapabilities) MarshalJSON() ([]byte, error) { return Marshal(&c) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (c *ClientCapabilities) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, c) }

// MarshalJSONTo encodes unknown members beside the others.
func (r *RootsCapability) MarshalJSONTo(to *jsontext.Encoder) error {
	return marshalTo(to, (*rootsCapabilityMembers)(r))
}

// UnmarshalJSONFrom keeps unknown members.
func (r *RootsCapability) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*rootsCapabilityMembers)(r))
}

// MarshalJSON is Marshal, for encoding/json.
func (r RootsCapability) MarshalJSON() ([]byte, error) { return Marshal(&r) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (r *RootsCapability) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, r) }

// MarshalJSONTo encodes unknown members beside the others.
func (s *SamplingCapability) MarshalJSONTo(to *jsontext.Encoder) error {
	return marshalTo(to, (*samplingCapabilityMembers)(s))
}

// UnmarshalJSONFrom keeps unknown members.
func (s *SamplingCapability) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*samplingCapabilityMembers)(s))
}

// MarshalJSON is Marshal, for encoding/json.
func (s SamplingCapability) MarshalJSON() ([]byte, error) { return Marshal(&s) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (s *SamplingCapability) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, s) }

// MarshalJSONTo encodes unknown members beside the others.
func (e *ElicitationCapability) MarshalJSONTo(to *jsontext.Encoder) error {
	return marshalTo(to, (*elicitationCapabilityMembers)(e))
}

// UnmarshalJSONFrom keeps unknown members.
func (e *ElicitationCapability) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*elicitationCapabilityMembers)(e))
}

// MarshalJSON is Marshal, for encoding/json.
func (e ElicitationCapability) MarshalJSON() ([]byte, error) { return Marshal(&e) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (e *ElicitationCapability) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, e) }

// MarshalJSONTo encodes unknown members beside the others.
func (t *TasksCapability) MarshalJSONTo(to *jsontext.Encoder) error {
	return marshalTo(to, (*tasksCapabilityMembers)(t))
}

// UnmarshalJSONFrom keeps unknown members.
func (t *TasksCapability) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*tasksCapabilityMembers)(t))
}

// MarshalJSON is Marshal, for encoding/json.
func (t TasksCapability) MarshalJSON() ([]byte, error) { return Marshal(&t) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (t *TasksCapability) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, t) }

// MarshalJSONTo encodes unknown members beside the others.
func (s *ServerCapabilities) MarshalJSONTo(to *jsontext.Encoder) error {
	return marshalTo(to, (*serverCapabilitiesMembers)(s))
}

// UnmarshalJSONFrom keeps unknown members.
func (s *ServerCapabilities) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*serverCapabilitiesMembers)(s))
}

// MarshalJSON is Marshal, for encoding/json.
func (s ServerCapabilities) MarshalJSON() ([]byte, error) { return Marshal(&s) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (s *ServerCapabilities) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, s) }

// MarshalJSONTo encodes unknown members beside the others.
func (l *ListCapability) MarshalJSONTo(to *jsontext.Encoder) error {
	return marshalTo(to, (*listCapabilityMembers)(l))
}

// UnmarshalJSONFrom keeps unknown members.
func (l *ListCapability) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*listCapabilityMembers)(l))
}

// MarshalJSON is Marshal, for encoding/json.
func (l ListCapability) MarshalJSON() ([]byte, error) { return Marshal(&l) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (l *ListCapability) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, l) }

// MarshalJSONTo encodes unknown members beside the others.
func (r *ResourcesCapability) MarshalJSONTo(to *jsontext.Encoder) error {
	return marshalTo(to, (*resourcesCapabilityMembers)(r))
}

// UnmarshalJSONFrom keeps unknown members.
func (r *ResourcesCapability) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*resourcesCapabilityMembers)(r))
}

// MarshalJSON is Marshal, for encoding/json.
func (r ResourcesCapability) MarshalJSON() ([]byte, error) { return Marshal(&r) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (r *ResourcesCapability) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, r) }

// MarshalJSONTo encodes unknown members beside the others.
func (t *Tool) MarshalJSONTo(to *jsontext.Encoder) error { return marshalTo(to, (*toolMembers)(t)) }

// UnmarshalJSONFrom keeps unknown members.
func (t *Tool) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*toolMembers)(t))
}

// MarshalJSON is Marshal, for encoding/json.
func (t Tool) MarshalJSON() ([]byte, error) { return Marshal(&t) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (t *Tool) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, t) }

// MarshalJSONTo encodes unknown members beside the others.
func (r *Resource) MarshalJSONTo(to *jsontext.Encoder) error {
	return marshalTo(to, (*resourceMembers)(r))
}

// UnmarshalJSONFrom keeps unknown members.
func (r *Resource) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*resourceMembers)(r))
}

// MarshalJSON is Marshal, for encoding/json.
func (r Resource) MarshalJSON() ([]byte, error) { return Marshal(&r) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (r *Resource) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, r) }

// MarshalJSONTo encodes unknown members beside the others.
func (r *ResourceTemplate) MarshalJSONTo(to *jsontext.Encoder) error {
	return marshalTo(to, (*resourceTemplateMembers)(r))
}

// UnmarshalJSONFrom keeps unknown members.
func (r *ResourceTemplate) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*resourceTemplateMembers)(r))
}

// MarshalJSON is Marshal, for encoding/json.
func (r ResourceTemplate) MarshalJSON() ([]byte, error) { return Marshal(&r) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (r *ResourceTemplate) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, r) }

// MarshalJSONTo encodes unknown members beside the others.
func (p *Prompt) MarshalJSONTo(to *jsontext.Encoder) error { return marshalTo(to, (*promptMembers)(p)) }

// UnmarshalJSONFrom keeps unknown members.
func (p *Prompt) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*promptMembers)(p))
}

// MarshalJSON is Marshal, for encoding/json.
func (p Prompt) MarshalJSON() ([]byte, error) { return Marshal(&p) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (p *Prompt) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, p) }

// MarshalJSONTo encodes unknown members beside the others.
func (s *Skill) MarshalJSONTo(to *jsontext.Encoder) error { return marshalTo(to, (*skillMembers)(s)) }

// UnmarshalJSONFrom keeps unknown members.
func (s *Skill) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*skillMembers)(s))
}

// MarshalJSON is Marshal, for encoding/json.
func (s Skill) MarshalJSON() ([]byte, error) { return Marshal(&s) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (s *Skill) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, s) }

// MarshalJSONTo encodes unknown members beside the others.
func (s *SubscriptionFilter) MarshalJSONTo(to *jsontext.Encoder) error {
	return marshalTo(to, (*subscriptionFilterMembers)(s))
}

// UnmarshalJSONFrom keeps unknown members.
func (s *SubscriptionFilter) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*subscriptionFilterMembers)(s))
}

// MarshalJSON is Marshal, for encoding/json.
func (s SubscriptionFilter) MarshalJSON() ([]byte, error) { return Marshal(&s) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (s *SubscriptionFilter) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, s) }

// UnmarshalJSONFrom decodes a complete result, or one that asks.
func (r *CallToolResult) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*completeToolResult)(r))
}

// MarshalJSON is Marshal, for encoding/json.
func (r CallToolResult) MarshalJSON() ([]byte, error) { return Marshal(&r) }

// UnmarshalJSON is Unmarshal, for encoding/json. It keeps nothing of raw: a json.Decoder
// uses its buffer again.
func (r *CallToolResult) UnmarshalJSON(raw []byte) error { return Unmarshal(bytes.Clone(raw), r) }

// UnmarshalJSONFrom decodes a complete result, or one that asks.
func (r *GetPromptResult) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*completePromptResult)(r))
}

// MarshalJSON is Marshal, for encoding/json.
func (r GetPromptResult) MarshalJSON() ([]byte, error) { return Marshal(&r) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (r *GetPromptResult) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, r) }

// UnmarshalJSONFrom decodes a complete result, or one that asks.
func (r *ReadResourceResult) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*completeReadResult)(r))
}

// MarshalJSON is Marshal, for encoding/json.
func (r ReadResourceResult) MarshalJSON() ([]byte, error) { return Marshal(&r) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (r *ReadResourceResult) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, r) }

// MarshalJSON is Marshal, for encoding/json.
func (m PromptMessage) MarshalJSON() ([]byte, error) { return Marshal(&m) }

// MarshalJSON is Marshal, for encoding/json.
func (c ResourceContents) MarshalJSON() ([]byte, error) { return Marshal(&c) }

// MarshalJSON is Marshal, for encoding/json.
func (r SkillResources) MarshalJSON() ([]byte, error) { return Marshal(r) }

// MarshalJSON is Marshal, for encoding/json.
func (c SamplingContents) MarshalJSON() ([]byte, error) { return Marshal(c) }

// MarshalJSON is Marshal, for encoding/json.
func (r InputRequests) MarshalJSON() ([]byte, error) { return Marshal(r) }

// MarshalJSON is Marshal, for encoding/json.
func (r InputResponses) MarshalJSON() ([]byte, error) { return Marshal(r) }

// UnmarshalJSON is Unmarshal, for encoding/json.
func (c *SamplingContents) UnmarshalJSON(raw []byte) error { return Unmarshal(raw, c) }
