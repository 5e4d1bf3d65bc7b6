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

	// callTimeout is the timeout of a call. It is shorter than the time for which a
	// server is stopped.
	callTimeout = time.Second
)

// A server is one of the demo's servers: its process, the session with it, and
// the outcomes of its calls.
type server struct {
	name     string
	printer  *printer
	metrics  *metrics // nil without Options.Metrics
	children children
	outcomes outcomes
	session  *client.Session
	losses   uint64 // how many faults have ended its process

	mu       sync.Mutex
	downFrom time.Time
	outage   time.Duration // the longest outage
	ready    chan uint64   // epochs that became ready; dropped if the channel is full
}

func newServer(name string, p *printer, m *metrics) *server {
	return &server{name: name, printer: p, metrics: m, ready: make(chan uint64, 16)}
}

// connect starts the server under the supervisor, and prints that.
func (s *server) connect(ctx context.Context, command stdio.Command, sup *supervisor.Supervisor) error {
	command.Started = s.children.add
	command.MaxFrame = frameLimit
	options := client.Options{
		Supervisor: sup,
		Conn: conn.Options{
			Name:  s.name,
			Hooks: telemetry.Tee(telemetry.Hooks{Transition: s.onTransition, Violation: s.onViolation}, s.outcomes.Hooks(isDemoCall)),
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

func (s *server) print(ev event) {
	ev.Server = s.name
	s.printer.print(ev)
}

func (s *server) onTransition(t telemetry.Transition) {
	ev := transitionEvent(t)
	ev.Server = s.name
	s.printer.printAt(t.At, ev)
	s.measure(t)
	if conn.State(t.To) != conn.Ready {
		return
	}
	if t.Epoch > 1 {
		s.print(event{Kind: kindNote, Text: fmt.Sprintf("process %d serves in its place; meanwhile", s.children.latest())})
		s.printFailures()
	}
	select {
	case s.ready <- t.Epoch:
	default:
	}
}

func (s *server) onViolation(v telemetry.Violation) {
	s.print(event{Kind: kindViolation, Text: fmt.Sprintf("dropped, counted, and nothing lost: %s", brief(v.Err))})
}

// printFailures prints the failures that callers got since the last time.
func (s *server) printFailures() {
	for _, ev := range s.outcomes.failures() {
		s.print(ev)
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

// call makes calls until stop is closed. A call that was certainly not
// executed is repeated when the server is back.
func (s *server) call(ctx context.Context, stop <-chan struct{}) {
	waits := false
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		default:
		}
		session := s.session.With(client.CallOptions{WaitForReady: waits, Timeout: callTimeout})
		_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "slow", Arguments: json.RawMessage(`{"seconds":0.2}`)})
		s.outcomes.record(err)
		waits = conn.NotExecuted(err)
	}
}

// inject makes the server fail.
func (s *server) inject(ctx context.Context, f fault) error {
	pid := s.children.latest()
	switch f {
	case killed:
		s.print(event{Kind: kindFault, Text: fmt.Sprintf("SIGKILL to process %d, with calls in flight", pid)})
		return kill(pid)
	case garbage:
		s.print(event{Kind: kindFault, Text: "one more call has it write lines that are no messages"})
		return s.callFaultTool(ctx, "garble", `{"lines":3}`)
	case oversized:
		s.print(event{Kind: kindFault, Text: fmt.Sprintf("one more call has it send a frame of 2 MiB, where the limit is %d MiB", frameLimit>>20)})
		return s.callFaultTool(ctx, "big", `{"bytes":2097152}`)
	case stalled:
		s.print(event{Kind: kindFault, Text: fmt.Sprintf("SIGSTOP to process %d: it lives, and says nothing", pid)})
		return stall(pid)
	case resumed:
		s.print(event{Kind: kindFault, Text: fmt.Sprintf("SIGCONT to process %d: it goes on where it was, with answers nobody waits for", pid)})
		err := resume(pid)
		s.printFailures()
		return err
	default:
		s.print(event{Kind: kindFault, Text: "one more call has it end by itself, with status 0"})
		return s.callFaultTool(ctx, "crash", `{"status":0}`)
	}
}

// callFaultTool calls a tool that makes the server fail. The outcome of this call is
// counted, too.
func (s *server) callFaultTool(ctx context.Context, tool, arguments string) error {
	_, err := s.session.CallTool(ctx, &protocol.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
	s.outcomes.record(err)
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
