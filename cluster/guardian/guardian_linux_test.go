package guardian

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A nodeProcess is another process of the test binary with a guarded family.
type nodeProcess struct {
	t    *testing.T
	cmd  *exec.Cmd
	said *bufio.Reader
	lock heldLock

	outer, inner, server, clinger int
}

// startNode starts a node with a server that has locked the file, and has a child of its own.
func startNode(t *testing.T, server string, deadline time.Duration, env ...string) *nodeProcess {
	t.Helper()
	n := &nodeProcess{t: t, lock: newLock(t), cmd: exec.Command(os.Args[0])}
	n.cmd.Env = append(append(os.Environ(), env...), "GORACE=atexit_sleep_ms=0", roleVariable+"=node", serverVariable+"="+server, n.lock.variable(), untilVariable+"="+deadline.String())
	n.cmd.Stderr = os.Stderr
	said, err := n.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	n.said = bufio.NewReader(said)
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.cmd.Process.Kill()
		n.cmd.Wait()
	})
	pids := strings.Fields(n.line())
	n.server, n.clinger = number(t, pids[0]), number(t, pids[1])
	n.inner = number(t, strings.Fields(statOf(t, n.server))[1])
	n.outer = number(t, strings.Fields(statOf(t, n.inner))[1])
	t.Cleanup(func() { syscall.Kill(n.clinger, unix.SIGKILL) })
	return n
}

func (n *nodeProcess) line() string {
	n.t.Helper()
	line, err := n.said.ReadString('\n')
	if err != nil {
		n.t.Fatal(err)
	}
	return line
}

func (n *nodeProcess) signal(pid int, sig syscall.Signal) {
	n.t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		n.t.Fatal(err)
	}
}

func (n *nodeProcess) renew() {
	n.t.Helper()
	n.signal(n.cmd.Process.Pid, unix.SIGUSR1)
	if got := n.line(); got != "renewed\n" {
		n.t.Fatalf("the node said %q", got)
	}
}

// statOf returns what follows the name in the stat of a process: its state, its parent, its
// group, and more.
func statOf(t *testing.T, pid int) string {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	return string(stat[strings.LastIndexByte(string(stat), ')')+1:])
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ends returns a channel that is closed when a process has ended. It looks until the test is over.
func ends(t *testing.T, pid int) <-chan struct{} {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	ended, over, looked := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(looked)
		defer unix.Close(fd)
		for {
			const pause = 20 // ms
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, pause)
			if n == 1 || err != nil && err != unix.EINTR {
				close(ended)
				return
			}
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	t.Cleanup(func() {
		close(over)
		<-looked
	})
	return ended
}

// A program that is killed leaves no process of a guarded server, though one has left its
// group and session and ignores SIGTERM and its input. A second copy of the server gets the
// lock then.
//
// Guarantees: G-0079.2
func TestNothingOutlivesAKilledProgram(t *testing.T) {
	t.Parallel()
	n := startNode(t, "hermit", 10*hangGuard)
	guards := []<-chan struct{}{ends(t, n.outer), ends(t, n.inner)}
	n.signal(n.cmd.Process.Pid, unix.SIGKILL)
	n.lock.awaitFree(t, orphanGrace+slack)
	for _, ended := range guards {
		wait(t, ended, "end of a guardian")
	}
	second := open(t, roleCommand("locker", n.lock.variable()), later())
	if got := wait(t, second.frames, "frame"); got == `"locked by another"` {
		t.Errorf("the second copy found the file locked")
	}
}

// A stopped program renews nothing, so its server ends at the deadline, and both guardians do,
// though nobody reads what the server writes to standard error. What the program sends when it
// continues has no effect.
//
// Guarantees: G-0079.1
func TestAStoppedProgramLosesItsServer(t *testing.T) {
	t.Parallel()
	n := startNode(t, "family", 3*time.Second, floodVariable+"=1")
	guards := []<-chan struct{}{ends(t, n.outer), ends(t, n.inner)}
	began := time.Now()
	n.renew()
	until := time.Now().Add(3 * time.Second)
	n.signal(n.cmd.Process.Pid, unix.SIGSTOP)
	if !n.lock.isHeld(t) && time.Since(began) < 2*time.Second {
		t.Error("the server ended when its program was stopped")
	}
	n.lock.awaitFree(t, time.Until(until)+slack)
	for _, ended := range guards {
		wait(t, ended, "end of a guardian")
	}
	n.signal(n.cmd.Process.Pid, unix.SIGCONT)
	n.renew()
	if n.lock.isHeld(t) {
		t.Error("the server runs again")
	}
}

// A server whose deadline is renewed in time runs on. If this process was not in time itself, on a busy machine,
// it tries again with longer deadlines.
//
// Guarantees: G-0079.1
func TestARenewedServerRunsOn(t *testing.T) {
	t.Parallel()
	for length := 2 * time.Second; !runsOnRenewed(t, length); length *= 2 {
		if length > hangGuard {
			t.Fatalf("the server ended, or was not renewed within %v", length)
		}
	}
}

// runsOnRenewed renews a server until its first deadline is over, and reports whether it was in time for that.
func runsOnRenewed(t *testing.T, length time.Duration) (inTime bool) {
	t.Helper()
	lock, renewed := newLock(t), time.Now()
	g := open(t, roleCommand("hermit", lock.variable()), later())
	defer g.close(0)
	wait(t, g.frames, "first frame")
	wait(t, g.frames, "second frame")
	renew := func() bool {
		now := time.Now()
		late := now.Sub(renewed) > length/2
		renewed = now
		g.Renew(now.Add(length))
		return !late
	}
	renew()
	began := renewed
	ticks := time.NewTicker(length / 8)
	defer ticks.Stop()
	for time.Since(began) < length+length/2 {
		select {
		case loss := <-g.lost:
			if time.Since(renewed) < length/2 {
				t.Fatalf("the server ended, though its deadline was renewed: %v", loss.Reason)
			}
			return false
		case <-ticks.C:
			if !renew() {
				return false
			}
		}
	}
	if !lock.isHeld(t) {
		t.Error("the server does not run")
	}
	return true
}

// If one of the two guardians is killed, the other ends the server and all that it started.
//
// Guarantees: G-0079.5
func TestAKilledGuardianEndsItsServer(t *testing.T) {
	t.Parallel()
	for name, guardian := range map[string]func(*nodeProcess) int{
		"outer": func(n *nodeProcess) int { return n.outer },
		"inner": func(n *nodeProcess) int { return n.inner },
	} {
		n := startNode(t, "hermit", 10*hangGuard)
		n.signal(guardian(n), unix.SIGKILL)
		if took := n.lock.awaitFree(t, orphanGrace+slack); took > orphanGrace+slack {
			t.Errorf("%s: the lock was free after %v", name, took)
		}
	}
}

// If both guardians are killed at the same time, the kernel ends the server's own process.
//
// Guarantees: G-0079.5
func TestTwoKilledGuardiansEndTheServersProcess(t *testing.T) {
	n := startNode(t, "hermit", 10*hangGuard)
	ended := ends(t, n.server)
	n.signal(n.inner, unix.SIGSTOP) // so that it cannot act before it is killed
	n.signal(n.outer, unix.SIGSTOP)
	n.signal(n.outer, unix.SIGKILL)
	n.signal(n.inner, unix.SIGKILL)
	wait(t, ended, "end of the server")
}

// A guardian that was stopped beyond the deadline ends the server when it continues. What the
// program sent meanwhile counts from when it was sent.
//
// Guarantees: G-0079.1
func TestAGuardianThatWasStoppedIsNotLate(t *testing.T) {
	t.Parallel()
	const length, attempts = 2 * time.Second, 4
	endTakes := func() time.Duration {
		n := startNode(t, "hermit", length)
		n.signal(n.inner, unix.SIGSTOP)
		n.renew()
		n.signal(n.cmd.Process.Pid, unix.SIGSTOP)
		passed := time.NewTimer(length)
		defer passed.Stop()
		<-passed.C
		if !n.lock.isHeld(t) {
			t.Error("the server ended while its guardian was stopped")
		}
		n.signal(n.inner, unix.SIGCONT)
		return n.lock.awaitFree(t, hangGuard)
	}
	// If the deadline counted from when the guardian has read it, the end would take that long. On a busy machine
	// it may take as long, but not each time.
	for attempt := 1; endTakes() >= length; attempt++ {
		if attempt == attempts {
			t.Fatalf("the server ended more than %v after its guardian continued", length)
		}
	}
}

// SIGTERM to a guardian reaches the server, once, and the guardian waits for it.
//
// Guarantees: G-0079.4
func TestAGuardianPassesSIGTERMOn(t *testing.T) {
	server, outer := roleCommand("asked"), 0
	server.Started = func(pid int) { outer = pid }
	g := open(t, server, later())
	g.want(`"ready"`)
	for range 2 {
		if err := syscall.Kill(outer, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(outer, unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	g.want(`"asked"`)
	g.close(0)
	if len(g.frames) > 0 {
		t.Errorf("the server also said %q", <-g.frames)
	}
}
