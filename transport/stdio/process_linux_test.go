package stdio

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Links whose children are idle take no threads of this process.
//
// Guarantees: G-0014.27
func TestIdleChildrenTakeNoThreads(t *testing.T) {
	const children = 20
	echoes := func(p *peer) {
		p.send("1")
		p.want("1")
	}
	echoes(open(t, roleCommand(t, "echo"))) // starts the threads of the runtime
	before := threads(t)
	var all []*peer
	for range children {
		all = append(all, open(t, roleCommand(t, "echo")))
	}
	for _, p := range all {
		echoes(p)
	}
	if taken := threads(t) - before; taken > children/2 { // the runtime may start some, whatever the links do
		t.Errorf("%d links take %d threads, want none", children, taken)
	}
}

func threads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

// The exit of a child is seen, without reaping it, also where the kernel has no descriptor of the process, or none that can
// be polled. No descriptor is left.
//
// Guarantees: G-0014.9, G-0014.11
func TestAnExitIsSeenHoweverTheKernelReportsIt(t *testing.T) {
	open(t, roleCommand(t, "echo")).close(hangGuard) // opens the descriptors of the poller
	before := descriptors(t)
	fails := func(err error) func(pid, flags int) (int, error) {
		return func(int, int) (int, error) { return -1, err }
	}
	for name, open := range map[string]func(pid, flags int) (int, error){
		"polled":               unix.PidfdOpen,
		"not known, ENOSYS":    fails(unix.ENOSYS),
		"not polled, EINVAL":   fails(unix.EINVAL),
		"forbidden, EPERM":     fails(unix.EPERM),
		"no descriptor":        fails(unix.EMFILE),
		"a descriptor blocks":  func(pid, _ int) (int, error) { return unix.PidfdOpen(pid, 0) },
		"one cannot be polled": func(int, int) (int, error) { return unix.Open("/proc/self/exe", unix.O_NONBLOCK|unix.O_CLOEXEC, 0) },
	} {
		cmd, input := waitingChild(t)
		awaitExit(cmd.Process.Pid, func(pid, flags int) (int, error) {
			input.Close() // the child exits after that, and takes longer than what follows
			return open(pid, flags)
		})
		if !hasExited(cmd.Process.Pid, unix.WNOHANG) {
			t.Errorf("%s: the child runs", name)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: got %v of the wait after the exit, want that the child is still there to be reaped", name, err)
		}
	}
	if after := descriptors(t); !slices.Equal(before, after) {
		t.Errorf("got the descriptors %v, want %v", after, before)
	}
}

// If the program reaps the child while the link waits for its exit, the link waits no longer.
//
// Guarantees: G-0014.9
func TestAChildThatTheProgramReapsMeanwhile(t *testing.T) {
	for _, polled := range []bool{true, false} {
		cmd, input := waitingChild(t)
		reaped := make(chan error, 1)
		awaitExit(cmd.Process.Pid, func(pid, flags int) (int, error) {
			go func() { // beside the wait, or before it
				_, err := syscall.Wait4(pid, nil, 0, nil)
				reaped <- err
			}()
			fd, err := unix.PidfdOpen(pid, flags)
			input.Close()
			if !polled && err == nil {
				unix.Close(fd)
				err = unix.ENOSYS
			}
			return fd, err
		})
		if err, _ := receive(t, reaped, "end of the program's wait"); err != nil {
			t.Errorf("polled: %v: got %v of the program's wait, want none", polled, err)
		}
		if err := cmd.Process.Release(); err != nil {
			t.Error(err)
		}
	}
}

// waitingChild starts a child that exits when its input is closed.
func waitingChild(t *testing.T) (*exec.Cmd, *os.File) {
	t.Helper()
	command := roleCommand(t, "wait")
	cmd := exec.Command(command.Path)
	cmd.Env = append(os.Environ(), command.Env...)
	theirs, ours := mustPipe(t)
	cmd.Stdin = theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	return cmd, ours
}
