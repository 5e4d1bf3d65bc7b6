//go:build unix

package stdio

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// A process is a child and the process group that it leads. A descendant that
// leaves the group (setsid) is not owned any more.
type process struct {
	child *os.Process
	watch *parentWatch

	mu     sync.Mutex
	asked  bool
	reaped bool // another group may have the id now
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	// The leader of a session leads a group already, and cannot begin another.
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pgid = !cmd.SysProcAttr.Setsid, 0
	watch, err := watchParent(cmd)
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		watch.close()
		return nil, err
	}
	watch.arm(cmd.Process.Pid)
	return &process{child: cmd.Process, watch: watch}, nil
}

// ask sends SIGTERM to the group, once.
func (p *process) ask() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked && !p.reaped {
		p.asked = true
		syscall.Kill(-p.child.Pid, syscall.SIGTERM)
	}
}

// kill kills the group. It does nothing when the group is gone.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		syscall.Kill(-p.child.Pid, syscall.SIGKILL)
	}
}

// exitStatus returns the exit status, or -1 and the name of the signal.
func exitStatus(state *os.ProcessState) (status int, signal string) {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return -1, ws.Signal().String()
	}
	return state.ExitCode(), ""
}
