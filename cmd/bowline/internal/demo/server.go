package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

const (
	// frameLimit is small, so that an oversized frame need not be large.
	frameLimit = 1 << 20

	// patience is the timeout of a call. It is shorter than the time for which a
	// server is stopped.
	patience = time.Second
)

// A server is one of the demo's servers: its process, the session with it, and
// the outcomes of its calls.
type server struct {
	name     string
	story    *story
	metrics  *metrics // nil without Options.Metrics
	children children
	book     book
	session  *client.Session
	losses   uint64 // how many faults have ended its process

	mu       sync.Mutex
	downFrom time.Time
	outage   time.Duration // the longest outage
	ready    chan uint64   // epochs that became ready; dropped if nobody waits for them
}

func newServer(name string, s *story, m *metrics) *server {
	return &server{name: name, story: s, metrics: m, ready: make(chan uint64, 16)}
}

// connect starts the server under the supervisor, and prints that.
func (s *server) connect(ctx context.Context, command stdio.Command, sup *supervisor.Supervisor) error {
	command.Started = s.children.add
	command.MaxFrame = frameLimit
	options := client.Options{
		Supervisor: sup,
		Conn: conn.Options{
			Name:  s.name,
			Hooks: telemetry.Tee(telemetry.Hooks{Transition: s.onTransition, Violation: s.onViolation}, s.book.Hooks(byCallers)),
		},
	}
	if s.metrics != nil {
		options.Conn.Hooks = telemetry.Tee(options.Conn.Hooks, s.metrics.Hooks())
		options.Middleware = []client.Middleware{s.metrics.Client()}
	}
	session, err := client.New(protocol.Implementation{Name: "bowline demo", Version: "1"}, options).Connect(ctx, &command)
	if err != nil {
		return fmt.Errorf("demo: %s: %w", s.name, err)
	}
	s.session = session
	return s.awaitReady(ctx, 0)
}

func (s *server) tell(ev event) {
	ev.Server = s.name
	s.story.tell(ev)
}

func (s *server) onTransition(t telemetry.Transition) {
	ev := transitionEvent(t)
	ev.Server = s.name
	s.story.tellAt(t.At, ev)
	s.measure(t)
	if conn.State(t.To) != conn.Ready {
		return
	}
	if t.Epoch > 1 {
		s.tell(event{Kind: kindNote, Text: fmt.Sprintf("process %d serves in its place; meanwhile", s.children.latest())})
		s.tellFailures()
	}
	select {
	case s.ready <- t.Epoch:
	default:
	}
}

func (s *server) onViolation(v telemetry.Violation) {
	s.tell(event{Kind: kindViolation, Text: fmt.Sprintf("dropped, counted, and nothing lost: %s", brief(v.Err))})
}

// tellFailures prints the failures that callers got since the last time.
func (s *server) tellFailures() {
	for _, ev := range s.book.failures() {
		s.tell(ev)
	}
}

// measure records the longest outage.
func (s *server) measure(t telemetry.Transition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch conn.State(t.To) {
	case conn.Backoff:
		if s.downFrom.IsZero() {
			s.downFrom = t.At
		}
	case conn.Ready:
		if !s.downFrom.IsZero() {
			s.outage = max(s.outage, t.At.Sub(s.downFrom))
			s.downFrom = time.Time{}
		}
	}
}

func (s *server) longestOutage() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outage
}

// awaitReady waits until the demo has printed that an incarnation after epoch
// is ready.
func (s *server) awaitReady(ctx context.Context, epoch uint64) error {
	for {
		select {
		case ready := <-s.ready:
			if ready > epoch {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("demo: %s did not come back: %w", s.name, context.Cause(ctx))
		}
	}
}

// call makes calls until enough is closed. A call that was certainly not
// executed is repeated when the server is back.
func (s *server) call(ctx context.Context, enough <-chan struct{}) {
	waits := false
	for {
		select {
		case <-enough:
			return
		case <-ctx.Done():
			return
		default:
		}
		session := s.session.With(client.CallOptions{WaitForReady: waits, Timeout: patience})
		_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "slow", Arguments: json.RawMessage(`{"seconds":0.2}`)})
		s.book.record(err)
		waits = conn.NotExecuted(err)
	}
}

// suffer makes the server fail.
func (s *server) suffer(ctx context.Context, f fault) error {
	pid := s.children.latest()
	switch f {
	case killed:
		s.tell(event{Kind: kindFault, Text: fmt.Sprintf("SIGKILL to process %d, with calls in flight", pid)})
		return kill(pid)
	case garbage:
		s.tell(event{Kind: kindFault, Text: "one more call has it write lines that are no messages"})
		return s.provoke(ctx, "garble", `{"lines":3}`)
	case oversized:
		s.tell(event{Kind: kindFault, Text: fmt.Sprintf("one more call has it send a frame of 2 MiB, where the limit is %d MiB", frameLimit>>20)})
		return s.provoke(ctx, "big", `{"bytes":2097152}`)
	case stalled:
		s.tell(event{Kind: kindFault, Text: fmt.Sprintf("SIGSTOP to process %d: it lives, and says nothing", pid)})
		return stall(pid)
	case resumed:
		s.tell(event{Kind: kindFault, Text: fmt.Sprintf("SIGCONT to process %d: it goes on where it was, with answers nobody waits for", pid)})
		err := resume(pid)
		s.tellFailures()
		return err
	default:
		s.tell(event{Kind: kindFault, Text: "one more call has it end by itself, with status 0"})
		return s.provoke(ctx, "crash", `{"status":0}`)
	}
}

// provoke calls a tool that makes the server fail. The outcome of this call is
// counted, too.
func (s *server) provoke(ctx context.Context, tool, arguments string) error {
	_, err := s.session.CallTool(ctx, &protocol.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
	s.book.record(err)
	var call *conn.CallError
	if err != nil && !errors.As(err, &call) {
		return err
	}
	return nil
}

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

// kill kills a process, on Unix with SIGKILL.
func kill(pid int) error {
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return process.Kill()
}
