//go:build unix

package cluster_test

import "github.com/bowline-mcp/bowline/internal/locked"

// playRole does not return in a process that is a server of a test.
func playRole() { locked.Play() }
