//go:build !unix

package fleet

import "os"

func exists(pid int) bool {
	process, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	process.Release()
	return true
}

// Stall has no effect: this system cannot stop a process.
func (*Process) Stall() error { return nil }

// Resume has none, either.
func (*Process) Resume() error { return nil }
