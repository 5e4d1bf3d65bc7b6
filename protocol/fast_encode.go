package protocol

import (
	stdjson "encoding/json"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/internal/scan"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A fastEncoder value encodes itself, several times as fast as reflection and to the
// same bytes, if it has only the members that most messages of its kind have.
type fastEncoder interface {
	// appendFast reports false if the value has other members, or is invalid.
	appendFast(dst []byte) (raw []byte, ok bool)

	// sizeHint estimates how many bytes that takes.
	sizeHint() int
}

func (p *CallToolParams) appendFast(dst []byte) (_ []byte, ok bool) {
	if p == nil || !p.InputParams.isZero() || p.Task != nil {
		return nil, false
	}
	dst = append(slices.Grow(dst, p.sizeHint()), '{')
	if p.Meta != nil {
		if dst, ok = appendMeta(append(dst, `"_meta":`...), p.Meta); !ok {
			return nil, false
		}
		dst = append(dst, ',')
	}
	dst = appendString(append(dst, `"name":`...), p.Name)
	if p.Arguments != nil {
		if dst, ok = appendRaw(append(dst, `,"arguments":`...), p.Arguments); !ok {
			return nil, false
		}
	}
	return append(dst, '}'), true
}

func (p *CallToolParams) sizeHint() int {
	if p == nil {
		return 0
	}
	return 64 + p.Meta.sizeHint() + len(p.Name) + len(p.Arguments)
}

// appendFast accepts only text blocks as content.
func (r *CallToolResult) appendFast(dst []byte) (_ []byte, ok bool) {
	if r == nil || r.InputRequired != nil || r.Task != nil || len(r.Others) > 0 {
		return nil, false
	}
	dst = append(slices.Grow(dst, r.sizeHint()), '{')
	if r.Meta != nil {
		if dst, ok = appendMeta(append(dst, `"_meta":`...), r.Meta); !ok {
			return nil, false
		}
		dst = append(dst, ',')
	}
	if r.ResultType != "" {
		dst = append(appendString(append(dst, `"resultType":`...), r.ResultType), ',')
	}
	if dst, ok = r.Content.appendFast(append(dst, `"content":`...)); !ok {
		return nil, false
	}
	if r.StructuredContent != nil {
		if dst, ok = appendRaw(append(dst, `,"structuredContent":`...), r.StructuredContent); !ok {
			return nil, false
		}
	}
	if r.IsError {
		dst = append(dst, `,"isError":true`...)
	}
	return append(dst, '}'), true
}

func (r *CallToolResult) sizeHint() int {
	if r == nil {
		return 0
	}
	return 64 + r.Meta.sizeHint() + r.Content.sizeHint() + len(r.StructuredContent)
}

func (c Contents) appendFast(dst []byte) (_ []byte, ok bool) {
	dst = append(dst, '[')
	for i, block := range c {
		text, ok := block.(*TextContent)
		if !ok || !text.isPlain() {
			return nil, false
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendText(dst, text.Text)
	}
	return append(dst, ']'), true
}

// sizeHint estimates how many bytes the text takes.
func (c Contents) sizeHint() int {
	size := 0
	for _, block := range c {
		if text, ok := block.(*TextContent); ok && text != nil {
			size += len(beforeText) + len(text.Text) + len(text.Text)/8 + 8
		}
	}
	return size
}

func (t *Tool) appendFast(dst []byte) (_ []byte, ok bool) {
	if t == nil || t.InputSchema == nil || t.Annotations != nil || t.Execution != nil || t.Icons != nil || t.Meta != nil || len(t.Others) > 0 {
		return nil, false
	}
	dst = appendString(append(dst, `{"name":`...), t.Name)
	if t.Title != "" {
		dst = appendString(append(dst, `,"title":`...), t.Title)
	}
	if t.Description != "" {
		dst = appendString(append(dst, `,"description":`...), t.Description)
	}
	if dst, ok = appendRaw(append(dst, `,"inputSchema":`...), t.InputSchema); !ok {
		return nil, false
	}
	if t.OutputSchema != nil {
		if dst, ok = appendRaw(append(dst, `,"outputSchema":`...), t.OutputSchema); !ok {
			return nil, false
		}
	}
	return append(dst, '}'), true
}

// appendFast encodes by reflection the tools whose own appendFast reports false.
func (r *ListToolsResult) appendFast(dst []byte) (_ []byte, ok bool) {
	if r == nil || r.Meta != nil {
		return nil, false
	}
	dst = append(slices.Grow(dst, r.sizeHint()), '{')
	if r.ResultType != "" {
		dst = append(appendString(append(dst, `"resultType":`...), r.ResultType), ',')
	}
	if r.TTLMs != nil {
		dst = append(strconv.AppendInt(append(dst, `"ttlMs":`...), *r.TTLMs, 10), ',')
	}
	if r.CacheScope != "" {
		dst = append(appendString(append(dst, `"cacheScope":`...), r.CacheScope), ',')
	}
	dst = append(dst, `"tools":[`...)
	for i, tool := range r.Tools {
		if i > 0 {
			dst = append(dst, ',')
		}
		before := dst
		if dst, ok = tool.appendFast(dst); ok {
			continue
		}
		raw, err := json.Marshal(tool, jsontext.AllowInvalidUTF8(true))
		if err != nil {
			return nil, false
		}
		dst = append(before, raw...)
	}
	dst = append(dst, ']')
	if r.NextCursor != nil {
		dst = appendString(append(dst, `,"nextCursor":`...), *r.NextCursor)
	}
	return append(dst, '}'), true
}

func (t *Tool) sizeHint() int {
	if t == nil {
		return 0
	}
	return 80 + len(t.Name) + len(t.Title) + len(t.Description) + len(t.Description)/8 + len(t.InputSchema) + len(t.OutputSchema)
}

func (r *ListToolsResult) sizeHint() int {
	if r == nil {
		return 0
	}
	size := 256
	for _, tool := range r.Tools {
		size += tool.sizeHint()
	}
	return size
}

func appendString(dst []byte, text string) []byte { return scan.AppendQuote(dst, text) }

// appendRaw refuses invalid JSON and repeated names. JSON as encoders write it is
// copied.
func appendRaw(dst []byte, raw stdjson.RawMessage) ([]byte, bool) {
	text := scan.Unique(raw)
	if text.Value(); text.End() && text.IsCompact() {
		return append(dst, raw...), true
	}
	dst, err := jsontext.AppendFormat(dst, raw, jsontext.AllowInvalidUTF8(true))
	return dst, err == nil
}

func (m Meta) sizeHint() (size int) {
	for name, value := range m {
		size += len(name) + len(value) + 4
	}
	return size
}

// appendMeta refuses names that are not UTF-8, since two of them may become one.
func appendMeta(dst []byte, meta Meta) (_ []byte, ok bool) {
	dst = append(dst, '{')
	for name, value := range meta {
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, name), ':')
		if dst, ok = appendRaw(dst, value); !ok || !utf8.ValidString(name) {
			return nil, false
		}
	}
	return append(dst, '}'), true
}
