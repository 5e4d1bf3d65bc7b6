//go:build unix

package stdio

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// A process is a child and the process group that it leads. The child is owned whatever
// group it joins. A descendant that leaves the group (setsid) is not owned any more.
type process struct {
	child *os.Process
	watch *parentWatch

	mu     sync.Mutex
	asked  bool
	reaped bool // another group may have the id now
}

func startProcess(cmd *exec.Cmd, start func(*exec.Cmd) error) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	// The leader of a session leads a group already, and cannot begin another.
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pgid = !cmd.SysProcAttr.Setsid, 0
	watch, err := watchParent(cmd)
	if err != nil {
		return nil, err
	}
	if err := start(cmd); err != nil {
		watch.close()
		return nil, err
	}
	watch.arm(cmd.Process.Pid)
	return &process{child: cmd.Process, watch: watch}, nil
}

// ask sends SIGTERM to the group and the child, once.
func (p *process) ask() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked && !p.reaped {
		p.asked = true
		p.signal(syscall.SIGTERM)
	}
}

// kill kills the group and the child. It does nothing when they are gone.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		p.signal(syscall.SIGKILL)
	}
}

// signal sends a signal to the group, and to the child if it has joined another group. It
// must not send it twice to the child, which may take a second SIGTERM as an order to end
// without finishing.
func (p *process) signal(sig syscall.Signal) {
	syscall.Kill(-p.child.Pid, sig)
	if group, err := syscall.Getpgid(p.child.Pid); err == nil && group != p.child.Pid {
		_ = p.child.Signal(sig) // it fails if the child has ended
	}
}

// exitStatus returns the exit status, or -1 and the name of the signal.
func exitStatus(state *os.ProcessState) (status int, signal string) {
	if ws, _ := state.Sys().(syscall.WaitStatus); ws.Signaled() {
		return -1, ws.Signal().String()
	}
	return state.ExitCode(), ""
}
