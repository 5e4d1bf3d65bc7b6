package admin

import (
	"bytes"
	"context"
	_ "embed" // the page
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

//go:embed page.svg
var pageIcon string

// render returns the present rendering for a viewer or, unless it must be fresh, one that is not older than the pace of events. Else viewers that
// look at different times would each cost a rendering, while something changes all the time.
func (e *entrance) render(knows, fresh bool) (*rendering, error) {
	e.drawn.mu.Lock()
	defer e.drawn.mu.Unlock()
	class := 0
	if knows {
		class = 1
	}
	if last := e.drawn.last[class]; last != nil && (!wait.IsClosed(last.changed) || !fresh && time.Since(last.made) < pace) {
		return last, nil
	}
	next := &rendering{made: time.Now(), changed: e.gateway.Changed(), single: make(map[string][]part)}
	if next.report = e.look(context.Background(), false); !knows {
		next.report = next.report.public()
	}
	if err := e.draw(next, knows); err != nil {
		return nil, err
	}
	e.drawn.last[class] = next
	return next, nil
}

// draw makes the parts of the page of all servers. Whoever calls it holds the lock, so that viewers that come together
// wait for one drawing in place of making one each.
func (e *entrance) draw(into *rendering, knows bool) (err error) {
	if into.head, err = e.part("head", "head", headOf(into.report)); err != nil {
		return err
	}
	for _, s := range into.report.TroubleFirst() {
		of := rowOf(s, e.formFor(knows))
		p, err := e.part("row", of.ID, of)
		if err != nil {
			return err
		}
		into.rows = append(into.rows, p)
	}
	into.foot, err = e.part("foot", "foot", into.report)
	return err
}

// part executes a template into memory: one that fails must not leave half a page at the viewer.
func (e *entrance) part(name, id string, data any) (part, error) {
	var out bytes.Buffer
	err := e.drawn.page.ExecuteTemplate(&out, name, data)
	return part{id, out.String()}, err
}

// detailed is what the template of one server shows below its row.
type detailed struct {
	Detail
	Lines      []string // of standard error
	Path, Form string   // for those who may approve tools
}

// detail returns what a viewer may see of a server. The lines of its standard error are those that are kept, whether it runs or not: they are wanted
// when it has ended.
func (e *entrance) detail(name string, knows bool) (d detailed) {
	d.Path, d.Form = url.PathEscape(name), e.formFor(knows)
	d.Detail, _ = e.gateway.Detail(name)
	if !knows {
		d.Detail = d.Detail.public()
		return d
	}
	if log, ok := e.gateway.Stderr(name); ok {
		d.Lines, _, _ = log.Read(0)
	}
	return d
}

// drawSingle makes the long row of a server, and what stands below it. Its tools are not among what the script replaces: they are links that a person
// may be about to press, and a server may have thousands.
func (e *entrance) drawSingle(s ServerReport, knows bool) ([]part, error) {
	of := rowOf(s, e.formFor(knows))
	of.Detail, of.Stderr = true, "" // which is below
	line, err := e.part("row", of.ID, of)
	if err != nil {
		return nil, err
	}
	below, err := e.part("detail", "foot", e.detail(s.Name, knows))
	return []part{line, below}, err
}

// drawn is what a page consists of now.
type drawn struct {
	*rendering
	rows []part
	foot part
	ok   bool // there is such a server, or the page is that of all
}

// now returns the page of one server, or of all if only is empty.
func (e *entrance) now(only string, knows, fresh bool) (d drawn, err error) {
	if d.rendering, err = e.render(knows, fresh); err != nil {
		return d, err
	}
	if d.rows, d.foot, d.ok = d.rendering.rows, d.rendering.foot, true; only == "" {
		return d, nil
	}
	d.rows, d.foot = nil, part{"foot", `<div id="foot"></div>`}
	s, ok := d.report.Server(only)
	if d.ok = ok; !ok {
		return d, nil
	}
	e.drawn.mu.Lock()
	defer e.drawn.mu.Unlock()
	both := d.single[only]
	if both == nil {
		if both, err = e.drawSingle(s, knows); err != nil {
			return d, err
		}
		d.single[only] = both
	}
	d.rows, d.foot = both[:1], both[1]
	return d, nil
}

// whole is what the template of the page shows. Head, rows and foot are parts that are made already, so that what stands in the page and what an event
// brings can never differ.
type whole struct {
	Only, Query string
	Path        string
	At          time.Time
	Head, Foot  template.HTML
	Rows        []template.HTML
	Tools       []Tool
	Knows       bool
	Audit       bool // there is a trail, and the viewer may see it
	Form        string
}

// showPage serves the whole page, with what the script would put into it: who has no script loads it again.
func (e *entrance) showPage(w http.ResponseWriter, r *http.Request) {
	knows, only := e.knows(r), r.PathValue("server")
	page, err := e.now(only, knows, true)
	switch {
	case err != nil:
		fail(w, r, http.StatusInternalServerError, err)
		return
	case !page.ok:
		say(w, http.StatusNotFound, ErrNoServer.Error())
		return
	}
	data := whole{Only: only, Query: url.QueryEscape(only), Path: url.PathEscape(only), At: page.report.At, Head: trusted(page.head), Foot: trusted(page.foot), Knows: knows}
	for _, p := range page.rows {
		data.Rows = append(data.Rows, trusted(p))
	}
	if knows {
		_, _, data.Audit = e.gateway.Records()
	}
	if data.Form = e.formFor(knows); knows && only != "" {
		data.Tools = e.detail(only, knows).Tools
	}
	e.write(w, r, "page", data)
}

// write answers with a page. It is made whole before it is sent: a template that fails half way would be taken for a short page, and its status could
// not be taken back.
func (e *entrance) write(w http.ResponseWriter, r *http.Request, name string, data any) {
	var out bytes.Buffer
	if err := e.drawn.page.ExecuteTemplate(&out, name, data); err != nil {
		fail(w, r, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write(out.Bytes())
}

// trusted marks what the templates have made of the texts of others.
func trusted(p part) template.HTML { return template.HTML(p.HTML) }

// streamPage keeps the page of one server or of all current.
func (e *entrance) streamPage(w http.ResponseWriter, r *http.Request) {
	knows, only := e.knows(r), r.URL.Query().Get("server")
	e.streamParts(w, r, func() (drawn, error) { return e.now(only, knows, false) })
}

// streamParts sends the parts of a page that have changed, and the order of the rows. The first event has all parts, so a
// viewer that has missed some needs nothing else.
func (e *entrance) streamParts(w http.ResponseWriter, r *http.Request, now func() (drawn, error)) {
	s, leave, ok := e.open(w, r)
	if !ok {
		return
	}
	defer leave()
	var has map[string]string
	e.follow(r, s, func() (<-chan struct{}, error) {
		page, err := now()
		if err != nil {
			return nil, err
		}
		var event pageEvent
		event, has = since(has, page)
		return page.changed, s.send("page", event)
	})
}

// A pageEvent has the parts that are to be replaced, and the ids of the rows in their order.
type pageEvent struct {
	At      time.Time `json:"at"`
	Version string    `json:"version"` // of the gateway: its script may be another one
	Parts   []part    `json:"parts"`
	Order   []string  `json:"order"`
}

// since returns what a viewer lacks that has these parts, and what it has then.
func since(has map[string]string, page drawn) (event pageEvent, now map[string]string) {
	event, now = pageEvent{page.report.At, page.report.Version, []part{}, []string{}}, map[string]string{}
	add := func(p part) {
		if now[p.ID] = p.HTML; has[p.ID] != p.HTML {
			event.Parts = append(event.Parts, p)
		}
	}
	add(page.head)
	for _, p := range page.rows {
		add(p)
		event.Order = append(event.Order, p.ID)
	}
	add(page.foot)
	return event, now
}

// asset serves a file of the page. Everybody may have it: it is the same for all, and says nothing of the gateway.
func asset(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind+"; charset=utf-8")
		w.Write([]byte(text))
	}
}
