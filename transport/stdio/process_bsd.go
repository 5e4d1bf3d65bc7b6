//go:build unix && !linux

package stdio

import (
	"os"
	"syscall"
)

// wait waits for the child's exit, reaps it, and kills what is left of its
// group: there is no waitid here that leaves the child for later.
func (p *process) wait() (*os.ProcessState, error) {
	state, err := p.child.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
	syscall.Kill(-p.child.Pid, syscall.SIGKILL)
	return state, err
}
