package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// hanging is set in a process that only runs a bubble that hangs.
const hanging = "BOWLINE_TEST_HANGS"

func TestMain(m *testing.M) {
	if os.Getenv(hanging) == "" {
		Once()
	}
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

// A test whose bubble hangs with a lock ends its process, and is named.
func TestABubbleThatHangs(t *testing.T) {
	if os.Getenv(hanging) != "" {
		bubble(t, 10*time.Millisecond, func(*testing.T) {
			var lock sync.Mutex
			lock.Lock()
			lock.Lock()
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestABubbleThatHangs$") //nolint:gosec // this program
	child.Env = append(os.Environ(), hanging+"=1")
	said, err := child.CombinedOutput()
	if err == nil || ctx.Err() != nil || !strings.Contains(string(said), "TestABubbleThatHangs: its bubble hangs for 10ms") {
		t.Errorf("it ended with %v and said %q, want a panic that names the test", err, said)
	}
	Bubble(t, func(t *testing.T) { // virtual time is no time
		hours := time.NewTimer(24 * time.Hour)
		<-hours.C
	})
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

// A page is fresh if it is there and is what is generated, to its last byte.
func TestPageIsCompared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	for generated, fresh := range map[string]bool{"a\nb\n": true, "a\nc\n": false, "a\nb": false, "a\nb\n\n": false, "": false} {
		if err := os.WriteFile(path, []byte("a\nb\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		seen := &failures{TB: t}
		if Page(seen, path, generated, false); (len(seen.texts) == 0) != fresh {
			t.Errorf("with %q generated it says %q, fresh %t", generated, seen.texts, fresh)
		}
		Page(t, path, generated, true)
	}
	seen := &failures{TB: t}
	if Page(seen, path+"s", "", false); len(seen.texts) != 1 {
		t.Errorf("a missing page: %q", seen.texts)
	}
}

// failures keeps what a test reports.
type failures struct {
	testing.TB
	texts []string
}

func (f *failures) Errorf(format string, args ...any) {
	f.texts = append(f.texts, fmt.Sprintf(format, args...))
}
