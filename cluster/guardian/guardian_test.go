//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package guardian

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// slack is how late processes may end on a busy machine: far less than deadlines that no test reaches.
const slack = 30 * time.Second

// A guarded is a link to a server under test, and what it receives.
type guarded struct {
	t *testing.T
	*Link
	*received
}

func open(t *testing.T, server *stdio.Command, until time.Time) *guarded {
	t.Helper()
	link, err := Start().Open(t.Context(), server, until)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close(0) })
	return &guarded{t, link, bindTo(link)}
}

func (g *guarded) want(frame string) {
	g.t.Helper()
	if got := wait(g.t, g.frames, "frame"); got != frame {
		g.t.Fatalf("received %q, want %q", got, frame)
	}
}

// exitOf returns the exit with which the link to a server is lost. On a busy machine the guardians may end
// so long after the server's output that the link does not wait for them: then it is tried again.
func exitOf(t *testing.T, start func() *guarded) (exit *transport.ExitError) {
	t.Helper()
	const attempts = 10
	for attempt := 1; ; attempt++ {
		loss := wait(t, start().lost, "loss")
		if errors.As(loss.Reason, &exit) {
			return exit
		}
		if !errors.Is(loss.Reason, transport.ErrPeerClosed) || attempt == attempts {
			t.Fatalf("lost with %v, want an ExitError", loss.Reason)
		}
	}
}

func (g *guarded) close(grace time.Duration) {
	g.t.Helper()
	if err := g.Close(grace); err != nil {
		g.t.Fatal(err)
	}
}

// later is a deadline that no test reaches.
func later() time.Time { return time.Now().Add(10 * hangGuard) }

// A guarded server talks over its own standard streams, and its exit is the loss of the link,
// with its name, its status and the end of its standard error. Virtual time stands still while the
// guardians run, so the link waits for them however busy the machine is.
//
// Guarantees: G-0079.4
func TestTheExitOfAGuardedServerIsItsOwn(t *testing.T) {
	testenv.Within(t, "the servers exit", func() {
		synctest.Test(t, func(t *testing.T) {
			exitOf := func(server *stdio.Command) (exit transport.ExitError) {
				loss := <-open(t, server, later()).lost
				if got := (*transport.ExitError)(nil); errors.As(loss.Reason, &got) {
					return *got
				}
				t.Fatalf("lost with %v, want an ExitError", loss.Reason)
				return exit
			}
			exit := exitOf(roleCommand("exits"))
			if exit.Status != 3 || exit.Signal != "" || exit.Command != os.Args[0] || exit.Stderr != "cannot read the configuration\n" {
				t.Errorf("got %+v, want status 3 of %q", exit, os.Args[0])
			}
			for _, name := range []string{"SIGKILL", "SIGTERM", "SIGABRT", "SIGQUIT", "SIGSEGV", "SIGUSR1"} {
				exit := exitOf(roleCommand("dies", "SIGNAL="+name))
				if want := unix.SignalNum(name).String(); exit.Status != -1 || exit.Signal != want {
					t.Errorf("%s: got status %d, signal %q, want %q", name, exit.Status, exit.Signal, want)
				}
			}
		})
	})
}

// A guarded server gets its arguments, directory, environment and files as without a guardian.
//
// Guarantees: G-0079.4
func TestAGuardedServerInheritsItsFiles(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command(os.Args[0])
	cmd.ExtraFiles = []*os.File{r}
	cmd.Env = append(os.Environ(), roleCommand("files").Env...)
	if _, err := w.WriteString("from the program"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	g := open(t, &stdio.Command{Cmd: cmd}, later())
	g.want(`"from the program<nil>"`)
	if err := g.Send(transport.Outbound{Frame: []byte(`"echo"`)}); err != nil {
		t.Fatal(err)
	}
	g.Flush(0)
	g.want(`"echo"`)
	r, w, err = os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.ExtraFiles, cmd.Env = []*os.File{w}, append(os.Environ(), roleCommand("closes file").Env...)
	open(t, &stdio.Command{Cmd: cmd}, later())
	w.Close()
	if b, err := io.ReadAll(r); len(b) > 0 || err != nil {
		t.Errorf("got %q, %v of a file that the server has closed", b, err)
	}
	bare, err := roleCommand("descriptors").Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close(0)
	open(t, roleCommand("descriptors"), later()).want(wait(t, bindTo(bare).frames, "frame"))
	shell := open(t, &stdio.Command{Path: "sh", Args: []string{"-c", `echo "\"$1 $2 $PWD $X\""`, "sh", "a b", ""}, Dir: "/", Env: []string{"X=y"}}, later())
	shell.want(`"a b  / y"`)
}

// A server that cannot be started is reported as without a guardian.
//
// Guarantees: G-0079.4
func TestAFailedStartIsReported(t *testing.T) {
	script := t.TempDir() + "/script"
	if err := os.WriteFile(script, []byte("#!/no/such/shell\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, server := range []*stdio.Command{{Path: "bowline-no-such-command"}, {Path: "/bowline/none"}, {Path: script}, {Path: "/"}, {}} {
		_, want := server.Open(t.Context())
		_, got := Start().Open(t.Context(), server, later())
		var start *transport.StartError
		if !errors.As(got, &start) || got.Error() != want.Error() || errors.Is(got, fs.ErrNotExist) != errors.Is(want, fs.ErrNotExist) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if _, err := (*Guardian)(nil).Open(t.Context(), &stdio.Command{Path: "true"}, later()); !errors.Is(err, errNone) {
		t.Errorf("got %v of no Guardian, want %v", err, errNone)
	}
}

// A server whose deadline has passed is not started, and neither is one whose context has ended.
//
// Guarantees: G-0079.1
func TestNothingStartsAfterItsDeadline(t *testing.T) {
	lock := newLock(t)
	if _, err := Start().Open(t.Context(), roleCommand("stubborn", lock.variable()), time.Now()); err == nil || !strings.Contains(err.Error(), "deadline passed") {
		t.Errorf("got %v, want that the deadline has passed", err)
	}
	slow := roleCommand("stubborn", lock.variable())
	stopped, stop := context.WithCancel(t.Context())
	slow.Start = func(cmd *exec.Cmd) error {
		err := cmd.Start()
		syscall.Kill(cmd.Process.Pid, unix.SIGSTOP)
		stop()
		return err
	}
	if _, err := Start().Open(stopped, slow, later()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	lock.awaitFree(t, slack)
}

// At the deadline everything that descends from a server is ended, also what has left its
// group and session and ignores SIGTERM. A renewed deadline counts in place of the first. If the server had
// no processor between SIGTERM and the deadline, on a busy machine, it is tried again with more time between them.
//
// Guarantees: G-0079.1, G-0079.2
func TestAServerEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	for length := 2 * time.Second; ; length *= 2 {
		exit := exitOf(t, func() *guarded { return endsAtItsDeadline(t, length) })
		if exit.Signal == "terminated" && strings.Contains(exit.Stderr, "its deadline has come") {
			return
		}
		if exit.Signal != "killed" || length > 10*maxAskBefore { // then there is no more time between them
			t.Fatalf("got %+v, want that it was asked to end, with the reason", exit)
		}
	}
}

// endsAtItsDeadline waits until all processes of a server have ended at a renewed deadline.
func endsAtItsDeadline(t *testing.T, length time.Duration) *guarded {
	t.Helper()
	lock := newLock(t)
	g := open(t, roleCommand("family", lock.variable()), time.Now().Add(hangGuard))
	wait(t, g.frames, "first frame")
	wait(t, g.frames, "second frame")
	for range 3 {
		g.Renew(time.Now().Add(2 * hangGuard))
	}
	until := time.Now().Add(length)
	g.Renew(until)
	lock.awaitFree(t, time.Until(until)+slack)
	if ended := time.Now(); ended.Before(until.Add(-maxAskBefore)) {
		t.Errorf("the server ended %v before its deadline", until.Sub(ended))
	}
	return g
}

// A server that ignores SIGTERM is killed at the deadline. If it did not even run before that, on a busy machine, it
// is tried again with a later one.
//
// Guarantees: G-0079.1
func TestAStubbornServerIsKilledAtItsDeadline(t *testing.T) {
	t.Parallel()
	for length := 2 * time.Second; !isKilledAtItsDeadline(t, length); length *= 2 {
		if length > hangGuard {
			t.Fatalf("the server did not run within %v", length)
		}
	}
}

// isKilledAtItsDeadline waits until a stubborn server has ended, and reports whether it ran before.
func isKilledAtItsDeadline(t *testing.T, length time.Duration) (ran bool) {
	t.Helper()
	lock := newLock(t)
	var until time.Time
	var g *guarded
	exit := exitOf(t, func() *guarded {
		until = time.Now().Add(length)
		g = open(t, roleCommand("stubborn", lock.variable()), until)
		return g
	})
	if len(g.frames) == 0 { // it says so when it ignores SIGTERM
		return false
	}
	if exit.Signal != "killed" {
		t.Errorf("got %+v, want that it was killed", exit)
	}
	if late := time.Since(until); late < 0 || late > slack {
		t.Errorf("it was killed %v after the deadline", late)
	}
	lock.awaitFree(t, slack)
	return true
}

// When a server has ended by itself, so does all that it started, before the loss is reported.
//
// Guarantees: G-0079.2
func TestNothingOutlivesAServer(t *testing.T) {
	lock := newLock(t)
	g := open(t, roleCommand("family", lock.variable()), later())
	wait(t, g.frames, "first frame")
	wait(t, g.frames, "second frame")
	go g.Close(hangGuard) // the server reads the end of its input
	wait(t, g.lost, "loss")
	if lock.isHeld(t) {
		t.Error("a process of the server still holds the lock")
	}
}

// Close asks once, after 30 % of the grace, and kills after 70 %; a shorter grace shortens it,
// and another deadline changes nothing.
//
// Guarantees: G-0079.3
func TestCloseOfAGuardedServerAsksAndKills(t *testing.T) {
	t.Parallel()
	closed := make(chan error, 1)
	closeTakes := func() time.Duration {
		g := open(t, roleCommand("asked"), later())
		g.want(`"ready"`)
		began := time.Now()
		go func() { closed <- g.Close(4 * time.Second) }()
		g.want(`"asked"`)
		g.Renew(later())
		g.Renew(time.Now())
		if err := wait(t, closed, "end of Close"); err != nil {
			t.Error(err)
		}
		took := time.Since(began)
		if len(g.frames) > 0 {
			t.Errorf("the server also said %q, want that it was asked once", <-g.frames)
		}
		return took
	}
	// If nobody told the inner guardian of the grace, it would end the server a second later. A busy machine
	// may be as late, but not each time.
	const attempts = 4
	for attempt := 1; ; attempt++ {
		took := closeTakes()
		if took < 2700*time.Millisecond || took > 3700*time.Millisecond && attempt == attempts {
			t.Errorf("Close took %v, want 2.8 s", took)
		}
		if took <= 3700*time.Millisecond || attempt == attempts {
			break
		}
	}
	lock := newLock(t)
	g := open(t, roleCommand("stubborn", lock.variable()), later())
	wait(t, g.frames, "frame")
	began := time.Now()
	go func() { closed <- g.Close(hangGuard) }()
	g.close(0)
	if err := wait(t, closed, "end of Close"); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > orphanGrace {
		t.Errorf("Close took %v, though it was shortened to 0", took)
	}
	if lock.isHeld(t) {
		t.Error("the server still holds the lock after Close")
	}
}

// Close returns when the inner guardian has ended, also if the outer one has ended before, and
// says if that takes too long.
//
// Guarantees: G-0079.3
func TestCloseWaitsForTheInnerGuardian(t *testing.T) {
	for _, after := range []time.Duration{goneWait - 1, goneWait + 1} {
		synctest.Test(t, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			l := &Link{processLink: endedLink{}, gone: make(chan struct{}), control: w}
			time.AfterFunc(after, func() { close(l.gone) })
			began := time.Now()
			err = l.Close(0)
			if took := time.Since(began); took != min(after, goneWait) || (err != nil) != (after > goneWait) {
				t.Errorf("Close took %v and returned %v, while the guardian took %v", took, err, after)
			}
		})
	}
}

// An endedLink is a link whose process has ended.
type endedLink struct{ processLink }

func (endedLink) Close(time.Duration) error { return nil }

// A server whose output ends, or sends a line above MaxFrame, is ended with all that it
// started, though the outer guardian is killed for that.
//
// Guarantees: G-0079.2
func TestABrokenServerLeavesNothing(t *testing.T) {
	for _, role := range []string{"closes", "endless line"} {
		lock := newLock(t)
		server := roleCommand(role, lock.variable())
		server.MaxFrame = 10_000
		g := open(t, server, later())
		wait(t, g.lost, "loss")
		g.close(time.Second)
		if lock.isHeld(t) {
			t.Errorf("%s: a process of the server still holds the lock after Close", role)
		}
	}
}

// After Close, no descriptor of the link is left open.
//
// Guarantees: G-0079.3
func TestNoDescriptorOfAGuardedServerIsLeft(t *testing.T) {
	lock := newLock(t)
	open(t, roleCommand("asked"), later()).close(0) // opens the descriptors of the poller
	before := descriptors(t)
	open(t, roleCommand("family", lock.variable()), later()).close(time.Second)
	exits := open(t, roleCommand("exits"), later())
	wait(t, exits.lost, "loss")
	exits.close(0)
	exits.Renew(later()) // it has no effect
	if _, err := Start().Open(t.Context(), &stdio.Command{Path: "/bowline/none"}, later()); err == nil {
		t.Error("a missing program was started")
	}
	broken := &stdio.Command{Path: os.Args[0], Start: func(*exec.Cmd) error { return os.ErrPermission }}
	if _, err := Start().Open(t.Context(), broken, later()); err == nil {
		t.Error("a program that cannot be started was started")
	}
	if after := descriptors(t); !slices.Equal(before, after) {
		t.Errorf("got the descriptors %[2]v, want %[1]v", before, after)
	}
}

func descriptors(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A guardian that was not started by its program ends with status 2 and says so.
func TestAGuardianStartedByHandEnds(t *testing.T) {
	for _, args := range [][]string{
		{marker}, {marker, outer, "0", "true"}, {marker, "other", "0", "true", "true"}, {marker, outer, "-1", "true", "true"},
		{marker, inner, "x", "true", "true"}, {markers + "0", outer, "0", "true", "true"}, {marker, inner, "0", "true", "true"},
	} {
		var exit *exec.ExitError
		said, err := exec.Command(os.Args[0], args...).CombinedOutput()
		if !errors.As(err, &exit) || exit.ExitCode() != exitMisused || !strings.Contains(string(said), "the program starts its guardians itself") {
			t.Errorf("%q: got %v, %q, want status %d", args, err, said, exitMisused)
		}
	}
}
