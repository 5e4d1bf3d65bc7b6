package main

import (
	"errors"
	"os"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/bundled"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/spf13/cobra"
)

const serveLong = `Serve a few tools to try clients on: echo, add, slow, fail, big and crash.

The server speaks MCP on standard input and output, and logs to standard error.
It ends with status 0 when its input ends, and at SIGINT or SIGTERM.`

const serveExample = `  # List the tools of this server with this command
  bowline tools --command 'bowline serve --stdio'

  # Talk to it by hand
  printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"ping"}' | bowline serve --stdio`

func newServe() *cobra.Command {
	var overStdio, faults bool
	command := &cobra.Command{
		Use:     "serve --stdio",
		Short:   "Serve a few tools to try clients on",
		Long:    serveLong,
		Example: serveExample,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !overStdio {
				return usageFailure(errors.New("say how to serve: bowline serve --stdio"))
			}
			return serve(cmd, faults)
		},
	}
	command.Flags().BoolVar(&overStdio, "stdio", false, "speak on standard input and output")
	command.Flags().BoolVar(&faults, "faults", false, "offer the tool garble, which breaks the protocol on purpose")
	return command
}

// serve ends in good order when its context does.
func serve(cmd *cobra.Command, faults bool) error {
	options := bundled.Options{Version: version(), Log: cmd.ErrOrStderr()}
	if faults {
		options.Garble = os.Stdout // before the transport takes it away from others
	}
	server := bundled.New(options)
	return server.Serve(cmd.Context(), &stdio.Server{})
}
