package command

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"go.uber.org/goleak"
)

// role is the environment variable that makes the test binary run as the command, or as
// one of its peers.
const role = "BOWLINE_TEST_ROLE"

func TestMain(m *testing.M) {
	name := os.Getenv(role)
	if name == "command" {
		Main(Extras{})
	}
	if play, ok := peers()[name]; ok {
		os.Exit(play())
	}
	testenv.Once()
	testenv.SideBySide(4)
	config, err := os.MkdirTemp("", "bowline-test-*") // no test sees the logins of whoever runs it
	if err != nil {
		panic(err)
	}
	os.Setenv("XDG_CONFIG_HOME", config)
	os.Setenv("XDG_RUNTIME_DIR", config)      // nor finds a gateway of theirs
	os.Setenv(connect.KeyringVariable, "off") // the key ring is the developer's own
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		os.RemoveAll(config)
		os.Exit(status)
	}))
}

// hangGuard is how long any process of a test may run.
const hangGuard = 2 * time.Minute

// command returns `bowline args`, not started. It is killed at the end of the test. Its messages
// to a server are checked against the schema.
func command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	args = checked(t, args)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), hangGuard) // a cleanup may end it in good order
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, executable(t), args...)
	cmd.Env = append(os.Environ(), role+"=command", "GORACE=atexit_sleep_ms=0") // a second for each process otherwise
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func executable(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// An outcome is the status and the output of a command.
type outcome struct {
	stdout, stderr string
	status         int
}

// bowline runs the command until it ends, with stdin as its input.
func bowline(t testing.TB, stdin string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := command(t, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	status := exitStatus(t, cmd.Run())
	return outcome{stdout.String(), stderr.String(), status}
}

func exitStatus(t testing.TB, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("the command could not be run: %v", err)
	}
	if exit == nil {
		return 0
	}
	return exit.ExitCode()
}

// withBundled adds the bundled server as the server to use.
func withBundled(t *testing.T, args ...string) []string {
	t.Helper()
	return append(args, "--command", "'"+executable(t)+"' serve --stdio")
}

// withPeer adds a peer that this test binary runs as the server to use.
func withPeer(t *testing.T, peer string, args ...string) []string {
	t.Helper()
	return append(args, "--command", "'"+executable(t)+"'", "--env", role+"="+peer)
}

// want fails the test unless the command has ended with this status, and
// standard output and standard error contain the fragments.
func (o outcome) want(t *testing.T, status int, stdout, stderr string) {
	t.Helper()
	if o.status != status || !strings.Contains(o.stdout, stdout) || !strings.Contains(o.stderr, stderr) {
		t.Errorf("status %d, want %d\n--- standard output, want %q:\n%.2000s\n--- standard error, want %q:\n%.2000s",
			o.status, status, stdout, o.stdout, stderr, o.stderr)
	}
}
