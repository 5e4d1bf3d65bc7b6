package testenv

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	Once()
	goleak.VerifyTestMain(m)
}

// TestAProcessWithoutARoleEnds starts the test binary as a test would whose child has lost
// its role: no test runs in it.
func TestAProcessWithoutARoleEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	said, err := exec.CommandContext(ctx, os.Args[0], "-test.v").CombinedOutput() //nolint:gosec // this program
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(said), "without a role") || strings.Contains(string(said), "=== RUN") {
		t.Errorf("it ended with %v and said %q", err, said)
	}
}
