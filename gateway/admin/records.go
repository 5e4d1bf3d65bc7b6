package admin

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/gateway/audit"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// A selection says which records somebody wants to see; what is empty selects nothing. Who and Tool are parts of a name, in any case of letters: people
// remember half of it. Server and Outcome are whole, as the page shows them.
type selection struct{ Who, Server, Tool, Outcome string }

func selectionOf(r *http.Request) selection {
	q := r.URL.Query()
	return selection{q.Get("who"), printable(q.Get("server")), q.Get("tool"), printable(q.Get("outcome"))}
}

// query returns the selection as the query of an address.
func (s selection) query() string {
	return url.Values{"who": {s.Who}, "server": {s.Server}, "tool": {s.Tool}, "outcome": {s.Outcome}}.Encode()
}

func (s selection) has(r audit.Record) bool {
	return (s.Server == "" || printable(r.Server) == s.Server) && (s.Outcome == "" || printable(wordOf(r)) == s.Outcome) &&
		(contains(r.Principal, s.Who) || contains(r.User, s.Who) || contains(r.Client, s.Who)) && (contains(r.Name, s.Tool) || contains(r.Own, s.Tool))
}

func contains(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}

// wordOf says in a word what a record is about: what a request has come to, or what has happened.
func wordOf(r audit.Record) string { return cmp.Or(r.Event, r.Outcome) }

// A recordRow is what the page shows of a record.
type recordRow struct {
	audit.Record
	ID, Class, Sign, Word string
}

func rowOfRecord(r audit.Record) recordRow {
	row := recordRow{r, fmt.Sprint("r-", r.Number), "bad", "✖", wordOf(r)}
	switch {
	case r.Event != "" && r.Outcome == "":
		row.Class, row.Sign = "idle", "○"
	case r.Outcome == "answered":
		row.Class, row.Sign = "ok", "●"
	case r.Outcome == "tool error", r.Outcome == "cancelled":
		row.Class, row.Sign = "warn", "⚠"
	}
	return row
}

// node is one line: what has come of it, who, what, where, and why, each only if the record has it. A record does not change, so its row is
// made once.
func (r recordRow) node() g.Node {
	var count g.Node
	if r.Count != 0 {
		count = g.Textf(" · %d", r.Count)
	}
	return h.Li(h.ID(r.ID), h.Class(r.Class), h.Data("outcome", printable(r.Word)), sign(r.Sign), g.Text(" "), clock(r.Time), g.Text(" "), h.Strong(text(r.Word)),
		g.If(r.User != "", g.Group{g.Text(" · "), h.Strong(text(r.User))}), said(" · ", r.Principal),
		g.If(r.Method != "", g.Group{g.Text(" · "), h.Code(text(r.Method))}), said(" ", r.Name), said(" · at ", r.Server),
		count, said(" · ", r.Delivery), said(" · ", r.Reason), said(" · by ", r.Rule), g.If(r.Millis != 0, g.Text(" · "+milliseconds(r.Millis))),
		g.Text(" "), h.Span(h.Class("dim"), g.If(r.Client != "", g.Group{said("· ", r.Client), g.Text(" ")}), g.Textf("· record %d", r.Number)))
}

// drawRecords returns the rows of the records that are selected, the newest first.
func (e *entrance) drawRecords(records []audit.Record, s selection) (rows []part) {
	e.records.mu.Lock()
	defer e.records.mu.Unlock()
	kept := make(map[uint64]part, len(records))
	for _, r := range slices.Backward(records) {
		row, ok := e.records.rows[r.Number]
		if !ok {
			of := rowOfRecord(r)
			row = partOf(of.ID, of.node())
		}
		if kept[r.Number] = row; s.has(r) {
			rows = append(rows, row)
		}
	}
	e.records.rows = kept
	return rows
}

// errNoTrail means that the file of the gateway names none.
var errNoTrail = errors.New(`there is no audit trail: name its file in the block "bowline" of the file, as {"audit": {"file": "audit.jsonl"}}`)

// recordsNow returns what the page of the records consists of.
func (e *entrance) recordsNow(s selection) (d drawn, err error) {
	records, changed, ok := e.gateway.Records()
	if !ok {
		return d, errNoTrail
	}
	d.rows = e.drawRecords(records, s)
	d.rendering = &rendering{changed: changed, report: Report{At: time.Now(), Version: e.gateway.Report().Version}}
	d.head = partOf("head", h.Header(h.ID("head"), h.H1(g.Text("Audit trail")),
		h.P(h.Class("dim"), g.Textf("%d of the last %s, the newest first; ", len(d.rows), counted(len(records), "record")), h.Code(g.Text("bowline audit")), g.Text(" has all"))))
	d.foot = partOf("foot", h.Div(h.ID("foot"), g.If(len(d.rows) == 0, h.P(h.Class("dim"), g.Text("no record is like that")))))
	return d, nil
}

// showRecords serves the page of the newest records of the trail. They name people: it needs the token.
func (e *entrance) showRecords(w http.ResponseWriter, r *http.Request) {
	s := selectionOf(r)
	page, err := e.recordsNow(s)
	if err != nil {
		say(w, http.StatusNotFound, err.Error())
		return
	}
	records, _, _ := e.gateway.Records()
	show(w, document("audit", "/audit/events?"+s.query(), top(asOf(page.report.At), h.A(h.Href("/"), g.Text("all servers"))),
		page.main(s.form(records), g.Group{h.ID("records"), h.Class("plain"), h.Aria("label", "records, the newest first")}, nil)))
}

// form is where a person selects records. It works without the script: the selection is the query of the address, which a person can keep.
func (s selection) form(of []audit.Record) g.Node {
	servers, outcomes := choices(of, s)
	part := func(name, value string) g.Node {
		return h.Label(g.Text(name+" "), h.Input(h.Name(name), h.Value(printable(value))))
	}
	whole := func(name, value string, all []string) g.Node {
		return h.Label(g.Text(name+" "), h.Select(h.Name(name), h.Option(h.Value(""), g.Text("all")), g.Map(all, func(one string) g.Node {
			return h.Option(h.Value(one), g.If(one == value, h.Selected()), g.Text(one))
		})))
	}
	return h.Form(h.Class("filter"), h.Action("/audit"), part("who", s.Who), g.Text(" "), part("tool", s.Tool), g.Text(" "),
		whole("server", s.Server, servers), g.Text(" "), whole("outcome", s.Outcome, outcomes), g.Text(" "),
		h.Button(g.Text("show these")), g.Text(" "), h.A(h.Href("/audit"), g.Text("all")))
}

// choices returns what the records have, and what is selected already, whether they have it or not.
func choices(records []audit.Record, s selection) (servers, outcomes []string) {
	servers, outcomes = []string{s.Server}, []string{s.Outcome}
	for _, r := range records {
		servers, outcomes = append(servers, printable(r.Server)), append(outcomes, printable(wordOf(r)))
	}
	return distinct(servers), distinct(outcomes)
}

// distinct returns each text once, in order, without the empty one.
func distinct(all []string) []string {
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(text string) bool { return text == "" })
}

// streamRecords keeps the page of the records current.
func (e *entrance) streamRecords(w http.ResponseWriter, r *http.Request) {
	s := selectionOf(r)
	e.streamParts(w, r, func() (drawn, error) { return e.recordsNow(s) })
}

// listRecords shows the records to programs, the newest first.
func (e *entrance) listRecords(w http.ResponseWriter, r *http.Request) {
	records, _, ok := e.gateway.Records()
	if !ok {
		fail(w, r, http.StatusNotFound, errNoTrail)
		return
	}
	s, selected := selectionOf(r), []audit.Record{}
	for _, record := range slices.Backward(records) {
		if s.has(record) {
			selected = append(selected, record)
		}
	}
	answer(w, http.StatusOK, struct {
		Records []audit.Record `json:"records"`
	}{selected})
}
