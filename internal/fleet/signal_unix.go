//go:build unix

package fleet

import "syscall"

func exists(pid int) bool { return syscall.Kill(pid, 0) == nil }

// Stall stops the latest process where it is. Resume lets it go on.
func (p *Process) Stall() error { return syscall.Kill(p.Pid(), syscall.SIGSTOP) }

// Resume lets a process go on that was stopped.
func (p *Process) Resume() error { return syscall.Kill(p.Pid(), syscall.SIGCONT) }
