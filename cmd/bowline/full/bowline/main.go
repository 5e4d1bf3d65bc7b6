// Command bowline, with everything: what cmd/bowline does, and what needs large libraries.
package main

import (
	"github.com/bowline-mcp/bowline/cluster/nats/embedded"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/command"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/member"
)

func main() {
	command.Main(command.Extras{Traces: newTraceExporter, Cluster: member.Engines{Open: joinEngine, Running: embedded.Running}})
}
