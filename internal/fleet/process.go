package fleet

import (
	"errors"
	"os"
	"sync"
)

// A Process is the present process of a server, and a count of those before it. Its methods may be called
// from any goroutine.
type Process struct {
	mu      sync.Mutex
	process *os.Process // the latest; nil after it was killed
	pids    []int       // of all processes, oldest first
	failed  error       // the errors of operations on them
}

// Started is for stdio.Command.Started, which calls it before the link is opened, when the pid still belongs to
// the process. Where there are handles of processes, Kill later hits this process, and no other that has
// got the same pid.
func (p *Process) Started(pid int) {
	process, err := os.FindProcess(pid)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release()
	p.pids = append(p.pids, pid)
	p.process, p.failed = process, errors.Join(p.failed, err)
}

// release releases the handle of a process. The caller holds the mutex.
func (p *Process) release() {
	if p.process != nil {
		p.failed = errors.Join(p.failed, p.process.Release())
		p.process = nil
	}
}

// Kill kills the process, unless it was killed already and no other has replaced it yet. It reports whether
// it has killed one.
func (p *Process) Kill() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return false
	}
	err := p.process.Kill()
	p.failed = errors.Join(p.failed, err)
	p.release()
	return err == nil
}

// Replaced reports whether the latest process was not killed.
func (p *Process) Replaced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process != nil
}

// Pid returns that of the latest process.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pids[len(p.pids)-1]
}

// Alive counts the processes that still exist, a zombie included.
func (p *Process) Alive() (alive int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pid := range p.pids {
		if exists(pid) {
			alive++
		}
	}
	return alive
}

// Close releases the last handle. It returns how many processes were started, and the errors of all
// operations.
func (p *Process) Close() (starts int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release()
	return len(p.pids), p.failed
}
