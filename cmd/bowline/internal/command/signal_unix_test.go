//go:build unix

package command

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
)

// TestInterruptCancelsTheCall checks that the call is cancelled before the command ends.
func TestInterruptCancelsTheCall(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		args := withBundled(t, "call", "slow", "seconds=60", "steps=1000", "--verbose")
		o := interrupted(t, signal, "progress: ", args...)
		o.want(t, process.ExitInterrupted, "", "cancelled by the peer")
		o.want(t, process.ExitInterrupted, "", "bowline: interrupted\n")
		if strings.Contains(o.stderr, "warning") {
			t.Errorf("the server did not shut down properly:\n%s", o.stderr)
		}
	}
}

func TestInterruptEndsConnecting(t *testing.T) {
	interrupted(t, os.Interrupt, "| started", withPeer(t, "mute", "tools", "--verbose")...).
		want(t, process.ExitInterrupted, "", "bowline: interrupted\n")
}

// TestInterruptEndsOpeningAFile opens a FIFO without a writer.
func TestInterruptEndsOpeningAFile(t *testing.T) {
	for name, args := range map[string][]string{
		"config":       {"tools", "--mcp-config"},
		"certificates": {"tools", "--url", "https://127.0.0.1:1/", "--cacert"},
	} {
		path := filepath.Join(t.TempDir(), "fifo")
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := command(t, append(args, path)...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end, err := os.OpenFile(path, os.O_WRONLY, 0) // once the command has opened it
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if status := exitStatus(t, cmd.Wait()); status != process.ExitInterrupted {
			t.Errorf("%s: status %d: %s", name, status, stderr.String())
		}
		if err := end.Close(); err != nil {
			t.Error(err)
		}
	}
}

// interrupted runs the command, and sends it a signal when a line of its standard error has
// this prefix.
func interrupted(t *testing.T, signal os.Signal, sign string, args ...string) outcome {
	t.Helper()
	cmd := command(t, args...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	printed, sent := "", false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		printed += lines.Text() + "\n"
		if !sent && strings.HasPrefix(lines.Text(), sign) {
			sent = true
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
		}
	}
	return outcome{stderr: printed, status: exitStatus(t, cmd.Wait())}
}

// TestServeEndsAtASignal checks that the server shuts down properly while it serves a call.
func TestServeEndsAtASignal(t *testing.T) {
	const slow = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{"seconds":60,"steps":1000},"_meta":{"progressToken":1}}}` + "\n"
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel() // each waits until its call is given up
			cmd := command(t, "serve", "--stdio")
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stdout)
			send(t, stdin, initialize)
			awaitLine(t, lines, `"id":"init"`)
			send(t, stdin, slow)
			awaitLine(t, lines, "notifications/progress")
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			for lines.Scan() {
			}
			if status := exitStatus(t, cmd.Wait()); status != 0 {
				t.Errorf("%v: status %d", signal, status)
			}
		})
	}
}

func send(t *testing.T, to io.Writer, frames string) {
	t.Helper()
	if _, err := io.WriteString(to, frames); err != nil {
		t.Fatal(err)
	}
}

// awaitLine reads up to the first line that contains this fragment.
func awaitLine(t *testing.T, lines *bufio.Scanner, fragment string) {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), fragment) {
			return
		}
	}
	t.Fatalf("no line has %q in it", fragment)
}
