//go:build !unix

package fleet

import "os"

// exists reports whether a process is there, or another that has its pid.
func exists(process *os.Process) bool {
	again, err := os.FindProcess(process.Pid)
	if err != nil {
		return false
	}
	again.Release()
	return true
}

// Stall has no effect: this system cannot stop a process.
func (*Process) Stall() error { return nil }

// Resume has none, either.
func (*Process) Resume() error { return nil }
