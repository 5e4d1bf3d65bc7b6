package protocol_test

import (
	"encoding/json"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

// Icons and annotations may not push a page to reflection.
func BenchmarkPages(b *testing.B) {
	icons := []protocol.Icon{{Source: "https://example.com/a.png", MIMEType: "image/png", Sizes: []string{"48x48"}}}
	plain, withIcons := new(protocol.ListToolsResult), new(protocol.ListToolsResult)
	resources := new(protocol.ListResourcesResult)
	for range 100 {
		tool := protocol.Tool{Name: "add", Title: "Add", Description: "adds two numbers", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"number"}}}`)}
		plain.Tools = append(plain.Tools, &tool)
		drawn := tool
		drawn.Icons = icons
		withIcons.Tools = append(withIcons.Tools, &drawn)
		resources.Resources = append(resources.Resources, &protocol.Resource{
			URI: "file:///a", Name: "a", MIMEType: "text/plain", Annotations: &protocol.Annotations{Audience: []protocol.Role{protocol.RoleUser}},
		})
	}
	b.Run("decode tools", func(b *testing.B) { benchmarkDecode[protocol.ListToolsResult](b, plain) })
	b.Run("decode tools with icons", func(b *testing.B) { benchmarkDecode[protocol.ListToolsResult](b, withIcons) })
	b.Run("decode resources", func(b *testing.B) { benchmarkDecode[protocol.ListResourcesResult](b, resources) })
	b.Run("encode tools", func(b *testing.B) { benchmarkEncode(b, plain) })
	b.Run("encode tools with icons", func(b *testing.B) { benchmarkEncode(b, withIcons) })
	b.Run("encode resources", func(b *testing.B) { benchmarkEncode(b, resources) })
}
