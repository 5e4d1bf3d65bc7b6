package stdio

import (
	"os"

	"golang.org/x/sys/unix"
)

// wait waits for the child's exit, kills what is left of its group, and reaps
// it. While the child is not reaped its id, and so the group's, stays taken.
func (p *process) wait() (*os.ProcessState, error) {
	for unix.Waitid(unix.P_PID, p.child.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
	return p.child.Wait()
}
