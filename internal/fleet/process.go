package fleet

import (
	"errors"
	"os"
	"slices"
	"sync"
)

// A Process is the present process of a server, and a count of those before it. It keeps a handle of each one
// that may still exist, since after many others a pid may be that of another program. Its methods may be called
// from any goroutine.
type Process struct {
	mu      sync.Mutex
	process *os.Process   // the latest; nil after it was killed
	left    []*os.Process // all that may still exist
	pid     int           // of the latest
	starts  int
	failed  error // the errors of operations on them
}

// Started is for stdio.Command.Started, which calls it before the link is opened, when the pid still belongs to
// the process. Where there are handles of processes, Kill later hits this process, and no other that has
// got the same pid.
func (p *Process) Started(pid int) {
	process, err := os.FindProcess(pid)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(exists)
	p.process, p.pid, p.failed = process, pid, errors.Join(p.failed, err)
	p.starts++
	if err == nil {
		p.left = append(p.left, process)
	}
}

// release releases the handles of processes, but for those to keep. The caller holds the mutex.
func (p *Process) release(keep func(*os.Process) bool) {
	p.left = slices.DeleteFunc(p.left, func(one *os.Process) bool {
		if keep(one) {
			return false
		}
		p.failed = errors.Join(p.failed, one.Release())
		return true
	})
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
	p.process, p.failed = nil, errors.Join(p.failed, err)
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
	return p.pid
}

// Alive counts the processes that still exist, a zombie included.
func (p *Process) Alive() (alive int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.left {
		if exists(one) {
			alive++
		}
	}
	return alive
}

// Close releases the handles. It returns how many processes were started, and the errors of all
// operations.
func (p *Process) Close() (starts int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process = nil
	p.release(func(*os.Process) bool { return false })
	return p.starts, p.failed
}
