package command

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/spf13/cobra"
)

// The exit statuses, as `bowline --help` explains them.
const (
	exitToolFailed  = 1
	exitUsage       = 2
	exitNoSession   = 3
	exitCallFailed  = 4
	exitFailed      = 5
	exitInterrupted = 130
)

// A failure is an error with the exit status it gives the command.
type failure struct {
	status int
	err    error
	usage  bool // the command line is wrong, so show the usage
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// usageFailure reports a command line that cannot be understood.
func usageFailure(err error) error {
	return &failure{status: exitUsage, err: err, usage: true}
}

// report prints an error on standard error and returns the exit status. After an
// interrupt it prints only that, because the interrupt has caused all other
// errors.
func report(cmd *cobra.Command, err error) int {
	if err == nil {
		return 0
	}
	if cmd.Context().Err() != nil {
		cmd.PrintErrln("bowline: interrupted")
		return exitInterrupted
	}
	cmd.PrintErrln(message(err.Error()))
	failed := &failure{status: exitFailed}
	if errors.As(err, &failed) && failed.usage {
		cmd.PrintErrln(fmt.Sprintf("Usage: %s\nMore: %s --help", cmd.UseLine(), cmd.CommandPath()))
	}
	return failed.status
}

// invalidOutput remembers the last line of a server's standard output that was
// not JSON-RPC. It does not count such lines, because their number depends on the
// number of attempts.
type invalidOutput struct {
	mu   sync.Mutex
	last error
}

// add is a telemetry hook.
func (o *invalidOutput) add(violation telemetry.Violation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var refused *jsonrpc.DecodeError
	if errors.As(violation.Err, &refused) {
		o.last = refused.Err
	}
}

func (o *invalidOutput) seen() (last error, found bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last, o.last != nil
}

const (
	adviceMissing  = "Is the program installed and in PATH? A path works as well."
	adviceExited   = "Run the command by itself to see what it needs."
	adviceSilent   = "Is it an MCP server that uses standard input and output? If it only needs more time, raise --init-timeout."
	adviceInvalid  = "An MCP server writes only messages to standard output. Is it in an interactive mode, or does it write its log there?"
	adviceRefused  = "Is it an MCP server? Perhaps this release supports other revisions of the protocol."
	adviceRemote   = "Is the address right, and is the server running?"
	adviceEndpoint = "Is that the path of its MCP endpoint? It is often /mcp or /sse."
	adviceAccess   = "The server requires a login: use --header 'Authorization: Bearer ...'."
	adviceRefresh  = "The server does not accept the Authorization header. Is the token still valid, and is it for this server?"
	adviceBusy     = "The server has too much to do. Try again later."
	adviceBusyFor  = "The server has too much to do. Try again in %v."
	adviceDenied   = "Is it a program, and is it executable? On Unix, chmod +x makes it so."
	adviceFailing  = "The server has an internal problem. Try again later, or read its log."
	adviceTrust    = "Its certificate is not trusted here. Use --cacert to name a file with the authority that issued it, or --insecure to trust any certificate."
	adviceRegister = "The server may have no logins, or none for programs that it does not know: set clientId in the auth block of an mcp.json, or use --header."
	adviceVersions = "Look for a release of the server or of bowline with a protocol version that both support."
)

// explainConnect explains why there is no session, and what to try.
func explainConnect(err error, server *endpoint, timeout time.Duration, invalid *invalidOutput) error {
	var reason conn.Reason
	if !errors.As(err, &reason) {
		return err
	}
	lines, advice := []string{describeFailure(reason, server.name, timeout)}, adviceFor(reason)
	lastInvalid := "Its standard output contains lines that are not JSON-RPC. The last one: %v."
	if server.remote {
		lines, advice = []string{describeRemoteFailure(reason, server.name, timeout)}, adviceForRemote(reason, server)
		lastInvalid = "It sent answers that are not JSON-RPC. The last one: %v."
	}
	if missing := new(auth.LoginError); server.remote && errors.As(err, &missing) {
		lines[0] = fmt.Sprintf("%q needs a login", server.name)
		if !server.personal {
			lines[0] += ": " + missing.Err.Error()
		}
	}
	if last, found := invalid.seen(); found {
		lines = append(lines, fmt.Sprintf(lastInvalid, last))
		if !server.remote {
			advice = adviceInvalid
		}
	}
	if advice != "" {
		lines = append(lines, advice)
	}
	return &explainedError{strings.Join(lines, "\n"), err}
}

func describeFailure(reason conn.Reason, command string, timeout time.Duration) string {
	switch reason.Kind {
	case conn.ExecutableMissing, conn.OpenFailed:
		return fmt.Sprintf("%q cannot be started: %v", command, cause(reason.Err))
	case conn.Exited:
		return fmt.Sprintf("%q did not become ready: %s", command, ending(reason.Err))
	case conn.PeerEnded:
		return fmt.Sprintf("%q closed its standard output before the session was ready", command)
	case conn.InitTimedOut:
		return fmt.Sprintf("%q did not complete the handshake within %v", command, timeout)
	case conn.Malformed:
		return fmt.Sprintf("%q does not send JSON-RPC", command)
	case conn.HandshakeFailed, conn.AuthRequired:
		return fmt.Sprintf("%q refused the session: %v", command, cause(reason.Err))
	case conn.Incompatible:
		return fmt.Sprintf("%q uses another protocol version: %v", command, cause(reason.Err))
	default:
		return fmt.Sprintf("the connection to %q was lost before the session was ready: %v", command, reason)
	}
}

func adviceFor(reason conn.Reason) string {
	var start *transport.StartError
	switch kind := reason.Kind; {
	case errors.As(reason, &start) && start.Hint != "":
		return "" // the hint is the advice
	case errors.Is(reason, fs.ErrPermission):
		return adviceDenied
	case kind == conn.ExecutableMissing, kind == conn.OpenFailed:
		return adviceMissing
	case kind == conn.InitTimedOut:
		return adviceSilent
	case kind == conn.Malformed, kind == conn.Oversized:
		return adviceInvalid
	case kind == conn.HandshakeFailed:
		return adviceRefused
	case kind == conn.Incompatible:
		return adviceVersions
	default:
		return adviceExited
	}
}

// describeRemoteFailure does the same for a server that the command has not started.
func describeRemoteFailure(reason conn.Reason, url string, timeout time.Duration) string {
	var unreachable *transport.UnreachableError
	answered := errors.As(reason, new(*transport.StatusError)) || errors.As(reason, new(*jsonrpc.Error)) || errors.As(reason, new(*client.ResultError))
	var status *transport.StatusError
	switch {
	case errors.As(reason, &unreachable):
		return fmt.Sprintf("%q is %v", url, unreachable)
	case errors.As(reason, &status) && status.Status == http.StatusOK:
		return fmt.Sprintf("%q sent something else than the answer: %v", url, cause(reason.Err))
	case reason.Kind == conn.OpenFailed && answered:
		return describeFailure(conn.Reason{Kind: conn.HandshakeFailed, Err: reason.Err}, url, timeout)
	case reason.Kind == conn.InitTimedOut, reason.Kind == conn.Incompatible, answered:
		return describeFailure(reason, url, timeout)
	case errors.Is(reason, transport.ErrPeerClosed):
		return fmt.Sprintf("%q sent something else than the answer", url)
	default:
		return fmt.Sprintf("%q cannot be reached: %v", url, cause(reason.Err))
	}
}

func adviceForRemote(reason conn.Reason, server *endpoint) string {
	var status *transport.StatusError
	switch {
	case errors.As(reason, new(*tls.CertificateVerificationError)):
		return adviceTrust
	case reason.Kind == conn.Incompatible:
		return adviceVersions
	case reason.Kind == conn.InitTimedOut:
		return adviceRemote + " If it only needs longer, raise --init-timeout."
	case errors.Is(reason, transport.ErrPeerClosed):
		return adviceEndpoint
	case !errors.As(reason, &status):
		return adviceRemote
	case status.Denied() && server.authenticated:
		return adviceRefresh
	case status.Denied():
		return adviceAccess
	case status.Overloaded() && status.RetryAfter > 0:
		return fmt.Sprintf(adviceBusyFor, status.RetryAfter)
	case status.Overloaded():
		return adviceBusy
	case status.Status >= http.StatusInternalServerError:
		return adviceFailing
	default:
		return adviceEndpoint
	}
}

// cause returns the error of the operating system, with its hint, or that of the request of the
// handshake.
func cause(err error) error {
	var start *transport.StartError
	var call *conn.CallError
	switch {
	case errors.As(err, &start) && start.Hint != "":
		return fmt.Errorf("%w: %s", start.Err, start.Hint)
	case errors.As(err, &start):
		return start.Err
	case errors.As(err, &call) && call == err:
		return call.Err
	default:
		return err
	}
}

// ending describes how a process ended.
func ending(err error) string {
	var exit *transport.ExitError
	if !errors.As(err, &exit) {
		return err.Error()
	}
	how := fmt.Sprintf("the server exited with status %d", exit.Status)
	if exit.Signal != "" {
		how = "the server was ended by signal: " + exit.Signal
	}
	if tail := strings.TrimSpace(exit.Stderr); tail != "" {
		how += "; its standard error ends:\n" + indented(tail)
	}
	return how
}

// explainCall explains how a call failed, and whether the server may have run it.
func explainCall(err error) error {
	var call *conn.CallError
	if !errors.As(err, &call) {
		return err
	}
	what := fmt.Sprintf("%s failed: %s", call.Method, ending(call.Err))
	switch call.Delivery {
	case conn.NotSent:
		what += "\nThe request was not sent: the server has not executed it."
	case conn.Unknown:
		what += "\nThe server may have executed the request."
	}
	for i, page := range pagesFirst(err) {
		if i == 0 {
			what += "\nOpen this page, and then call again:"
		}
		what += "\n  " + flat(page.URL)
	}
	return &explainedError{what, err}
}

// An explainedError error has a text for people, and wraps the original error.
type explainedError struct {
	message string
	err     error
}

func (e *explainedError) Error() string { return e.message }
func (e *explainedError) Unwrap() error { return e.err }
