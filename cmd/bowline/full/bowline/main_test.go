package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/child"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// role is the environment variable that makes the test binary run as the command, or as a NATS server.
const role = "BOWLINE_TEST_ROLE"

// behindGateways is the name of a link to the test binary by which it runs as a server behind gateways.
const behindGateways = "behind-gateways"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == behindGateways { // whose environment it has, as the guardian that runs it
		if err := child.Run(os.Getenv(child.Variable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	switch os.Getenv(role) {
	case "command":
		main()
	case "asker":
		if err := runAsker(); err != nil {
			fmt.Fprintln(os.Stderr, "the server that asks:", err)
			os.Exit(1)
		}
		return
	case "nats":
		if err := runNATSServer(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, "the NATS server:", err)
			os.Exit(1)
		}
		return
	}
	testenv.Once()
	testenv.SideBySide(4)
	config, err := os.MkdirTemp("", "bowline-test-*") // no test sees the state of whoever runs it
	if err != nil {
		panic(err)
	}
	os.Setenv("XDG_CONFIG_HOME", config)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		os.RemoveAll(config)
		os.Exit(status)
	}))
}

// runAsker serves a tool that asks its user, as a server of before 2026-07-28 does: with a request while the call is open.
func runAsker() error {
	s := server.New(protocol.Implementation{Name: "asker", Version: "1"}, server.Options{ProtocolVersions: []string{protocol.LatestLegacy}})
	server.AddTool(s, protocol.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		size, err := server.Elicit[struct {
			Size string `json:"size"`
		}](ctx, "Which size?")
		return "the size is " + size.Size, err
	}, server.Asks(server.Waits, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}))
	return s.Serve(context.Background(), &stdio.Server{})
}

// hangGuard is how long any process of a test may run.
const hangGuard = 2 * time.Minute

// bowline returns `bowline args`, not started. It is killed at the end of the test.
func bowline(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), hangGuard) // a cleanup may end it in good order
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), role+"=command", "GORACE=atexit_sleep_ms=0") // a second for each process otherwise
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// A serve is `bowline serve --http` or `bowline up`, until interrupt or kill is called.
type serve struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner // of its standard error
	said  strings.Builder
	url   string // once it was awaited
	ended func() (status int, rest string)
}

// startServe starts `bowline serve --http`. It is interrupted at the end of the test.
func startServe(t *testing.T, more ...string) *serve {
	t.Helper()
	return start(t, append([]string{"serve", "--http", "127.0.0.1:0"}, more...)...)
}

func start(t *testing.T, args ...string) *serve {
	t.Helper()
	s := &serve{t: t, cmd: bowline(t, args...)}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.lines = bufio.NewScanner(stderr)
	s.ended = sync.OnceValues(func() (int, string) {
		rest := new(strings.Builder)
		for s.lines.Scan() {
			rest.WriteString(s.lines.Text() + "\n")
		}
		err := s.cmd.Wait()
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			return exit.ExitCode(), rest.String()
		}
		if err != nil {
			t.Error(err)
		}
		return 0, rest.String()
	})
	t.Cleanup(func() {
		s.interrupt()
		s.ended()
	})
	return s
}

func (s *serve) interrupt() { _ = s.cmd.Process.Signal(os.Interrupt) } // it may have ended
func (s *serve) kill()      { _ = s.cmd.Process.Kill() }

// awaitLine waits until it has printed a line with a text, and returns what follows the text.
func (s *serve) awaitLine(text string) string {
	s.t.Helper()
	for s.lines.Scan() {
		s.said.WriteString(s.lines.Text() + "\n")
		if _, rest, found := strings.Cut(s.lines.Text(), text); found {
			return rest
		}
	}
	s.t.Fatalf("the server has not printed %q: %s", text, s.said.String())
	return ""
}

// await waits until it serves.
func (s *serve) await() *serve {
	s.t.Helper()
	s.url = s.awaitLine("serving ")
	return s
}

// serving runs `bowline serve --http` until interrupt or kill is called. Ended waits for its end, and
// returns its status and what it has printed since it said its URL.
func serving(t *testing.T, more ...string) (url string, interrupt, kill func(), ended func() (status int, rest string)) {
	t.Helper()
	s := startServe(t, more...).await()
	return s.url, s.interrupt, s.kill, s.ended
}
