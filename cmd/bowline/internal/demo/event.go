package demo

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// An event is one line of the story. Its JSON form is what --json prints.
type event struct {
	At     float64 `json:"at"` // seconds since the beginning
	Server string  `json:"server,omitempty"`
	Kind   string  `json:"event"`
	Text   string  `json:"text"`

	From        string  `json:"from,omitempty"` // transition
	To          string  `json:"to,omitempty"`
	Reason      string  `json:"reason,omitempty"`
	NextAttempt float64 `json:"nextAttempt,omitempty"` // seconds from this event

	Calls    int    `json:"calls,omitempty"` // told: how many callers
	Cause    string `json:"cause,omitempty"`
	Delivery string `json:"delivery,omitempty"`
}

// The kinds of event.
const (
	kindNote       = "note"
	kindTransition = "transition"
	kindFault      = "fault"
	kindTold       = "told"
	kindViolation  = "violation"
	kindSummary    = "summary"
)

func transitionEvent(t telemetry.Transition) event {
	ev := event{
		Kind: kindTransition, From: t.From, To: t.To, Reason: t.Kind,
		Text: fmt.Sprintf("%s → %s: %s", t.From, t.To, brief(t.Reason)),
	}
	if !t.NextAttempt.IsZero() {
		ev.NextAttempt = t.NextAttempt.Sub(t.At).Seconds()
		ev.Text += fmt.Sprintf("; next attempt in %.1f s", ev.NextAttempt)
	}
	return ev
}

func toldEvent(calls int, t told) event {
	return event{
		Kind: kindTold, Calls: calls, Cause: t.cause.String(), Delivery: t.delivery.String(),
		Text: fmt.Sprintf("%d callers were told: %s (%s): %s [%s]", calls, t.cause, t.delivery, t.reason, advice(t.delivery)),
	}
}

// advice is what a caller can conclude.
func advice(d conn.Delivery) string {
	if d == conn.NotSent {
		return "it surely did not run: safe to repeat"
	}
	return "it may have run: the caller decides"
}

// brief says in few words what is behind an error.
func brief(err error) string {
	var exit *transport.ExitError
	var oversized *transport.OversizedError
	var state *conn.StateError
	switch {
	case errors.As(err, &state):
		return fmt.Sprintf("no server (%s)", state.State)
	case errors.As(err, &exit) && exit.Signal != "":
		return "the process was ended by signal: " + exit.Signal
	case errors.As(err, &exit):
		return fmt.Sprintf("the process exited with status %d", exit.Status)
	case errors.As(err, &oversized):
		return fmt.Sprintf("a frame above the limit of %d MiB", oversized.Limit>>20)
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }
