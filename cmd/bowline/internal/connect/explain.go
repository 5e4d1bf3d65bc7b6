package connect

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
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/ask"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// InvalidOutput remembers the last line of a server's standard output that was
// not JSON-RPC. It does not count such lines, because their number depends on the
// number of attempts.
type InvalidOutput struct {
	mu   sync.Mutex
	last error
}

// Add is a telemetry hook.
func (o *InvalidOutput) Add(violation telemetry.Violation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var refused *jsonrpc.DecodeError
	if errors.As(violation.Err, &refused) {
		o.last = refused.Err
	}
}

func (o *InvalidOutput) seen() (last error, found bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last, o.last != nil
}

const (
	AdviceMissing  = "Is the program installed and in PATH? A path works as well."
	AdviceExited   = "Run the command by itself to see what it needs."
	AdviceSilent   = "Is it an MCP server that uses standard input and output? If it only needs more time, raise --init-timeout."
	AdviceInvalid  = "An MCP server writes only messages to standard output. Is it in an interactive mode, or does it write its log there?"
	AdviceRefused  = "Is it an MCP server? Perhaps this release supports other revisions of the protocol."
	AdviceRemote   = "Is the address right, and is the server running?"
	AdviceEndpoint = "Is that the path of its MCP endpoint? It is often /mcp or /sse."
	AdviceAccess   = "The server requires a login: use --header 'Authorization: Bearer ...'."
	AdviceRefresh  = "The server does not accept the Authorization header. Is the token still valid, and is it for this server?"
	adviceBusy     = "The server has too much to do. Try again later."
	adviceBusyFor  = "The server has too much to do. Try again in %v."
	AdviceDenied   = "Is it a program, and is it executable? On Unix, chmod +x makes it so."
	AdviceFailing  = "The server has an internal problem. Try again later, or read its log."
	AdviceTrust    = "Its certificate is not trusted here. Use --cacert to name a file with the authority that issued it, or --insecure to trust any certificate."
	AdviceRegister = "The server may have no logins, or none for programs that it does not know: set clientId in the auth block of an mcp.json, or use --header."
	AdviceVersions = "Look for a release of the server or of bowline with a protocol version that both support."
)

// ExplainConnect explains why there is no session, and what to try.
func ExplainConnect(err error, server *Endpoint, timeout time.Duration, invalid *InvalidOutput) error {
	var reason conn.Reason
	if !errors.As(err, &reason) {
		return err
	}
	lines, advice := []string{describeFailure(reason, server.Name, timeout)}, adviceFor(reason)
	lastInvalid := "Its standard output contains lines that are not JSON-RPC. The last one: %v."
	if server.Remote {
		lines, advice = []string{describeRemoteFailure(reason, server.Name, timeout)}, adviceForRemote(reason, server)
		lastInvalid = "It sent answers that are not JSON-RPC. The last one: %v."
	}
	if missing := new(auth.LoginError); server.Remote && errors.As(err, &missing) {
		lines[0] = fmt.Sprintf("%q needs a login", server.Name)
		if !server.personal {
			lines[0] += ": " + missing.Err.Error()
		}
	}
	if last, found := invalid.seen(); found {
		lines = append(lines, fmt.Sprintf(lastInvalid, last))
		if !server.Remote {
			advice = AdviceInvalid
		}
	}
	if advice != "" {
		lines = append(lines, advice)
	}
	return process.Explain(strings.Join(lines, "\n"), err)
}

func describeFailure(reason conn.Reason, command string, timeout time.Duration) string {
	switch reason.Kind {
	case conn.ExecutableMissing, conn.OpenFailed:
		return fmt.Sprintf("%q cannot be started: %v", command, Cause(reason.Err))
	case conn.Exited:
		return fmt.Sprintf("%q did not become ready: %s", command, Ending(reason.Err))
	case conn.PeerEnded:
		return fmt.Sprintf("%q closed its standard output before the session was ready", command)
	case conn.InitTimedOut:
		return fmt.Sprintf("%q did not complete the handshake within %v", command, timeout)
	case conn.Malformed:
		return fmt.Sprintf("%q does not send JSON-RPC", command)
	case conn.HandshakeFailed, conn.AuthRequired:
		return fmt.Sprintf("%q refused the session: %v", command, Cause(reason.Err))
	case conn.Incompatible:
		return fmt.Sprintf("%q uses another protocol version: %v", command, Cause(reason.Err))
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
		return AdviceDenied
	case kind == conn.ExecutableMissing, kind == conn.OpenFailed:
		return AdviceMissing
	case kind == conn.InitTimedOut:
		return AdviceSilent
	case kind == conn.Malformed, kind == conn.Oversized:
		return AdviceInvalid
	case kind == conn.HandshakeFailed:
		return AdviceRefused
	case kind == conn.Incompatible:
		return AdviceVersions
	default:
		return AdviceExited
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
		return fmt.Sprintf("%q sent something else than the answer: %v", url, Cause(reason.Err))
	case reason.Kind == conn.OpenFailed && answered:
		return describeFailure(conn.Reason{Kind: conn.HandshakeFailed, Err: reason.Err}, url, timeout)
	case reason.Kind == conn.InitTimedOut, reason.Kind == conn.Incompatible, answered:
		return describeFailure(reason, url, timeout)
	case errors.Is(reason, transport.ErrPeerClosed):
		return fmt.Sprintf("%q sent something else than the answer", url)
	default:
		return fmt.Sprintf("%q cannot be reached: %v", url, Cause(reason.Err))
	}
}

func adviceForRemote(reason conn.Reason, server *Endpoint) string {
	var status *transport.StatusError
	switch {
	case errors.As(reason, new(*tls.CertificateVerificationError)):
		return AdviceTrust
	case reason.Kind == conn.Incompatible:
		return AdviceVersions
	case reason.Kind == conn.InitTimedOut:
		return AdviceRemote + " If it only needs longer, raise --init-timeout."
	case errors.Is(reason, transport.ErrPeerClosed):
		return AdviceEndpoint
	case !errors.As(reason, &status):
		return AdviceRemote
	default:
		return adviceForStatus(status, server)
	}
}

// adviceForStatus says what to try after an answer that is an error of HTTP.
func adviceForStatus(status *transport.StatusError, server *Endpoint) string {
	switch {
	case status.Denied() && server.authenticated:
		return AdviceRefresh
	case status.Denied():
		return AdviceAccess
	case status.Overloaded() && status.RetryAfter > 0:
		return fmt.Sprintf(adviceBusyFor, status.RetryAfter)
	case status.Overloaded():
		return adviceBusy
	case status.Status >= http.StatusInternalServerError:
		return AdviceFailing
	default:
		return AdviceEndpoint
	}
}

// Cause returns the error of the operating system, with its hint, or that of the request of the
// handshake.
func Cause(err error) error {
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

// Ending describes how a process ended.
func Ending(err error) string {
	var exit *transport.ExitError
	if !errors.As(err, &exit) {
		return err.Error()
	}
	how := fmt.Sprintf("the server exited with status %d", exit.Status)
	if exit.Signal != "" {
		how = "the server was ended by signal: " + exit.Signal
	}
	if tail := strings.TrimSpace(exit.Stderr); tail != "" {
		how += "; its standard error ends:\n" + render.Indented(tail)
	}
	return how
}

// explainCall explains how a call failed, and whether the server may have run it.
func explainCall(err error) error {
	var call *conn.CallError
	if !errors.As(err, &call) {
		return err
	}
	what := fmt.Sprintf("%s failed: %s", call.Method, Ending(call.Err))
	switch call.Delivery {
	case conn.NotSent:
		what += "\nThe request was not sent: the server has not executed it."
	case conn.Unknown:
		what += "\nThe server may have executed the request."
	}
	for i, page := range ask.PagesFirst(err) {
		if i == 0 {
			what += "\nOpen this page, and then call again:"
		}
		what += "\n  " + render.Flat(page.URL)
	}
	return process.Explain(what, err)
}

// ExplainTask explains how the wait for a task was ended by --timeout, and what became of the task.
func ExplainTask(err error, became string) error {
	var call *conn.CallError
	var limit ask.TimedOut
	if !errors.As(err, &limit) || !errors.As(err, &call) || !ask.WaitsForTask(call.Method) {
		return err
	}
	return &process.Failure{Status: process.ExitCallFailed, Err: fmt.Errorf("the task has not ended within --timeout %v; %s", time.Duration(limit), became)}
}

// isLoginMissing reports whether an error says that a login is missing.
func isLoginMissing(err error) bool {
	return errors.As(err, new(*auth.LoginError)) || errors.Is(err, transport.ErrAuthRequired)
}
