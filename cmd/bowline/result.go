package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/bowline-mcp/bowline/protocol"
)

// printResult prints what a tool has answered. A tool's failure is an error.
func printResult(out io.Writer, tool string, result *protocol.CallToolResult, asJSON bool) error {
	if asJSON {
		if err := printJSON(out, result); err != nil {
			return err
		}
	}
	var text bytes.Buffer
	writeResult(&text, result)
	if result.IsError {
		return &failure{status: exitToolFailed, err: fmt.Errorf("tool %q failed: %s", tool, bytes.TrimSpace(text.Bytes()))}
	}
	if asJSON {
		return nil
	}
	_, err := text.WriteTo(out)
	return err
}

// writeResult writes a result for people: the blocks, and the structured
// content when no text says the same.
func writeResult(out *bytes.Buffer, result *protocol.CallToolResult) {
	hasText := false
	for _, block := range result.Content {
		if _, ok := block.(*protocol.TextContent); ok {
			hasText = true
		}
		writeLine(out, describe(block))
	}
	if !hasText && len(result.StructuredContent) > 0 {
		writeLine(out, compact(result.StructuredContent))
	}
}

// writeLine writes text as it is, and ends its last line.
func writeLine(out *bytes.Buffer, text string) {
	out.WriteString(text)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		out.WriteByte('\n')
	}
}

// describe is a block of content in a readable form. Bytes are only counted:
// --json has them.
func describe(block protocol.Content) string {
	switch b := block.(type) {
	case *protocol.TextContent:
		return b.Text
	case *protocol.ImageContent:
		return printable(fmt.Sprintf("[image: %s, %d bytes]", b.MIMEType, len(b.Data)))
	case *protocol.AudioContent:
		return printable(fmt.Sprintf("[audio: %s, %d bytes]", b.MIMEType, len(b.Data)))
	case *protocol.EmbeddedResource:
		return describeResource(&b.Resource)
	case *protocol.ResourceLink:
		return printable(fmt.Sprintf("[resource link: %s, %s]", b.Name, b.URI))
	case *protocol.UnknownContent:
		return compact(b.Raw)
	default:
		return fmt.Sprintf("[%T]", block)
	}
}

func describeResource(r *protocol.ResourceContents) string {
	if r.Text == nil {
		return printable(fmt.Sprintf("[resource: %s, %s, %d bytes]", r.URI, r.MIMEType, len(r.Blob)))
	}
	return printable(fmt.Sprintf("[resource: %s, %s]", r.URI, r.MIMEType)) + "\n" + *r.Text
}

// compact is JSON in one line.
func compact(raw json.RawMessage) string {
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return string(raw) // it was decoded before, so this is JSON
	}
	return line.String()
}
