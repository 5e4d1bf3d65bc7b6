//go:build unix

package demo

import "syscall"

func exists(pid int) bool { return syscall.Kill(pid, 0) == nil }
