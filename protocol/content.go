package protocol

import (
	stdjson "encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Content is one block of what a tool answers: *TextContent, *ImageContent,
// *AudioContent, *EmbeddedResource, *ResourceLink or *UnknownContent.
type Content interface {
	contentType() string
}

// Contents are blocks in order, at most MaxBlocks when decoded. A block that
// cannot be read, because its type is unknown here or one of its members is
// malformed, becomes an *UnknownContent and does not spoil the rest. A nil
// block cannot be encoded.
type Contents []Content

// Text is the text of all text blocks, a line break between them.
func (c Contents) Text() string {
	var lines []string
	for _, block := range c {
		if text, ok := block.(*TextContent); ok {
			lines = append(lines, text.Text)
		}
	}
	return strings.Join(lines, "\n")
}

// Annotations are hints for who shows a block.
type Annotations struct {
	Audience     []string `json:"audience,omitzero"`
	Priority     *float64 `json:"priority,omitzero"`
	LastModified string   `json:"lastModified,omitzero"` // ISO 8601
}

// TextContent is text.
type TextContent struct {
	Text        string       `json:"text"`
	Annotations *Annotations `json:"annotations,omitzero"`
	Meta        Meta         `json:"_meta,omitzero"`
}

// ImageContent is an image.
type ImageContent struct {
	Data        []byte       `json:"data"` // base64 on the wire
	MIMEType    string       `json:"mimeType"`
	Annotations *Annotations `json:"annotations,omitzero"`
	Meta        Meta         `json:"_meta,omitzero"`
}

// AudioContent is sound; since 2025-03-26.
type AudioContent struct {
	Data        []byte       `json:"data"` // base64 on the wire
	MIMEType    string       `json:"mimeType"`
	Annotations *Annotations `json:"annotations,omitzero"`
	Meta        Meta         `json:"_meta,omitzero"`
}

// EmbeddedResource is the contents of a resource.
type EmbeddedResource struct {
	Resource    ResourceContents `json:"resource"`
	Annotations *Annotations     `json:"annotations,omitzero"`
	Meta        Meta             `json:"_meta,omitzero"`
}

// ResourceContents are the text or the bytes of a resource.
type ResourceContents struct {
	URI      string  `json:"uri"`
	MIMEType string  `json:"mimeType,omitzero"`
	Text     *string `json:"text,omitzero"` // exactly one of Text and Blob
	Blob     []byte  `json:"blob,omitzero"` // base64 on the wire
	Meta     Meta    `json:"_meta,omitzero"`
}

// ResourceLink names a resource that can be read; since 2025-06-18.
type ResourceLink struct {
	URI         string       `json:"uri"`
	Name        string       `json:"name"`
	Title       string       `json:"title,omitzero"`
	Description string       `json:"description,omitzero"`
	MIMEType    string       `json:"mimeType,omitzero"`
	Size        *int64       `json:"size,omitzero"` // bytes
	Annotations *Annotations `json:"annotations,omitzero"`
	Icons       Icons        `json:"icons,omitzero"`
	Meta        Meta         `json:"_meta,omitzero"`
}

// UnknownContent is a block that cannot be read, as it came: of a type unknown
// here, or of a known type and malformed.
type UnknownContent struct {
	Type string             // empty when the block does not say
	Raw  stdjson.RawMessage // the whole block; required to encode it
}

func (*TextContent) contentType() string      { return "text" }
func (*ImageContent) contentType() string     { return "image" }
func (*AudioContent) contentType() string     { return "audio" }
func (*EmbeddedResource) contentType() string { return "resource" }
func (*ResourceLink) contentType() string     { return "resource_link" }
func (c *UnknownContent) contentType() string { return c.Type }

// MarshalJSON encodes the blocks, each with its type. It fails for a nil block,
// and for an UnknownContent without Raw.
func (c Contents) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for i, block := range c {
		if i > 0 {
			out = append(out, ',')
		}
		raw, err := marshalContent(block)
		if err != nil {
			return nil, err
		}
		out = append(out, raw...)
	}
	return append(out, ']'), nil
}

func marshalContent(block Content) ([]byte, error) {
	if unknown, ok := block.(*UnknownContent); ok && unknown != nil {
		return marshalUnknown(unknown)
	}
	members, err := Marshal(block)
	if err != nil {
		return nil, err
	}
	if isNull(members) {
		return nil, fmt.Errorf("protocol: a block of content is nil (%T)", block)
	}
	out := append([]byte(`{"type":"`), block.contentType()...)
	out = append(out, `",`...)
	return append(out, members[1:]...), nil // every block has a member of its own
}

func marshalUnknown(block *UnknownContent) ([]byte, error) {
	if len(block.Raw) == 0 {
		return nil, fmt.Errorf("protocol: content of type %q has no Raw", block.Type)
	}
	return block.Raw, nil
}

// UnmarshalJSON decodes the blocks by their type. It fails with a *LimitError
// above MaxBlocks, and makes nil of null.
func (c *Contents) UnmarshalJSON(raw []byte) error {
	*c = nil
	if isNull(raw) {
		return nil
	}
	blocks := Contents{}
	err := readArray(raw, MaxBlocks, "blocks of content", func(block jsontext.Value) error {
		blocks = append(blocks, unmarshalContent(block))
		return nil
	})
	if err != nil {
		return err
	}
	*c = blocks
	return nil
}

// unmarshalContent keeps what it cannot read: what comes with it is not lost.
func unmarshalContent(raw jsontext.Value) Content {
	var head struct {
		Type string `json:"type"`
	}
	if Unmarshal(raw, &head) != nil {
		head.Type = ""
	}
	block := newContent(head.Type)
	if block == nil || Unmarshal(raw, block) != nil {
		return &UnknownContent{Type: head.Type, Raw: stdjson.RawMessage(raw.Clone())}
	}
	return block
}

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
