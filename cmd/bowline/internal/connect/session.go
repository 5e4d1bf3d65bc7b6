// Package connect goes from flags to a session: which server is meant, by --command, --url or an
// mcp.json, how it is reached, with which headers and login, and what is said if it cannot be. A
// command is an Action on the session.
//
// An Action runs on the goroutine of the command; questions of the server and its log messages come on
// goroutines of the client. No error that leaves this package shows a credential of the user.
package connect

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/ask"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/spf13/cobra"
)

// completionTimeout is how long a shell waits for names.
const completionTimeout = 10 * time.Second

// A Run is one use of a session by a command.
type Run struct {
	Session *client.Session
	Out     io.Writer // for results
	Err     io.Writer // for progress
	JSON    bool
	Limit   *ask.Timeout // --timeout
}

// Print prints a document with --json, and otherwise the table that text writes.
func (r *Run) Print(document any, text func(table io.Writer)) error {
	if r.JSON {
		return render.JSON(r.Out, document)
	}
	table := tabwriter.NewWriter(r.Out, 0, 0, 2, ' ', 0)
	text(table)
	return table.Flush()
}

// An Action asks the server for what a command wants, and prints it.
type Action func(ctx context.Context, r *Run) error

// A Lookup finds what completes an argument in a shell. It gets the arguments before that one, and
// what is typed of it.
type Lookup func(ctx context.Context, session *client.Session, args []string, typed string) ([]cobra.Completion, error)

// WithServer completes a command that uses one server. Prepare checks the
// arguments before there is a server. Names completes arguments; nil: nothing does.
func WithServer(command *cobra.Command, names Lookup, prepare func(cmd *cobra.Command, args []string) (Action, error)) *cobra.Command {
	return new(Target).WithServer(command, names, prepare)
}

// WithServer is the function WithServer for a target that the command looks at, too.
func (server *Target) WithServer(command *cobra.Command, names Lookup, prepare func(cmd *cobra.Command, args []string) (Action, error)) *cobra.Command {
	var asJSON bool
	command.Long += "\n\n" + ConfigHelp
	command.RunE = func(cmd *cobra.Command, args []string) error {
		do, err := prepare(cmd, args)
		if err != nil {
			return process.Usage(err)
		}
		return server.run(cmd, func(ctx context.Context, r *Run) error {
			r.JSON = asJSON
			return do(ctx, r)
		})
	}
	command.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return server.complete(cmd, names, args, typed)
	}
	server.Add(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print the whole answer as one JSON document")
	return command
}

// complete finds names when flags say which server to ask. It does not start
// a server only because of a file in the working directory.
func (t *Target) complete(cmd *cobra.Command, names Lookup, args []string, typed string) (found []cobra.Completion, directive cobra.ShellCompDirective) {
	if names == nil || t.Command == "" && t.URL == "" && t.ConfigPath == "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	t.Timeout, t.initTimeout = completionTimeout, completionTimeout
	err := t.run(cmd, func(ctx context.Context, r *Run) (err error) {
		found, err = names(ctx, r.Session, args, typed)
		return err
	})
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil, cobra.ShellCompDirectiveError
	}
	isKey := func(one cobra.Completion) bool {
		name, _, _ := strings.Cut(one, "\t")
		return strings.HasSuffix(name, "=")
	}
	if slices.ContainsFunc(found, isKey) {
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace // its value follows
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// run opens a session with the server, does the action, and ends the session. No
// error shows the credentials of the user.
func (t *Target) run(cmd *cobra.Command, do Action) error {
	t.User = ask.New(cmd.InOrStdin(), cmd.ErrOrStderr())
	server, err := t.Reach(cmd)
	if err != nil {
		return err
	}
	if server.login != nil {
		defer server.login.Close()
	}
	record, err := t.OpenRecord(cmd.Context(), cmd.ErrOrStderr())
	if err != nil {
		return process.Usage(err)
	}
	server.Transport = record.Tap(server.Transport)
	defer record.Close(cmd)
	session, err := t.connect(cmd, server)
	if err != nil {
		return &process.Failure{Status: process.ExitNoSession, Err: process.Explain(t.Redact(err.Error()), err)}
	}
	defer t.end(cmd, session)
	return t.failed(t.use(cmd, session, do))
}

// use does the action within --timeout.
func (t *Target) use(cmd *cobra.Command, session *client.Session, do Action) error {
	t.User.Limit.Given = t.timeoutGiven || cmd.Flags().Changed("timeout")
	ctx, cancel := t.User.Limit.Bound(cmd.Context(), t.Timeout)
	defer cancel()
	if server := session.Server(); t.LogLevel != "" && !t.Lasting && server.Capabilities.Has("logging") {
		// Before the first call, whose beginning is logged too.
		if err := session.SetLogLevel(ctx, protocol.LogLevel(t.LogLevel)); err != nil {
			return err
		}
	}
	return t.do(ctx, do, &Run{Session: session, Out: render.Writer(cmd.OutOrStdout()), Err: cmd.ErrOrStderr(), Limit: &t.User.Limit})
}

// failed gives an error of an action its text and its exit status. A status that the error has
// already stays.
func (t *Target) failed(err error) error {
	switch {
	case err == nil:
		return nil
	case isLoginMissing(err):
		err = process.Explain(explainCall(err).Error()+"\n"+t.adviceLogin(t.ShownURL), err)
		return &process.Failure{Status: process.ExitNoSession, Err: process.Explain(t.Redact(err.Error()), err)}
	}
	err = explainCall(err)
	err = process.Explain(t.Redact(err.Error()), err)
	if errors.As(err, new(*process.Failure)) || errors.As(err, new(*fs.PathError)) { // its output cannot be written
		return err
	}
	return &process.Failure{Status: process.ExitCallFailed, Err: err}
}

// do does the action, and again after the user has visited the pages that it needs.
func (t *Target) do(ctx context.Context, do Action, r *Run) error {
	for {
		err := do(ctx, r)
		pages := ask.PagesFirst(err)
		if len(pages) == 0 {
			return err
		}
		if again, asking := t.User.OpenPages(ctx, r.Session, pages); !again || asking != nil {
			return err
		}
	}
}

func (t *Target) connect(cmd *cobra.Command, server *Endpoint) (*client.Session, error) {
	invalid := new(InvalidOutput)
	if t.OnEvent == nil && t.LogLevel != "" {
		t.OnEvent = render.LogTo(cmd.ErrOrStderr(), func(m *client.LogMessage) string { return "log " + render.LogLine(m) })
	}
	var connected atomic.Bool     // a session that lasts is given up only before that
	liveness := time.Duration(-1) // the user decides how long to wait, and a server may be busy with the call
	if t.Lasting {
		liveness = 0
	}
	options := client.Options{
		FailFast:        !t.Lasting,
		LogLevel:        protocol.LogLevel(t.LogLevel),
		OnEvent:         t.OnEvent,
		ProtocolVersion: t.Revision,
		Elicit:          t.User.Elicit,
		ElicitURL:       t.User.ElicitURL,
		Tasks:           true,
		Conn: conn.Tuning{
			Name:        server.Name,
			InitTimeout: t.initTimeout,
			Liveness:    liveness,
			Final:       func(conn.Reason) bool { return !connected.Load() },
			Hooks:       telemetry.Hooks{Violation: invalid.Add, RequestStarted: t.User.Limit.NoteTask},
			Log:         slog.New(slog.DiscardHandler), // the command says itself what failed
		},
	}
	session, err := client.New(protocol.Implementation{Name: "bowline", Version: process.Version()}, options).Connect(cmd.Context(), server)
	if err != nil {
		explanation := ExplainConnect(err, server, t.initTimeout, invalid)
		if isLoginMissing(err) {
			explanation = process.Explain(explanation.Error()+"\n"+t.adviceLogin(t.ShownURL), err)
		}
		return nil, explanation
	}
	connected.Store(true)
	return session.With(client.CallOptions{Timeout: -1}), nil // the context bounds calls
}

// end closes the session even when the command was interrupted. An error of
// that does not change the result of the run.
func (t *Target) end(cmd *cobra.Command, session *client.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), process.EndGrace)
	defer cancel()
	if err := session.Close(ctx); err != nil {
		cmd.PrintErrln(render.Message(t.Redact("warning: the server did not end properly: " + err.Error())))
	}
}
