package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
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
	endGrace          = 2 * time.Second  // for a server to end after its input was closed
	completionTimeout = 10 * time.Second // for a shell that waits for names
)

// A run is one use of a session by a command.
type run struct {
	session *client.Session
	out     io.Writer // for results
	err     io.Writer // for progress
	json    bool
	limit   *callTimeout // --timeout
}

// An action asks the server for what a command wants, and prints it.
type action func(ctx context.Context, r *run) error

// A lookup finds what completes an argument in a shell. It gets the arguments before that one, and
// what is typed of it.
type lookup func(ctx context.Context, session *client.Session, args []string, typed string) ([]cobra.Completion, error)

// withServer completes a command that uses one server. Prepare checks the
// arguments before there is a server. Names completes arguments; nil: nothing does.
func withServer(command *cobra.Command, names lookup, prepare func(cmd *cobra.Command, args []string) (action, error)) *cobra.Command {
	return new(target).withServer(command, names, prepare)
}

func (server *target) withServer(command *cobra.Command, names lookup, prepare func(cmd *cobra.Command, args []string) (action, error)) *cobra.Command {
	var asJSON bool
	command.Long += "\n\n" + configHelp
	command.RunE = func(cmd *cobra.Command, args []string) error {
		do, err := prepare(cmd, args)
		if err != nil {
			return usageFailure(err)
		}
		return server.run(cmd, func(ctx context.Context, r *run) error {
			r.json = asJSON
			return do(ctx, r)
		})
	}
	command.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if names == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return server.complete(cmd, names, args, typed)
	}
	server.addFlags(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print the whole answer as one JSON document")
	return command
}

// complete finds names when flags say which server to ask. It does not start
// a server only because of a file in the working directory.
func (t *target) complete(cmd *cobra.Command, names lookup, args []string, typed string) (found []cobra.Completion, directive cobra.ShellCompDirective) {
	if t.command == "" && t.url == "" && t.configPath == "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	t.timeout, t.initTimeout = completionTimeout, completionTimeout
	err := t.run(cmd, func(ctx context.Context, r *run) (err error) {
		found, err = names(ctx, r.session, args, typed)
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
func (t *target) run(cmd *cobra.Command, do action) error {
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
		server.Transport = record.tap(server.Transport)
		defer record.close(cmd)
	}
	session, err := t.connect(cmd, server)
	if err != nil {
		return &failure{status: exitNoSession, err: &explainedError{t.redact(err.Error()), err}}
	}
	defer t.end(cmd, session)
	t.user.limit.given = t.timeoutGiven || cmd.Flags().Changed("timeout")
	ctx, cancel := t.user.limit.bound(cmd.Context(), t.timeout)
	defer cancel()
	if server := session.Server(); t.logLevel != "" && !t.lasting && server.Capabilities.Has("logging") {
		err = session.SetLogLevel(ctx, protocol.LogLevel(t.logLevel)) // before the first call, whose beginning is logged too
	}
	if err == nil {
		err = t.do(ctx, do, &run{session: session, out: terminalWriter(cmd.OutOrStdout()), err: cmd.ErrOrStderr(), limit: &t.user.limit})
	}
	if err != nil && isLoginMissing(err) {
		err = &explainedError{explainCall(err).Error() + "\n" + t.adviceLogin(t.shownURL), err}
		return &failure{status: exitNoSession, err: &explainedError{t.redact(err.Error()), err}}
	}
	if err == nil {
		return nil
	}
	err = explainCall(err)
	err = &explainedError{t.redact(err.Error()), err}
	if errors.As(err, new(*failure)) || errors.As(err, new(*fs.PathError)) { // its output cannot be written
		return err
	}
	return &failure{status: exitCallFailed, err: err}
}

// do does the action, and again after the user has visited the pages that it needs.
func (t *target) do(ctx context.Context, do action, r *run) error {
	for {
		err := do(ctx, r)
		pages := pagesFirst(err)
		if len(pages) == 0 {
			return err
		}
		if again, asking := t.user.openPages(ctx, r.session, pages); !again || asking != nil {
			return err
		}
	}
}

func (t *target) connect(cmd *cobra.Command, server *endpoint) (*client.Session, error) {
	invalid := new(invalidOutput)
	if t.onEvent == nil && t.logLevel != "" {
		t.onEvent = logTo(cmd.ErrOrStderr(), func(m *client.LogMessage) string { return "log " + logLine(m) })
	}
	var connected atomic.Bool     // a session that lasts is given up only before that
	liveness := time.Duration(-1) // the user decides how long to wait, and a server may be busy with the call
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
			Hooks:       telemetry.Hooks{Violation: invalid.add, RequestStarted: t.user.limit.noteTask},
			Log:         slog.New(slog.DiscardHandler), // the command says itself what failed
		},
	}
	session, err := client.New(protocol.Implementation{Name: "bowline", Version: version()}, options).Connect(cmd.Context(), server)
	if err != nil {
		explanation := explainConnect(err, server, t.initTimeout, invalid)
		if isLoginMissing(err) {
			explanation = &explainedError{explanation.Error() + "\n" + t.adviceLogin(t.shownURL), err}
		}
		return nil, explanation
	}
	connected.Store(true)
	return session.With(client.CallOptions{Timeout: -1}), nil // the context bounds calls
}

// A callTimeout ends a run after --timeout. The time while the user is asked does not
// count. The default of --timeout is for an answer, and not for a task, which may take hours.
type callTimeout struct {
	given bool // the user has set --timeout, or the file has set it

	mu        sync.Mutex
	remaining time.Duration
	started   time.Time   // when the timer was started last
	timer     *time.Timer // nil: there is no limit
	forTask   bool        // the run waits for a task if there is one
}

// awaitTask says that the run waits for a task, if the call becomes one.
func (p *callTimeout) awaitTask() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forTask = true
}

// noteTask is a telemetry hook. It lifts the default timeout when the run begins to wait for a
// task.
func (p *callTimeout) noteTask(_ context.Context, request telemetry.RequestStarted) context.Context {
	if !waitsForTask(request.Method) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.forTask && !p.given && p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	return nil
}

// waitsForTask reports whether a client sends a request of this method while it waits for a task.
func waitsForTask(method string) bool {
	return method == protocol.MethodGetTask || method == protocol.MethodGetTaskResult
}

// explainTask explains how the wait for a task was ended by --timeout, and what became of the task.
func explainTask(err error, became string) error {
	var call *conn.CallError
	var limit timedOut
	if !errors.As(err, &limit) || !errors.As(err, &call) || !waitsForTask(call.Method) {
		return err
	}
	return &failure{status: exitCallFailed, err: fmt.Errorf("the task has not ended within --timeout %v; %s", time.Duration(limit), became)}
}

// bound returns a context that ends at the timeout, unless the timeout is zero.
func (p *callTimeout) bound(parent context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	p.mu.Lock()
	defer p.mu.Unlock()
	if timeout > 0 {
		p.remaining, p.started = timeout, time.Now()
		p.timer = time.AfterFunc(timeout, func() { cancel(timedOut(timeout)) })
	}
	return ctx, func() {
		p.pause()
		cancel(nil)
	}
}

func (p *callTimeout) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil && p.timer.Stop() {
		p.remaining -= time.Since(p.started)
	}
}

func (p *callTimeout) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.started = time.Now()
		p.timer.Reset(p.remaining)
	}
}

// timedOut is the error of a run that took longer than --timeout.
type timedOut time.Duration

func (p timedOut) Error() string {
	return fmt.Sprintf("no answer within --timeout %v", time.Duration(p))
}

// end closes the session even when the command was interrupted. An error of
// that does not change the result of the run.
func (t *target) end(cmd *cobra.Command, session *client.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), endGrace)
	defer cancel()
	if err := session.Close(ctx); err != nil {
		cmd.PrintErrln(message(t.redact("warning: the server did not end properly: " + err.Error())))
	}
}
