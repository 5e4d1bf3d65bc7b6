package stdio

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bowline-mcp/bowline/transport"
)

// A child is not reaped before Started has returned, even if it has exited, because
// another process could get its id.
//
// Guarantees: G-0014.9
func TestChildIsNotReapedBeforeStartedReturns(t *testing.T) {
	command, called := roleCommand(t, "exit"), 0
	command.Started = func(pid int) {
		called++
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		for err == unix.EINTR {
			err = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		}
		for n := 0; err == nil && n < 10_000; n++ { // leaves time for a goroutine that waits for the exit
			err = syscall.Kill(pid, 0)
		}
		if err != nil {
			t.Errorf("process %d while Started runs: got %v, want no error", pid, err)
		}
	}
	p := open(t, command)
	if exit := lossAs[*transport.ExitError](p); exit.Status != 3 || called != 1 {
		t.Errorf("got the reason %+v and %d calls of Started, want 1", exit, called)
	}
	p.close(0)
	p.wantReaped()
}

// A link takes six descriptors: three pipes, the socket that ends its processes with this one, and two of the process:
// one is package os's, the other is watched.
//
// Guarantees: G-0014.11
func TestDescriptorsOfALink(t *testing.T) {
	open(t, roleCommand(t, "echo")).close(hangGuard) // opens the descriptors of the poller
	before := descriptors(t)
	p := open(t, roleCommand(t, "echo"))
	if taken := len(descriptors(t)) - len(before); taken > 6 {
		t.Errorf("a link takes %d descriptors, want 6 at most", taken)
	}
	p.close(hangGuard)
}
