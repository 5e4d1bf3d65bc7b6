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
		e.write(w, r, "tool", page)
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
	e.write(w, r, "tool", page)
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
