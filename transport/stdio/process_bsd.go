//go:build unix && !linux

package stdio

import (
	"os"
	"syscall"
)

// wait waits for the child's exit, reaps it, and then kills the rest of its
// group: without Linux's WNOWAIT the exit cannot be seen before the reaping.
func (p *process) wait() (*os.ProcessState, error) {
	state, err := p.child.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
	p.watch.close()
	syscall.Kill(-p.child.Pid, syscall.SIGKILL)
	return state, err
}
