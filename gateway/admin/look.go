package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// text shows what others have written: what could drive a terminal is visible, and the package makes it harmless in HTML.
func text(value string) g.Node { return g.Text(printable(value)) }

// said shows such a text behind what it is, if there is any.
func said(before, value string) g.Node {
	return g.If(value != "", g.Group{g.Text(before), text(value)})
}

// lines shows a text of several lines.
func lines(value string) g.Node {
	all := strings.Split(value, "\n")
	for i, line := range all {
		all[i] = printable(line)
	}
	return g.Text(strings.Join(all, "\n"))
}

// cut shortens a text to what fits into a line of a list: descriptions of tools are written for models, and may be pages long. The page of the tool has
// the whole.
func cut(text string) string {
	const most = 120
	n := 0
	for i, c := range text {
		if n == most || c == '\n' {
			return text[:i] + "…"
		}
		n++
	}
	return text
}

// start shortens what may be as long as a message. The command prints the whole.
func start(text string) string {
	const most = 4 << 10
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// counted says how many there are.
func counted[N int | int64 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprint(n) + " " + thing + "s"
}

// some says how many there are, if there are any.
func some[N int | int64 | uint64](before string, n N, thing string) g.Node {
	return g.If(n != 0, g.Text(before+counted(n, thing)))
}

// milliseconds has as many digits as a person reads. More would make numbers of different servers hard to compare, and change at each call.
func milliseconds(ms float64) string {
	switch {
	case ms >= 10_000:
		return strconv.FormatFloat(ms/1000, 'f', 0, 64) + " s"
	case ms >= 10:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	default:
		return strconv.FormatFloat(ms, 'f', 1, 64) + " ms"
	}
}

// clock shows a time of this day, with the date if it is another one.
func clock(t time.Time) g.Node { return timed(t, "") }

// countUp shows a time, and with the script how long ago that was; countDown how long it takes until then.
func countUp(t time.Time) g.Node   { return timed(t, "up") }
func countDown(t time.Time) g.Node { return timed(t, "down") }

// timed writes the time so that the script and screen readers can read it, whatever it looks like. The gateway's clock and zone are shown: logs have
// them, too.
func timed(t time.Time, count string) g.Node {
	text := t.Format("15:04:05")
	if time.Since(t) > 24*time.Hour {
		text = t.Format("2 Jan 15:04")
	}
	return h.Time(h.DateTime(t.Format(time.RFC3339)), g.If(count != "", g.Group{h.Data("count", count), h.Data("clock", text)}), g.Text(text))
}

// at shows when something is, if it is known.
func at(before string, t time.Time, how func(time.Time) g.Node) g.Node {
	return g.If(!t.IsZero(), g.Group{g.Text(before), how(t)})
}

// row is what the page shows of a server.
type row struct {
	ServerReport
	ID, Path, Class, Sign, Form string
	Why                         string   // the reason, unless it says nothing
	Actions                     []Action // that the viewer may request
	More                        int      // notices that are not shown
	Detail                      bool
	Stale                       bool // its lists may be old
}

// rowOf says how a server looks: its state is a word and a sign, and a colour only beside them. Without the secret for forms, nobody can
// act.
func rowOf(s ServerReport, form string) row {
	sum := sha256.Sum256([]byte(s.Name))
	r := row{ServerReport: s, ID: "s-" + hex.EncodeToString(sum[:8]), Path: url.PathEscape(s.Name), More: max(0, len(s.Notices)-1), Why: s.Reason, Stale: s.State != Ready}
	if r.Class, r.Sign = lookOf(s.State); s.State == Ready {
		r.Why = "" // it is ready because it has said so
	}
	if s.State == Ready && (s.Mistake != "" || len(s.Notices) > 0) {
		r.Class, r.Sign = "warn", "⚠"
	}
	if form != "" {
		r.Actions, r.Form = actionsIn(s.State), form
	}
	return r
}

// lookOf returns the class and the sign of a state.
func lookOf(s State) (class, sign string) {
	switch s {
	case Misconfigured, Backoff:
		return "bad", "✖"
	case Starting:
		return "warn", "◌"
	case Ready:
		return "ok", "●"
	default:
		return "idle", "○"
	}
}

// actionsIn returns what a person may want to do with a server, the most likely first. One with a mistake in its entry needs another file.
func actionsIn(s State) []Action {
	switch s {
	case Misconfigured:
		return nil
	case Backoff:
		return []Action{Wake, Restart, Stop}
	case Starting:
		return []Action{Stop}
	case Ready:
		return []Action{Restart, Stop}
	default:
		return []Action{Start}
	}
}

// head is what the head of the page shows.
type head struct {
	Report
	Class, Sign, Verdict string // how the whole is
	ReadyCount, Calls    int
}

// headOf sums up a report: what needs a person, or that nothing does. A server that was stopped by a person, or waits for its first use, is not in
// trouble.
func headOf(r Report) head {
	of := head{Report: r, Class: "ok", Sign: "●", Verdict: "No server is in trouble"}
	bad, starting, noted := 0, 0, 0
	for _, s := range r.Servers {
		of.Calls += s.Calls
		switch class, _ := lookOf(s.State); {
		case class == "bad":
			bad++
		case s.State == Starting:
			starting++
		case s.State == Ready:
			if of.ReadyCount++; s.Mistake != "" || len(s.Notices) > 0 {
				noted++
			}
		}
	}
	switch all := len(r.Servers); {
	case bad > 0:
		of.Class, of.Sign, of.Verdict = "bad", "✖", fmt.Sprintf("%s in trouble", counted(bad, "server"))
	case len(r.Mistakes) > 0:
		of.Class, of.Sign, of.Verdict = "bad", "✖", "The file was changed, and is not applied"
	case starting > 0:
		of.Class, of.Sign, of.Verdict = "warn", "◌", fmt.Sprintf("%s starting", counted(starting, "server"))
	case noted > 0 || len(r.Notices) > 0:
		of.Class, of.Sign, of.Verdict = "warn", "⚠", "Working, with notices"
	case of.ReadyCount == all && all > 0:
		of.Verdict = "All servers are ready"
	}
	return of
}
