package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/spf13/cobra"
)

// endGrace is how long a server has to end after its input was closed.
const endGrace = 2 * time.Second

// A target is the server to talk to, as flags describe it.
type target struct {
	command     string
	url         string
	headers     []string
	configPath  string // of an mcp.json
	name        string // of the entry in it
	env         []string
	dir         string
	timeout     time.Duration // 0: none
	initTimeout time.Duration
	verbose     bool
}

func (t *target) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&t.command, "command", "", "`command` that starts the server: split into words as a shell does, but nothing is expanded")
	flags.StringVar(&t.url, "url", "", "`URL` of a server that is reached over HTTP")
	flags.StringArrayVar(&t.headers, "header", nil, "send `NAME:VALUE` with every HTTP request, for instance 'Authorization: Bearer ...' (repeatable)")
	flags.StringVar(&t.configPath, "mcp-config", "", "mcp.json `file` that has the server")
	flags.StringVar(&t.name, "server", "", "`name` of the server in the mcp.json")
	flags.StringArrayVar(&t.env, "env", nil, "add `NAME=VALUE` to the server's environment (repeatable)")
	flags.StringVar(&t.dir, "cwd", "", "`directory` to start the server in")
	flags.DurationVar(&t.timeout, "timeout", time.Minute, "how long to wait for answers once the session is ready; 0 for ever")
	flags.DurationVar(&t.initTimeout, "init-timeout", time.Minute, "how long to wait for the session to be ready")
	flags.BoolVar(&t.verbose, "verbose", false, "show what the server writes to standard error")
	if err := command.RegisterFlagCompletionFunc("server", t.completeServer); err != nil {
		panic(err) // the flag stands above
	}
}

// talk has a conversation with the server, and ends the server after it.
func (t *target) talk(cmd *cobra.Command, conversation func(context.Context, *client.Session) error) error {
	server, err := t.endpoint(cmd)
	if err != nil {
		return usageFailure(err)
	}
	session, err := t.connect(cmd.Context(), server)
	if err != nil {
		return &failure{status: exitNoSession, err: err}
	}
	defer end(cmd, session)
	ctx, cancel := t.bound(cmd.Context())
	defer cancel()
	return explainCall(conversation(ctx, session))
}

func (t *target) check() error {
	for _, variable := range t.env {
		if strings.Index(variable, "=") < 1 {
			return fmt.Errorf("--env %q is not NAME=VALUE", variable)
		}
	}
	if info, err := os.Stat(cmp.Or(t.dir, ".")); err != nil || !info.IsDir() {
		return fmt.Errorf("--cwd %q is not a directory", t.dir)
	}
	if t.timeout < 0 || t.initTimeout <= 0 {
		return errors.New("--timeout must not be negative, and --init-timeout must be above zero")
	}
	return nil
}

func (t *target) connect(ctx context.Context, server *endpoint) (*client.Session, error) {
	garbage := new(garbage)
	options := client.Options{
		FailFast: true,
		Conn: conn.Options{
			Name:        server.name,
			InitTimeout: t.initTimeout,
			Liveness:    -1, // whoever waits at a terminal decides, and a server may be busy with the call
			Hooks:       telemetry.Hooks{Violation: garbage.add},
		},
	}
	session, err := client.New(protocol.Implementation{Name: "bowline", Version: version()}, options).Connect(ctx, server)
	if err != nil {
		return nil, explainConnect(err, server, t.initTimeout, garbage)
	}
	return session.With(client.CallOptions{Timeout: -1}), nil // the context bounds calls
}

// bound ends the conversation at its timeout.
func (t *target) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, t.timeout, fmt.Errorf("no answer within --timeout %v", t.timeout))
}

// end closes the session even when the command was interrupted. What goes
// wrong now does not change how the conversation went.
func end(cmd *cobra.Command, session *client.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), endGrace)
	defer cancel()
	if err := session.Close(ctx); err != nil {
		cmd.PrintErrln("bowline: warning: the server has not ended in good order: " + printable(err.Error()))
	}
}
