package protocol

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// This file lets encoding/json keep what Marshal and Unmarshal keep. It does not know the
// tags "unknown" and "inline": it would drop unknown members, and write "Others":null.
// Each type has two methods for go-json-experiment, which prefers them, and two for
// encoding/json, which call Marshal and Unmarshal.
//
// A list that is nil is written as an empty array: where a schema wants a list, it does
// not take null. encoding/json would write null, and know no limit when it decodes, so a struct
// with such a list has these methods, too.
//
// Methods that are alike for many types are generated.
//
// Name the field where a struct holds one of these types. A struct that embeds one has its
// MarshalJSON, which writes the embedded value and none of the other fields.

//go:generate go run ./internal/generate

// unmarshalFrom decodes a value from within another.
func unmarshalFrom(from *jsontext.Decoder, into any) error { return json.UnmarshalDecode(from, into) }

// UnmarshalJSONFrom decodes a complete result, or one that asks.
func (r *CallToolResult) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return unmarshalFrom(from, (*callToolResultMembers)(r))
}

// MarshalJSON is Marshal, for encoding/json.
func (r CallToolResult) MarshalJSON() ([]byte, error) { return Marshal(&r) }

// UnmarshalJSON is Unmarshal, for encoding/json. It keeps nothing of raw: a json.Decoder
// uses its buffer again.
func (r *CallToolResult) UnmarshalJSON(raw []byte) error { return Unmarshal(bytes.Clone(raw), r) }

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
