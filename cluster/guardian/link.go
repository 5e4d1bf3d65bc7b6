//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package guardian

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

const (
	// goneWait is how long a link waits for the inner guardian when the outer one has ended.
	goneWait = 5 * time.Second

	// maxReport is the size of the longest report of a failed start, in bytes.
	maxReport = 4 << 10
)

// Open starts a server through guardians. Its processes end at the deadline until, unless
// Link.Renew moves that, or earlier; see the package documentation. Open returns when the server
// runs. Errors and the link are those of server.Open, which Open calls with a Start of its own,
// except that ctx also limits how long the guardians may take. The process id that Started gets
// is that of the outer guardian, and so is that in the errors of Close. A Start of the
// server starts the outer guardian.
func (g *Guardian) Open(ctx context.Context, server *stdio.Command, until time.Time) (*Link, error) {
	if g == nil || g.program == "" {
		return nil, errNone
	}
	if g.err != nil {
		return nil, fmt.Errorf("guardian: find the program of this process: %w", g.err)
	}
	l := &Link{gone: make(chan struct{})}
	guarded := *server
	guarded.Start = func(cmd *exec.Cmd) error { return l.start(ctx, g.program, cmd, server.Start, until) }
	link, err := guarded.Open(ctx)
	if err != nil {
		return nil, err
	}
	l.processLink = link.(processLink)
	return l, nil
}

// A processLink is what a Command opens.
type processLink interface {
	transport.Link
	transport.LinkDescriber
	transport.Flusher
}

// A Link is a link to a guarded server. It is lost when the server ends, as a link of a
// stdio.Command is.
type Link struct {
	processLink
	gone chan struct{} // closed when the inner guardian has ended

	mu      sync.Mutex
	control *os.File // the inner guardian reads schedules from it
	present schedule // that of Close may only become shorter
}

// Renew moves the deadline of the server to until, which may also be earlier than before. It
// has no effect once Close was called or the server has ended. It never blocks; it may be
// called from any goroutine. The time must have a monotonic clock reading, as time.Now has.
func (l *Link) Renew(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.present.closing {
		return
	}
	if s, err := scheduleFor(until); err == nil {
		l.send(s)
	}
}

// scheduleFor reads the machine's clock first, so that a pause in between makes the schedule
// earlier and never later.
func scheduleFor(until time.Time) (schedule, error) {
	now, err := clock()
	if err != nil {
		return schedule{}, err
	}
	return byDeadline(now, time.Until(until)), nil
}

// send writes a schedule if the pipe has room. It is full after some thousand schedules that
// the guardian has not read; then the guardian keeps the last one that it reads. The caller
// holds mu.
func (l *Link) send(s schedule) {
	l.present = s
	raw, err := l.control.SyscallConn()
	if err != nil {
		return // the server has ended
	}
	_ = raw.Write(func(fd uintptr) bool { // it fails only for a closed file
		_, _ = syscall.Write(int(fd), s.encode()) // it fails if the pipe is full or the guardian has ended
		return true
	})
}

// Close implements transport.Link. It also waits for what left the server's process group, as
// far as the guardian finds it, and for both guardians.
func (l *Link) Close(grace time.Duration) error {
	l.shorten(grace)
	err := l.processLink.Close(grace) // after 70 % it kills the outer guardian, if that still runs
	return errors.Join(err, l.awaitGone())
}

func (l *Link) shorten(grace time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now, err := clock(); err == nil {
		l.send(l.present.sooner(byGrace(now, grace)))
	}
}

func (l *Link) awaitGone() error {
	timer := time.NewTimer(goneWait)
	defer timer.Stop()
	select {
	case <-l.gone:
		return nil
	case <-timer.C:
		return errors.New("guardian: processes of the server have not ended")
	}
}

// start starts the outer guardian for a server that cmd would start, and returns when the
// server runs. It is the Start of a Command.
func (l *Link) start(ctx context.Context, program string, cmd *exec.Cmd, start func(*exec.Cmd) error, until time.Time) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	if start == nil {
		start = (*exec.Cmd).Start
	}
	pipes, err := newPipes()
	if err != nil {
		return err
	}
	defer pipes.closeTheirs()
	l.control = pipes.control
	first, err := scheduleFor(until)
	if err != nil {
		pipes.closeOurs()
		return err
	}
	l.send(first)
	path := cmd.Path
	args := cmd.Args
	if len(args) == 0 {
		args = []string{path} // as exec.Cmd has it
	}
	cmd.Path, cmd.Args = program, order{outer, len(cmd.ExtraFiles), path, args}.arguments(os.Args[0])
	cmd.ExtraFiles = append(cmd.ExtraFiles[:len(cmd.ExtraFiles):len(cmd.ExtraFiles)], pipes.controlled, pipes.reporting)
	if err := start(cmd); err != nil {
		pipes.closeOurs()
		return err
	}
	pipes.closeTheirs()
	return l.await(ctx, cmd, path, pipes.report)
}

// await waits for the report of the guardians. If the server does not run, or ctx ends, it ends
// the guardians.
func (l *Link) await(ctx context.Context, cmd *exec.Cmd, path string, report *os.File) error {
	started := make(chan error, 1) // follow sends once
	go l.follow(report, path, started)
	var err error
	select {
	case err = <-started:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil {
		return nil
	}
	l.shorten(0)
	_ = cmd.Process.Kill() // it has ended already, or the inner guardian notices
	_ = cmd.Wait()         // err says what happened
	return errors.Join(err, l.awaitGone())
}

// follow reads what the guardians report, until the inner one has ended.
func (l *Link) follow(report *os.File, path string, started chan<- error) {
	defer close(l.gone)
	first := make([]byte, 1)
	_, err := io.ReadFull(report, first)
	switch {
	case err != nil:
		started <- errors.New("its guardian ended before the server ran")
	case first[0] == reportStarted:
		started <- nil
	default:
		started <- readFailure(report, path)
	}
	_, _ = io.Copy(io.Discard, report) // to the end, which is the message
	l.mu.Lock()
	defer l.mu.Unlock()
	report.Close()
	l.control.Close()
}

// readFailure reads why the server could not be started, as the guardian's os.StartProcess
// returned it.
func readFailure(report io.Reader, path string) error {
	b, err := io.ReadAll(io.LimitReader(report, maxReport))
	if err != nil || len(b) < 4 {
		return errors.New("its guardian could not start it")
	}
	if number := binary.BigEndian.Uint32(b); number != 0 {
		return &fs.PathError{Op: "fork/exec", Path: path, Err: syscall.Errno(number)}
	}
	return errors.New(string(b[4:]))
}

// pipes are the two pipes between a program and the guardians of a server.
type pipes struct {
	control    *os.File // ours: schedules are written to it
	controlled *os.File // theirs
	report     *os.File // ours: whether the server runs; at its end, the inner guardian has ended
	reporting  *os.File // theirs
}

func newPipes() (*pipes, error) {
	controlled, control, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	report, reporting, err := os.Pipe()
	if err != nil {
		controlled.Close()
		control.Close()
		return nil, err
	}
	return &pipes{control, controlled, report, reporting}, nil
}

func (p *pipes) closeOurs()   { p.control.Close(); p.report.Close() }
func (p *pipes) closeTheirs() { p.controlled.Close(); p.reporting.Close() }
