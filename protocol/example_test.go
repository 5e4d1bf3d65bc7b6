package protocol_test

import (
	"fmt"

	"github.com/bowline-mcp/bowline/protocol"
)

// A message is decoded and encoded again. Members that this package does not know are kept.
func Example() {
	var tool protocol.Tool
	err := protocol.Unmarshal([]byte(`{
		"name": "add",
		"inputSchema": {"type": "object"},
		"annotations": {"readOnlyHint": true},
		"vendor": {"price": 0.10}
	}`), &tool)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tool.Name, tool.Annotations.ReadOnlyHint, string(tool.Others["vendor"]))
	tool.Title = "Add numbers"
	raw, err := protocol.Marshal(&tool)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(raw))
	// Output:
	// add true {"price": 0.10}
	// {"name":"add","title":"Add numbers","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"vendor":{"price":0.10}}
}

// The content of a result has a Go type for each type of block.
func ExampleContents() {
	var result protocol.CallToolResult
	err := protocol.Unmarshal([]byte(`{"content": [
		{"type": "text", "text": "It rains."},
		{"type": "resource_link", "uri": "file:///radar.png", "name": "radar"},
		{"type": "hologram", "depth": 3}
	]}`), &result)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, block := range result.Content {
		switch block := block.(type) {
		case *protocol.TextContent:
			fmt.Println("text:", block.Text)
		case *protocol.ResourceLink:
			fmt.Println("link:", block.URI)
		default:
			fmt.Printf("%T\n", block)
		}
	}
	// Output:
	// text: It rains.
	// link: file:///radar.png
	// *protocol.UnknownContent
}

// MethodInfo says which revisions have a method.
func ExampleMethodInfo() {
	for _, name := range []string{protocol.MethodCallTool, protocol.MethodInitialize, "tools/invent"} {
		if method, known := protocol.MethodInfo(name); known {
			fmt.Println(name, "since", method.Since, "and in the newest revision:", method.In(protocol.Latest))
		} else {
			fmt.Println(name, "is not a method of MCP")
		}
	}
	// Output:
	// tools/call since 2024-11-05 and in the newest revision: true
	// initialize since 2024-11-05 and in the newest revision: false
	// tools/invent is not a method of MCP
}
