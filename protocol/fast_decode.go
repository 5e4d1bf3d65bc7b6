package protocol

import (
	"bytes"
	stdjson "encoding/json"
	"strconv"

	"github.com/bowline-mcp/bowline/internal/scan"
)

// A fastDecoder decodes itself, in one pass and to the same value as by reflection, if
// the text has only the members that most messages of its kind have.
type fastDecoder interface {
	// decodeFast reports false, and changes nothing, if it leaves the text to reflection.
	decodeFast(raw []byte) (ok bool)
}

func (p *CallToolParams) decodeFast(raw []byte) bool {
	read := *p
	text := scan.Unique(raw)
	for name := range text.Members {
		switch string(name) {
		case "_meta":
			read.Meta = readMeta(&text)
		case "name":
			read.Name = text.String()
		case "arguments":
			read.Arguments = readObject(&text, len(raw))
		default:
			text.Fail()
		}
	}
	if !text.End() {
		return false
	}
	*p = read
	return true
}

// decodeFast accepts only text blocks as content.
func (r *CallToolResult) decodeFast(raw []byte) bool {
	read := *r
	text := scan.Unique(raw)
	for name := range text.Members {
		switch string(name) {
		case "_meta":
			read.Meta = readMeta(&text)
		case "resultType":
			read.ResultType = readType(&text)
		case "content":
			read.Content = readContent(&text)
		case "structuredContent":
			read.StructuredContent = readRawShared(&text, len(raw))
		case "isError":
			read.IsError = text.Bool()
		default:
			text.Fail()
		}
	}
	if !text.End() {
		return false
	}
	*r = read
	return true
}

func (r *ListToolsResult) decodeFast(raw []byte) bool {
	read := *r
	text := scan.Unique(raw)
	for name := range text.Members {
		switch string(name) {
		case "_meta":
			read.Meta = readMeta(&text)
		case "resultType":
			read.ResultType = readType(&text)
		case "ttlMs":
			read.TTLMs = readInteger(&text)
		case "cacheScope":
			read.CacheScope = text.String()
		case "tools":
			read.Tools = readTools(&text)
		case "nextCursor":
			cursor := text.String()
			read.NextCursor = &cursor
		default:
			text.Fail()
		}
	}
	if !text.End() {
		return false
	}
	*r = read
	return true
}

func readTools(text *scan.Text) Tools {
	tools := Tools{}
	for range text.Elements {
		if len(tools) == MaxPageTools {
			text.Fail()
		}
		tools = append(tools, readTool(text))
	}
	return tools
}

func readTool(text *scan.Text) *Tool {
	tool := new(Tool)
	for name := range text.Members {
		switch string(name) {
		case "name":
			tool.Name = text.String()
		case "title":
			tool.Title = text.String()
		case "description":
			tool.Description = text.String()
		case "inputSchema":
			tool.InputSchema = readRaw(text)
		case "outputSchema":
			tool.OutputSchema = readRaw(text)
		case "annotations":
			tool.Annotations = readAnnotations(text)
		case "_meta":
			tool.Meta = readMeta(text)
		default:
			text.Fail()
		}
	}
	return tool
}

func readAnnotations(text *scan.Text) *ToolAnnotations {
	hints := new(ToolAnnotations)
	for name := range text.Members {
		switch string(name) {
		case "title":
			hints.Title = text.String()
		case "readOnlyHint":
			hints.ReadOnlyHint = text.Bool()
		case "destructiveHint":
			hints.DestructiveHint = new(bool)
			*hints.DestructiveHint = text.Bool()
		case "idempotentHint":
			hints.IdempotentHint = text.Bool()
		case "openWorldHint":
			hints.OpenWorldHint = new(bool)
			*hints.OpenWorldHint = text.Bool()
		default:
			text.Fail()
		}
	}
	return hints
}

func readContent(text *scan.Text) Contents {
	blocks, block := Contents{}, (*TextContent)(nil)
	for range text.Elements {
		switch len(blocks) {
		case 0:
			blocks, block = oneText()
		case MaxBlocks:
			text.Fail()
		default:
			block = new(TextContent)
			blocks = append(blocks, block)
		}
		readTextContent(text, block)
	}
	return blocks
}

func readTextContent(text *scan.Text, block *TextContent) {
	typed := false
	for name := range text.Members {
		switch string(name) {
		case "type":
			typed = string(text.Value()) == `"text"`
		case "text":
			block.Text = text.String()
		default:
			text.Fail()
		}
	}
	if !typed {
		text.Fail()
	}
}

func readMeta(text *scan.Text) Meta {
	meta := Meta{}
	for name := range text.Members {
		switch string(name) {
		case MetaServerInfo: // of every modern result
			meta[MetaServerInfo] = readRaw(text)
		case MetaTraceparent: // of every request that is traced
			meta[MetaTraceparent] = readRaw(text)
		default:
			meta[string(name)] = readRaw(text)
		}
	}
	return meta
}

// readType reads a result type, which most often is ResultComplete.
func readType(text *scan.Text) string {
	if resultType := text.String(); resultType != ResultComplete {
		return resultType
	}
	return ResultComplete
}

// readInteger reads a short integer without fraction and exponent.
func readInteger(text *scan.Text) *int64 {
	n, err := strconv.ParseInt(string(text.Value()), 10, 64)
	if err != nil {
		text.Fail()
	}
	return &n
}

func readObject(text *scan.Text, whole int) stdjson.RawMessage {
	if text.Kind() != '{' {
		text.Fail()
	}
	return readRawShared(text, whole)
}

// readRawShared is readRaw, but does not copy what is at least half of the whole: to keep
// that alive costs less.
func readRawShared(text *scan.Text, whole int) stdjson.RawMessage {
	if text.Kind() == 'n' {
		text.Fail()
	}
	value := text.Value()
	if len(value) < whole/2 {
		return bytes.Clone(value)
	}
	return value
}

// readRaw copies a value other than null, which in many places means none.
func readRaw(text *scan.Text) stdjson.RawMessage {
	if text.Kind() == 'n' {
		text.Fail()
	}
	return bytes.Clone(text.Value())
}
