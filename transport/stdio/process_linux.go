package stdio

import (
	"os"

	"golang.org/x/sys/unix"
)

// wait waits for the child's exit, kills the rest of its group, and reaps it.
// Until the child is reaped, no other process or group can get its id.
func (p *process) wait() (*os.ProcessState, error) {
	awaitExit(p.child.Pid, unix.PidfdOpen)
	p.kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
	p.watch.close()
	state, err := p.child.Wait()
	if err != nil { // the program has reaped it
		_ = p.child.Release() // Wait has kept its descriptor
	}
	return state, err
}

// awaitExit waits until a child has exited, or the program has reaped it. It does not reap
// it. The runtime's poller waits if open gives it a descriptor of the process, as Linux 5.10
// and newer do; otherwise waitid keeps a thread until then.
func awaitExit(pid int, open func(pid, flags int) (int, error)) {
	if fd, err := open(pid, unix.PIDFD_NONBLOCK); err != nil || pollExit(fd, pid) != nil {
		hasExited(pid, 0)
	}
}

// pollExit waits for the exit of a process, and closes its descriptor. It fails if the
// descriptor cannot be polled.
func pollExit(fd, pid int) error {
	file := os.NewFile(uintptr(fd), "process")
	defer file.Close()
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(uintptr) bool { return hasExited(pid, unix.WNOHANG) })
}

// hasExited also reports true of a child that the program has reaped. Without WNOHANG it
// first waits until that is so.
func hasExited(pid, options int) bool {
	for {
		var exit unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &exit, unix.WEXITED|unix.WNOWAIT|options, nil)
		if err != unix.EINTR {
			return err != nil || exit.Signo != 0
		}
	}
}
