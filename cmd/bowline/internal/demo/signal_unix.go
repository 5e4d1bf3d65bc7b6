//go:build unix

package demo

import "syscall"

func exists(pid int) bool { return syscall.Kill(pid, 0) == nil }

// stall stops a process where it is; resume lets it go on.
func stall(pid int) error  { return syscall.Kill(pid, syscall.SIGSTOP) }
func resume(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
