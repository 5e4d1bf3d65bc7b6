package mcpjson_test

import (
	"fmt"

	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A program that runs every server of a file hands each transport to
// client.Client.Start, under the name that the file gives it.
func ExampleFile_Transports() {
	file, err := mcpjson.Parse("mcp.json", []byte(`{
	  "mcpServers": {
	    "files": {"command": "npx", "args": ["-y", "server-files", "."]}, // a child process
	    "issues": {"url": "https://example.test/mcp"},
	    "search": {"url": "https://example.test/${NOT_SET_ANYWHERE}"},
	    "old": {"command": "old", "disabled": true},
	  },
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for name, t := range file.Transports() {
		switch t := t.(type) {
		case *stdio.Command:
			fmt.Println(name, "is the process", t.Path, t.Args)
		case *streamable.Client:
			fmt.Println(name, "is at", t.URL)
		case transport.Checked:
			fmt.Println(name, "cannot be used:", t.Check())
		}
	}
	// Output:
	// files is the process npx [-y server-files .]
	// issues is at https://example.test/mcp
	// search cannot be used: mcp.json:5:24: mcpServers.search.url: the environment variable NOT_SET_ANYWHERE is not set, and there is no default: set it, or write ${NOT_SET_ANYWHERE:-default}
}
