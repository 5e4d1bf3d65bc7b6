package stdio

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/bowline-mcp/bowline/transport"
)

// A Command is a transport whose peer is a child process: each Open starts
// one. Its fields must not change after the first Open.
//
// A link owns the child's whole process tree: its process group on Unix, its
// job object on Windows. When the child exits, the rest of the tree is killed,
// so that nothing keeps the link open, and the link is lost with an
// *transport.ExitError once what is left in the pipes was read, for at most
// 100 ms and against credit. A child that closes its standard output and lives
// on is ended like one that was closed, with a grace of 100 ms, and the link is
// lost with transport.ErrPeerClosed. A line above MaxFrame loses the link with
// *transport.OversizedError and kills the tree at once.
//
// Close flushes what is queued and closes the child's standard input; after
// 30 % of the grace the tree gets SIGTERM (Ctrl-Break on Windows), after 70 %
// SIGKILL. The child is reaped always. A descendant that left the group and
// holds a pipe adds up to 100 ms, a Stderr writer that blocks up to a second.
type Command struct {
	Path string   // looked up as by exec.LookPath
	Args []string // without the command's own name
	Env  []string // "key=value", added to os.Environ
	Dir  string   // default: the current directory

	// Stderr gets every byte of the child's standard error, in order, in a
	// goroutine of the link's; links that overlap share it. The child is held
	// up for a writer 64 KiB behind, for a second at most: then, or after the
	// writer's first error, the writer gets nothing more, and draining goes on.
	// Nil: only the tail is kept, for ExitError.
	Stderr io.Writer

	MaxFrame int // bytes of one frame, either way; default 16 MiB

	// Started is told the process id of each child, before Open returns. Nil:
	// nobody is.
	Started func(pid int)
}

// errNoPath is no other error than that of a Path that leads nowhere.
var errNoPath = fmt.Errorf("no command is given: %w", exec.ErrNotFound)

// Check implements transport.Checked: it reports, as a *transport.StartError, that
// there is no Path.
func (c *Command) Check() error {
	if c.Path == "" {
		return &transport.StartError{Err: errNoPath}
	}
	return nil
}

// Open starts the child. The context is checked before and bounds nothing
// after. A child that cannot be started is a *transport.StartError, which
// unwraps to exec.ErrNotFound, fs.ErrNotExist, fs.ErrPermission and the like.
func (c *Command) Open(ctx context.Context) (transport.Link, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	child, err := c.start()
	if err != nil {
		return nil, &transport.StartError{Command: c.Path, Err: err}
	}
	return child, nil
}

// start starts the process with pipes of the link's own: exec would copy any
// other stream in a goroutine that a grandchild can hold up.
func (c *Command) start() (*child, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Dir = c.Dir
	var p pipes
	defer p.closeTheirs()
	if err := p.open(); err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.theirs[0], p.theirs[1], p.theirs[2]
	process, err := startProcess(cmd)
	if err != nil {
		p.closeOurs()
		return nil, err
	}
	if c.Started != nil {
		c.Started(process.child.Pid)
	}
	return newChild(c, process, &p), nil
}

// pipes are the three standard streams, by descriptor number.
type pipes struct{ ours, theirs [3]*os.File }

func (p *pipes) open() error {
	for i := range p.ours {
		r, w, err := os.Pipe()
		if err != nil {
			p.closeOurs()
			return err
		}
		p.ours[i], p.theirs[i] = r, w
	}
	p.ours[0], p.theirs[0] = p.theirs[0], p.ours[0]
	return nil
}

func (p *pipes) closeOurs()   { closeAll(p.ours[:]) }
func (p *pipes) closeTheirs() { closeAll(p.theirs[:]) }

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
