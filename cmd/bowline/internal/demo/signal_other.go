//go:build !unix

package demo

import "os"

func exists(pid int) bool {
	process, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	process.Release()
	return true
}

// This system cannot stop a process, so the fault has no effect.
func stall(int) error  { return nil }
func resume(int) error { return nil }
