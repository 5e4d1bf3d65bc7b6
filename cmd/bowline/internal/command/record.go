package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/transcript"
	"github.com/spf13/cobra"
)

const recordLong = `Start a server for a host, pass on all messages between them unchanged, and write
a transcript to FILE, or to standard error for -.

Put it in front of the server's command in the mcp.json of a host, and use the
host. The file then contains the whole conversation: lines with > are messages
from the host, < from the server, and = are events of the connection. Package
mcptest replays such a file in a test.

Choose the server with --command or an mcp.json. To record another command of
bowline, also with a server over HTTP, use --record with that command. Messages
are written unchanged, with all secrets in them.

The exit status is 0 when the host closes its standard input, and 3 if the
server ends first.`

func newRecord() *cobra.Command {
	var server target
	var times bool
	command := &cobra.Command{
		Use:   "record FILE",
		Short: "Record the messages between a host and a server",
		Long:  recordLong,
		Example: `  # In the mcp.json of a host: the server, recorded
  {"command": "bowline", "args": ["record", "/home/ada/talk.txt", "--command", "npx -y @modelcontextprotocol/server-everything"]}

  # What does one call say?
  bowline call echo message=hello --record - --command 'bowline serve --stdio'`,
		Args: cobra.MatchAll(atLeast("the file to write"), cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			server.user = newUser(nil, cmd.ErrOrStderr()) // standard input is the host's
			server.recordPath = args[0]
			to, err := server.endpoint(cmd)
			if errors.As(err, new(*failure)) {
				return err
			}
			if err == nil && to.remote {
				err = errors.New("record does not support a server over HTTP: use --record with the command that calls it")
			}
			if err != nil {
				return usageFailure(errors.New(server.redact(err.Error())))
			}
			record, err := server.openRecord(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return usageFailure(err)
			}
			defer record.close(cmd)
			record.times = times
			if err := forward(cmd.Context(), record.tap(to.Transport)); err != nil {
				return &failure{status: exitNoSession, err: errors.New(server.redact(err.Error()))}
			}
			return nil
		},
	}
	server.addFlags(command)
	command.Flags().BoolVar(&times, "times", false, "begin each line with the time since the first line")
	for _, other := range []string{"record", "log", "revision", "timeout", "init-timeout", "url", "header", "cacert", "insecure"} {
		if err := command.Flags().MarkHidden(other); err != nil {
			panic(err) // addFlags has it
		}
	}
	return command
}

// A record is a transcript that is being written.
type record struct {
	to     io.Writer
	file   *os.File // nil: standard error
	times  bool
	writer *transcript.Writer
}

// openRecord opens the transcript that the flags name, if any. Other users cannot
// read it, because messages contain secrets.
func (f *serverFlags) openRecord(ctx context.Context, stderr io.Writer) (*record, error) {
	switch f.recordPath {
	case "":
		return nil, nil
	case "-":
		return &record{to: terminalWriter(stderr)}, nil
	}
	file, err := await(ctx, func() (*os.File, error) { return openPrivate(f.recordPath) })
	if err != nil {
		return nil, fmt.Errorf("the transcript: %w", err)
	}
	return &record{to: file, file: file}, nil
}

// openPrivate opens a file for writing. If it is a regular file, it becomes empty, and only its
// owner can read what is written.
func openPrivate(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := restrict(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// restrict empties a regular file that may have existed before, with a mode for other users.
func restrict(file *os.File) error {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if info.Mode().Perm() != 0o600 {
		if err := file.Chmod(0o600); err != nil {
			return fmt.Errorf("other users could read it: %w: name another file", err)
		}
	}
	return file.Truncate(0)
}

// tap returns a transport that records the frames of t.
func (r *record) tap(t transport.Transport) transport.Transport {
	r.writer = transcript.NewWriter(r.to, transcript.Options{Times: r.times})
	return transcript.Tap(t, r.writer.Observe)
}

// close closes the transcript, and prints a message if it is incomplete.
func (r *record) close(cmd *cobra.Command) {
	err := r.writer.Err()
	if r.file != nil {
		err = errors.Join(err, r.file.Close())
	}
	if err != nil {
		cmd.PrintErrln(message("warning: the transcript is not complete: " + err.Error()))
	}
}

// forward passes frames between this process's standard streams and a server, until
// either ends.
func forward(ctx context.Context, server transport.Transport) error {
	to, err := server.Open(ctx)
	if err != nil {
		return cause(err)
	}
	host, err := new(stdio.Server).Open(ctx)
	if err != nil {
		return errors.Join(err, to.Close(endGrace))
	}
	up, down := newForwarder(to), newForwarder(host) // to the server, and to the host
	up.reverse, down.reverse = down, up
	host.Bind(up)
	to.Bind(down)
	host.Grant(transport.Main, 1)
	to.Grant(transport.Main, 1)
	var lost error
	select {
	case <-up.ended: // the host sends nothing more: the server answers the remaining requests and ends
		lost = to.Close(finishGrace)
	case lost = <-down.lost:
		lost = errors.New("the server has ended: " + ending(lost))
	case broken := <-up.lost: // the host does not read any more
		lost = errors.Join(fmt.Errorf("the host is gone: %w", broken), to.Close(endGrace))
	case <-ctx.Done():
		lost = errors.Join(context.Cause(ctx), to.Close(endGrace))
	}
	return errors.Join(lost, host.Close(endGrace))
}

// A forwarder is a receiver that sends on what it receives. It takes one frame at a time: while
// the other link is busy, it grants no credit.
type forwarder struct {
	to      transport.Link
	reverse *forwarder // where frames come from

	mu      sync.Mutex
	waiting []byte // a frame that found no room

	ended chan struct{} // closed when nothing more comes in, though the link lives
	once  sync.Once
	lost  chan error
}

func newForwarder(to transport.Link) *forwarder {
	return &forwarder{to: to, ended: make(chan struct{}), lost: make(chan error, 1)}
}

// Receive implements transport.Receiver. A frame that is too long is lost; the link
// has recorded that in the transcript.
func (f *forwarder) Receive(in transport.Inbound) {
	if in.Err != nil {
		f.grantNext()
		return
	}
	f.mu.Lock()
	f.waiting = in.Frame
	f.mu.Unlock()
	f.sendWaiting()
}

// sendWaiting sends the waiting frame, unless the link is busy.
func (f *forwarder) sendWaiting() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting == nil || errors.Is(f.to.Send(transport.Outbound{Frame: f.waiting}), transport.ErrBusy) {
		return
	}
	f.waiting = nil // sent, or the link that it was for is gone
	f.grantNext()
}

// grantNext grants credit for the next frame.
func (f *forwarder) grantNext() { f.reverse.to.Grant(transport.Main, 1) }

// Writable implements transport.Receiver. It sends the waiting frame of the other direction.
func (f *forwarder) Writable() { f.reverse.sendWaiting() }

// Ended implements transport.Receiver.
func (f *forwarder) Ended() { f.once.Do(func() { close(f.ended) }) }

// Lost implements transport.Receiver.
func (f *forwarder) Lost(loss transport.Loss) { f.lost <- loss.Reason }

// StreamOpened implements transport.Receiver.
func (*forwarder) StreamOpened(transport.Stream, transport.Tag) {}

// StreamLost implements transport.Receiver.
func (*forwarder) StreamLost(transport.StreamLoss) {}

// Failed implements transport.Receiver.
func (*forwarder) Failed(transport.Failure) {}
