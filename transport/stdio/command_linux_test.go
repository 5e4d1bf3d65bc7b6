package stdio

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bowline-mcp/bowline/transport"
)

// Nobody reaps a child before Started has returned, even if the child has exited: another
// process could get its id.
//
// Guarantees: G-0014.9
func TestTheIdThatStartedGetsIsTheChilds(t *testing.T) {
	command, called := roleCommand(t, "exit"), 0
	command.Started = func(pid int) {
		called++
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		for err == unix.EINTR {
			err = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		}
		for n := 0; err == nil && n < 10_000; n++ { // long enough for somebody who waits for the exit
			err = syscall.Kill(pid, 0)
		}
		if err != nil {
			t.Errorf("process %d while Started runs: %v", pid, err)
		}
	}
	p := open(t, command)
	if exit := lossAs[*transport.ExitError](p); exit.Status != 3 || called != 1 {
		t.Errorf("lost with %+v, Started was called %d times", exit, called)
	}
	p.close(0)
	p.wantReaped()
}
