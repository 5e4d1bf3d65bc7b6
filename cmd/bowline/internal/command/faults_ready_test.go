//go:build linux

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol"
	"golang.org/x/sys/unix"
)

// addServers adds entries to a file that mcpFile has written.
func addServers(t *testing.T, path, entries string) {
	t.Helper()
	rewrite(t, path, `{"mcpServers": {`, `{"mcpServers": {`+entries+", ")
}

func echo(ctx context.Context, s *client.Session, server, message string) error {
	text, err := client.Call[string](ctx, s, server+"__echo", map[string]string{"message": message})
	if err == nil && !strings.Contains(text, message) {
		return fmt.Errorf("got %q", text)
	}
	return err
}

// TestFaultsOfServersThatAreReady has a child for each fault that begins when all seems well: one reads no more, one does not end, and three send
// notifications without a pause. The one that works does not notice, calls end, and no process is left. Log messages and
// progress are not dropped: who sends too many waits. What is said of a server whose lists change all the time depends on how fast the machine is: package gateway
// holds it in virtual time.
//
// Guarantees: G-0088.3, G-0088.19
func TestFaultsOfServersThatAreReady(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "good")
	names := []string{"deaf", "stays", "lists", "logs", "progress"}
	for _, name := range names {
		addServers(t, path, fmt.Sprintf(`%q: {"command": %q, "env": {%q: %q}}`, name, executable(t), role, name))
	}
	up := startUp(t, path)
	session := up.client("")
	var children []int
	for _, name := range names {
		children = append(children, awaitServer(t, path, name, func(s admin.ServerReport) bool { return s.State == admin.Ready && s.Tools == 1 && s.PID != 0 }).PID)
	}
	for range 20 {
		if err := echo(t.Context(), session, "good", "a"); err != nil {
			t.Fatalf("the server that works: %v", err)
		}
	}
	for _, name := range []string{"stays", "lists", "logs", "progress"} {
		if text, err := client.Call[string](t.Context(), session, name+"__tool", nil); err != nil || text != "called" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() { // more than the pipe holds
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "deaf__tool", Arguments: json.RawMessage(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`)})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a call that is not read: %v", err)
			}
		})
	}
	calls.Wait()
	if err := echo(t.Context(), session, "good", "a"); err != nil {
		t.Errorf("the server that works: %v", err)
	}
	up.end()
	awaitGone(t, children...)
}

// TestSIGTERMUnderLoad ends a gateway while many clients call: a call that can finish in time does, one that cannot has an outcome, those that come
// too late are refused, and no child is left.
//
// Guarantees: G-0088.22
func TestSIGTERMUnderLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "one", "two")
	up := startUp(t, path)
	var load, inTime sync.WaitGroup
	ended := make(chan struct{})
	slow := func(seconds string, began chan<- struct{}) (*protocol.CallToolResult, error) {
		session, first := up.client(""), sync.OnceFunc(func() { began <- struct{}{} })
		view := session.With(client.CallOptions{Timeout: -1, OnProgress: func(*protocol.ProgressParams) { first() }})
		return view.CallTool(t.Context(), &protocol.CallToolParams{Name: "one__slow", Arguments: json.RawMessage(`{"seconds":` + seconds + `,"steps":1000}`)})
	}
	began := make(chan struct{}, 2)
	inTime.Go(func() {
		if result, err := slow("1", began); err != nil || result.IsError {
			t.Errorf("a call that can finish: %v, %v", result, err)
		}
	})
	load.Go(func() {
		result, err := slow("60", began)
		var failed *client.CallError
		if err == nil && !(result.IsError && strings.Contains(string(result.Meta[gateway.MetaOutcome]), `"delivery"`)) || err != nil && !errors.As(err, &failed) {
			t.Errorf("a call that cannot finish: %+v, %v", result, err)
		}
	})
	for i := range 8 {
		session := up.client([]string{protocol.Latest, protocol.LatestLegacy}[i%2])
		load.Go(func() {
			for n := 0; ; n++ {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				err := echo(ctx, session, []string{"one", "two"}[n%2], fmt.Sprint(i, n))
				cancel()
				select {
				case <-ended:
					return
				default:
				}
				if errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("call %d of client %d has no outcome: %v", n, i, err)
				}
			}
		})
	}
	<-began
	<-began
	awaitServer(t, path, "two", func(s admin.ServerReport) bool { return s.State == admin.Ready && s.PID != 0 })
	children := []int{pidOf(t, path, "one"), pidOf(t, path, "two")}
	if err := up.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	inTime.Wait()
	for up.lines.Scan() {
	}
	if status := exitStatus(t, up.cmd.Wait()); status != 0 {
		t.Errorf("it ended with status %d", status)
	}
	close(ended)
	load.Wait()
	awaitGone(t, children...)
}

// TestUpStarts500Servers has one that works among 499 that say nothing: that one serves while they start, and all processes end with the gateway.
//
// Guarantees: G-0088.3
func TestUpStarts500Servers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "good")
	var entries []string
	for i := range 499 {
		entries = append(entries, fmt.Sprintf(`"silent%d": {"command": "/bin/sleep", "args": ["1000"]}`, i))
	}
	rewrite(t, path, `"BOWLINE_KEYRING": "off"}}`, `"BOWLINE_KEYRING": "off"}}, `+strings.Join(entries, ","))
	up := startUp(t, path)
	began := time.Now()
	if err := echo(t.Context(), up.client(""), "good", "a"); err != nil {
		t.Error(err)
	}
	t.Logf("the one that works has answered after %v", time.Since(began))
	var children []int
	starting := 0
	for _, s := range reportOf(t, path).Servers {
		if s.PID != 0 {
			children = append(children, s.PID)
		}
		if s.State == admin.Starting {
			starting++
		}
	}
	if len(children) < 2 || starting != 499 { // nobody has waited for what has not answered
		t.Errorf("%d processes had been started when it answered, and %d servers had not answered yet", len(children), starting)
	}
	up.end()
	awaitGone(t, children...)
}

// TestUpWhileItsFileIsReplaced puts a link, a pipe and a huge file in place of the file of a gateway, which is told to read it: it says why it does
// not, and a call that runs meanwhile is answered.
//
// Guarantees: G-0088.13
func TestUpWhileItsFileIsReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "good")
	up := startUp(t, path)
	session, began := up.client(""), make(chan struct{})
	var call sync.WaitGroup
	call.Go(func() {
		first := sync.OnceFunc(func() { close(began) })
		view := session.With(client.CallOptions{OnProgress: func(*protocol.ProgressParams) { first() }})
		if _, err := client.Call[string](t.Context(), view, "good__slow", map[string]int{"seconds": 1, "steps": 100}); err != nil {
			t.Error(err)
		}
	})
	<-began
	before := pidOf(t, path, "good")
	for _, replace := range []func() error{
		func() error { return os.Symlink("/etc/passwd", path) },
		func() error { return syscall.Mkfifo(path, 0o600) },
		func() error { return errors.Join(os.WriteFile(path, []byte("{}"), 0o600), os.Truncate(path, 100<<20)) },
	} {
		if err := errors.Join(os.Remove(path), replace(), up.cmd.Process.Signal(syscall.SIGHUP)); err != nil {
			t.Fatal(err)
		}
		up.await("nothing is changed")
	}
	call.Wait()
	if err := echo(t.Context(), session, "good", "a"); err != nil || pidOf(t, path, "good") != before {
		t.Errorf("afterwards: %v", err)
	}
	if r := reportOf(t, path); !slices.ContainsFunc(r.Mistakes, func(s string) bool { return strings.Contains(s, "limit") }) {
		t.Errorf("the mistakes are %q", r.Mistakes)
	}
	up.end()
}

// TestUpOnAFullDisk takes all room for files from a running gateway. It serves old and new clients, and says what it cannot keep.
//
// Guarantees: G-0088.23, G-0099.5
func TestUpOnAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "good")
	rewrite(t, path, `{"mcpServers"`, `{"bowline": {"audit": {"file": "audit.jsonl"}}, "mcpServers"`)
	up := startUp(t, path, "--catalogue", filepath.Join(filepath.Dir(path), "catalogue.json"))
	old := up.client(protocol.LatestLegacy)
	if err := echo(t.Context(), old, "good", "a"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(up.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{}, nil); err != nil {
		t.Fatal(err)
	}
	rewrite(t, path, `"good": {`, `"good": {"bowline": {"tools": {"deny": ["fail"]}}, `)
	if err := up.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	up.await("the file was read again")
	for _, session := range []*client.Session{old, up.client(protocol.LatestLegacy), up.client(protocol.Latest)} {
		if err := echo(t.Context(), session, "good", "b"); err != nil {
			t.Error(err)
		}
	}
	for began := time.Now(); !strings.Contains(fmt.Sprint(reportOf(t, path).Notices), "not kept") || reportOf(t, path).AuditLost == 0; {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("the notices are %q, and %d records are lost", reportOf(t, path).Notices, reportOf(t, path).AuditLost)
		}
	}
	if err := unix.Prlimit(up.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil); err != nil {
		t.Log(err) // only some may raise it again
	}
	up.end()
}
