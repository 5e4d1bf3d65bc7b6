package admin

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page
	"encoding/hex"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// newPage parses the templates. In them, text makes what others have written printable, and the package makes it harmless
// in HTML.
func newPage() *template.Template {
	clock := func(t time.Time) template.HTML {
		const form = `<time datetime="2006-01-02T15:04:05Z07:00">15:04:05</time>` // without anything that others write
		return template.HTML(t.Format(form))
	}
	return template.Must(template.New("page").Funcs(template.FuncMap{"text": shown, "clock": clock}).Parse(pageHTML))
}

// shown makes a value printable.
func shown(value any) string {
	switch value := value.(type) {
	case string:
		return printable(value)
	case State:
		return printable(string(value))
	default:
		return ""
	}
}

// row is what the template of a server shows.
type row struct {
	ServerReport
	ID, Path, Class, Sign, Form string
	Actions                     []Action // that the viewer may request
	More                        int      // notices that are not shown
	Detail                      bool
	Lines                       []string // of standard error
}

// head is what the template of the head shows.
type head struct {
	Report
	ReadyCount, Calls int
}

// render returns the present rendering for a viewer.
func (e *entrance) render(knows bool) (*rendering, error) {
	e.drawn.mu.Lock()
	defer e.drawn.mu.Unlock()
	class := 0
	if knows {
		class = 1
	}
	if last := e.drawn.last[class]; last != nil && !wait.IsClosed(last.changed) {
		return last, nil
	}
	next := &rendering{changed: e.gateway.Changed(), single: make(map[string]part)}
	if next.report = e.gateway.Report(); !knows {
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
	summary := head{Report: into.report}
	for _, s := range into.report.TroubleFirst() {
		if summary.Calls += s.Calls; s.State == Ready {
			summary.ReadyCount++
		}
		of := e.row(s, knows)
		p, err := e.part("row", of.ID, of)
		if err != nil {
			return err
		}
		into.rows = append(into.rows, p)
	}
	into.head, err = e.part("head", "head", summary)
	return err
}

// selected returns the rows of a page: of all servers, or the long one of one. Ok is false if there is no such server.
func (e *entrance) selected(drawn *rendering, only string, knows bool) (rows []part, ok bool, err error) {
	if only == "" {
		return drawn.rows, true, nil
	}
	s, ok := drawn.report.Server(only)
	if !ok {
		return nil, false, nil
	}
	e.drawn.mu.Lock()
	defer e.drawn.mu.Unlock()
	if p, drawn := drawn.single[only]; drawn {
		return []part{p}, true, nil
	}
	of := e.row(s, knows)
	of.Detail = true
	if log, ok := e.gateway.Stderr(only); ok && knows {
		of.Lines, _, _ = log.Read(0)
	}
	p, err := e.part("row", of.ID, of)
	drawn.single[only] = p
	return []part{p}, true, err
}

// part executes a template into memory: one that fails must not leave half a page at the viewer.
func (e *entrance) part(name, id string, data any) (part, error) {
	var out bytes.Buffer
	err := e.drawn.page.ExecuteTemplate(&out, name, data)
	return part{id, out.String()}, err
}

// row says how a server looks: its state is a word and a sign, and a colour only beside them.
func (e *entrance) row(s ServerReport, knows bool) row {
	sum := sha256.Sum256([]byte(s.Name))
	r := row{ServerReport: s, ID: "s-" + hex.EncodeToString(sum[:8]), Path: url.PathEscape(s.Name), More: max(0, len(s.Notices)-1)}
	var actions []Action
	switch s.State {
	case Misconfigured:
		r.Class, r.Sign = "bad", "✖"
	case Backoff:
		r.Class, r.Sign, actions = "bad", "✖", []Action{Wake, Restart, Stop}
	case Starting:
		r.Class, r.Sign, actions = "warn", "◌", []Action{Stop}
	case Ready:
		r.Class, r.Sign, actions = "ok", "●", []Action{Restart, Stop}
	default:
		r.Class, r.Sign, actions = "idle", "○", []Action{Start}
	}
	if s.State == Ready && (s.Mistake != "" || len(s.Notices) > 0) {
		r.Class, r.Sign = "warn", "⚠"
	}
	if knows {
		r.Actions, r.Form = actions, e.secret("form")
	}
	return r
}

// drawn is what a page consists of now.
type drawn struct {
	*rendering
	rows []part
	ok   bool // there is such a server, or the page is that of all
}

// now returns the page of one server, or of all if only is empty.
func (e *entrance) now(only string, knows bool) (d drawn, err error) {
	if d.rendering, err = e.render(knows); err != nil {
		return d, err
	}
	d.rows, d.ok, err = e.selected(d.rendering, only, knows)
	return d, err
}

// showPage serves the whole page, with what the script would put into it: who has no script loads it again.
func (e *entrance) showPage(w http.ResponseWriter, r *http.Request) {
	knows, only := e.knows(r), r.PathValue("server")
	page, err := e.now(only, knows)
	switch {
	case err != nil:
		fail(w, r, http.StatusInternalServerError, err)
		return
	case !page.ok:
		say(w, http.StatusNotFound, ErrNoServer.Error())
		return
	}
	data := struct {
		Only, Query string
		At          time.Time
		Head, Rows  []template.HTML
		Knows       bool
		Form        string
	}{only, url.QueryEscape(only), page.report.At, trusted(page.head), trusted(page.rows...), knows, ""}
	if knows {
		data.Form = e.secret("form")
	}
	var out bytes.Buffer
	if err := e.drawn.page.Execute(&out, data); err != nil {
		fail(w, r, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write(out.Bytes())
}

// trusted marks what the templates have made of the texts of others.
func trusted(parts ...part) []template.HTML {
	all := make([]template.HTML, len(parts))
	for i, p := range parts {
		all[i] = template.HTML(p.HTML)
	}
	return all
}

// streamPage sends the parts of the page that have changed, and the order of the rows. The first event has all parts, so a
// viewer that has missed some needs nothing else.
func (e *entrance) streamPage(w http.ResponseWriter, r *http.Request) {
	s, leave, ok := e.open(w, r)
	if !ok {
		return
	}
	defer leave()
	knows, only, has := e.knows(r), r.URL.Query().Get("server"), map[string]string{}
	e.follow(r, s, func() (<-chan struct{}, error) {
		page, err := e.now(only, knows)
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
	Parts []part   `json:"parts"`
	Order []string `json:"order"`
}

// since returns what a viewer lacks that has these parts, and what it has then.
func since(has map[string]string, page drawn) (event pageEvent, now map[string]string) {
	event, now = pageEvent{[]part{}, []string{}}, map[string]string{page.head.ID: page.head.HTML}
	if has[page.head.ID] != page.head.HTML {
		event.Parts = append(event.Parts, page.head)
	}
	for _, p := range page.rows {
		if now[p.ID] = p.HTML; has[p.ID] != p.HTML {
			event.Parts = append(event.Parts, p)
		}
		event.Order = append(event.Order, p.ID)
	}
	return event, now
}

// asset serves a file of the page. Everybody may have it: it is the same for all, and says nothing of the gateway.
func asset(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind+"; charset=utf-8")
		w.Write([]byte(text))
	}
}
