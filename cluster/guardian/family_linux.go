package guardian

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// clock returns the time since the machine started, also while it slept. All processes of the
// machine see the same.
func clock() (int64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return now.Nano(), nil
}

// adoptOrphans makes this process the parent of those of its descendants whose parents have
// ended.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	if _, err := children(); err != nil {
		return fmt.Errorf("find the processes of a server: %w", err)
	}
	return nil
}

// leaderAttributes let the kernel kill a server whose inner guardian is gone. An inner
// guardian without an outer one has to end the server first, so it is not killed.
func (o order) leaderAttributes() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setpgid: true}
	if o.role == inner {
		attributes.Pdeathsig = unix.SIGKILL
	}
	return attributes
}

// kill kills the children of this process. Their children are then its own, and killed by the
// next call. Only this process can reap its children, so no other process can have got their
// ids in the meantime.
func (f *family) kill() {
	pids, err := children()
	if err != nil {
		pids = []int{f.leader}
	}
	for _, pid := range pids {
		syscall.Kill(pid, unix.SIGKILL)
	}
}

// children returns the children of this process.
func children() ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && parentOf(name) == self {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// parentOf returns the parent of a process, or -1 if the process has ended.
func parentOf(pid string) int {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return -1
	}
	// The name of the program comes second, in parentheses, and may contain anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return -1
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return -1
	}
	return parent
}

// dieOf ends this process by a signal, also by one that Go handles in another way.
func dieOf(sig syscall.Signal) {
	const sigsetSize = 8       // bytes; where it is another, the call fails, and Go handles the signal
	var defaultAction [64]byte // zero: SIG_DFL, no flags, an empty mask; no processor's is larger
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&defaultAction)), 0, sigsetSize, 0, 0)
	// Sent to this thread, it ends the process before the call returns. Another thread might take a signal that
	// leaves a core file too late: after the exit that follows here.
	runtime.LockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), sig) // the caller exits if it fails
}
