package demo

import (
	"os"
	"slices"
	"sync"
)

// children are the server processes that were started, oldest first.
type children struct {
	mu   sync.Mutex
	pids []int
}

func (c *children) add(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pids = append(c.pids, pid)
}

func (c *children) latest() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pids[len(c.pids)-1]
}

func (c *children) started() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pids)
}

// alive counts the processes that still exist, a zombie included.
func (c *children) alive() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	alive := slices.DeleteFunc(slices.Clone(c.pids), func(pid int) bool { return !exists(pid) })
	return len(alive)
}

// kill ends a process without asking it: SIGKILL on Unix.
func kill(pid int) error {
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return process.Kill()
}
