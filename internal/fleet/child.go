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
	"github.com/bowline-mcp/bowline/internal/pause"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A child is one of the soak's: its session, and the process that serves it now.
type child struct {
	command stdio.Command
	session *client.Session // nil until it is connected

	mu      sync.Mutex
	process *os.Process // the latest; nil once it was killed
	starts  int
	failed  error // of a look at a process
}

// started is told of each process before its link is opened, so that the
// process is this program's still: where there are handles of processes, what is
// killed later is this one and no other of its number.
func (c *child) started(pid int) {
	process, err := os.FindProcess(pid)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starts++
	c.release()
	c.process, c.failed = process, errors.Join(c.failed, err)
}

// release gives up the handle of a process. The mutex is held.
func (c *child) release() {
	if c.process != nil {
		c.failed = errors.Join(c.failed, c.process.Release())
		c.process = nil
	}
}

// kill kills the process, unless it was killed and none is in its place yet.
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

// awaitBack waits until the process that is in the place of a killed one is
// ready. Nothing is killed any more.
func (c *child) awaitBack(ctx context.Context) error {
	for {
		status := c.session.Conn().Status()
		if c.replaced() {
			status = c.session.Conn().Status() // of the process that is there, or a later one
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

// close gives up the last handle, and returns how many processes there were, and
// what has failed.
func (c *child) close() (starts int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release()
	return c.starts, c.failed
}

// What a child process is told by its environment.
const (
	executedVariable = "BOWLINE_FLEET_EXECUTED" // the file that it writes to; set in children only
	markVariable     = "BOWLINE_FLEET_RUN"      // the run that it belongs to
)

// isChild reports whether this process is to be a server for another one.
func isChild() bool { return os.Getenv(executedVariable) != "" }

// serveChild is a child's whole life: a server on standard input and output,
// until its input ends.
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

// record is the tool that writes down its call.
const record = "record"

// A recording is the arguments of the tool.
type recording struct {
	Call   int64 `json:"call"`
	Before int   `json:"before"` // milliseconds that it takes before it writes
	After  int   `json:"after"`  // and after that
}

func (r recording) answer() string { return fmt.Sprintf("recorded %d", r.Call) }

type recorder struct{ executed *os.File }

// record writes one line, in one write that is appended whole or not at all.
func (r recorder) record(ctx context.Context, in recording) (string, error) {
	if err := pause.For(ctx, time.Duration(in.Before)*time.Millisecond); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(r.executed, "%d\n", in.Call); err != nil {
		return "", err
	}
	if err := pause.For(ctx, time.Duration(in.After)*time.Millisecond); err != nil {
		return "", err
	}
	return in.answer(), nil
}
