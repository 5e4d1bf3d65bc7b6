//go:build unix

package stdio

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// A process is a child and the process group it leads. What leaves the group
// by itself (setsid) is no longer the link's.
type process struct {
	child *os.Process

	mu     sync.Mutex
	asked  bool
	reaped bool // the group's id may be another's now
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{child: cmd.Process}, nil
}

// ask tells the group to end, once.
func (p *process) ask() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked && !p.reaped {
		p.asked = true
		syscall.Kill(-p.child.Pid, syscall.SIGTERM)
	}
}

// kill ends the group. That it is gone already is not an error.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		syscall.Kill(-p.child.Pid, syscall.SIGKILL)
	}
}

// ending splits a state into exit status and the name of the signal.
func ending(state *os.ProcessState) (status int, signal string) {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return -1, ws.Signal().String()
	}
	return state.ExitCode(), ""
}
