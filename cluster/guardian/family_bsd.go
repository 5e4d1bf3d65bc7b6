//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package guardian

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// clock returns a time that all processes of the machine see alike. On macOS it also advances
// while the machine sleeps.
func clock() (int64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return now.Nano(), nil
}

// adoptOrphans does nothing: it needs Linux.
func adoptOrphans() error { return nil }

func (o order) leaderAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// kill kills the process group of the leader.
func (f *family) kill() { syscall.Kill(-f.leader, unix.SIGKILL) }

// dieOf ends this process by a signal. Those that Go handles in another way end it differently.
func dieOf(sig syscall.Signal) {
	signal.Reset(sig)
	syscall.Kill(os.Getpid(), sig)
}
