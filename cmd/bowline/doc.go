// Command bowline lists and calls the tools of MCP servers, and is a small MCP
// server itself. `bowline --help` says how.
package main
