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

// shown is how many children of one supervisor String prints.
const shown = 20

// String is the tree, a line for each supervisor and child in the order of
// their start: what it is, since when, what went wrong last, and what the
// supervisor does next. Of more than 20 children it prints those in trouble
// before the others, and those that just stopped last; it sums up the rest.
func (r Report) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s at %s: %s, %s since %s, %s", title(r.Name), r.At.Format(time.DateTime), r.Strategy, r.State, clock(r.Since), r.summary())
	r.write(&text, "\n")
	return text.String()
}

// summary is how a supervisor stands with its children.
func (r *Report) summary() string {
	if r.GaveUp != nil {
		return firstLine(r.GaveUp)
	}
	text := "no child"
	if len(r.Children) > 0 {
		text = counted(len(r.Children), "child", "children") + ": " + total(r.Children)
	}
	text += fmt.Sprintf("; %s in the last %s", counted(r.Spent, "restart", "restarts"), r.Period)
	if r.State != Running {
		return text // there will be no other
	}
	return text + fmt.Sprintf(", of which it gives up on the %s", ordinal(r.Intensity+1))
}

// write writes the children, each on a line of its own.
func (r *Report) write(text *strings.Builder, indent string) {
	told, untold := r.worthTelling()
	for i, c := range told {
		branch, below := "├─ ", "│  "
		if i == len(told)-1 && len(untold) == 0 {
			branch, below = "└─ ", "   "
		}
		text.WriteString(indent + branch + c.String())
		if c.Supervisor != nil {
			c.Supervisor.write(text, indent+below)
		}
	}
	if len(untold) > 0 {
		fmt.Fprintf(text, "%s└─ and %d more: %s", indent, len(untold), total(untold))
	}
}

// worthTelling chooses the children to print, in their order.
func (r *Report) worthTelling() (told, untold []ChildReport) {
	if len(r.Children) <= shown {
		return r.Children, nil
	}
	var byConcern [noConcern + 1][]ChildReport
	for _, c := range r.Children {
		of := c.concern()
		byConcern[of] = append(byConcern[of], c)
	}
	all := slices.Concat(byConcern[:]...)
	return all[:shown], all[shown:]
}

// A concern is how much a child is to be told of, the most first.
type concern int

const (
	inTrouble  concern = iota // it is stuck, or in backoff, or someone below it is or has failed
	hasFailed                 // for good
	onItsWay                  // to run, or to be over; or others are below it
	asItShould                // run
	noConcern                 // it is over, and that was well
)

func (c *ChildReport) concern() concern {
	link := conn.Ready
	if c.Connection != nil {
		link = c.Connection.State
	}
	switch {
	case c.Stuck, c.State == Running && link == conn.Backoff, c.Supervisor != nil && c.Supervisor.isTroubled():
		return inTrouble
	case c.State == Failed:
		return hasFailed
	case c.State == Stopped:
		return noConcern
	case c.State != Running, link != conn.Ready, c.Supervisor != nil:
		return onItsWay
	default:
		return asItShould
	}
}

func (r *Report) isTroubled() bool {
	return r.GaveUp != nil || slices.ContainsFunc(r.Children, func(c ChildReport) bool { return c.concern() <= hasFailed })
}

// String is the child in one line.
func (c ChildReport) String() string {
	parts := []string{fmt.Sprintf("%s: %s %s, %s", plain(c.ID), c.Restart, c.kind(), c.condition())}
	if c.Supervisor != nil && c.State == Running {
		parts = append(parts, c.Supervisor.summary())
	}
	if c.Restarts > 0 {
		parts = append(parts, "run again "+counted(c.Restarts, "time", "times"))
	}
	if c.Failures > 0 {
		parts = append(parts, fmt.Sprintf("failed %s, last at %s: %s", counted(c.Failures, "time", "times"), clock(c.FailedAt), firstLine(c.LastFailure)))
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

// condition is where the child is in its life and, while it runs, where its
// connection is.
func (c *ChildReport) condition() string {
	since := clock(c.Since)
	switch {
	case c.State == Running && c.Connection != nil:
		return describeConn(c.Connection)
	case c.State == Stopping && c.Stuck && c.Again:
		return "told to stop at " + since + ", which it ignores; it is run again once it is gone"
	case c.State == Stopping && c.Stuck:
		return "told to stop at " + since + ", which it ignores"
	case c.State == Failed:
		return "failed for good at " + since
	case c.State == Stopped && !c.Asked:
		return "finished at " + since
	case c.State == Stopped:
		return "stopped at " + since
	default:
		return fmt.Sprintf("%s since %s", c.State, since)
	}
}

// describeConn says where a Conn is, and what went wrong last.
func describeConn(s *conn.Status) string {
	text := fmt.Sprintf("%s since %s", whereConn(s), clock(s.Since))
	switch s.State {
	case conn.Ready:
		text += fmt.Sprintf(" over link %d", s.Epoch)
	case conn.Backoff:
		text += fmt.Sprintf(", attempt %d at %s", s.Epoch+1, clock(s.NextAttempt))
	}
	if s.LastFailure.Kind != "" {
		text += ", last failure: " + firstLine(s.LastFailure)
	}
	return text
}

// whereConn is the state of a Conn. One that has no place at its gate has yet to
// begin.
func whereConn(s *conn.Status) string {
	if s.State == conn.Starting && s.Reason.Kind == conn.Queued {
		return "waiting for a place"
	}
	return string(s.State)
}

// total counts children by where they are.
func total(children []ChildReport) string {
	counts := map[string]int{}
	for i := range children {
		where := string(children[i].State)
		if c := children[i].Connection; c != nil && children[i].State == Running {
			where = whereConn(c)
		}
		counts[where]++
	}
	var parts []string
	for _, where := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[where], where))
	}
	return strings.Join(parts, ", ")
}

// ordinal is the number of one in a row.
func ordinal(n int) string {
	suffix := "th"
	switch {
	case n%100 >= 11 && n%100 <= 13:
	case n%10 == 1:
		suffix = "st"
	case n%10 == 2:
		suffix = "nd"
	case n%10 == 3:
		suffix = "rd"
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func clock(t time.Time) string { return t.Format(time.TimeOnly) }

// firstLine leaves out what else an error prints: a report has a line for a child.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return plain(line)
}

// plain is a text as it is if it prints as that, and else quoted: it comes from
// outside, and could pass for a line of ours.
func plain(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	return strconv.Quote(text)
}
