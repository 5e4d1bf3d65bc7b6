package main

import (
	"context"
	"os"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/fleet"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/marks"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A child is one server of the soak.
type child struct {
	fleet.Member
	fleet.Process
	command stdio.Command
}

// back reports whether the process that was killed was replaced. No more are killed when it is asked.
func (c *child) back(uint64) bool { return c.Replaced() }

// These variables are in the environment of a child process.
const (
	executedVariable = "BOWLINE_FLEET_EXECUTED" // the file that it writes to; set in children only
	markVariable     = "BOWLINE_FLEET_RUN"      // the run that the process belongs to
)

// isChild reports whether this process runs as a server for another one.
func isChild() bool { return os.Getenv(executedVariable) != "" }

// serveChild serves on standard input and output until the input ends. It writes down what it executes.
func serveChild(ctx context.Context) error {
	executed, err := marks.Open(os.Getenv(executedVariable))
	if err != nil {
		return err
	}
	defer executed.Close()
	s := server.New(protocol.Implementation{Name: "fleet", Version: "1"}, server.Options{})
	marks.AddTool(s, executed)
	return s.Serve(ctx, &stdio.Server{})
}
