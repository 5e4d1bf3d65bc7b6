package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A program is a test binary of a package.
type program struct {
	binary string
	dir    string        // of the package, with slashes
	flags  []string      // of every run
	enough time.Duration // in place of enough, unless it is 0
}

// A finding is a verdict and, unless the mutant has lived, the test that ran
// when that was found.
type finding struct {
	verdict verdict
	by      string
}

func (f finding) String() string {
	if f.by == "" {
		return string(f.verdict)
	}
	return string(f.verdict) + " by " + f.by
}

// What is set for the tests: their garbage is little, and collecting it took a third of the processor's
// time; and the race detector would delay the end of each process by a second.
const (
	seldomCollects = "GOGC=400"
	endsAtOnce     = "GORACE=atexit_sleep_ms=0"
)

// straggling is how long what a test has started may keep its output open.
const straggling = 5 * time.Second

const (
	// guardPatience is given to a test that waits instead of computing when its limit has passed:
	// its own guard can say what it has waited for in vain.
	guardPatience = time.Minute
	// enough is what one that computes then may still compute, so that a busy machine decides nothing,
	enough = 2 * time.Second
	// and mostLooks is how often we look, a second apart.
	mostLooks = 100
)

// run runs some tests once, until one fails or takes longer than its limit. What
// they have started and not ended is ended. Rest is called when they only wait.
func (p *program) run(ctx context.Context, tests []string, limit func(test string) time.Duration, rest func(), env []string, flags ...string) (finding, string, error) {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	command := exec.CommandContext(running, p.binary, append([]string{"-test.failfast", "-test.v", "-test.run=" + only(tests)}, append(flags, p.flags...)...)...)
	command.Dir = filepath.FromSlash(p.dir)
	command.Env = append(append(os.Environ(), seldomCollects, endsAtOnce), env...)
	command.WaitDelay = straggling
	apart(command)
	command.Cancel = func() error { sweep(command.Process.Pid); return nil }
	watch := &watch{limit: limit}
	var looks int
	var resting bool
	var first time.Duration
	watch.timer = time.AfterFunc(startPatience, func() {
		used, computes := computed(command.Process.Pid)
		if looks++; looks == 1 {
			first = used
		}
		switch {
		case !computes && !resting:
			resting = true
			rest()
			watch.timer.Reset(guardPatience)
		case !computes || used-first >= cmp.Or(p.enough, enough) || looks == mostLooks:
			cancel()
		default:
			watch.timer.Reset(time.Second)
		}
	})
	defer watch.timer.Stop()
	command.Stdout, command.Stderr = watch, watch
	if err := command.Start(); err != nil {
		return finding{}, "", err
	}
	err := command.Wait()
	sweep(command.Process.Pid)
	output := watch.output.String()
	var failed *exec.ExitError
	switch {
	case err == nil:
		return finding{verdict: lived}, output, nil
	case ctx.Err() != nil:
		return finding{}, "", ctx.Err()
	case running.Err() != nil && watch.failed != "": // what hangs is an example: those are run although a test has failed
		return finding{killed, watch.failed}, output, nil
	case running.Err() != nil:
		return finding{timedOut, watch.test}, output, nil
	case !errors.As(err, &failed) && !errors.Is(err, exec.ErrWaitDelay):
		return finding{}, "", err
	}
	return finding{killed, watch.test}, output, nil
}

// only is the expression that selects these tests.
func only(tests []string) string { return "^(" + strings.Join(tests, "|") + ")$" }

// tests lists what the binary runs by default: tests, examples, and the seeds of fuzz targets.
func (p *program) tests(ctx context.Context) ([]string, error) {
	command := exec.CommandContext(ctx, p.binary, "-test.list=^(Test|Example|Fuzz)")
	command.Dir = filepath.FromSlash(p.dir)
	text, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tests: %w", err)
	}
	return declared.FindAllString(string(text), -1), nil
}

var declared = regexp.MustCompile(`(?m)^(Test|Example|Fuzz)\w*$`)

// startPatience is given to a binary until its first test begins.
const startPatience = time.Minute

// A watch reads what a test binary prints, and ends the binary when a test takes
// longer than its limit.
type watch struct {
	limit  func(test string) time.Duration
	timer  *time.Timer
	output bytes.Buffer
	line   []byte // the last one, which has no end yet
	test   string // the one that runs, or ran last
	failed string // the one that has failed; "": none
}

// event is a line that says that a test begins, goes on after others, or has failed.
var event = regexp.MustCompile(`^(?:=== RUN  |=== CONT |--- FAIL:) ([^\s/]+)(?: \(.*)?\n$`)

// Write implements io.Writer. A command writes both its outputs from one
// goroutine if they are one writer.
func (w *watch) Write(text []byte) (int, error) {
	w.output.Write(text)
	for line := range bytes.Lines(text) {
		w.line = append(w.line, line...)
		if !bytes.HasSuffix(w.line, []byte("\n")) {
			break
		}
		if found := event.FindSubmatch(w.line); found != nil {
			w.test = string(found[1])
			w.timer.Reset(w.limit(w.test))
			if bytes.HasPrefix(w.line, []byte("--- FAIL:")) {
				w.failed = w.test
			}
		}
		w.line = w.line[:0]
	}
	return len(text), nil
}
