package stdio

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A process is a child and the job object that holds its whole tree. Windows kills
// the tree when the last handle of the job is closed, also when we crash.
type process struct {
	child *os.Process

	mu     sync.Mutex
	asked  bool
	reaped bool
	job    windows.Handle
}

// startProcess starts the child suspended, so that it can start nothing outside
// the job.
func startProcess(cmd *exec.Cmd, start func(*exec.Cmd) error) (*process, error) {
	job, err := newJob()
	if err != nil {
		return nil, err
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.CreationFlags |= windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP
	if err := start(cmd); err != nil {
		windows.CloseHandle(job)
		return nil, err
	}
	p := &process{child: cmd.Process, job: job}
	if err := p.release(); err != nil {
		cmd.Process.Kill()
		p.wait()
		return nil, err
	}
	return p, nil
}

func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, fmt.Errorf("create job object: %w", err)
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		windows.CloseHandle(job)
		return 0, fmt.Errorf("limit job object: %w", err)
	}
	return job, nil
}

// release puts the suspended child into the job and lets it run.
func (p *process) release() error {
	pid := uint32(p.child.Pid)
	handle, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, pid)
	if err != nil {
		return fmt.Errorf("open process: %w", err)
	}
	defer windows.CloseHandle(handle)
	if err := windows.AssignProcessToJobObject(p.job, handle); err != nil {
		return fmt.Errorf("assign to job object: %w", err)
	}
	return resume(pid)
}

// resume lets the only thread of a suspended process run.
func resume(pid uint32) error {
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	defer windows.CloseHandle(snapshot)
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(snapshot, &entry); err == nil; err = windows.Thread32Next(snapshot, &entry) {
		if entry.OwnerProcessID == pid {
			return resumeThread(entry.ThreadID)
		}
	}
	return fmt.Errorf("find the thread of process %d: %w", pid, err)
}

func resumeThread(id uint32) error {
	thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, id)
	if err != nil {
		return fmt.Errorf("open thread: %w", err)
	}
	defer windows.CloseHandle(thread)
	if _, err := windows.ResumeThread(thread); err != nil {
		return fmt.Errorf("resume thread: %w", err)
	}
	return nil
}

// wait waits for the child's exit, kills the rest of its job, and reaps it.
func (p *process) wait() (*os.ProcessState, error) {
	state, err := p.child.Wait()
	p.kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
	windows.CloseHandle(p.job)
	return state, err
}

// ask sends Ctrl-Break to the child's process group, once. It reaches only a
// child that shares our console; another notices that its input is closed.
func (p *process) ask() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked && !p.reaped {
		p.asked = true
		_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.child.Pid))
	}
}

// kill kills the job. It does nothing when the job is gone.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = windows.TerminateJobObject(p.job, 1)
	}
}

// exitStatus returns the exit status. Windows has no signals.
func exitStatus(state *os.ProcessState) (status int, signal string) {
	return state.ExitCode(), ""
}
