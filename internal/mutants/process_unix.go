//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// apart makes a command the leader of a session, to which everything belongs that
// it starts, unless that begins a session of its own.
func apart(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}

// sweep ends what is left of the session of a command.
func sweep(leader int) {
	syscall.Kill(-leader, syscall.SIGKILL) // its process group, on every system
	for _, p := range session(leader) {
		syscall.Kill(p.id, syscall.SIGKILL)
	}
}

// waits says whether nothing in the session of a command computes. Where a system does not tell,
// something does.
func waits(leader int) bool {
	before := session(leader)
	<-time.NewTimer(waitsFor).C
	after := session(leader)
	return len(before) > 0 && used(after)-used(before) <= 1
}

// waitsFor is how long a process computes nothing that waits: many ticks of its time.
const waitsFor = 300 * time.Millisecond

// A process has used so many ticks of a processor, of which a second has a hundred.
type process struct{ id, ticks int }

func used(all []process) (ticks int) {
	for _, p := range all {
		ticks += p.ticks
	}
	return ticks
}

// session lists the processes of a session, if the system has /proc.
func session(leader int) (all []process) {
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// The name of a program stands in parentheses and may hold spaces. State, parent, group and
		// session follow it, and in the twelfth and thirteenth place the times that it computed.
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 12 && fields[3] == strconv.Itoa(leader) && fields[0] != "Z" {
			id, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			user, err2 := strconv.Atoi(fields[11])
			system, err3 := strconv.Atoi(fields[12])
			if errors.Join(err, err2, err3) == nil {
				all = append(all, process{id, user + system})
			}
		}
	}
	return all
}
