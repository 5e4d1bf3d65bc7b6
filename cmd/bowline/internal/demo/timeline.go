package demo

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
)

// A timeline prints what happens, with the time since the beginning, and
// remembers how long the server was away.
type timeline struct {
	out   io.Writer
	began time.Time
	ready chan uint64 // epochs that became ready; what nobody awaits is dropped

	mu       sync.Mutex
	downFrom time.Time
	outage   time.Duration // the longest
}

func newTimeline(out io.Writer) *timeline {
	return &timeline{out: out, began: time.Now(), ready: make(chan uint64, 16)}
}

func (t *timeline) say(format string, args ...any) { t.at(time.Now(), fmt.Sprintf(format, args...)) }

func (t *timeline) at(when time.Time, text string) {
	t.add(fmt.Sprintf("%6.3fs  %s", when.Sub(t.began).Seconds(), text))
}

// add prints a line as it is.
func (t *timeline) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(t.out, line)
}

func (t *timeline) hooks() telemetry.Hooks { return telemetry.Hooks{Transition: t.transition} }

func (t *timeline) transition(tr telemetry.Transition) {
	line := fmt.Sprintf("%s → %s: %v", tr.From, tr.To, tr.Reason)
	if !tr.NextAttempt.IsZero() {
		line += fmt.Sprintf("; next attempt in %.1f s", tr.NextAttempt.Sub(tr.At).Seconds())
	}
	t.at(tr.At, line)
	t.measure(tr)
	if conn.State(tr.To) == conn.Ready {
		select {
		case t.ready <- tr.Epoch:
		default:
		}
	}
}

// awaitReady waits until the story has told that an incarnation after epoch is
// ready.
func (t *timeline) awaitReady(ctx context.Context, epoch uint64) error {
	for {
		select {
		case ready := <-t.ready:
			if ready > epoch {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("demo: the server did not come back: %w", context.Cause(ctx))
		}
	}
}

func (t *timeline) measure(tr telemetry.Transition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch conn.State(tr.To) {
	case conn.Backoff:
		if t.downFrom.IsZero() {
			t.downFrom = tr.At
		}
	case conn.Ready:
		if !t.downFrom.IsZero() {
			t.outage = max(t.outage, tr.At.Sub(t.downFrom))
			t.downFrom = time.Time{}
		}
	}
}

func (t *timeline) longestOutage() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outage
}
