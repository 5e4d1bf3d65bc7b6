// Command bowline, with everything: what cmd/bowline does, and what needs large libraries.
package main

import (
	"github.com/bowline-mcp/bowline/cluster/guardian"
	"github.com/bowline-mcp/bowline/cluster/nats/embedded"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/command"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/member"
)

func main() {
	// Before anything else: this process may be the guardian of a server of which a cluster has one, and then
	// it does not go on as a command.
	guard := guardian.Start()
	command.Main(command.Extras{Traces: newTraceExporter, Trails: sendTrail, Cluster: member.Engines{Open: joinEngine, Running: embedded.Running, Guardian: guard}})
}
