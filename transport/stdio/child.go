package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/latch"
)

// A child is the link to a child process. Its goroutines: the wire's two, one
// that waits for the exit, one or two on standard error, and supervise, which
// outlives them and tells the loss.
type child struct {
	*wire
	command   string
	process   *process
	stderr    *stderr
	exit      *transport.ExitError // set before exited is closed
	exited    chan struct{}
	abandoned *latch.Latch  // the process does not die
	gone      chan struct{} // everything has ended
	left      error         // what has not; set before gone is closed
}

func newChild(c *Command, process *process, p *pipes) *child {
	l := &child{
		wire:      newWire(p.ours[1], p.ours[0], c.MaxFrame),
		command:   c.Path,
		process:   process,
		stderr:    newStderr(p.ours[2], c.Stderr),
		exited:    make(chan struct{}),
		abandoned: latch.New(),
		gone:      make(chan struct{}),
	}
	l.wire.start()
	go l.wait()
	go l.supervise()
	return l
}

// Close implements transport.Link.
func (l *child) Close(grace time.Duration) error {
	l.closing.Raise()
	if !climb(l.gone, grace, l.process.ask, l.process.kill) {
		l.abandoned.Raise()
		<-l.gone
	}
	return l.left
}

func (l *child) wait() {
	defer close(l.exited)
	exit := &transport.ExitError{Command: l.command, Status: -1}
	if state, err := l.process.wait(); err == nil {
		exit.Status, exit.Signal = ending(state)
	}
	l.exit = exit
}

// supervise waits for the first thing that ends the link, ends the rest, and
// tells the loss when all of it is gone.
func (l *child) supervise() {
	defer close(l.gone)
	reason := l.firstEnd()
	l.endProcess(reason)
	l.drain()
	l.stopWriting()
	<-l.readDone
	<-l.writeDone
	l.release()
	l.stderr.from.Close()
	l.left = l.leftBehind()
	l.Lose(transport.Loss{Reason: l.explain(reason), Unsent: l.writer.unsent()})
}

// firstEnd says why the link is over; nil is the child's own exit.
func (l *child) firstEnd() error {
	var err error
	select {
	case <-l.closing.Raised:
		return transport.ErrClosed
	case <-l.exited:
		return nil
	case <-l.readDone:
		err = l.readErr
	case <-l.writeDone:
		err = fmt.Errorf("stdio: write to %q: %w", l.command, l.writeErr)
	}
	if isOversized(err) {
		l.process.kill()
		return err
	}
	if latch.Within(l.exited, exitWait) { // a pipe breaks because its process exits
		return nil
	}
	if err == io.EOF {
		return transport.ErrPeerClosed
	}
	return err
}

// endProcess returns when the process is gone, or given up.
func (l *child) endProcess(reason error) {
	l.writer.finish()
	if reason != nil && reason != transport.ErrClosed && !climb(l.exited, shortGrace, l.process.ask, l.process.kill) {
		l.abandoned.Raise()
	}
	select {
	case <-l.exited:
	case <-l.abandoned.Raised:
	}
}

// drain reads what is left in the pipes, bounded by drainTime. Once the link is
// being closed nobody grants more credit, and none is waited for.
func (l *child) drain() {
	patience, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	select {
	case <-l.readDone:
	case <-patience.Done():
	case <-l.closing.Raised:
		l.credit.close()
		select {
		case <-l.readDone:
		case <-patience.Done():
		}
	}
	l.stopReading()
	l.stderr.finish(patience)
}

// explain gives the loss its reason.
func (l *child) explain(reason error) error {
	switch {
	case latch.IsRaised(l.closing.Raised):
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
	if !latch.IsRaised(l.exited) {
		left = append(left, fmt.Errorf("stdio: process %d of %q has not ended", l.process.child.Pid, l.command))
	}
	if !latch.IsRaised(l.stderr.copied) {
		left = append(left, fmt.Errorf("stdio: the Stderr writer of %q has not returned", l.command))
	}
	return errors.Join(left...)
}
