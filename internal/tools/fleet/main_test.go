package main

import (
	"context"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

// TestMain makes the test binary the soak's child as well.
func TestMain(m *testing.M) {
	if isChild() {
		exit(serveChild(context.Background()))
	}
	testenv.Once()
	runtime.MemProfileRate = small().profile // as main does: else a small heap may have no sample of a package
	goleak.VerifyTestMain(m)
}

// small returns options of a fleet that takes a second or two.
func small() pairsOptions {
	return pairsOptions{pairs: 200, starting: 16, killed: 5, lost: 20, backoff: 20 * time.Millisecond, profile: 1}
}

// TestFleet runs every phase with few pairs.
func TestFleet(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, options{seed: 1, timeout: time.Minute, pairs: small()}); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		"200 pairs", "1. start", "all ready in", "2. one call each", "all answered in",
		"3. idle", "kB a pair together", "conn ", "0.00 goroutines a pair",
		"4. 10 killed at random", "10 of the callers in flight got: link lost (unknown)", "of which 0 failed",
		"5. a server lost by 20 clients at once", "first attempts: the first after", "###",
		"6. drain", "200 of 200 were answered", "calls ended by", "of handshakes", "after", "MB from the operating system",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, &out)
		}
	}
}

// TestFleetThatIsInterrupted checks that an interrupted fleet returns an error, and leaves
// no goroutine.
func TestFleetThatIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, io.Discard, options{timeout: time.Minute, pairs: small()}); err == nil {
		t.Error("run was interrupted before its start, and returned no error")
	}
}

func TestOptionsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*options){
		"too few pairs":    func(o *options) { o.pairs.pairs = 9 },
		"none starting":    func(o *options) { o.pairs.starting = 0 },
		"none killed":      func(o *options) { o.pairs.killed = 0 },
		"most killed":      func(o *options) { o.pairs.killed = 51 },
		"no callers":       func(o *options) { o.children = childrenOptions{children: 1, kills: 1, pause: 1, duration: 1} },
		"no kills":         func(o *options) { o.children = childrenOptions{children: 1, callers: 1, pause: 1, duration: 1} },
		"no time to kill":  func(o *options) { o.children = childrenOptions{children: 1, callers: 1, pause: 1, kills: 1} },
		"no time for rest": func(o *options) { o.children = childrenOptions{children: 1, callers: 1, duration: 1, kills: 1} },
	} {
		o := options{timeout: time.Minute, pairs: small()}
		change(&o)
		if err := run(t.Context(), io.Discard, o); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}
