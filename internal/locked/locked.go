//go:build unix

// Package locked is a server for tests that must never run twice at the same time. It holds the
// lock of a file while it runs, together with a child that leaves its group and session and
// ignores SIGTERM and the end of its input. If the file is locked already when it starts, it
// notes that.
package locked

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

const (
	roleVariable = "BOWLINE_LOCKED_ROLE"
	fileVariable = "BOWLINE_LOCKED_FILE"
)

// Play is called first in TestMain. In a process that was started as a server or its child, it
// does not return.
func Play() {
	switch os.Getenv(roleVariable) {
	case "server":
		if err := serve(os.Getenv(fileVariable)); err != nil {
			fmt.Fprintln(os.Stderr, "locked:", err)
			os.Exit(1)
		}
		os.Exit(0)
	case "child":
		signal.Ignore(unix.SIGTERM, unix.SIGPIPE)
		fmt.Println("ready")
		life := time.NewTimer(5 * time.Minute) // longer than a test; one that fails leaves nothing for ever
		<-life.C
		os.Exit(0)
	}
}

// Command starts the server, as another process of this program. The file must exist.
func Command(file string) *stdio.Command {
	return &stdio.Command{Path: os.Args[0], Env: []string{
		"GORACE=atexit_sleep_ms=0", // the race detector would delay the exit by a second
		roleVariable + "=server", fileVariable + "=" + file,
	}}
}

// A Mark is the argument of the tools of the server.
type Mark struct {
	Text string `json:"text"`
}

// serve is the server. Its tools append the text of their argument to the file: "who" returns
// the process id, and "wait" does not return.
func serve(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_, noted := fmt.Fprintln(file, twice)
		return errors.Join(fmt.Errorf("the file is locked by another: %w", err), noted)
	}
	if err := startChild(file); err != nil {
		return err
	}
	s := server.New(protocol.Implementation{Name: "locked", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "who"}, func(_ context.Context, in Mark) (string, error) {
		_, err := fmt.Fprintln(file, in.Text)
		return fmt.Sprint(os.Getpid()), err
	})
	server.AddTool(s, protocol.Tool{Name: "wait"}, func(ctx context.Context, in Mark) (string, error) {
		if _, err := fmt.Fprintln(file, in.Text); err != nil {
			return "", err
		}
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	return s.Serve(context.Background(), &stdio.Server{})
}

// startChild starts a process that keeps the lock.
func startChild(file *os.File) error {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), roleVariable+"=child")
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	child.ExtraFiles = []*os.File{file}
	ready, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	_, err = bufio.NewReader(ready).ReadString('\n')
	return err
}

const twice = "TWICE"

// Read returns how often each text was marked, and an error if a server has found the file locked
// by another.
func Read(file string) (marks map[string]int, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	marks = map[string]int{}
	for line := range strings.Lines(string(all)) {
		marks[strings.TrimSpace(line)]++
	}
	if n := marks[twice]; n > 0 {
		err = fmt.Errorf("the server was started %d times while it ran", n)
	}
	return marks, err
}

// AwaitFree returns when nobody holds the lock, or within has passed.
func AwaitFree(file string, within time.Duration) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for late := time.Now().Add(within); ; <-again.C {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case err != unix.EINTR && err != unix.EWOULDBLOCK:
			return err
		case time.Now().After(late):
			return fmt.Errorf("the file is locked after %v: %w", within, err)
		}
	}
}
