package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A child is one server of the soak: its session, and its present process.
type child struct {
	command stdio.Command
	session *client.Session // nil until it is connected

	mu      sync.Mutex
	process *os.Process // the latest process; nil after it was killed
	starts  int
	failed  error // the error of an operation on a process
}

// started opens each process before its link is opened, when its pid still belongs to
// it. Where there are handles of processes, kill later hits this process, and no other
// that has got the same pid.
func (c *child) started(pid int) {
	process, err := os.FindProcess(pid)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starts++
	c.release()
	c.process, c.failed = process, errors.Join(c.failed, err)
}

// release releases the handle of a process. The caller holds the mutex.
func (c *child) release() {
	if c.process != nil {
		c.failed = errors.Join(c.failed, c.process.Release())
		c.process = nil
	}
}

// kill kills the process, unless it was killed already and no other has replaced
// it yet.
func (c *child) kill() (met bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return false
	}
	err := c.process.Kill()
	c.failed = errors.Join(c.failed, err)
	c.release()
	return err == nil
}

// replaced reports whether the latest process was not killed.
func (c *child) replaced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process != nil
}

// awaitBack waits until the process that has replaced a killed one is ready. It
// is called when no more processes are killed.
func (c *child) awaitBack(ctx context.Context) error {
	for {
		status := c.session.Conn().Status()
		if c.replaced() {
			status = c.session.Conn().Status() // the status with the present process, or a later one
			if status.State == conn.Ready {
				return nil
			}
		}
		if status.State == conn.Closing {
			return status.Reason
		}
		select {
		case <-status.Changed():
		case <-ctx.Done():
			return fmt.Errorf("still %s: %w", status.State, context.Cause(ctx))
		}
	}
}

// close releases the last handle. It returns how many processes were started,
// and an error.
func (c *child) close() (starts int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release()
	return c.starts, c.failed
}

// These variables are in the environment of a child process.
const (
	executedVariable = "BOWLINE_FLEET_EXECUTED" // the file that it writes to; set in children only
	markVariable     = "BOWLINE_FLEET_RUN"      // the run that the process belongs to
)

// isChild reports whether this process runs as a server for another one.
func isChild() bool { return os.Getenv(executedVariable) != "" }

// serveChild serves on standard input and output until the input ends.
func serveChild(ctx context.Context) error {
	executed, err := os.OpenFile(os.Getenv(executedVariable), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer executed.Close()
	s := server.New(protocol.Implementation{Name: "fleet", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: record}, recorder{executed}.record)
	return s.Serve(ctx, &stdio.Server{})
}

// record is the name of the tool that records its calls.
const record = "record"

// A recording contains the arguments of the tool.
type recording struct {
	Call   int64 `json:"call"`
	Before int   `json:"before"` // how many milliseconds the call takes before it is recorded
	After  int   `json:"after"`  // how many milliseconds it takes after that
}

func (r recording) answer() string { return fmt.Sprintf("recorded %d", r.Call) }

type recorder struct{ executed *os.File }

// record writes one line, in one write that is appended whole or not at all.
func (r recorder) record(ctx context.Context, in recording) (string, error) {
	if err := wait.Sleep(ctx, time.Duration(in.Before)*time.Millisecond); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(r.executed, "%d\n", in.Call); err != nil {
		return "", err
	}
	if err := wait.Sleep(ctx, time.Duration(in.After)*time.Millisecond); err != nil {
		return "", err
	}
	return in.answer(), nil
}
