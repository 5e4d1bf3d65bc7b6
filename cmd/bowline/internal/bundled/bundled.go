// Package bundled is the server that comes with the command: tools that do what
// a client must be able to live with.
package bundled

import (
	"cmp"
	"context"
	"io"
	"os"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/marks"
	"github.com/bowline-mcp/bowline/protocol"
)

// Options configure the server. The zero value of each field means its default.
type Options struct {
	Version string // the version that the server reports; default: "(devel)"

	// Server configures the server. Its Instructions are those of the bundled server.
	Server server.Options

	// Log gets a line when a tool crashes the process or its call is abandoned.
	// Calls write to it concurrently. Default: os.Stderr.
	Log io.Writer

	// Garble is where the tool garble writes: the very stream that carries the
	// messages. Nil: there is no such tool.
	Garble io.Writer

	// Fixtures adds the tools, prompts and resources that the official conformance
	// suite calls.
	Fixtures bool

	// Ledger is where the tool mark writes the id of each call. Nil: there is no such tool.
	Ledger io.Writer

	// Exit ends the process for the tool crash. Default: os.Exit.
	Exit func(status int)
}

// New returns a server with the tools echo, add, slow, fail, big and crash.
func New(o Options) *server.Server {
	if o.Log == nil {
		o.Log = os.Stderr
	}
	if o.Exit == nil {
		o.Exit = os.Exit
	}
	options := o.Server
	options.Instructions = "Tools to try a client on. None of them has lasting effects; crash ends the server's process."
	if o.Fixtures {
		options.OnSubscribe = func(context.Context, string) error { return nil }
		if options.Tasks == nil {
			options.Tasks = new(server.TaskOptions)
		}
	} else {
		options.Tasks = nil // no tool would become one
	}
	s := server.New(protocol.Implementation{
		Name:    "bowline",
		Title:   "Bowline's bundled server",
		Version: cmp.Or(o.Version, "(devel)"),
	}, options)
	addTools(s, o)
	if o.Fixtures {
		addFixtures(s)
	}
	if o.Garble != nil {
		server.AddTool(s, garbleTool, o.garble)
	}
	if o.Ledger != nil {
		marks.AddTool(s, o.Ledger)
	}
	return s
}
