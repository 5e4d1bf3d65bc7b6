package transport

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

var (
	// ErrBusy is returned by Send when the outbound queue is full.
	ErrBusy = errors.New("transport: link busy")

	// ErrNoRoom is returned by Send when the peer has left so much unread that the frame finds no
	// room. A shorter one may find some.
	ErrNoRoom = errors.New("transport: the peer has too much that it has not read")

	// ErrNoRoute is returned by Send when the peer has not opened the stream that the
	// frame is for, or has closed it.
	ErrNoRoute = errors.New("transport: no stream to the peer")

	// ErrClosed is the reason of a lost link when this side closed it.
	ErrClosed = errors.New("transport: link closed")

	// ErrSessionExpired is the reason of a lost link when the peer no longer knows
	// its session.
	ErrSessionExpired = errors.New("transport: the session has expired")

	// ErrSessionMoved is the reason of a lost link of a server when another node has taken
	// its session, and goes on with it.
	ErrSessionMoved = errors.New("transport: another node has taken the session")

	// ErrUntrusted is wrapped by the error of a link whose peer cannot be trusted:
	// its certificate is not trusted, it does not use TLS although it should, or it
	// redirects to another origin.
	ErrUntrusted = errors.New("transport: the peer is not trusted")

	// ErrAuthRequired is wrapped by the error of a message that was not sent because
	// a login is needed first.
	ErrAuthRequired = errors.New("transport: authorization is required")

	// ErrPeerClosed is the reason of a lost link when the peer closed it properly.
	ErrPeerClosed = errors.New("transport: peer closed the link")
)

// An OversizedError says that a frame is above the limit. The link refused it without
// holding it in memory.
type OversizedError struct {
	Limit int // bytes
	Size  int // a lower bound: the bytes seen when the frame was refused
}

func (e *OversizedError) Error() string {
	return fmt.Sprintf("transport: frame of at least %d bytes is above the limit of %d", e.Size, e.Limit)
}

// An UnreachableError says that no connection to the peer could be made. It unwraps to the
// error of the network, such as syscall.ECONNREFUSED or a *net.DNSError.
type UnreachableError struct {
	Address string // the host and port, or the name of the host that was not found; "" if unknown
	Err     error
}

// Error returns "unreachable", the cause without the steps that led to it, and the address.
func (e *UnreachableError) Error() string {
	text := "unreachable: " + e.cause()
	if e.Address != "" {
		text += " (" + e.Address + ")"
	}
	return text
}

// cause returns the error of the operating system or, without one, the innermost error of the network.
func (e *UnreachableError) cause() string {
	var number syscall.Errno
	var lookup *net.DNSError
	var step *net.OpError
	switch {
	case errors.As(e.Err, &number):
		return number.Error()
	case errors.As(e.Err, &lookup):
		return lookup.Err
	case errors.As(e.Err, &step):
		return step.Err.Error()
	default:
		return e.Err.Error()
	}
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// MarshalText returns the text of Error, so JSON contains that.
func (e *UnreachableError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// A StartError says that the peer's process could not be started. It unwraps to the
// operating system's error, such as exec.ErrNotFound.
type StartError struct {
	Command string
	Err     error
	Hint    string // what to change, if Err does not say it and the command tells; otherwise empty
}

func (e *StartError) Error() string {
	text := fmt.Sprintf("start %q: %v", e.Command, e.Err)
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	return text
}

func (e *StartError) Unwrap() error { return e.Err }

// MarshalText returns the text of Error, so JSON contains that.
func (e *StartError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// An ExitError says that the peer's process ended, and how.
type ExitError struct {
	Command string
	Status  int    // exit status; -1 when a signal ended it
	Signal  string // for instance "killed"; empty when it exited
	Stderr  string // the end of its standard error, at most 4 KiB
}

// Error returns one line: how the process ended, and the last line of its standard
// error that reports an error. If no line does, it is the last line.
func (e *ExitError) Error() string {
	how := fmt.Sprintf("exited with status %d", e.Status)
	if e.Signal != "" {
		how = "was ended by signal: " + e.Signal
	}
	text := fmt.Sprintf("%q %s", e.Command, how)
	if line := e.errorLine(); line != "" {
		text += ": " + line
	}
	return text
}

// errorLine returns the line of Stderr that probably says what went wrong.
func (e *ExitError) errorLine() (line string) {
	found := false
	for candidate := range strings.Lines(e.Stderr) {
		candidate = strings.TrimSpace(candidate)
		lower := strings.ToLower(candidate)
		isError := strings.Contains(lower, "error") || strings.Contains(lower, "panic") || strings.Contains(lower, "fatal")
		if candidate != "" && (isError || !found) {
			line, found = candidate, found || isError
		}
	}
	if len(line) > maxErrorLine {
		line = line[:maxErrorLine] + "…"
	}
	return strings.Map(printable, strings.ToValidUTF8(line, ""))
}

// printable drops control characters, because a terminal would execute them.
func printable(r rune) rune {
	switch {
	case r == '\t':
		return ' '
	case unicode.IsControl(r):
		return -1
	default:
		return r
	}
}

// maxErrorLine is how much of a line is quoted, in bytes.
const maxErrorLine = 256

// A StatusError is an HTTP response with an error status in place of an answer. It
// unwraps to the JSON-RPC error in its body, if there is one.
type StatusError struct {
	Status     int            // for instance 404
	Body       string         // the beginning of the body, for people
	Fault      *jsonrpc.Error // the JSON-RPC error in the body, if it does not answer the message; otherwise nil
	RetryAfter time.Duration  // the delay that the server asked for; 0 if it did not
	Challenge  string         // the WWW-Authenticate header
	Nonce      string         // the DPoP-Nonce header (RFC 9449)
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("HTTP status %d", e.Status)
	switch body := strings.TrimSpace(e.Body); {
	case e.Fault != nil:
		return text + ": " + e.Fault.Error()
	case body != "":
		return text + ": " + body
	default:
		return text
	}
}

// Overloaded reports whether the server has refused the message for now, and asks to
// send it again later: status 429, or 503 with a Retry-After header. It has not
// executed the message.
func (e *StatusError) Overloaded() bool {
	return e.Status == 429 || e.Status == 503 && e.RetryAfter > 0
}

// Denied reports whether the server refused the caller and not the message: status
// 401 or 403.
func (e *StatusError) Denied() bool { return e.Status == 401 || e.Status == 403 }

func (e *StatusError) Unwrap() error {
	if e.Fault == nil {
		return nil
	}
	return e.Fault
}

// IsDenied reports whether a peer denied access, or a login is needed first: err wraps a *StatusError that is
// Denied, or ErrAuthRequired. The message was not executed then, and sending it again is of no use before
// there are other credentials: a Conn waits for Wake, and a program may ask its user to log in.
//
// It is false for nil, and for a server that is only overloaded.
func IsDenied(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Denied() || errors.Is(err, ErrAuthRequired)
}

// A URLError reports a URL that cannot be the address of an endpoint.
type URLError struct {
	URL string // without its password; empty if it cannot be parsed
	Err error
}

func (e *URLError) Error() string {
	return fmt.Sprintf("transport: endpoint %q: %v", e.URL, e.Err)
}

func (e *URLError) Unwrap() error { return e.Err }

// MarshalText returns the text of Error, so JSON contains that.
func (e *URLError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }
