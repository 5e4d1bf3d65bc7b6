package stdio

import (
	"os"

	"golang.org/x/sys/unix"
)

// wait waits for the child's exit, kills the rest of its group, and reaps it.
// Until the child is reaped, no other process or group can get its id.
func (p *process) wait() (*os.ProcessState, error) {
	for unix.Waitid(unix.P_PID, p.child.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
	p.watch.close()
	state, err := p.child.Wait()
	if err != nil { // the program has reaped it
		_ = p.child.Release() // Wait has kept its descriptor
	}
	return state, err
}
