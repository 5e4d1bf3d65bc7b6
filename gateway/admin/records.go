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

// A recordRow is what the template of a record shows.
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

// drawRecords returns the rows of the records that are selected, the newest first.
func (e *entrance) drawRecords(records []audit.Record, s selection) (rows []part, err error) {
	e.records.mu.Lock()
	defer e.records.mu.Unlock()
	kept := make(map[uint64]part, len(records))
	for _, r := range slices.Backward(records) {
		row, ok := e.records.rows[r.Number]
		if !ok {
			of := rowOfRecord(r)
			if row, err = e.part("record", of.ID, of); err != nil {
				return nil, err
			}
		}
		if kept[r.Number] = row; s.has(r) {
			rows = append(rows, row)
		}
	}
	e.records.rows = kept
	return rows, nil
}

// errNoTrail means that the file of the gateway names none.
var errNoTrail = errors.New(`there is no audit trail: name its file in the block "bowline" of the file, as {"audit": {"file": "audit.jsonl"}}`)

// recordsNow returns what the page of the records consists of.
func (e *entrance) recordsNow(s selection) (d drawn, err error) {
	records, changed, ok := e.gateway.Records()
	if !ok {
		return d, errNoTrail
	}
	if d.rows, err = e.drawRecords(records, s); err != nil {
		return d, err
	}
	d.rendering = &rendering{changed: changed, report: Report{At: time.Now(), Version: e.gateway.Report().Version}}
	if d.head, err = e.part("records", "head", struct{ Shown, All int }{len(d.rows), len(records)}); err != nil {
		return d, err
	}
	d.foot, err = e.part("none", "foot", len(d.rows) == 0)
	return d, err
}

// audited is what the template of the page of the records shows.
type audited struct {
	selection
	Query             string
	At                time.Time
	Head, Foot        any
	Rows              []any
	Servers, Outcomes []string // to choose from
}

// showRecords serves the page of the newest records of the trail. They name people: it needs the token.
func (e *entrance) showRecords(w http.ResponseWriter, r *http.Request) {
	s := selectionOf(r)
	page, err := e.recordsNow(s)
	switch {
	case errors.Is(err, errNoTrail):
		say(w, http.StatusNotFound, err.Error())
		return
	case err != nil:
		fail(w, r, http.StatusInternalServerError, err)
		return
	}
	data := audited{selection: s, Query: s.query(), At: page.report.At, Head: trusted(page.head), Foot: trusted(page.foot)}
	for _, row := range page.rows {
		data.Rows = append(data.Rows, trusted(row))
	}
	records, _, _ := e.gateway.Records()
	data.Servers, data.Outcomes = choices(records, s)
	e.write(w, r, "audit", data)
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
