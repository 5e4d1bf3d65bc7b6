package protocol

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Content is one block of a result or message: *TextContent, *ImageContent,
// *AudioContent, *EmbeddedResource, *ResourceLink or *UnknownContent. In sampling
// it may also be *ToolUseContent or *ToolResultContent.
type Content interface {
	contentType() string
}

// Contents holds blocks in order, at most MaxItems when decoded. A block with an
// unknown type or a malformed member is decoded as an *UnknownContent, and does not
// affect the other blocks. A nil block cannot be encoded.
type Contents []Content

// Text returns a block of text.
func Text(text string) *TextContent { return &TextContent{Text: text} }

// Texts returns a block for each text.
func Texts(texts ...string) Contents {
	if len(texts) == 1 {
		blocks, block := oneText()
		block.Text = texts[0]
		return blocks
	}
	blocks := make(Contents, len(texts))
	for i, text := range texts {
		blocks[i] = Text(text)
	}
	return blocks
}

// oneText returns an empty block of text, alone. Most results are that, so both are
// allocated at once.
func oneText() (Contents, *TextContent) {
	one := new(struct {
		blocks [1]Content
		block  TextContent
	})
	one.blocks[0] = &one.block
	return one.blocks[:], &one.block
}

// Image returns a block with an image. The block refers to data and does not copy it.
func Image(data []byte, mimeType string) *ImageContent {
	return &ImageContent{Data: data, MIMEType: mimeType}
}

// Audio returns a block with sound. The block refers to data and does not copy it.
func Audio(data []byte, mimeType string) *AudioContent {
	return &AudioContent{Data: data, MIMEType: mimeType}
}

// Text returns the text of all text blocks, with a line break between them.
func (c Contents) Text() string {
	if len(c) == 1 { // as most are
		text, _ := c[0].(*TextContent)
		if text == nil {
			return ""
		}
		return text.Text
	}
	var lines []string
	for _, block := range c {
		if text, ok := block.(*TextContent); ok {
			lines = append(lines, text.Text)
		}
	}
	return strings.Join(lines, "\n")
}

// A Role is the role of the author of a message.
type Role string

const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// Annotations are hints about who a block or resource is for. A client may
// ignore them.
type Annotations struct {
	Audience     []Role   `json:"audience,omitzero"`
	Priority     *float64 `json:"priority,omitzero"`     // importance, from 0 (optional) to 1 (required)
	LastModified string   `json:"lastModified,omitzero"` // ISO 8601; since 2025-06-18
}

// TextContent is a block of text.
type TextContent struct {
	Text        string       `json:"text"`
	Annotations *Annotations `json:"annotations,omitzero"`
	Meta        Meta         `json:"_meta,omitzero"`
}

// ImageContent is a block with an image.
type ImageContent struct {
	Data        []byte       `json:"data"` // base64 on the wire
	MIMEType    string       `json:"mimeType"`
	Annotations *Annotations `json:"annotations,omitzero"`
	Meta        Meta         `json:"_meta,omitzero"`
}

// AudioContent is a block with sound (since 2025-03-26).
type AudioContent struct {
	Data        []byte       `json:"data"` // base64 on the wire
	MIMEType    string       `json:"mimeType"`
	Annotations *Annotations `json:"annotations,omitzero"`
	Meta        Meta         `json:"_meta,omitzero"`
}

// EmbeddedResource is a block with the contents of a resource.
type EmbeddedResource struct {
	Resource    ResourceContents `json:"resource"`
	Annotations *Annotations     `json:"annotations,omitzero"`
	Meta        Meta             `json:"_meta,omitzero"`
}

// ResourceLink is a block that names a resource to read (since 2025-06-18). The
// resource need not be in the server's list.
type ResourceLink struct {
	URI         string       `json:"uri"`
	Name        string       `json:"name"`
	Title       string       `json:"title,omitzero"`
	Description string       `json:"description,omitzero"`
	MIMEType    string       `json:"mimeType,omitzero"`
	Size        *int64       `json:"size,omitzero"` // bytes
	Annotations *Annotations `json:"annotations,omitzero"`
	// Icons are at most MaxParts when they are decoded.
	Icons []Icon `json:"icons,omitzero" most:"MaxParts icons"`
	Meta  Meta   `json:"_meta,omitzero"`
}

// ToolUseContent is a block in which a model asks to use a tool (since
// 2025-11-25, sampling only).
type ToolUseContent struct {
	ID    string             `json:"id"`
	Name  string             `json:"name"`
	Input stdjson.RawMessage `json:"input"` // an object
	Meta  Meta               `json:"_meta,omitzero"`
}

// ToolResultContent is a block that answers a ToolUseContent (since 2025-11-25,
// sampling only).
type ToolResultContent struct {
	ToolUseID         string             `json:"toolUseId"`
	Content           Contents           `json:"content"`
	StructuredContent stdjson.RawMessage `json:"structuredContent,omitzero"`
	IsError           bool               `json:"isError,omitzero"`
	Meta              Meta               `json:"_meta,omitzero"`
}

// UnknownContent is a block with an unknown type or a malformed member. It is kept
// unchanged.
type UnknownContent struct {
	Type string             // empty when the block does not say
	Raw  stdjson.RawMessage // the whole block; required to encode it
}

func (*TextContent) contentType() string       { return "text" }
func (*ImageContent) contentType() string      { return "image" }
func (*AudioContent) contentType() string      { return "audio" }
func (*EmbeddedResource) contentType() string  { return "resource" }
func (*ResourceLink) contentType() string      { return "resource_link" }
func (*ToolUseContent) contentType() string    { return "tool_use" }
func (*ToolResultContent) contentType() string { return "tool_result" }
func (c *UnknownContent) contentType() string  { return c.Type }

// MarshalJSON does what MarshalJSONTo does, for encoding/json.
func (c Contents) MarshalJSON() ([]byte, error) { return Marshal(c) }

// UnmarshalJSON does what UnmarshalJSONFrom does, for encoding/json.
func (c *Contents) UnmarshalJSON(data []byte) error { return Unmarshal(data, c) }

// MarshalJSONTo encodes the blocks, each with its type. It fails for a nil block,
// and for an UnknownContent without Raw.
func (c Contents) MarshalJSONTo(to *jsontext.Encoder) error {
	if err := to.WriteToken(jsontext.BeginArray); err != nil {
		return err
	}
	for _, block := range c {
		raw, err := marshalContent(to.AvailableBuffer(), block)
		if err != nil {
			return err
		}
		if err := to.WriteValue(raw); err != nil {
			return err
		}
	}
	return to.WriteToken(jsontext.EndArray)
}

// marshalContent appends one block. The caller checks that a raw one is JSON.
func marshalContent(dst []byte, block Content) (jsontext.Value, error) {
	switch block := block.(type) {
	case *TextContent:
		if block.isPlain() {
			return appendText(dst, block.Text), nil
		}
	case *UnknownContent:
		if block != nil {
			return marshalUnknown(block)
		}
	}
	members, err := Marshal(block)
	if err != nil {
		return nil, err
	}
	if isNull(members) {
		return nil, fmt.Errorf("protocol: a block of content is nil (%T)", block)
	}
	dst = append(dst, `{"type":"`...)
	dst = append(dst, block.contentType()...)
	dst = append(dst, `",`...)
	return append(dst, members[1:]...), nil // every block has a member of its own
}

// The bytes around the text of a block that is nothing but text, as every
// implementation that writes the type first encodes it.
const beforeText, afterText = `{"type":"text","text":`, `}`

func appendText(dst []byte, text string) []byte {
	return append(appendString(append(dst, beforeText...), text), afterText...)
}

// isPlain reports whether the block has text and nothing else.
func (c *TextContent) isPlain() bool { return c != nil && c.Annotations == nil && c.Meta == nil }

// cutText reads a block that appendText could have written, and no other.
func cutText(raw []byte) (*TextContent, bool) {
	quoted, first := bytes.CutPrefix(raw, []byte(beforeText))
	quoted, last := bytes.CutSuffix(quoted, []byte(afterText))
	if !first || !last {
		return nil, false
	}
	var short [512]byte                                    // so that it is copied once only
	text, err := jsontext.AppendUnquote(short[:0], quoted) // fails unless it is one string
	if err != nil {
		return nil, false
	}
	return &TextContent{Text: string(text)}, true
}

func marshalUnknown(block *UnknownContent) (jsontext.Value, error) {
	if len(block.Raw) == 0 {
		return nil, fmt.Errorf("protocol: content of type %q has no Raw", block.Type)
	}
	return jsontext.Value(block.Raw), nil
}

// UnmarshalJSONFrom decodes an array of blocks by their types. Null becomes nil.
func (c *Contents) UnmarshalJSONFrom(from *jsontext.Decoder) (err error) {
	*c, err = readContents(from, newContent)
	return err
}

// readContents reads an array of blocks, whose types the caller knows.
func readContents(from *jsontext.Decoder, known func(string) Content) (Contents, error) {
	opening, err := from.ReadToken()
	if err != nil || opening.Kind() == 'n' {
		return nil, err
	}
	blocks := Contents{}
	err = readElements(from, opening, MaxItems, "blocks of content", func(block jsontext.Value) error {
		blocks = append(blocks, unmarshalContent(block, known))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return blocks, nil
}

// unmarshalContent reads one block. It keeps a block that it cannot read.
func unmarshalContent(raw jsontext.Value, known func(string) Content) Content {
	if text, ok := cutText(raw); ok {
		return text
	}
	var head struct {
		Type string `json:"type"`
	}
	if Unmarshal(raw, &head) != nil {
		head.Type = ""
	}
	block := known(head.Type)
	if block == nil || Unmarshal(raw, block) != nil {
		return &UnknownContent{Type: head.Type, Raw: stdjson.RawMessage(raw.Clone())}
	}
	return block
}

// newContent returns an empty block of a type that results have, or nil. A
// ToolResultContent is not among them: it holds blocks itself, and decoding
// would take quadratic time when such blocks are nested.
func newContent(contentType string) Content {
	switch contentType {
	case "text":
		return new(TextContent)
	case "image":
		return new(ImageContent)
	case "audio":
		return new(AudioContent)
	case "resource":
		return new(EmbeddedResource)
	case "resource_link":
		return new(ResourceLink)
	default:
		return nil
	}
}

// newSamplingContent is newContent for the blocks of a conversation.
func newSamplingContent(contentType string) Content {
	switch contentType {
	case "tool_use":
		return new(ToolUseContent)
	case "tool_result":
		return new(ToolResultContent)
	default:
		return newContent(contentType)
	}
}
