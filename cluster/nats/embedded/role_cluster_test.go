//go:build unix && cluster

package embedded

import (
	"github.com/bowline-mcp/bowline/cluster/guardian"
	"github.com/bowline-mcp/bowline/internal/locked"
)

// playRole does not return in a process that a test has started.
func playRole() {
	guard := guardian.Start()
	locked.Play()
	playNode(guard)
}
