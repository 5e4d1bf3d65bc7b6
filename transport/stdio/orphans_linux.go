package stdio

import (
	"errors"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// A parentWatch makes the kernel kill a child's process group when this process
// is gone, however it ended. The child inherits one end of a socket and keeps it
// open; that end sends SIGKILL to the group when the other end, which only this
// process has, is closed. It takes no process and no thread, and reaches the
// whole group; PR_SET_PDEATHSIG reaches one process, and acts when a thread ends.
type parentWatch struct{ ours, theirs *os.File }

// watchParent prepares cmd. Call arm or close.
func watchParent(cmd *exec.Cmd) (*parentWatch, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	w := &parentWatch{os.NewFile(uintptr(ends[0]), "parent watch"), os.NewFile(uintptr(ends[1]), "parent watch")}
	cmd.ExtraFiles = append(cmd.ExtraFiles[:len(cmd.ExtraFiles):len(cmd.ExtraFiles)], w.theirs)
	return w, nil
}

// arm registers the group that the kernel kills. If the kernel does not support this, the
// group is not killed, as on other systems.
func (w *parentWatch) arm(group int) {
	end := w.theirs.Fd()
	_, errOwner := unix.FcntlInt(end, unix.F_SETOWN, -group)
	_, errSignal := unix.FcntlInt(end, unix.F_SETSIG, int(unix.SIGKILL))
	if errors.Join(errOwner, errSignal) == nil {
		_, _ = unix.FcntlInt(end, unix.F_SETFL, unix.O_ASYNC)
	}
	w.theirs.Close()
}

// close ends the watch. The kernel kills what is left of the group.
func (w *parentWatch) close() { closeAll([]*os.File{w.ours, w.theirs}) }
