package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
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
