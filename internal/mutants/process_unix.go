//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// apart makes a command the leader of a session, to which everything belongs that
// it starts, unless that begins a session of its own.
func apart(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}

// sweep ends what is left of the session of a command: its process group, and on
// Linux the other groups too.
func sweep(leader int) {
	syscall.Kill(-leader, syscall.SIGKILL)
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return
	}
	for _, name := range all {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// The name of a program stands in parentheses and may hold spaces; state,
		// parent, group and session follow it.
		_, rest, _ := bytes.Cut(text, []byte(") "))
		if fields := bytes.Fields(rest); len(fields) > 3 && string(fields[3]) == strconv.Itoa(leader) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}
