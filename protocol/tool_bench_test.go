package protocol_test

import (
	"encoding/json"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

// These benchmarks measure the encoding and decoding of one call and of one page.
func BenchmarkTools(b *testing.B) {
	tool := &protocol.Tool{
		Name: "add", Title: "Add", Description: "adds two numbers",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}}}`),
		Annotations: &protocol.ToolAnnotations{ReadOnlyHint: true},
	}
	page := protocol.ListToolsResult{Tools: make([]*protocol.Tool, 1000)}
	for i := range page.Tools {
		page.Tools[i] = tool
	}
	result := protocol.CallToolResult{Content: protocol.Contents{&protocol.TextContent{Text: "5"}}, StructuredContent: json.RawMessage(`{"sum":5}`)}
	b.Run("encode result", func(b *testing.B) { benchmarkEncode(b, result) })
	b.Run("decode result", func(b *testing.B) { benchmarkDecode[protocol.CallToolResult](b, result) })
	b.Run("encode 1000 tools", func(b *testing.B) { benchmarkEncode(b, page) })
	b.Run("decode 1000 tools", func(b *testing.B) { benchmarkDecode[protocol.ListToolsResult](b, page) })
}

func benchmarkEncode(b *testing.B, value any) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := protocol.Marshal(value); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkDecode[T any](b *testing.B, value any) {
	raw, err := protocol.Marshal(value)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := protocol.Unmarshal(raw, new(T)); err != nil {
			b.Fatal(err)
		}
	}
}
