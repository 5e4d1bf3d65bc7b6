package stdio

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// If the program is killed, its child and the child's child end too, even though they
// ignore SIGTERM and do not read their input.
//
// Guarantees: G-0014.19
func TestNoChildOutlivesAKilledProgram(t *testing.T) {
	open(t, roleCommand(t, "echo")).close(hangGuard) // without this, a tool that looks for the tests of a function misses this one: who is killed reports no coverage
	socket := listen(t)
	command := roleCommand(t, "grandparent", socket.variable())
	cmd := exec.Command(command.Path)
	cmd.Env = append(os.Environ(), command.Env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	orphan := socket.accept(t)
	pid := peerOf(t, orphan)
	defer syscall.Kill(-groupOf(t, pid), syscall.SIGKILL)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if err := orphan.SetReadDeadline(time.Now().Add(hangGuard)); err != nil {
		t.Fatal(err)
	}
	if _, err := orphan.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("process %d still runs: %v, want %v", pid, err, io.EOF)
	}
}

// peerOf returns the process at the other end of a socket.
func peerOf(t *testing.T, conn interface {
	SyscallConn() (syscall.RawConn, error)
}) (pid int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var credentials *unix.Ucred
	if e := raw.Control(func(fd uintptr) {
		credentials, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil || err != nil {
		t.Fatal(e, err)
	}
	return int(credentials.Pid)
}

func groupOf(t *testing.T, pid int) int {
	t.Helper()
	group, err := syscall.Getpgid(pid)
	if err != nil {
		t.Fatal(err)
	}
	return group
}
