package transport_test

import (
	"encoding"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// The text of an ExitError is one line, however much the process has written, and
// contains its last line.
func TestExitErrorIsOneLine(t *testing.T) {
	for name, c := range map[string]struct {
		exit transport.ExitError
		want string
	}{
		"silent":        {transport.ExitError{Command: "a", Status: 3}, `"a" exited with status 3`},
		"blank":         {transport.ExitError{Command: "a", Status: 3, Stderr: " \n\n"}, `"a" exited with status 3`},
		"by a signal":   {transport.ExitError{Command: "a", Status: -1, Signal: "killed", Stderr: "one\ntwo"}, `"a" was ended by signal: killed: two`},
		"the last line": {transport.ExitError{Command: "a", Status: 3, Stderr: "loading\r\nno API key\n"}, `"a" exited with status 3: no API key`},
		"node": {
			transport.ExitError{Command: "node", Status: 1, Stderr: "  throw err;\n  ^\n\nError: Cannot find module 'x'\n    at Module._load\n\nNode.js v22.1.0\n"},
			`"node" exited with status 1: Error: Cannot find module 'x'`,
		},
		"python": {
			transport.ExitError{Command: "python", Status: 1, Stderr: "Traceback (most recent call last):\n  File \"x\"\nModuleNotFoundError: No module named 'y'\n"},
			`"python" exited with status 1: ModuleNotFoundError: No module named 'y'`,
		},
		"go":             {transport.ExitError{Command: "a", Status: 2, Stderr: "panic: oops\n\ngoroutine 1 [running]:\nexit status 2\n"}, `"a" exited with status 2: panic: oops`},
		"a long line":    {transport.ExitError{Command: "a", Status: 1, Stderr: strings.Repeat("é", 1000)}, `"a" exited with status 1: ` + strings.Repeat("é", 128) + "…"},
		"control codes":  {transport.ExitError{Command: "a", Status: 1, Stderr: "\x1b]52;c;x\x07no\tkey"}, `"a" exited with status 1: ]52;c;xno key`},
		"the last error": {transport.ExitError{Command: "a", Status: 1, Stderr: "error: one\nFATAL: two\nbye\n"}, `"a" exited with status 1: FATAL: two`},
		"not text":       {transport.ExitError{Command: "a", Status: 1, Stderr: "\xff\xfekey"}, `"a" exited with status 1: key`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.exit.Error(); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// The text of a StatusError is the status, and what the server said of it, if it did: its error, or else
// its body.
func TestStatusErrorSaysWhatTheServerSaid(t *testing.T) {
	fault := &jsonrpc.Error{Code: -32603, Message: "no room"}
	for want, err := range map[string]transport.StatusError{
		"HTTP status 404":                   {Status: 404},
		"HTTP status 503":                   {Status: 503, Body: " \n"},
		"HTTP status 502: no route":         {Status: 502, Body: " no route\n"},
		"HTTP status 500: " + fault.Error(): {Status: 500, Fault: fault},
		"HTTP status 400: " + fault.Error(): {Status: 400, Fault: fault, Body: "{}"},
	} {
		if got := err.Error(); got != want {
			t.Errorf("%+v is %q, want %q", err, got, want)
		}
	}
}

// The text of each error says what was wrong with what, and what it wraps can be searched for.
func TestTextsOfErrors(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	refused := dial(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	lookup := &net.DNSError{Err: "no such host", Name: "host.example", Server: "192.0.2.53:53"}
	why := errors.New("the host is missing")
	for _, test := range []struct {
		err   error
		want  string
		wraps error
	}{
		{&transport.OversizedError{Limit: 10, Size: 12}, "transport: frame of at least 12 bytes is above the limit of 10", nil},
		{&transport.UnreachableError{Address: "192.0.2.1:80", Err: refused}, "unreachable: " + syscall.ECONNREFUSED.Error() + " (192.0.2.1:80)", syscall.ECONNREFUSED},
		{&transport.UnreachableError{Err: refused}, "unreachable: " + syscall.ECONNREFUSED.Error(), refused},
		{&transport.UnreachableError{Address: "host.example", Err: dial(lookup)}, "unreachable: no such host (host.example)", lookup},
		{&transport.UnreachableError{Err: dial(why)}, "unreachable: the host is missing", why},
		{&transport.StartError{Command: "npx", Err: exec.ErrNotFound, Hint: "install it"}, fmt.Sprintf("start \"npx\": %v: install it", exec.ErrNotFound), exec.ErrNotFound},
		{&transport.StartError{Command: "npx", Err: exec.ErrNotFound}, fmt.Sprintf("start \"npx\": %v", exec.ErrNotFound), exec.ErrNotFound},
		{&transport.URLError{URL: "http:///a", Err: why}, `transport: endpoint "http:///a": the host is missing`, why},
	} {
		if got := test.err.Error(); got != test.want || test.wraps != nil && !errors.Is(test.err, test.wraps) {
			t.Errorf("got %q, want %q, which wraps %v", got, test.want, test.wraps)
		}
		if text, ok := test.err.(encoding.TextMarshaler); ok {
			if got, err := text.MarshalText(); string(got) != test.want || err != nil {
				t.Errorf("as JSON it is %q, %v; want %q", got, err, test.want)
			}
		}
	}
}

// A server is overloaded if it asks to come again later. A StatusError without the error of a server wraps nothing.
func TestWhatAStatusMeans(t *testing.T) {
	for _, test := range []struct {
		err        transport.StatusError
		overloaded bool
	}{{transport.StatusError{Status: 429}, true}, {transport.StatusError{Status: 503}, false}, {transport.StatusError{Status: 503, RetryAfter: 1}, true}, {transport.StatusError{Status: 500, RetryAfter: 1}, false}} {
		if got := test.err.Overloaded(); got != test.overloaded || test.err.Unwrap() != nil {
			t.Errorf("%+v: overloaded is %t, and it wraps %v; want %t and nothing", test.err, got, test.err.Unwrap(), test.overloaded)
		}
	}
}

// Access was denied by the status of a response, or because a login is missing, whatever wraps it.
func TestIsDenied(t *testing.T) {
	for err, want := range map[error]bool{
		&transport.StatusError{Status: 401}:                                true,
		fmt.Errorf("open: %w", &transport.StatusError{Status: 403}):        true,
		fmt.Errorf("no token: %w", transport.ErrAuthRequired):              true,
		errors.Join(errors.New("other"), transport.ErrAuthRequired):        true,
		&transport.StatusError{Status: 404}:                                false,
		fmt.Errorf("unavailable: %w", &transport.StatusError{Status: 503}): false,
		transport.ErrUntrusted:                                             false,
	} {
		if got := transport.IsDenied(err); got != want {
			t.Errorf("%v: got %v, want %v", err, got, want)
		}
	}
	if transport.IsDenied(nil) {
		t.Error("no error denies access")
	}
}
