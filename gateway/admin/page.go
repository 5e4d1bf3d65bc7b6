package admin

import (
	"cmp"
	"context"
	_ "embed" // the style, the script and the icon of the page
	"net/http"
	"net/url"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

//go:embed page.svg
var pageIcon string

// render returns the present rendering for a viewer or, unless it must be fresh, one that is not older than the pace of events. Else viewers that
// look at different times would each cost a rendering, while something changes all the time.
// It holds the lock, so that viewers that come together wait for one drawing in place of making one each.
func (e *entrance) render(knows, fresh bool) *rendering {
	e.drawn.mu.Lock()
	defer e.drawn.mu.Unlock()
	class := 0
	if knows {
		class = 1
	}
	if last := e.drawn.last[class]; last != nil && (!wait.IsClosed(last.changed) || !fresh && time.Since(last.made) < pace) {
		return last
	}
	next := &rendering{made: time.Now(), changed: e.gateway.Changed(), single: make(map[string][]part)}
	if next.report = e.look(context.Background(), false); !knows {
		next.report = next.report.public()
	}
	next.head = partOf("head", headOf(next.report).node())
	for _, s := range next.report.TroubleFirst() {
		of := rowOf(s, e.formFor(knows))
		next.rows = append(next.rows, partOf(of.ID, of.node()))
	}
	next.foot = partOf("foot", next.report.below())
	e.drawn.last[class] = next
	return next
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
func (e *entrance) drawSingle(s ServerReport, knows bool) []part {
	of := rowOf(s, e.formFor(knows))
	of.Detail, of.Stderr = true, "" // which is below
	return []part{partOf(of.ID, of.node()), partOf("foot", e.detail(s.Name, knows).node())}
}

// drawn is what a page consists of now.
type drawn struct {
	*rendering
	rows []part
	foot part
	ok   bool // there is such a server, or the page is that of all
}

// now returns the page of one server, or of all if only is empty.
func (e *entrance) now(only string, knows, fresh bool) drawn {
	all := e.render(knows, fresh)
	if only == "" {
		return drawn{all, all.rows, all.foot, true}
	}
	s, ok := all.report.Server(only)
	if !ok {
		return drawn{all, nil, partOf("foot", h.Div(h.ID("foot"))), false}
	}
	e.drawn.mu.Lock()
	defer e.drawn.mu.Unlock()
	both := all.single[only]
	if both == nil {
		both = e.drawSingle(s, knows)
		all.single[only] = both
	}
	return drawn{all, both[:1], both[1], true}
}

// main are the parts of a page as they stand in it.
func (d drawn) main(before, attributes, after g.Node) g.Node {
	return g.Group{d.head.node(), h.Main(before, h.Ul(attributes, g.Map(d.rows, part.node)), d.foot.node(), after)}
}

// showPage serves the whole page, with what the script would put into it: who has no script loads it again.
func (e *entrance) showPage(w http.ResponseWriter, r *http.Request) {
	knows, only := e.knows(r), r.PathValue("server")
	page := e.now(only, knows, true)
	if !page.ok {
		say(w, http.StatusNotFound, ErrNoServer.Error())
		return
	}
	events := "/page/events"
	var links []g.Node
	if only != "" {
		events += "?server=" + url.QueryEscape(only)
		links = append(links, h.A(h.Href("/"), g.Text("all servers")))
	}
	if _, _, trail := e.gateway.Records(); trail && knows {
		links = append(links, h.A(h.Href("/audit"), g.Text("audit")))
	}
	var tools g.Node
	if knows && only != "" {
		tools = toolsOf(only, e.detail(only, knows).Tools)
	}
	show(w, document(only, events, top(asOf(page.report.At), links...),
		page.main(nil, g.Group{h.ID("servers"), h.Aria("label", "servers")}, tools), h.Footer(e.foot(knows))))
}

// asOf says when the page was made, which the script replaces.
func asOf(t time.Time) g.Node {
	return h.P(h.ID("live"), h.Role("status"), at("as of ", t, clock), g.Text("; load the page again for newer"))
}

// toolsOf leads to the pages of the tools of a server.
func toolsOf(server string, tools []Tool) g.Node {
	if len(tools) == 0 {
		return h.Section(h.H2(g.Text("Tools")), h.P(h.Class("dim"), g.Text("none is known")))
	}
	return section("Tools", tools, func(t Tool) g.Node {
		return h.Li(h.A(h.Href("/servers/"+url.PathEscape(server)+"/tools/"+url.PathEscape(t.Name)), h.Strong(text(t.Name))), g.Text(" "),
			h.Span(h.Class("dim"), text(cut(cmp.Or(t.Title, t.Description)))))
	})
}

// foot is what a viewer may do with the whole.
func (e *entrance) foot(knows bool) g.Node {
	if !knows {
		return tokenForm(g.Group{g.Text(" "), h.Span(h.Class("dim"), g.Text("to act, and to see what servers write"))})
	}
	secret := e.formFor(knows)
	return g.If(secret != "", post("/v1/reload", secret, h.Button(g.Text("reload the file"))))
}

// show answers with a page.
func show(w http.ResponseWriter, page g.Node) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write(written(page))
}

// streamPage keeps the page of one server or of all current.
func (e *entrance) streamPage(w http.ResponseWriter, r *http.Request) {
	knows, only := e.knows(r), r.URL.Query().Get("server")
	e.streamParts(w, r, func() (drawn, error) { return e.now(only, knows, false), nil })
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
