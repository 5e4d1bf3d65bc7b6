package protocol

import (
	"bytes"
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

// MarshalJSON is MarshalJSONTo, for encoding/json.
func (c Contents) MarshalJSON() ([]byte, error) { return Marshal(c) }

// UnmarshalJSON is UnmarshalJSONFrom, for encoding/json.
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

// marshalContent appends one block, which is not checked yet if it came raw.
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

// What a block of text and nothing else is between, in every implementation
// that writes the type first.
const beforeText, afterText = `{"type":"text","text":`, `}`

func appendText(dst []byte, text string) []byte {
	return append(appendString(append(dst, beforeText...), text), afterText...)
}

// isPlain reports whether there is text and nothing else.
func (c *TextContent) isPlain() bool { return c != nil && c.Annotations == nil && c.Meta == nil }

// cutText reads what appendText writes. Anything else is for others to read.
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

// UnmarshalJSONFrom decodes the blocks by their type. It fails with a
// *LimitError above MaxBlocks, and makes nil of null.
func (c *Contents) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	*c = nil
	opening, err := from.ReadToken()
	switch {
	case err != nil:
		return err
	case opening.Kind() == 'n':
		return nil
	}
	blocks := Contents{}
	err = readElements(from, opening, MaxBlocks, "blocks of content", func(block jsontext.Value) error {
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
	if text, ok := cutText(raw); ok {
		return text
	}
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
