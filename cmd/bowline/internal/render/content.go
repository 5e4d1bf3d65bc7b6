package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
)

// WriteResult writes a result for people: the blocks, and the structured
// content if there is no text.
func WriteResult(out *bytes.Buffer, result *protocol.CallToolResult) {
	hasText := false
	for _, block := range result.Content {
		if _, ok := block.(*protocol.TextContent); ok {
			hasText = true
		}
		WriteLine(out, Content(block))
	}
	if !hasText && len(result.StructuredContent) > 0 {
		WriteLine(out, Compact(result.StructuredContent))
	}
}

// WriteLine writes text unchanged, and adds a line break if the text does not
// end with one.
func WriteLine(out *bytes.Buffer, text string) {
	out.WriteString(text)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		out.WriteByte('\n')
	}
}

// Content returns a block of content in a readable form. Bytes are only
// counted: --json has them.
func Content(block protocol.Content) string {
	switch b := block.(type) {
	case *protocol.TextContent:
		return b.Text
	case *protocol.ImageContent:
		return Flat(fmt.Sprintf("[image: %s, %d bytes]", b.MIMEType, len(b.Data)))
	case *protocol.AudioContent:
		return Flat(fmt.Sprintf("[audio: %s, %d bytes]", b.MIMEType, len(b.Data)))
	case *protocol.EmbeddedResource:
		return Resource(&b.Resource)
	case *protocol.ResourceLink:
		return Flat(fmt.Sprintf("[resource link: %s, %s]", b.Name, b.URI))
	case *protocol.UnknownContent:
		return Compact(b.Raw)
	default:
		return fmt.Sprintf("[%T]", block)
	}
}

// Resource returns the contents of a resource in a readable form.
func Resource(r *protocol.ResourceContents) string {
	if r.Text == nil {
		return Flat(fmt.Sprintf("[resource: %s, %s, %d bytes]", r.URI, r.MIMEType, len(r.Blob)))
	}
	return Flat(fmt.Sprintf("[resource: %s, %s]", r.URI, r.MIMEType)) + "\n" + *r.Text
}

// Compact returns JSON in one line.
func Compact(raw json.RawMessage) string {
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return string(raw) // it was decoded before, so it is valid JSON
	}
	return line.String()
}

// JSON prints one document, indented.
func JSON(out io.Writer, value any) error {
	raw, err := protocol.Marshal(value)
	if err != nil {
		return err
	}
	var document bytes.Buffer
	if err := json.Indent(&document, raw, "", "  "); err != nil {
		return err
	}
	_, err = io.WriteString(out, withoutTricks(document.String())+"\n")
	return err
}

// withoutTricks escapes what could drive a terminal. In JSON it is in texts only, and means the same to a program.
func withoutTricks(document string) string {
	var out strings.Builder
	for _, c := range document {
		if c != '\n' && isTrick(c) {
			fmt.Fprintf(&out, `\u%04x`, c)
			continue
		}
		out.WriteRune(c)
	}
	return out.String()
}

// Row writes a row of a table: one line, whatever the peer says.
func Row(table io.Writer, name, about string) {
	fmt.Fprintf(table, "%s\t%s\n", Line(name), Line(about))
}
