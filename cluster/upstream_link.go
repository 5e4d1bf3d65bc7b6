package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// serverPath is where a node serves the clients of other nodes that use its server.
func serverPath(name string) string { return "/server/" + encodeName(name) + "/mcp" }

// dial opens a link to the server at another node: one request, whose bodies are the two streams.
func (u *upstream) dial(ctx context.Context, node string) (transport.Link, error) {
	to := u.node.carrier.roundTripper(node)
	if to == nil {
		return nil, fmt.Errorf("cluster: server %q runs on node %q, which cannot be reached", u.name, node)
	}
	streams := &stdio.Streams{MaxFrame: u.maxFrame(), Dial: func(ctx context.Context) (io.ReadCloser, io.WriteCloser, error) {
		return exchange(ctx, to, u.path)
	}}
	link, err := streams.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("cluster: server %q at node %q: %w", u.name, node, err)
	}
	return link, nil
}

func (u *upstream) maxFrame() int {
	if command, ok := u.own.(*stdio.Command); ok {
		return command.MaxFrame
	}
	return 0
}

// exchange makes a request whose body can be written while that of the response is read. The
// context limits only the time until the response begins.
func exchange(ctx context.Context, to http.RoundTripper, path string) (io.ReadCloser, io.WriteCloser, error) {
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	body, out := io.Pipe()
	request, err := http.NewRequestWithContext(life, http.MethodPost, "http://node"+path, body)
	if err != nil {
		cancel(err)
		return nil, nil, err
	}
	request.ContentLength = -1 // unknown; 0 would be nothing
	response, err := to.RoundTrip(request)
	if !stop() && err == nil {
		response.Body.Close()
		err = context.Cause(ctx)
	}
	if err == nil && response.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // what there is of it
		response.Body.Close()
		err = fmt.Errorf("it answers %s: %s", response.Status, why)
	}
	if err != nil {
		cancel(err)
		return nil, nil, err
	}
	return &exchanged{response.Body, func() { cancel(transport.ErrClosed) }}, out, nil
}

// An exchanged body ends the whole exchange when it is closed.
type exchanged struct {
	io.ReadCloser
	cancel func()
}

// Close implements io.Closer.
func (e *exchanged) Close() error {
	err := e.ReadCloser.Close()
	e.cancel()
	return err
}

// errNotHere answers another node that looks for a server here.
var errNotHere = errors.New("the server does not run here")

// await returns what runs here, as soon as its first client has opened a session.
func (e *exclusive) await(ctx context.Context) (*serverRun, error) {
	for {
		in, changed := e.state()
		if in.closed || in.asked || in.run == nil && !in.claimed {
			return nil, errNotHere
		}
		if in.run != nil && !wait.IsClosed(in.run.shared.Done()) {
			select {
			case <-in.run.shared.Ready():
				return in.run, nil
			case <-in.run.shared.Done():
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		if err := await(ctx, changed); err != nil {
			return nil, err
		}
	}
}

// ServeHTTP serves a client of another node, until its link or the server has ended.
func (e *exclusive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	run, err := e.await(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
		return
	}
	out := &responseStream{to: w, control: http.NewResponseController(w)}
	w.WriteHeader(http.StatusContinue) // the other node sends the body only when it is asked for, and the answer comes before that
	if err := out.control.Flush(); err != nil {
		return // the other node has gone
	}
	link, err := (&stdio.Server{In: &requestStream{r.Body, out.control}, Out: out, MaxFrame: run.by.maxFrame()}).Open(r.Context())
	if err != nil {
		return
	}
	<-run.shared.Serve(link) // after that, nothing uses the request any more
}

// A requestStream is the body of a request, whose reads can be interrupted.
type requestStream struct {
	io.ReadCloser
	control *http.ResponseController
}

// SetReadDeadline lets a stdio.Server interrupt a read.
func (s *requestStream) SetReadDeadline(t time.Time) error { return s.control.SetReadDeadline(t) }

// A responseStream is the body of a response, which is sent at once.
type responseStream struct {
	to      http.ResponseWriter
	control *http.ResponseController

	mu      sync.Mutex
	writing bool
	stopped bool
}

// Write implements io.Writer.
func (s *responseStream) Write(p []byte) (n int, err error) {
	if !s.begin() {
		return 0, os.ErrDeadlineExceeded
	}
	defer s.end()
	if n, err = s.to.Write(p); err == nil {
		err = s.control.Flush()
	}
	return n, err
}

func (s *responseStream) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = !s.stopped
	return s.writing
}

func (s *responseStream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = false
}

// SetWriteDeadline interrupts a write: a stdio.Server uses it for nothing else. It lets the
// response end properly if there is none to interrupt; the deadline of a response would break it
// off.
func (s *responseStream) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if !s.writing {
		return nil
	}
	return s.control.SetWriteDeadline(t)
}

// Close implements io.Closer. The body ends with the request.
func (s *responseStream) Close() error { return nil }
