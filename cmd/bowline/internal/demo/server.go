package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/fleet"
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
	fleet.Member
	process  fleet.Process
	name     string
	printer  *printer
	metrics  *metrics // nil without Options.Metrics
	outcomes outcomes
	losses   uint64 // how many faults have ended its process
	lost     uint64 // the incarnation that the last of them has ended

	mu     sync.Mutex
	outage time.Duration // the longest outage
}

// connect starts the server under the supervisor, and prints that.
func (s *server) connect(ctx context.Context, command stdio.Command, sup *supervisor.Supervisor) error {
	command.Started = s.process.Started
	command.MaxFrame = frameLimit
	options := client.Options{
		Supervisor: sup,
		Conn: conn.Tuning{
			Name:  s.name,
			Hooks: telemetry.Tee(telemetry.Hooks{Transition: s.onTransition, Violation: s.onViolation, Gap: s.onGap}, s.outcomes.Hooks(fleet.HasCaller)),
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
	s.Session = session
	return nil
}

func (s *server) print(ev event) {
	ev.Server = s.name
	s.printer.print(ev)
}

func (s *server) onTransition(t telemetry.Transition) {
	ev := transitionEvent(t)
	ev.Server = s.name
	s.printer.printAt(t.At, ev)
	if conn.State(t.To) == conn.Ready && t.Epoch > 1 {
		s.print(event{Kind: kindNote, Text: fmt.Sprintf("process %d serves in its place; meanwhile", s.process.Pid())})
		s.printFailures()
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

func (s *server) onGap(gap telemetry.Gap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outage = max(s.outage, gap.Duration)
}

func (s *server) longestOutage() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outage
}

// awaitReady waits until the server is back after the last fault that has ended it.
func (s *server) awaitReady(ctx context.Context) error {
	if _, err := s.AwaitBack(ctx, func(epoch uint64) bool { return epoch > s.lost }); err != nil {
		return fmt.Errorf("demo: %s did not come back: %w", s.name, err)
	}
	return nil
}

// call makes a call, which may wait for the server. It reports whether the call was certainly not executed,
// so that the caller repeats it when the server is back.
func (s *server) call(ctx context.Context, waits bool) (repeat bool) {
	session := s.Session.With(client.CallOptions{WaitForReady: waits, Timeout: callTimeout})
	_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "slow", Arguments: json.RawMessage(`{"seconds":0.2}`)})
	s.outcomes.record(err)
	return conn.NotExecuted(err)
}

// inject makes the server fail.
func (s *server) inject(ctx context.Context, f fault) error {
	if f.losesLink() {
		s.losses, s.lost = s.losses+1, s.Session.Conn().Status().Epoch
	}
	err := s.fail(ctx, f)
	if err != nil {
		err = fmt.Errorf("demo: %s: %w", s.name, err)
	}
	return err
}

func (s *server) fail(ctx context.Context, f fault) error {
	pid := s.process.Pid()
	say := func(text string, args ...any) { s.print(event{Kind: kindFault, Text: fmt.Sprintf(text, args...)}) }
	switch f {
	case killed:
		say("SIGKILL to process %d, with calls in flight", pid)
		if !s.process.Kill() {
			return fmt.Errorf("process %d cannot be killed", pid)
		}
		return nil
	case garbage:
		say("one more call has it write lines that are no messages")
		return s.callFaultTool(ctx, "garble", `{"lines":3}`)
	case oversized:
		say("one more call has it send a frame of 2 MiB, where the limit is %d MiB", frameLimit>>20)
		return s.callFaultTool(ctx, "big", `{"bytes":2097152}`)
	case stalled:
		say("SIGSTOP to process %d: it lives, and says nothing", pid)
		return s.process.Stall()
	case resumed:
		say("SIGCONT to process %d: it goes on where it was, with answers nobody waits for", pid)
		err := s.process.Resume()
		s.printFailures()
		return err
	default:
		say("one more call has it end by itself, with status 0")
		return s.callFaultTool(ctx, "crash", `{"status":0}`)
	}
}

// callFaultTool calls a tool that makes the server fail. The outcome of this call is
// counted, too.
func (s *server) callFaultTool(ctx context.Context, tool, arguments string) error {
	_, err := s.Session.CallTool(ctx, &protocol.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
	s.outcomes.record(err)
	var call *conn.CallError
	if err != nil && !errors.As(err, &call) {
		return err
	}
	return nil
}
