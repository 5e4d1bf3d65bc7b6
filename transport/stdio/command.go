package stdio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
)

// A Command is a transport whose peer is a child process. Each Open starts one.
// Do not change the fields after the first Open.
//
// A link owns the whole process tree of the child: its process group on Unix,
// its job object on Windows. It is lost when
//
//   - the child exits: the link kills the rest of the tree, and reads what is left in
//     the pipes, as far as there is credit, for at most 100 ms. The reason is a
//     *transport.ExitError;
//   - the child closes its standard output but keeps running: the link ends the tree
//     like Close with a grace of 100 ms. The reason is transport.ErrPeerClosed;
//   - a frame is longer than MaxFrame: the link kills the tree immediately. The reason
//     is a *transport.OversizedError;
//   - a header of ContentLength framing is invalid: the link ends the tree like Close
//     with a grace of 100 ms. The reason is a *HeaderError.
//
// From the end of the child's standard output on, Send returns transport.ErrClosed: no
// answer can come.
//
// Close writes what is queued and closes the child's standard input. After 30 % of
// the grace it sends SIGTERM (Ctrl-Break on Windows) to the tree, and after 70 %
// SIGKILL. It always reaps the child. A descendant that left the process group and
// holds a pipe open delays Close by up to 100 ms. A Stderr writer that blocks delays
// it by up to a second. The child itself is ended even if it has joined another
// process group.
//
// On Linux and Windows the tree is also killed if this process ends without a Close,
// even by SIGKILL. For that, the child has one more descriptor on Linux: a socket,
// after the ExtraFiles of Cmd. The child must not read or write it.
type Command struct {
	Path string   // the program, looked up as by exec.LookPath
	Args []string // its arguments, without the name of the program
	Env  []string // "key=value", in addition to os.Environ
	Dir  string   // the working directory; default: that of this process

	// Cmd provides the settings of each child, as an alternative to Path and Args,
	// which must then be empty. Bowline uses its Path, Args, Dir, ExtraFiles,
	// SysProcAttr and Stderr, and its Env in place of os.Environ. The Command's own
	// Env is added to that; its own Dir and Stderr take precedence. Bowline never
	// starts the Cmd itself, and ignores its context, Cancel and WaitDelay. The child
	// always leads its own process group or session, whatever SysProcAttr says.
	// Default: none.
	Cmd *exec.Cmd

	// Stderr receives every byte of the child's standard error, in order, on a
	// goroutine of the link. If links overlap, they share the writer. A writer that
	// is 64 KiB behind delays the child for at most a second. After that, or after
	// its first error, it receives nothing more from that child. Default: standard
	// error is discarded, except that ExitError contains its end.
	Stderr io.Writer

	// Framing says how frames are separated. Default: Lines, as MCP requires.
	Framing Framing

	// MaxFrame is the maximum size of a frame in either direction, in bytes. Default:
	// 16 MiB.
	MaxFrame int

	// Start starts each child, in place of cmd.Start. It may change Path, Args and
	// ExtraFiles, so that another program starts the child and lets it inherit its standard
	// streams; the link then owns that program. It returns when the child runs, or with the
	// reason why it does not, after nothing is left of it. Default: (*exec.Cmd).Start.
	Start func(cmd *exec.Cmd) error

	// Started is called with the process id of each child, before Open returns. Until
	// Started returns, the id belongs to this child, even if the child has exited. If
	// Started panics, the child is killed, and the panic passes on. Default: none.
	Started func(pid int)
}

// errNoPath wraps exec.ErrNotFound, like the error for a Path that is not found.
var errNoPath = fmt.Errorf("no command is given: %w", exec.ErrNotFound)

var (
	errBoth    = errors.New("both a Cmd and a Path or Args are given")
	errUsedCmd = errors.New("the Cmd has been started, or has a Stdin or Stdout: these are the link's")
)

// Check implements transport.Checked. It returns a *transport.StartError if Path is
// empty and there is no Cmd, or if the Cmd cannot be used.
func (c *Command) Check() error {
	switch {
	case c.Cmd == nil && c.Path == "":
		return &transport.StartError{Err: errNoPath}
	case c.Cmd == nil:
		return nil
	case c.Path != "" || len(c.Args) > 0:
		return &transport.StartError{Command: c.name(), Err: errBoth}
	case c.Cmd.Process != nil || c.Cmd.Stdin != nil || c.Cmd.Stdout != nil:
		return &transport.StartError{Command: c.name(), Err: errUsedCmd}
	case c.Cmd.Path == "":
		return &transport.StartError{Err: errNoPath}
	default:
		return nil
	}
}

func (c *Command) name() string {
	if c.Cmd != nil {
		return c.Cmd.Path
	}
	return c.Path
}

// command returns a Cmd for one child, which is changed further.
func (c *Command) command() *exec.Cmd {
	if c.Cmd == nil {
		cmd := exec.Command(c.Path, c.Args...)
		cmd.Dir, cmd.Env = c.Dir, append(os.Environ(), c.Env...)
		return cmd
	}
	cmd := &exec.Cmd{
		Path: c.Cmd.Path, Args: c.Cmd.Args, Err: c.Cmd.Err, Dir: cmp.Or(c.Dir, c.Cmd.Dir),
		Env: append(c.Cmd.Environ(), c.Env...), ExtraFiles: c.Cmd.ExtraFiles,
	}
	if c.Cmd.SysProcAttr != nil {
		attributes := *c.Cmd.SysProcAttr
		cmd.SysProcAttr = &attributes
	}
	return cmd
}

func (c *Command) stderr() io.Writer {
	if c.Stderr == nil && c.Cmd != nil {
		return c.Cmd.Stderr
	}
	return c.Stderr
}

// Traits implements transport.Describer. The name is that of the program, without its
// directory and without ".exe".
func (c *Command) Traits() transport.Traits {
	traits := transport.Traits{StartsProcess: true}
	if c.name() != "" {
		traits.Name = strings.TrimSuffix(filepath.Base(c.name()), ".exe")
	}
	return traits
}

// Open starts the child. It fails if ctx has already ended; otherwise ctx has no
// effect on Open or on the child. If the child cannot be started, the error is a
// *transport.StartError that wraps the cause, for example exec.ErrNotFound,
// fs.ErrNotExist or fs.ErrPermission.
func (c *Command) Open(ctx context.Context) (transport.Link, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	child, err := c.start()
	if err != nil {
		return nil, &transport.StartError{Command: c.name(), Err: err, Hint: c.hint(err)}
	}
	return child, nil
}

// hint says what to change, where the error of the system misleads: it reports a missing file
// also for a command line in Path, and for a script whose interpreter is missing.
func (c *Command) hint(err error) string {
	path := c.command().Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.command().Dir, path)
	}
	switch program, _, isLine := strings.Cut(c.Path, " "); {
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Sprintf("it is neither a script whose first line is like #!/bin/sh, nor a program for %s on %s", runtime.GOOS, runtime.GOARCH)
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, exec.ErrNotFound):
	case isLine && !isFile(path):
		if _, err := exec.LookPath(program); err == nil {
			return fmt.Sprintf("it is a whole command line: the program is %q, and each argument belongs in Args, or in args of an mcp.json", program)
		}
	case isFile(path):
		if interpreter := interpreterOf(path); interpreter != "" && !isFile(interpreter) {
			return fmt.Sprintf("its first line names the interpreter %q, which does not exist", interpreter)
		}
	}
	return ""
}

func isFile(path string) bool {
	about, err := os.Stat(path)
	return err == nil && about.Mode().IsRegular()
}

// interpreterOf returns the program that the first line of a script names, or "".
func interpreterOf(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	first := make([]byte, 256)
	n, _ := io.ReadFull(file, first) // a shorter file is read whole
	line, _, _ := strings.Cut(string(first[:n]), "\n")
	words := strings.Fields(strings.TrimPrefix(line, "#!"))
	if !strings.HasPrefix(line, "#!") || len(words) == 0 {
		return ""
	}
	if strings.HasSuffix(line, "\r") && len(words) == 1 {
		return words[0] + "\r" // the system looks for that name, and finds none
	}
	return words[0]
}

// start starts the process with pipes of our own. With other streams, package
// exec would copy in goroutines that a grandchild can hold up.
func (c *Command) start() (*child, error) {
	cmd := c.command()
	var p pipes
	defer closeAll(p.theirs[:])
	if err := p.open(); err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.theirs[0], p.theirs[1], p.theirs[2]
	start := c.Start
	if start == nil {
		start = (*exec.Cmd).Start
	}
	process, err := startProcess(cmd, start)
	if err != nil {
		closeAll(p.ours[:])
		return nil, err
	}
	return c.announce(process, &p), nil
}

// announce calls Started, and begins the link only after that: the link reaps the child
// when it exits, and then another process may get its id. If Started panics, nobody gets
// the link, so announce closes it.
func (c *Command) announce(process *process, p *pipes) (l *child) {
	returned := false
	defer func() {
		l = newChild(c, process, p)
		if !returned {
			l.Close(0)
		}
	}()
	if c.Started != nil {
		c.Started(process.child.Pid)
	}
	returned = true
	return l // the deferred function sets l
}

// pipes are the ends of the three standard streams, by descriptor number.
type pipes struct{ ours, theirs [3]*os.File }

func (p *pipes) open() error {
	for i := range p.ours {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(p.ours[:])
			return err
		}
		p.ours[i], p.theirs[i] = r, w
	}
	p.ours[0], p.theirs[0] = p.theirs[0], p.ours[0]
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

const (
	// brokenGrace is the grace of a child that keeps running after its pipe broke.
	brokenGrace = 100 * time.Millisecond

	// exitWait is how long the link waits, after a pipe broke, for an exit of the child
	// that explains it.
	exitWait = 100 * time.Millisecond

	// drainTime bounds the reading of what a dead child left in its pipes.
	drainTime = 100 * time.Millisecond
)

// A child is the link to a child process. Its goroutines are the two of the
// wire, one that waits for the exit, one or two on standard error, and
// supervise, which ends last and reports the loss.
type child struct {
	*wire
	command   string
	process   *process
	stderr    *stderr
	exit      *transport.ExitError // set before exited is closed
	exited    chan struct{}
	abandoned wait.Signal   // raised when the process cannot be killed
	gone      chan struct{} // closed when everything has ended
	left      error         // an error that names what has not ended; set before gone is closed
}

func newChild(c *Command, process *process, p *pipes) *child {
	l := &child{
		wire:    newWire(p.ours[1], p.ours[0], c.Framing, c.MaxFrame),
		command: c.name(),
		process: process,
		stderr:  newStderr(p.ours[2], c.stderr()),
		exited:  make(chan struct{}),
		gone:    make(chan struct{}),
	}
	l.wire.start()
	go l.wait()
	go l.supervise()
	return l
}

// Close implements transport.Link.
func (l *child) Close(grace time.Duration) error {
	l.closing.Fire()
	if !escalate(l.gone, grace, l.process.ask, l.process.kill) {
		l.abandoned.Fire()
		<-l.gone
	}
	return l.left
}

func (l *child) wait() {
	defer close(l.exited)
	exit := &transport.ExitError{Command: l.command, Status: -1}
	if state, err := l.process.wait(); err == nil {
		exit.Status, exit.Signal = exitStatus(state)
	}
	l.exit = exit
}

// supervise waits for the first thing that ends the link, ends the rest, and
// reports the loss when everything has ended.
func (l *child) supervise() {
	defer close(l.gone)
	reason := l.firstEnd()
	l.endProcess(reason)
	l.drain()
	l.stopWriting()
	<-l.readDone
	<-l.writeDone
	l.closeBoth()
	l.stderr.from.Close()
	l.left = l.leftBehind()
	l.Lose(transport.Loss{Reason: l.lossReason(reason), Unsent: l.writer.unsent()})
}

// firstEnd waits for the end of the link and returns its reason; nil if the
// child exited.
func (l *child) firstEnd() error {
	var err error
	select {
	case <-l.closing.Wait():
		return transport.ErrClosed
	case <-l.exited:
		return nil
	case <-l.readDone:
		err = l.readErr
		l.writer.refuse() // the child can answer nothing more; its input stays open, so that its exit tells why
	case <-l.writeDone:
		err = fmt.Errorf("stdio: write to %q: %w", l.command, l.writeErr)
	}
	if isOversized(err) {
		l.process.kill()
		return err
	}
	if wait.Within(l.exited, exitWait) { // the pipe broke because the process exited
		return nil
	}
	if err == io.EOF {
		return transport.ErrPeerClosed
	}
	return err
}

// endProcess returns when the process has exited, or cannot be killed.
func (l *child) endProcess(reason error) {
	l.writer.finish()
	if reason != transport.ErrClosed && !escalate(l.exited, brokenGrace, l.process.ask, l.process.kill) {
		l.abandoned.Fire()
	}
	select {
	case <-l.exited:
	case <-l.abandoned.Wait():
	}
}

// drain reads what is left in the pipes, for at most drainTime. While the link
// is closing nobody grants credit, so drain does not wait for more.
func (l *child) drain() {
	timeout, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	select {
	case <-l.readDone:
	case <-timeout.Done():
	case <-l.closing.Wait():
		l.noCredit.Fire()
		select {
		case <-l.readDone:
		case <-timeout.Done():
		}
	}
	l.stopReading()
	l.stderr.finish(timeout)
}

func (l *child) lossReason(reason error) error {
	switch {
	case wait.IsClosed(l.closing.Wait()):
		return transport.ErrClosed
	case reason == nil:
		l.exit.Stderr = l.stderr.tail.String()
		return l.exit
	}
	return reason
}

// leftBehind names what has not ended.
func (l *child) leftBehind() error {
	var left []error
	if !wait.IsClosed(l.exited) {
		left = append(left, fmt.Errorf("stdio: process %d of %q has not ended", l.process.child.Pid, l.command))
	}
	if !wait.IsClosed(l.stderr.copied) {
		left = append(left, fmt.Errorf("stdio: the Stderr writer of %q has not returned", l.command))
	}
	return errors.Join(left...)
}
