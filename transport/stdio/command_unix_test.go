//go:build unix

package stdio

import (
	"context"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bowline-mcp/bowline/transport"
)

// Guarantees: G-0014.9
func TestChildKilledInTheMiddleOfAFrame(t *testing.T) {
	p := open(t, roleCommand(t, "killed in a frame"))
	p.want(`"whole"`)
	p.want(`"ha`)
	if exit := lossAs[*transport.ExitError](p); exit.Signal != "killed" || exit.Status != -1 {
		t.Fatalf("lost with %+v", exit)
	}
}

// Guarantees: G-0014.7, G-0014.11
func TestChildThatIgnoresSignalsIsKilledAndReaped(t *testing.T) {
	p := open(t, roleCommand(t, "stubborn"))
	p.want(`"ready"`)
	p.close(brokenGrace)
	p.wantReaped()
}

// Guarantees: G-0014.12
func TestChildThatClosesItsOutputIsEnded(t *testing.T) {
	p := open(t, roleCommand(t, "close stdout"))
	if loss := p.waitLoss(); loss.Reason != transport.ErrPeerClosed {
		t.Fatalf("lost with %v", loss.Reason)
	}
	p.wantReaped()
}

// Guarantees: G-0008.1, G-0008.3
func TestOversizedLineLosesTheLinkAndKillsTheChild(t *testing.T) {
	socket := listen(t)
	command := roleCommand(t, "endless line", socket.variable())
	command.MaxFrame = 100_000
	p := open(t, command)
	conn := socket.accept(t)
	oversized := lossAs[*transport.OversizedError](p)
	if oversized.Limit != 100_000 || oversized.Size <= 100_000 || oversized.Size > 100_000+readAhead+1 {
		t.Fatalf("refused with %+v", oversized)
	}
	p.wantReaped()
	if said, err := io.ReadAll(conn); err != nil || len(said) > 0 {
		t.Fatalf("the child was %s before it was killed, %v", said, err)
	}
}

// Guarantees: G-0014.11
func TestNoDescriptorIsLeft(t *testing.T) {
	open(t, roleCommand(t, "echo")).close(hangGuard) // the poller opens its own
	before := descriptors(t)
	for _, role := range []string{"echo", "exit", "close stdout", "never reads"} {
		open(t, roleCommand(t, role)).close(brokenGrace)
	}
	if _, err := (&Command{Path: "bowline-no-such-command"}).Open(context.Background()); err == nil {
		t.Fatal("a missing command was started")
	}
	if after := descriptors(t); !slices.Equal(before, after) {
		t.Fatalf("descriptors were %v and are %v", before, after)
	}
}

// A panic in Started passes on to the caller of Open, and nothing is left of the child.
//
// Guarantees: G-0014.11
func TestAPanicInStartedLeavesNoChild(t *testing.T) {
	open(t, roleCommand(t, "echo")).close(hangGuard) // the poller opens its own
	before := descriptors(t)
	for name, end := range map[string]func(){
		"panic":  func() { panic("broken") },
		"Goexit": runtime.Goexit,
	} {
		command, pid, passed := roleCommand(t, "stubborn"), 0, make(chan any, 1)
		command.Started = func(started int) {
			pid = started
			end()
		}
		go func() {
			defer func() { passed <- recover() }()
			_, err := command.Open(context.Background())
			t.Errorf("%s: Open returned %v", name, err)
		}()
		got, _ := wait(t, passed, "the end of Open")
		if name == "panic" && got != "broken" {
			t.Errorf("%v passed on, want the panic of Started", got)
		}
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			t.Errorf("%s: process %d is still there: %v", name, pid, err)
		}
	}
	if after := descriptors(t); !slices.Equal(before, after) {
		t.Errorf("descriptors were %v and are %v", before, after)
	}
}

// descriptors lists the open descriptors of this process; the one that reads
// the list comes last.
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

// wantReaped checks that not even a zombie is left of the child.
func (p *peer) wantReaped() {
	p.t.Helper()
	pid := p.Link.(*child).process.child.Pid
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		p.t.Fatalf("process %d is still there: %v", pid, err)
	}
}

// The link also owns a child that leads its own session, and does not change the
// caller's Cmd.
//
// Guarantees: G-0014.10, G-0014.20
func TestChildThatLeadsASession(t *testing.T) {
	socket := listen(t)
	self := roleCommand(t, "parent", socket.variable())
	cmd := exec.Command(self.Path)
	cmd.Env = append(os.Environ(), self.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setpgid: true}
	r, w := mustPipe(t)
	cmd.ExtraFiles = []*os.File{w}
	p := open(t, &Command{Cmd: cmd})
	orphan := socket.accept(t)
	if pid := p.Link.(*child).process.child.Pid; sessionOf(pid) != pid {
		t.Errorf("process %d is in session %d", pid, sessionOf(pid))
	}
	w.Close()
	p.close(brokenGrace)
	if said, err := io.ReadAll(orphan); err != nil || len(said) > 0 {
		t.Errorf("the descendant said %q, %v", said, err)
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 { // its end was in the child
		t.Errorf("the extra file has %q, %v", rest, err)
	}
	r.Close()
	if len(cmd.ExtraFiles) != 1 || !cmd.SysProcAttr.Setpgid {
		t.Errorf("the Cmd was changed: %+v", cmd)
	}
}

func sessionOf(pid int) int {
	session, _ := unix.Getsid(pid)
	return session
}
