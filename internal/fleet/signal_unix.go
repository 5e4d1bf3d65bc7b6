//go:build unix

package fleet

import (
	"os"
	"syscall"
)

// exists reports whether a process is there, a zombie included.
func exists(process *os.Process) bool { return process.Signal(syscall.Signal(0)) == nil }

// Stall stops the latest process where it is. Resume lets it go on.
func (p *Process) Stall() error { return syscall.Kill(p.Pid(), syscall.SIGSTOP) }

// Resume lets a process go on that was stopped.
func (p *Process) Resume() error { return syscall.Kill(p.Pid(), syscall.SIGCONT) }
