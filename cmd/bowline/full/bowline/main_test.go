package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// role is the environment variable that makes the test binary run as the command.
const role = "BOWLINE_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "command" {
		main()
	}
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

// serving runs `bowline serve --http` until interrupt or kill is called. Ended waits for its end, and
// returns its status and what it has printed since it said its URL.
func serving(t *testing.T, more ...string) (url string, interrupt, kill func(), ended func() (status int, rest string)) {
	t.Helper()
	url, _, interrupt, kill, ended = servingSays(t, more...)
	return url, interrupt, kill, ended
}

// servingSays does the same, and also returns what the process has printed before it serves.
func servingSays(t *testing.T, more ...string) (url, before string, interrupt, kill func(), ended func() (status int, rest string)) {
	t.Helper()
	cmd := bowline(t, append([]string{"serve", "--http", "127.0.0.1:0"}, more...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	var said strings.Builder
	for url == "" && lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		_, url, _ = strings.Cut(lines.Text(), "serving ")
	}
	interrupt = func() { _ = cmd.Process.Signal(os.Interrupt) } // it may have ended
	kill = func() { _ = cmd.Process.Kill() }
	ended = sync.OnceValues(func() (int, string) {
		rest := new(strings.Builder)
		for lines.Scan() {
			rest.WriteString(lines.Text() + "\n")
		}
		err := cmd.Wait()
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			return exit.ExitCode(), rest.String()
		}
		if err != nil {
			t.Error(err)
		}
		return 0, rest.String()
	})
	t.Cleanup(func() {
		interrupt()
		ended()
	})
	if url == "" {
		t.Fatalf("the server has not printed its address: %s", said.String())
	}
	return url, said.String(), interrupt, kill, ended
}
