//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package guardian

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A family is a process that a guardian has started, which leads a process group, and what
// descends from it. One goroutine uses it.
type family struct {
	leader      int
	leaderEnded bool
	ended       unix.WaitStatus // of the leader
}

// start starts the leader, with the standard streams of this process and further files.
func (f *family) start(path string, args []string, attributes *syscall.SysProcAttr, files []*os.File) error {
	leader, err := os.StartProcess(path, args, &os.ProcAttr{
		Files: append([]*os.File{os.Stdin, os.Stdout, os.Stderr}, files...),
		Sys:   attributes,
	})
	if err != nil {
		return err
	}
	f.leader = leader.Pid
	return leader.Release() // reap waits for it
}

// ask sends SIGTERM to the group of the leader, and to the leader if it has joined another one.
// It must not be called when the leader has ended.
func (f *family) ask() {
	syscall.Kill(-f.leader, unix.SIGTERM)
	if group, err := unix.Getpgid(f.leader); err == nil && group != f.leader {
		syscall.Kill(f.leader, unix.SIGTERM)
	}
}

// reap reaps the children that have ended. It reports whether this process has none left.
func (f *family) reap() (empty bool) {
	for {
		var state unix.WaitStatus
		pid, err := unix.Wait4(-1, &state, unix.WNOHANG, nil)
		switch {
		case err == unix.EINTR:
		case err != nil: // ECHILD: there are no children
			return true
		case pid == 0:
			return false
		case pid == f.leader:
			f.ended, f.leaderEnded = state, true
		}
	}
}
