package connect

import (
	"cmp"
	"context"
	"errors"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/ask"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/redact"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/spf13/cobra"
)

// A Target is the server that a command uses.
type Target struct {
	Flags

	Lasting      bool // the session continues when its server is lost
	timeoutGiven bool // the file of servers has set the timeout
	OnEvent      func(context.Context, *client.Session, client.Event)

	User    *ask.User
	secrets redact.Secrets // secrets that no message may show

	login    Login
	auth     *mcpjson.Auth // the auth block of the entry; nil if it has none
	ShownURL string        // the URL to show for a server over HTTP
}

// An Endpoint is a way to reach a server, and what to call the server.
type Endpoint struct {
	transport.Transport
	Name          string
	Remote        bool // the server is reached over HTTP, and not started by this command
	authenticated bool // a header of the user authenticates the requests
	login         *auth.Authorizer
	personal      bool // only a person can log in, with bowline login
}

// Reach is Endpoint with errors that may be shown: a status that an error has stays, and no other shows a
// credential.
func (t *Target) Reach(cmd *cobra.Command) (*Endpoint, error) {
	server, err := t.Endpoint(cmd)
	if err != nil && !errors.As(err, new(*process.Failure)) {
		err = process.Usage(errors.New(t.Redact(err.Error())))
	}
	return server, err
}

// Endpoint checks the flags, and returns how to reach the server.
func (t *Target) Endpoint(cmd *cobra.Command) (*Endpoint, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	flags := cmd.Flags()
	switch command, remote := flags.Changed("command"), flags.Changed("url"); {
	case command && remote:
		return nil, errors.New("--command and --url cannot be used together: the first starts a server, the second connects to one")
	case (command || remote) && (t.ConfigPath != "" || t.Name != ""):
		return nil, errors.New("--mcp-config and --server cannot be used with --command or --url")
	case remote:
		return t.remote(cmd, &streamable.Client{URL: t.URL})
	case command:
		words, err := split(t.Command)
		if err != nil {
			return nil, err
		}
		return t.process(cmd, &stdio.Command{Path: words[0], Args: words[1:]})
	default:
		return t.configured(cmd)
	}
}

// process completes a server that the command starts.
func (t *Target) process(cmd *cobra.Command, server *stdio.Command) (*Endpoint, error) {
	if len(t.headers) > 0 || t.authorities != "" || t.insecure {
		return nil, errors.New("--header, --cacert and --insecure are only for a server over HTTP")
	}
	server.Env = append(server.Env, t.env...)
	server.Dir = cmp.Or(t.dir, server.Dir)
	if t.verbose {
		server.Stderr = render.ServerLog(cmd.ErrOrStderr())
	}
	return &Endpoint{Transport: server, Name: server.Path}, nil
}

// Redact replaces the credentials of the user in a text.
func (t *Target) Redact(text string) string { return t.secrets.Redact(text) }
