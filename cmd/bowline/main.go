// Command bowline talks to MCP servers from a terminal or a script: it lists and
// calls tools, reads resources, gets prompts and inspects servers. It is also a
// small MCP server itself. `bowline --help` explains it with examples. The command in
// cmd/bowline/full/bowline can do more, and takes longer to download and to build.
package main

import "github.com/bowline-mcp/bowline/cmd/bowline/internal/command"

func main() { command.Main(command.Extras{}) }
