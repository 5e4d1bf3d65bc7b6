package stores_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// brokenVariable makes the test binary run one suite on a store that is broken on purpose,
// and so fail.
const brokenVariable = "BOWLINE_STORES_BROKEN"

// A violation is a store that is broken in one way, and what the suite says of it.
type violation struct {
	name   string
	suite  func(t *testing.T) // runs the suite on the broken store
	output string             // part of the failure's message
}

// wantCaught runs each suite in another process, where it has to fail.
func wantCaught(t *testing.T, violations []violation) {
	for _, v := range violations {
		t.Run(v.name, func(t *testing.T) {
			if os.Getenv(brokenVariable) != "" {
				v.suite(t)
				return
			}
			t.Parallel()
			output := runBroken(t, "-test.failfast")
			if !strings.Contains(output, v.output) { // what fails first may be something else
				output = runBroken(t)
			}
			if !strings.Contains(output, v.output) {
				t.Errorf("the failure does not say %q:\n%s", v.output, output)
			}
		})
	}
}

// runBroken runs this test in another process, and returns what that has printed.
func runBroken(t *testing.T, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var run []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		run = append(run, "^"+regexp.QuoteMeta(part)+"$")
	}
	child := exec.CommandContext(ctx, self, append(args, "-test.run="+strings.Join(run, "/"), "-rapid.shrinktime=0s", "-rapid.seed=1", "-rapid.nofailfile")...)
	child.Env, child.Dir = append(os.Environ(), brokenVariable+"=1", "GORACE=atexit_sleep_ms=0"), t.TempDir()
	printed, err := child.CombinedOutput()
	if err == nil {
		t.Errorf("the suite did not fail:\n%s", printed)
	}
	return string(printed)
}
