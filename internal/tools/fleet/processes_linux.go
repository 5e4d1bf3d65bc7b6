package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// found counts the processes that are left.
type found struct {
	marked  int // processes of this run, other than this one
	zombies int // children of this process that have ended, and were not reaped
}

// processes searches /proc for processes that a run has left behind: those with
// the mark of the run in their environment, whatever their parent is now.
func processes(mark string) (f found, err error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return f, err
	}
	variable := []byte(markVariable + "=" + mark + "\x00")
	for _, folder := range folders {
		zombie, err := isOwnZombie(folder)
		if err != nil {
			return f, err
		}
		if zombie {
			f.zombies++
		}
		environment, err := readProcess(filepath.Join(folder, "environ"))
		if err != nil {
			return f, err
		}
		if bytes.Contains(environment, variable) {
			f.marked++
		}
	}
	return f, nil
}

// isOwnZombie reads the state and the parent, which follow the command's name in
// parentheses (proc_pid_stat(5)).
func isOwnZombie(folder string) (bool, error) {
	stat, err := readProcess(filepath.Join(folder, "stat"))
	if err != nil || stat == nil {
		return false, err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return false, fmt.Errorf("%s/stat: %q", folder, stat)
	}
	return fields[0][0] == 'Z' && string(fields[1]) == strconv.Itoa(os.Getpid()), nil
}

// readProcess reads a file of a process in /proc. It returns nil if the process
// has ended or belongs to another user.
func readProcess(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ESRCH) {
		return nil, nil
	}
	return content, err
}

// openFiles counts descriptors. It first opens a pipe, because the runtime opens
// some descriptors together with the first pipe.
func openFiles() (int, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		return 0, err
	}
	open, err := os.ReadDir("/proc/self/fd")
	return len(open), err
}
