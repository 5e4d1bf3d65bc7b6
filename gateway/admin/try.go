package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

const (
	tryTime     = 2 * time.Minute // for a call of the page
	maxTries    = 4               // calls of the page at a time, at each entrance
	maxShown    = 64 << 10        // bytes of a result or a schema
	maxIndented = 8 << 20         // bytes that a result or a schema may have when it is indented; else it is shown as it is
)

// tried is what the page of a tool shows.
type tried struct {
	Server, Path, ToolPath, Form string
	Tool                         Tool
	Schema                       string
	Fields                       []field

	Problem string // why there is no result
	Result  string
	Failed  bool // so says the tool
	Took    float64
	whole   bool // one field has all arguments
}

// tool finds the tool of a request, and makes its page without a result. If ok is false, the request is answered.
func (e *entrance) tool(w http.ResponseWriter, r *http.Request) (page tried, ok bool) {
	name, tool := r.PathValue("server"), r.PathValue("tool")
	d, found := e.gateway.Detail(name)
	i := slices.IndexFunc(d.Tools, func(t Tool) bool { return t.Name == tool })
	if !found || i < 0 {
		say(w, http.StatusNotFound, "no such tool")
		return page, false
	}
	page = tried{Server: name, Path: url.PathEscape(name), ToolPath: url.PathEscape(tool), Tool: d.Tools[i], Schema: indented(d.Tools[i].Schema)}
	page.Fields, page.whole = fieldsOf(page.Tool.Schema)
	if !e.web.NoTry {
		page.Form = e.secret("form")
	}
	return page, true
}

// showTool serves the page of a tool. It has no script, and does not change by itself: what a person is entering must not be taken away.
func (e *entrance) showTool(w http.ResponseWriter, r *http.Request) {
	if page, ok := e.tool(w, r); ok {
		show(w, page.node())
	}
}

// tryTool calls a tool with what a person has entered, and shows the page again, with the result. Nothing of it is kept.
func (e *entrance) tryTool(w http.ResponseWriter, r *http.Request) {
	page, ok := e.tool(w, r)
	switch {
	case !ok:
		return
	case e.web.NoTry:
		fail(w, r, http.StatusForbidden, errors.New("tools are not called from this page"))
		return
	}
	select { // without a place it fails, and does not wait: a person who waits presses again
	case e.tries <- struct{}{}:
		defer func() { <-e.tries }()
	default:
		fail(w, r, http.StatusServiceUnavailable, fmt.Errorf("%d calls of this page are running already", maxTries))
		return
	}
	for i := range page.Fields {
		page.Fields[i].Value = strings.ReplaceAll(r.PostFormValue(fmt.Sprintf("a%d", i)), "\r\n", "\n") // as browsers send each end of a line
	}
	page.call(r.Context(), e.gateway)
	show(w, page.node())
}

// node is the page: what the tool is for, the form, what has come of the last call, and the schema for those who write programs. Nothing of it is replaced
// by a script.
func (p *tried) node() g.Node {
	return document(p.Tool.Name, "", top(nil, h.A(h.Href("/"), g.Text("all servers")), g.Text(" "), toServer(p.Server)),
		h.Main(
			h.H1(text(p.Tool.Name)),
			g.If(p.Tool.Title != "", h.P(text(p.Tool.Title))),
			g.If(p.Tool.Description != "", h.P(h.Class("prose"), lines(p.Tool.Description))),
			p.form(),
			g.If(p.Problem != "", h.Section(h.ID("result"), h.Class("bad"), h.Data("outcome", "failed"), h.H2(g.Text("Not called, or no answer")), long("the problem", lines(p.Problem)))),
			p.outcome(),
			h.Section(h.H2(g.Text("Schema")), long("the schema", lines(p.Schema)))))
}

// form asks for the arguments.
func (p *tried) form() g.Node {
	if p.Form == "" {
		return h.P(h.Class("dim"), g.Text("tools are not called from this page"))
	}
	var fields g.Group
	for i, f := range p.Fields {
		fields = append(fields, f.node(fmt.Sprint("a", i)))
	}
	return h.Form(h.Class("try"), h.Method("post"), h.Action("/servers/"+p.Path+"/tools/"+p.ToolPath), hidden("form", p.Form), fields,
		h.P(h.Button(g.Text("call "), text(p.Tool.Name)), g.Text(" "), h.Span(h.Class("dim"), g.Text("as any client would: it is executed"))))
}

// outcome shows what the tool has answered, if it has.
func (p *tried) outcome() g.Node {
	class, outcome, sentence := "ok", "answered", "● answered"
	if p.Failed {
		class, outcome, sentence = "bad", "error", "✖ the tool has failed"
	}
	return g.If(p.Result != "", h.Section(h.ID("result"), h.Class(class), h.Data("outcome", outcome), h.H2(g.Text("Result")),
		h.P(h.Strong(g.Text(sentence)), g.Text(" after "+milliseconds(p.Took))), long("the result", lines(p.Result))))
}

// node is the field with its label, its name in the form, and what the author of the tool says about it.
func (f field) node(name string) g.Node {
	required := g.If(f.Required, h.Required())
	var entry g.Node
	switch f.Kind {
	case "choice":
		entry = h.Select(h.ID(name), h.Name(name), required, h.Option(), g.Map(f.Choices, func(c choice) g.Node {
			return h.Option(h.Value(c.Value), g.If(c.Value == f.Value, h.Selected()), text(c.Text))
		}))
	case "number":
		step := "any"
		if f.Whole {
			step = "1"
		}
		// "any" allows fractions, of which a browser else takes none.
		entry = h.Input(h.ID(name), h.Name(name), h.Type("number"), h.Step(step), h.Value(f.Value), required)
	case "text": // never required: an empty text is one, too
		entry = h.Textarea(h.ID(name), h.Name(name), h.Rows("1"), g.Text(f.Value))
	default:
		entry = h.Textarea(h.ID(name), h.Name(name), h.Rows("3"), g.Attr("spellcheck", "false"), required, g.Text(f.Value))
	}
	return h.P(
		h.Label(h.For(name), text(f.label()), g.If(f.Required, g.Group{g.Text(" "), h.Span(h.Class("dim"), g.Text("required"))}),
			g.If(f.Kind == "json", g.Group{g.Text(" "), h.Span(h.Class("dim"), g.Text("JSON"))})),
		g.Text("\n"), entry, g.Text("\n"),
		g.If(f.Hint != "", h.Span(h.Class("dim"), lines(f.Hint))))
}

// call calls the tool, and keeps what came of it for the page. What the person has entered stays there, to be changed and sent again.
func (p *tried) call(ctx context.Context, g Gateway) {
	arguments, err := argumentsOf(p.Fields, p.whole)
	if err != nil {
		p.Problem = err.Error()
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	began := time.Now()
	result, err := g.Call(ctx, p.Tool.Name, arguments)
	p.Took = float64(time.Since(began).Microseconds()) / 1000
	if err != nil {
		p.Problem = err.Error()
		return
	}
	var said struct {
		IsError bool `json:"isError"`
	}
	p.Failed = json.Unmarshal(result, &said) == nil && said.IsError
	p.Result = indented(result)
}

// indented makes JSON readable: a person looks for what is wrong in it. It is cut, since a result may have as many bytes as a message, and the browser
// of a person is not what should find out how many it can show. What would become too large by its spaces is not indented: 512 brackets in each other
// are 512 lines with a thousand spaces.
func indented(raw json.RawMessage) string {
	var out bytes.Buffer
	if len(raw)*(2*depthOf(raw)+3) > maxIndented {
		out.Write(raw[:min(len(raw), maxShown+1)])
	} else if json.Indent(&out, raw, "", "  ") != nil {
		return ""
	}
	if out.Len() > maxShown {
		return string(bytes.ToValidUTF8(out.Bytes()[:maxShown], nil)) + "\n… cut here"
	}
	return out.String()
}

// depthOf returns how deep arrays and objects are in each other.
func depthOf(raw json.RawMessage) (deepest int) {
	depth, inText := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '\\': // in a text, where else
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{', c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}', c == ']':
			depth--
		}
	}
	return deepest
}
