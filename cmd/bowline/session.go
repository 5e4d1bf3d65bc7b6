package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/spf13/cobra"
)

const (
	endGrace           = 2 * time.Second  // for a server to end after its input was closed
	completionPatience = 10 * time.Second // for a shell that waits for names
)

// A visit is one conversation with a server.
type visit struct {
	session *client.Session
	out     io.Writer // for results
	err     io.Writer // for progress
	json    bool
}

// A conversation talks to a server until it has what it wants, and prints it.
type conversation func(ctx context.Context, v *visit) error

// A lookup finds the names that complete an argument in a shell.
type lookup func(ctx context.Context, session *client.Session) ([]cobra.Completion, error)

// talking completes a command that talks to one server. Prepare checks the
// arguments before there is a server. Names completes the first argument; nil:
// nothing does.
func talking(command *cobra.Command, names lookup, prepare func(cmd *cobra.Command, args []string) (conversation, error)) *cobra.Command {
	return new(target).talking(command, names, prepare)
}

func (server *target) talking(command *cobra.Command, names lookup, prepare func(cmd *cobra.Command, args []string) (conversation, error)) *cobra.Command {
	var asJSON bool
	command.Long += "\n\n" + configHelp
	command.RunE = func(cmd *cobra.Command, args []string) error {
		talk, err := prepare(cmd, args)
		if err != nil {
			return usageFailure(err)
		}
		return server.visit(cmd, func(ctx context.Context, v *visit) error {
			v.json = asJSON
			return talk(ctx, v)
		})
	}
	command.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if names == nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return server.complete(cmd, names)
	}
	server.addFlags(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print the whole answer as one JSON document")
	return command
}

// complete finds names when flags say which server to ask. It starts none
// because a file happens to be in the working directory.
func (t *target) complete(cmd *cobra.Command, names lookup) (found []cobra.Completion, directive cobra.ShellCompDirective) {
	if t.command == "" && t.url == "" && t.configPath == "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	t.timeout, t.initTimeout = completionPatience, completionPatience
	err := t.visit(cmd, func(ctx context.Context, v *visit) (err error) {
		found, err = names(ctx, v.session)
		return err
	})
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil, cobra.ShellCompDirectiveError
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// visit has a conversation with the server, and ends the session after it. No
// error shows credentials of ours.
func (t *target) visit(cmd *cobra.Command, talk conversation) error {
	t.user = newUser(cmd.InOrStdin(), cmd.ErrOrStderr())
	server, err := t.endpoint(cmd)
	if errors.As(err, new(*failure)) {
		return err
	}
	if err != nil {
		return usageFailure(errors.New(t.redact(err.Error())))
	}
	if server.login != nil {
		defer server.login.Close()
	}
	record, err := t.openRecord(cmd.Context(), cmd.ErrOrStderr())
	if err != nil {
		return usageFailure(err)
	}
	if record != nil {
		server.Transport = record.of(server.Transport)
		defer record.close(cmd)
	}
	session, err := t.connect(cmd, server)
	if err != nil {
		return &failure{status: exitNoSession, err: &explained{t.redact(err.Error()), err}}
	}
	defer t.end(cmd, session)
	ctx, cancel := t.user.patience.bound(cmd.Context(), t.timeout)
	defer cancel()
	if server := session.Server(); t.logLevel != "" && !t.lasting && server.Capabilities.Has("logging") {
		err = session.SetLogLevel(ctx, protocol.LogLevel(t.logLevel)) // before the first call, whose beginning is logged too
	}
	if err == nil {
		err = talk(ctx, &visit{session: session, out: screen(cmd.OutOrStdout()), err: cmd.ErrOrStderr()})
	}
	if err != nil && isLoginMissing(err) {
		err = &explained{explainCall(err).Error() + "\n" + t.adviceLogin(), err}
		return &failure{status: exitNoSession, err: &explained{t.redact(err.Error()), err}}
	}
	if err != nil {
		err = explainCall(err)
		return &explained{t.redact(err.Error()), err}
	}
	return nil
}

func (t *target) connect(cmd *cobra.Command, server *endpoint) (*client.Session, error) {
	garbage := new(garbage)
	if t.onEvent == nil && t.logLevel != "" {
		t.onEvent = logTo(cmd.ErrOrStderr(), func(m *client.LogMessage) string { return "log " + logLine(m) })
	}
	var connected atomic.Bool     // a session that lasts is given up only before that
	liveness := time.Duration(-1) // whoever waits at a terminal decides, and a server may be busy with the call
	if t.lasting {
		liveness = 0
	}
	options := client.Options{
		FailFast:        !t.lasting,
		LogLevel:        protocol.LogLevel(t.logLevel),
		OnEvent:         t.onEvent,
		ProtocolVersion: t.revision,
		Elicit:          t.user.elicit,
		ElicitURL:       t.user.elicitURL,
		Tasks:           true,
		Conn: conn.Options{
			Name:        server.name,
			InitTimeout: t.initTimeout,
			Liveness:    liveness,
			Final:       func(conn.Reason) bool { return !connected.Load() },
			Hooks:       telemetry.Hooks{Violation: garbage.add},
			Log:         slog.New(slog.DiscardHandler), // the command says itself what failed
		},
	}
	session, err := client.New(protocol.Implementation{Name: "bowline", Version: version()}, options).Connect(cmd.Context(), server)
	if err != nil {
		explanation := explainConnect(err, server, t.initTimeout, garbage)
		if isLoginMissing(err) {
			explanation = &explained{explanation.Error() + "\n" + t.adviceLogin(), err}
		}
		return nil, explanation
	}
	connected.Store(true)
	return session.With(client.CallOptions{Timeout: -1}), nil // the context bounds calls
}

// A patience ends a conversation when the server has had its time. While the
// user is asked, the time stands still.
type patience struct {
	mu    sync.Mutex
	left  time.Duration
	since time.Time   // when the timer was started last
	timer *time.Timer // nil: there is no limit
}

// bound returns a context that ends at the timeout, unless the timeout is zero.
func (p *patience) bound(parent context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	p.mu.Lock()
	defer p.mu.Unlock()
	if timeout > 0 {
		p.left, p.since = timeout, time.Now()
		p.timer = time.AfterFunc(timeout, func() { cancel(patienceEnded(timeout)) })
	}
	return ctx, func() {
		p.pause()
		cancel(nil)
	}
}

func (p *patience) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil && p.timer.Stop() {
		p.left -= time.Since(p.since)
	}
}

func (p *patience) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.since = time.Now()
		p.timer.Reset(p.left)
	}
}

// patienceEnded is why a conversation is over that took longer than --timeout.
type patienceEnded time.Duration

func (p patienceEnded) Error() string {
	return fmt.Sprintf("no answer within --timeout %v", time.Duration(p))
}

// end closes the session even when the command was interrupted. What goes wrong
// now does not change how the conversation went.
func (t *target) end(cmd *cobra.Command, session *client.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), endGrace)
	defer cancel()
	if err := session.Close(ctx); err != nil {
		cmd.PrintErrln(message(t.redact("warning: the server did not end properly: " + err.Error())))
	}
}
