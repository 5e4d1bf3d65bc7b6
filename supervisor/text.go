package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/conn"
)

// shown is how many children of one supervisor String prints.
const shown = 20

// String is the tree, a line for each supervisor and child: what it is, since
// when, and what went wrong last. Where there are many children it prints those
// that are not as they should be before the others, and sums up the rest.
func (r Report) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s", title(r.Name), r.summary())
	r.write(&text, "\n")
	return text.String()
}

// summary is what there is to say of the supervisor itself.
func (r *Report) summary() string {
	text := fmt.Sprintf("%s, %s since %s, %s, %d of %s spent in the last %s",
		r.Strategy, r.State, clock(r.Since), counted(len(r.Children), "child", "children"),
		r.Spent, counted(r.Intensity, "restart", "restarts"), r.Period)
	if r.GaveUp != nil {
		text += ", gave up: " + firstLine(r.GaveUp)
	}
	return text
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
		text.WriteString(indent + "└─ and " + total(untold))
	}
}

// worthTelling chooses the children to print, in their order.
func (r *Report) worthTelling() (told, untold []ChildReport) {
	if len(r.Children) <= shown {
		return r.Children, nil
	}
	places := shown
	for _, troubled := range []bool{true, false} {
		for _, c := range r.Children {
			switch {
			case c.isTroubled() != troubled:
			case places > 0:
				places--
				told = append(told, c)
			default:
				untold = append(untold, c)
			}
		}
	}
	return told, untold
}

// isTroubled reports whether a child is not as it should be.
func (c *ChildReport) isTroubled() bool {
	return c.State != Running || c.Connection != nil && c.Connection.State != conn.Ready || c.Supervisor != nil
}

// String is the child in one line.
func (c ChildReport) String() string {
	parts := []string{fmt.Sprintf("%s: %s %s, %s", c.ID, c.Restart, c.kind(), c.condition())}
	if c.Supervisor != nil && c.State == Running {
		parts = append(parts, c.Supervisor.summary())
	}
	if c.Restarts > 0 {
		parts = append(parts, "restarted "+counted(c.Restarts, "time", "times"))
	}
	if c.LastFailure != nil {
		parts = append(parts, fmt.Sprintf("failed last at %s: %s", clock(c.FailedAt), firstLine(c.LastFailure)))
	}
	return strings.Join(parts, "; ")
}

func (c *ChildReport) kind() string {
	switch {
	case c.Supervisor != nil:
		return "supervisor"
	case c.Connection != nil:
		return "connection"
	default:
		return "worker"
	}
}

// condition is where the child is in its life and, while it runs, where its
// connection is.
func (c *ChildReport) condition() string {
	text := fmt.Sprintf("%s since %s", c.State, clock(c.Since))
	switch {
	case c.Stuck:
		text += ", ignores its stop"
	case c.State == Running && c.Connection != nil:
		text += ", " + describeConn(c.Connection)
	}
	return text
}

// describeConn says where a Conn is, and what it lost last.
func describeConn(s *conn.Status) string {
	text := fmt.Sprintf("link %d %s since %s", s.Epoch, s.State, clock(s.Since))
	if s.State == conn.Backoff {
		text += ", next attempt at " + clock(s.NextAttempt)
	}
	if s.LastFailure.Kind != "" {
		text += ", last loss: " + firstLine(s.LastFailure)
	}
	return text
}

// total counts children by where they are.
func total(children []ChildReport) string {
	counts := map[string]int{}
	for i := range children {
		where := string(children[i].State)
		if c := children[i].Connection; c != nil && children[i].State == Running {
			where = string(c.State)
		}
		counts[where]++
	}
	var parts []string
	for where, count := range counts {
		parts = append(parts, fmt.Sprintf("%d %s", count, where))
	}
	slices.Sort(parts)
	return fmt.Sprintf("%d more: %s", len(children), strings.Join(parts, ", "))
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func clock(t time.Time) string { return t.Format(time.TimeOnly) }

// firstLine leaves out the stack that some errors print.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
