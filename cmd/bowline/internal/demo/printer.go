package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// A printer prints events when they happen: as lines of text, with a live table
// below them if wanted, or as JSON.
type printer struct {
	out     io.Writer
	options Options
	began   time.Time
	err     error // the first error of out

	mu    sync.Mutex
	table *table // nil if there is no table
}

func newPrinter(o Options) *printer { return &printer{out: o.Out, options: o, began: time.Now()} }

func (p *printer) print(ev event) { p.printAt(time.Now(), ev) }

func (p *printer) printAt(when time.Time, ev event) {
	ev.At = seconds(when.Sub(p.began))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.table != nil {
		p.table.erase(p)
		defer p.table.draw(p)
	}
	p.write(p.line(ev))
}

// line returns the text of an event.
func (p *printer) line(ev event) string {
	if p.options.JSON {
		return jsonLine(ev)
	}
	text := fmt.Sprintf("%7.3fs  %-8s %s", ev.At, ev.Server, ev.Text)
	if ev.Kind == kindOutcome {
		text = fmt.Sprintf("%7s   %-8s   %s", "", ev.Server, ev.Text)
	}
	return p.paint(colorOf(ev), text) + "\n"
}

func jsonLine(value any) string {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Sprintf("{\"error\":%q}\n", err)
	}
	return line.String()
}

// write prints a text, and records an error.
func (p *printer) write(text string) {
	if _, err := io.WriteString(p.out, text); err != nil && p.err == nil {
		p.err = fmt.Errorf("demo: cannot print: %w", err)
	}
}

// The colours of a terminal.
const (
	plain  = ""
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
	faint  = "2"
)

func (p *printer) paint(color, text string) string {
	if !p.options.Color || color == plain {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func colorOf(ev event) string {
	switch {
	case ev.Kind == kindFault:
		return red
	case ev.Kind == kindOutcome:
		return yellow
	case ev.Kind == kindViolation:
		return faint
	case ev.To == "ready":
		return green
	case ev.To == "backoff":
		return cyan
	default:
		return plain
	}
}

// showTable keeps a table of the servers below the events, until removeTable.
func (p *printer) showTable(servers []*server) {
	if !p.options.Live || p.options.JSON {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.table = newTable(servers)
	p.table.draw(p)
	go p.table.run(p)
}

// removeTable removes the table.
func (p *printer) removeTable() {
	p.mu.Lock()
	table := p.table
	if table != nil {
		table.erase(p)
		p.table = nil
	}
	p.mu.Unlock()
	if table != nil {
		table.stop()
	}
}

// An event is one line of the output. Its JSON form is what --json prints.
type event struct {
	At     float64 `json:"at"` // the time since the beginning, in seconds
	Server string  `json:"server,omitempty"`
	Kind   string  `json:"event"`
	Text   string  `json:"text"`

	From        string  `json:"from,omitempty"` // transition
	To          string  `json:"to,omitempty"`
	Reason      string  `json:"reason,omitempty"`
	NextAttempt float64 `json:"nextAttempt,omitempty"` // the time from this event, in seconds

	Calls    int    `json:"calls,omitempty"` // only for told: how many callers
	Cause    string `json:"cause,omitempty"`
	Delivery string `json:"delivery,omitempty"`
}

// The kinds of event.
const (
	kindNote       = "note"
	kindTransition = "transition"
	kindFault      = "fault"
	kindOutcome    = "told"
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

func outcomeEvent(calls int, t outcome) event {
	return event{
		Kind: kindOutcome, Calls: calls, Cause: t.Cause.String(), Delivery: t.Delivery.String(),
		Text: fmt.Sprintf("%d callers were told: %s (%s): %s [%s]", calls, t.Cause, t.Delivery, t.reason, advice(t.Delivery)),
	}
}

// advice says what a caller can conclude.
func advice(d conn.Delivery) string {
	if d == conn.NotSent {
		return "it surely did not run: safe to repeat"
	}
	return "it may have run: the caller decides"
}

// brief says in a few words what caused an error.
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

// A table shows the state of the servers below the events, and is redrawn in
// place. The caller of its methods holds the mutex of the printer, except for run
// and stop.
type table struct {
	servers  []*server
	drawn    int // how many lines were drawn
	stopping chan struct{}
	done     chan struct{} // closed when run has ended
}

func newTable(servers []*server) *table {
	return &table{servers: servers, stopping: make(chan struct{}), done: make(chan struct{})}
}

// run redraws the table five times a second.
func (t *table) run(p *printer) {
	defer close(t.done)
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			p.mu.Lock()
			if p.table == t {
				t.erase(p)
				t.draw(p)
			}
			p.mu.Unlock()
		case <-t.stopping:
			return
		}
	}
}

func (t *table) stop() {
	close(t.stopping)
	<-t.done
}

func (t *table) erase(p *printer) {
	if t.drawn > 0 {
		p.write(fmt.Sprintf("\x1b[%dA\r\x1b[J", t.drawn))
	}
	t.drawn = 0
}

func (t *table) draw(p *printer) {
	p.write(p.paint(faint, fmt.Sprintf("  %-8s %-13s %9s %9s %9s %9s", "server", "state", "in flight", "answered", "failed", "restarts")) + "\n")
	for _, server := range t.servers {
		status, stats := server.Session.Conn().Status(), server.Session.Conn().Stats()
		answered := stats.Settled[conn.Answered][conn.Sent]
		color := green
		if status.State != conn.Ready {
			color = red
		}
		p.write(p.paint(color, fmt.Sprintf("  %-8s %-13s %9d %9d %9d %9d", server.name, status.State,
			stats.Calls-stats.Ended(), answered, stats.Ended()-answered, status.Epoch-1)) + "\n")
	}
	t.drawn = len(t.servers) + 1
}
