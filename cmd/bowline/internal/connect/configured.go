package connect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/consent"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/spf13/cobra"
)

// config reads the file that the flags mean.
func (f *Flags) config(ctx context.Context) (*mcpjson.File, error) {
	path := f.ConfigPath
	if path == "" {
		found, ok := mcpjson.Find(".")
		if !ok {
			return nil, errors.New("no server given: start one with --command, for example --command 'bowline serve --stdio', connect to one with --url, or name an mcp.json with --mcp-config")
		}
		path = found
	}
	return process.Await(ctx, func() (*mcpjson.File, error) { return mcpjson.Load(path) })
}

// choose returns the name of the entry that --server means, or of the only one.
func (f *Flags) choose(file *mcpjson.File) (string, error) {
	if f.Name != "" {
		return f.Name, nil
	}
	switch names := file.Names(); len(names) {
	case 0:
		return "", fmt.Errorf("%s has no enabled server", file.Path)
	case 1:
		return names[0], nil
	default:
		return "", fmt.Errorf("%s has several servers: choose one with --server: %s", file.Path, render.Flat(strings.Join(names, ", ")))
	}
}

// configured returns the entry of the mcp.json that the flags select. Flags
// take precedence over the file.
func (t *Target) configured(cmd *cobra.Command) (*Endpoint, error) {
	ctx := cmd.Context()
	file, err := t.config(ctx)
	if err != nil {
		return nil, err
	}
	name, err := t.choose(file)
	if err != nil {
		return nil, err
	}
	if t.ConfigPath == "" {
		if err := consent.Agree(ctx, t.User, file.Path, file.Text()); err != nil {
			return nil, err
		}
		cmd.PrintErrln(render.Message("using " + file.Path))
	}
	server, err := t.entry(cmd, file, name)
	if err != nil {
		return nil, err
	}
	return t.with(cmd, server.Transport)
}

// with completes what a file says of a server by what the flags say.
func (t *Target) with(cmd *cobra.Command, server transport.Transport) (*Endpoint, error) {
	switch server := server.(type) {
	case *streamable.Client:
		return t.remote(cmd, server)
	case *sse.Client:
		return t.remoteSSE(cmd, server)
	default:
		return t.process(cmd, server.(*stdio.Command))
	}
}

// entry reads an entry of a file. It asks for the inputs that the entry needs; what the user types as a
// password is a secret from then on.
func (t *Target) entry(cmd *cobra.Command, file *mcpjson.File, name string) (*mcpjson.Server, error) {
	file.Ask = func(in mcpjson.Input) (string, error) {
		answer, err := t.User.Input(cmd.Context(), in)
		if in.Password {
			t.secrets = append(t.secrets, answer)
		}
		return answer, err
	}
	server, err := file.Server(name)
	if err != nil {
		return nil, err
	}
	for _, notice := range server.Notices {
		cmd.PrintErrln(render.Message(render.Flat(notice)))
	}
	t.Name = name
	t.take(cmd, server)
	return server, nil
}

// take takes the timeouts of an entry, unless flags set them, and its login.
func (t *Target) take(cmd *cobra.Command, server *mcpjson.Server) {
	flags := cmd.Flags()
	if server.Timeout > 0 && !t.Lasting && !flags.Changed("timeout") {
		t.Timeout, t.timeoutGiven = server.Timeout, true
	}
	if server.InitTimeout > 0 && !flags.Changed("init-timeout") {
		t.initTimeout = server.InitTimeout
	}
	if t.auth = server.Settings.Auth; t.auth != nil {
		t.secrets = append(t.secrets, t.auth.ClientSecret)
	}
}

// completeServer completes --server from the file that the flags mean.
func (f *Flags) completeServer(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	file, err := f.config(cmd.Context())
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil, cobra.ShellCompDirectiveError
	}
	var completions []cobra.Completion
	for _, name := range file.Names() {
		completions = render.AppendCompletion(completions, name, "")
	}
	return completions, cobra.ShellCompDirectiveNoFileComp
}
