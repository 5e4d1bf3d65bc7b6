package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
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

// A recorder is a test that goes on after it has failed.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Fatalf(format string, args ...any) { r.said = fmt.Sprintf(format, args...) }

func TestReceiveSaysWhatItHasWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, numbers := &recorder{TB: t}, make(chan int, 1)
		numbers <- 7
		if n := Receive(r, numbers, "a number"); n != 7 || r.said != "" {
			t.Errorf("got %d, and the test has said %q", n, r.said)
		}
		if Receive(r, numbers, "another number"); r.said != "not within 1m0s: another number" {
			t.Errorf("the test has said %q", r.said)
		}
	})
}
