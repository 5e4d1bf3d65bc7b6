package supervisor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/conn"
)

// maxPrinted is how many children of one supervisor String prints.
const maxPrinted = 20

// String prints the tree, with one line for each supervisor and child in start
// order: what it is, its state and since when, and its last failure. If there
// are more than 20 children, it prints the 20 that need most attention, and
// counts the others by state. Children that are stuck or in backoff come first,
// then those that have failed; children that stopped without an error come
// last.
func (r Report) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s at %s: %s, %s since %s, %s", title(r.Name), r.At.Format(time.DateTime), r.Strategy, r.State, clock(r.Since), r.summary())
	r.write(&text, "\n")
	return text.String()
}

// summary counts the children and the restarts of a supervisor. A report without a period
// is that of several supervisors, which have no restarts in common.
func (r *Report) summary() string {
	if r.GaveUp != nil {
		return oneLine(r.GaveUp)
	}
	text := "no child"
	if len(r.Children) > 0 {
		text = counted(len(r.Children), "child", "children") + ": " + countByState(r.Children)
	}
	if r.Period == 0 {
		return text
	}
	return fmt.Sprintf("%s; %d of %d restarts used in the last %s", text, r.RecentRestarts, r.Intensity, r.Period)
}

// write writes the children, each on its own line.
func (r *Report) write(text *strings.Builder, indent string) {
	printed, omitted := r.choose()
	for i, c := range printed {
		branch, below := "├─ ", "│  "
		if i == len(printed)-1 && len(omitted) == 0 {
			branch, below = "└─ ", "   "
		}
		text.WriteString(indent + branch + c.String())
		if c.Supervisor != nil {
			c.Supervisor.write(text, indent+below)
		}
	}
	if len(omitted) > 0 {
		fmt.Fprintf(text, "%s└─ and %d more: %s", indent, len(omitted), countByState(omitted))
	}
}

// choose selects the children to print: in start order, or if there are too
// many by priority.
func (r *Report) choose() (printed, omitted []ChildReport) {
	if len(r.Children) <= maxPrinted {
		return r.Children, nil
	}
	var byPriority [lowest + 1][]ChildReport
	for _, c := range r.Children {
		p := c.priority()
		byPriority[p] = append(byPriority[p], c)
	}
	all := slices.Concat(byPriority[:]...)
	return all[:maxPrinted], all[maxPrinted:]
}

// A priority says how much attention a child needs.
type priority int

const (
	inTrouble priority = iota // it is stuck or in backoff, or a child below it is stuck, in backoff or failed
	failed                    // it has failed for good
	changing                  // it is starting or stopping, or is a supervisor
	normal                    // it is running
	lowest                    // it has stopped without an error
)

func (c *ChildReport) priority() priority {
	link := conn.Ready
	if c.Connection != nil {
		link = c.Connection.State
	}
	switch {
	case c.Stuck, c.State == Running && link == conn.Backoff, c.Supervisor != nil && c.Supervisor.isInTrouble():
		return inTrouble
	case c.State == Failed:
		return failed
	case c.State == Stopped:
		return lowest
	case c.State != Running, link != conn.Ready, c.Supervisor != nil:
		return changing
	default:
		return normal
	}
}

func (r *Report) isInTrouble() bool {
	return r.GaveUp != nil || slices.ContainsFunc(r.Children, func(c ChildReport) bool { return c.priority() <= failed })
}

// String prints the child on one line.
func (c ChildReport) String() string {
	parts := []string{fmt.Sprintf("%s: %s %s, %s", plain(c.ID), c.Restart, c.kind(), c.condition())}
	if c.Supervisor != nil && c.State == Running {
		parts = append(parts, c.Supervisor.summary())
	}
	if c.Restarts > 0 {
		parts = append(parts, "restarted "+counted(c.Restarts, "time", "times"))
	}
	if c.Failures > 0 {
		parts = append(parts, fmt.Sprintf("failed %s, last at %s: %s", counted(c.Failures, "time", "times"), clock(c.FailedAt), oneLine(c.LastFailure)))
	}
	return strings.Join(parts, "; ")
}

func (c *ChildReport) kind() string {
	switch {
	case c.Supervisor != nil:
		return fmt.Sprintf("%s supervisor", c.Supervisor.Strategy)
	case c.Connection != nil:
		return "connection"
	default:
		return "worker"
	}
}

// condition returns the state of the child or, while it runs, that of its Conn.
func (c *ChildReport) condition() string {
	since := clock(c.Since)
	switch {
	case c.State == Running && c.Connection != nil:
		return describeConn(c.Connection)
	case c.State == Stopping && c.Stuck && c.WillRestart:
		return "stuck: told to stop at " + since + " and still running; restarts once it has returned"
	case c.State == Stopping && c.Stuck:
		return "stuck: told to stop at " + since + " and still running"
	case c.State == Failed:
		return "failed for good at " + since
	case c.State == Stopped && !c.StopRequested:
		return "finished at " + since
	case c.State == Stopped:
		return "stopped at " + since
	default:
		return fmt.Sprintf("%s since %s", c.State, since)
	}
}

// describeConn returns the state of a Conn, and its last failure.
func describeConn(s *conn.Status) string {
	text := fmt.Sprintf("%s since %s", connState(s), clock(s.Since))
	switch s.State {
	case conn.Ready:
		text += fmt.Sprintf(" over link %d", s.Epoch)
	case conn.Backoff:
		text += fmt.Sprintf(", attempt %d at %s", s.Epoch+1, clock(s.NextAttempt))
	}
	if s.LastFailure.Kind != "" {
		text += ", last failure: " + oneLine(s.LastFailure)
	}
	return text
}

// connState returns the state of a Conn. While a Conn waits at its gate, this is
// "queued".
func connState(s *conn.Status) string {
	if s.State == conn.Starting && s.Reason.Kind == conn.Queued {
		return "queued to start"
	}
	return string(s.State)
}

func countByState(children []ChildReport) string {
	counts := map[string]int{}
	for i := range children {
		state := string(children[i].State)
		if c := children[i].Connection; c != nil && children[i].State == Running {
			state = connState(c)
		}
		counts[state]++
	}
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
	}
	return strings.Join(parts, ", ")
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func clock(t time.Time) string { return t.Format(time.TimeOnly) }

// longestPrinted is how many bytes of an error a report prints.
const longestPrinted = 1024

// oneLine returns the text of an error on one line, because a report has one line for
// each child.
func oneLine(err error) string {
	var parts []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, line)
		}
	}
	text := strings.Join(parts, "; ")
	if len(text) > longestPrinted {
		text = strings.ToValidUTF8(text[:longestPrinted], "") + "…"
	}
	return plain(text)
}

// plain quotes a text with unusual characters, because text from outside could look like
// another line of the report.
func plain(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	return strconv.Quote(text)
}
