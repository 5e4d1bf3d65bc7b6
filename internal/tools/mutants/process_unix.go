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

// computed is how long the session of a command has computed, from some point on, and whether it
// still does. Where the system does not tell, it always does.
func computed(leader int) (used time.Duration, computes bool) {
	before := session(leader)
	if len(before) == 0 {
		return time.Duration(time.Now().UnixNano()), true
	}
	<-time.NewTimer(waitsFor).C
	used = ticks(session(leader)) * tick
	return used, used-ticks(before)*tick > tick
}

func ticks(all []process) (sum time.Duration) {
	for _, p := range all {
		sum += time.Duration(p.ticks)
	}
	return sum
}

const (
	tick     = 10 * time.Millisecond // in which a system counts what a process computes
	waitsFor = 30 * tick             // how long one computes nothing that waits
)

// A process has used so many ticks.
type process struct{ id, ticks int }

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
