package gosdk

import (
	"bufio"
	"context"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// Over is a transport of Bowline over transports of the SDK. Open is called for each connection, and returns a new one: those of
// the SDK serve one connection each.
//
//	session, err := c.Connect(ctx, gosdk.Over(func() mcp.Transport {
//		return &mcp.CommandTransport{Command: exec.Command("weather")}
//	}))
//
// Messages are decoded and encoded once more on their way, so a transport of Bowline's own is faster, and tells more of why a
// connection was lost. A link whose connection is sent something else than a message is lost. Close of a link takes as long as that of the SDK's
// connection: for a server that does not heed the end of its input, mcp.CommandTransport waits TerminateDuration, 5 s by default, up to three times.
func Over(open func() mcp.Transport) transport.Transport {
	return &stdio.Streams{Dial: func(ctx context.Context) (io.ReadCloser, io.WriteCloser, error) {
		c, err := open().Connect(ctx)
		if err != nil {
			return nil, nil, err
		}
		in, received := io.Pipe()
		sent, out := io.Pipe()
		b := &bridge{PipeReader: in, out: out, connection: c, received: make(chan struct{}), sent: make(chan struct{})}
		ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
		go func() {
			defer close(b.received)
			received.CloseWithError(b.receive(ctx, received))
		}()
		go func() {
			defer close(b.sent)
			sent.CloseWithError(b.send(ctx, sent))
		}()
		return b, out, nil
	}}
}

// A bridge is what a link reads from a connection of the SDK. Its Close ends both, and waits for them.
type bridge struct {
	*io.PipeReader
	out            *io.PipeWriter // what the link writes to
	connection     mcp.Connection
	stop           context.CancelFunc
	received, sent chan struct{} // closed when nothing more is passed on
}

// lastWrites is how long Close waits until the connection has taken what the link has written.
const lastWrites = time.Second

// Close implements io.Closer.
func (b *bridge) Close() error {
	_, _ = b.PipeReader.Close(), b.out.Close() // they return nil
	wait.Within(b.sent, lastWrites)
	b.stop()
	err := b.connection.Close()
	<-b.received
	<-b.sent
	return err
}

// receive passes messages of the peer on, one on a line.
func (b *bridge) receive(ctx context.Context, to io.Writer) error {
	for {
		m, err := b.connection.Read(ctx)
		if err != nil {
			return err
		}
		line, err := jsonrpc.EncodeMessage(m)
		if err != nil {
			return err
		}
		if _, err := to.Write(append(line, '\n')); err != nil {
			return err
		}
	}
}

// send passes messages of the link on.
func (b *bridge) send(ctx context.Context, from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n') // the link bounds it
		if err != nil {
			return err
		}
		m, err := jsonrpc.DecodeMessage(line)
		if err != nil {
			return err
		}
		if err := b.connection.Write(ctx, m); err != nil {
			return err
		}
	}
}
