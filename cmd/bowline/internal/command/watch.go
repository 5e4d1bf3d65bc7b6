package command

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/internal/private"
	"github.com/bowline-mcp/bowline/mcpjson"
)

const (
	watchInterval = time.Second // between two looks at the file
	longestFile   = 1 << 20     // bytes; mcpjson has the same limit
)

// A watch notices that a file has changed. It looks at its name, size and time, so it works on every file system: the events that systems
// have for this differ, and get lost on network drives and in containers. Editors that put a new file in the place of the old one
// are no special case.
//
// A reload that was asked for by other ways does not go through look. At worst the file is then read once more, which changes nothing.
type watch struct {
	path    string
	kind    fs.FileMode // what is at the path: a file, a link …
	applied fs.FileInfo // when the file was read last; nil: there was none
	last    fs.FileInfo // at the last look
}

// watchOf begins before the file is read for the first time, so that a change during that is seen. An error is not one of the watch: it is
// found by who reads the file.
func watchOf(path string) watch {
	w := watch{path: path}
	if info, err := os.Lstat(path); err == nil {
		w.kind = info.Mode().Type()
	}
	w.applied, _ = os.Stat(path)
	w.last = w.applied
	return w
}

// look reports whether the file has changed since it was read, and not since the last look: a file that is still being written is left
// alone. What it reports once, it does not report again.
func (w *watch) look() bool {
	now, _ := os.Stat(w.path) // nil if it is not there; who reads it will say so
	settled := isSame(now, w.last)
	w.last = now
	if !settled || isSame(now, w.applied) {
		return false
	}
	w.applied = now
	return true
}

// isSame compares what changes when somebody writes a file or puts another one in its place. Two that are not there are the same.
func isSame(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return private.IsUnchanged(a, b) && a.Mode() == b.Mode()
}

// read reads the file of a gateway that runs. Unlike at the start, where a person has named it, it must be what it was: a link that has
// come in its place may lead to commands of somebody else, and to read a pipe might never end.
func (w *watch) read() (*mcpjson.File, error) {
	now, err := os.Lstat(w.path)
	if err != nil {
		return nil, err
	}
	if now.Mode().Type() != w.kind {
		return nil, fmt.Errorf("%s: it is another kind of file than at the start: %s; if that is meant, start the command again", w.path, now.Mode())
	}
	file, err := os.OpenFile(w.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: it is not a regular file, so it cannot be read again", w.path)
	}
	text, err := io.ReadAll(io.LimitReader(file, longestFile+1))
	if err != nil {
		return nil, err
	}
	return mcpjson.Parse(w.path, text)
}
