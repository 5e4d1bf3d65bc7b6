package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// A story tells events as they come: as lines of text, with a table that
// changes in place below them if wanted, or as JSON.
type story struct {
	out     io.Writer
	options Options
	began   time.Time
	failed  error // the first error of out

	mu    sync.Mutex
	table *table // nil when there is none
}

func newStory(o Options) *story { return &story{out: o.Out, options: o, began: time.Now()} }

func (s *story) tell(ev event) { s.tellAt(time.Now(), ev) }

func (s *story) tellAt(when time.Time, ev event) {
	ev.At = seconds(when.Sub(s.began))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table != nil {
		s.table.erase(s)
		defer s.table.draw(s)
	}
	s.write(s.line(ev))
}

// line is an event as it is printed.
func (s *story) line(ev event) string {
	if s.options.JSON {
		return jsonLine(ev)
	}
	text := fmt.Sprintf("%7.3fs  %-8s %s", ev.At, ev.Server, ev.Text)
	if ev.Kind == kindTold {
		text = fmt.Sprintf("%7s   %-8s   %s", "", ev.Server, ev.Text)
	}
	return s.paint(colorOf(ev), text) + "\n"
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

// write prints, and remembers that it could not.
func (s *story) write(text string) {
	if _, err := io.WriteString(s.out, text); err != nil && s.failed == nil {
		s.failed = fmt.Errorf("demo: the story cannot be told: %w", err)
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

func (s *story) paint(color, text string) string {
	if !s.options.Color || color == plain {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func colorOf(ev event) string {
	switch {
	case ev.Kind == kindFault:
		return red
	case ev.Kind == kindTold:
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

// watch keeps a table of the servers below the story, until end.
func (s *story) watch(servers []*server) {
	if !s.options.Live || s.options.JSON {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table = newTable(servers)
	s.table.draw(s)
	go s.table.run(s)
}

// end takes the table away.
func (s *story) end() {
	s.mu.Lock()
	table := s.table
	if table != nil {
		table.erase(s)
		s.table = nil
	}
	s.mu.Unlock()
	if table != nil {
		table.stop()
	}
}
