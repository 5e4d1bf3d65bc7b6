package admin

import (
	"bytes"
	"fmt"
	"net/url"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// A part of the page is replaced as a whole.
type part struct {
	ID   string `json:"id"`
	HTML string `json:"html"`
}

// node is the part as it stands in a page, so that what stands there and what an event brings can never differ.
func (p part) node() g.Node { return g.Raw(p.HTML) }

// partOf writes a part.
func partOf(id string, node g.Node) part { return part{id, string(written(node))} }

// written writes HTML. A buffer takes it all.
func written(node g.Node) []byte {
	var out bytes.Buffer
	_ = node.Render(&out)
	return out.Bytes()
}

// node sums up the whole gateway.
func (of head) node() g.Node {
	return h.Header(h.ID("head"), h.Class(of.Class),
		h.H1(sign(of.Sign), g.Text(" "+of.Verdict)),
		h.P(h.Class("dim"),
			g.Textf("%d of %s ready · %s · %s in flight", of.ReadyCount, counted(len(of.Servers), "server"), counted(len(of.Clients), "client"), counted(of.Calls, "call")),
			g.If(of.Refusals() > 0, g.Text(" · "+counted(of.Refusals(), "question")+" refused")),
			g.If(of.AuditLost > 0, g.Group{g.Text(" · "), h.Strong(g.Text("⚠ " + counted(of.AuditLost, "record") + " of the audit trail lost"))}),
			g.If(of.Denials() != "", g.Group{g.Text(" · "), h.Strong(g.Text("⚠ " + of.Denials()))}),
			g.Text(" · "), text(of.File), at(" applied ", of.Applied, clock),
			g.If(of.Endpoint != "", g.Group{g.Text(" · "), h.Code(text(of.Endpoint))})),
		g.Map(of.Mistakes, func(mistake string) g.Node {
			return h.P(h.Class("bad"), h.Strong(g.Text("✖ not reloaded:")), said(" ", mistake))
		}),
		g.Map(of.Notices, func(notice string) g.Node { return h.P(h.Class("warn"), h.Strong(g.Text("⚠")), said(" ", notice)) }))
}

// sign is beside a word that says the same.
func sign(of string) g.Node { return h.Span(h.Class("sign"), h.Aria("hidden", "true"), g.Text(of)) }

// node is the row of a server, or with Detail all that is known of it. The script finds the row by its id, and a test or a style its state; a person
// who hears the page has the words, and the sign is hidden from him.
func (r row) node() g.Node {
	return h.Li(h.ID(r.ID), h.Class(r.Class), h.Data("state", printable(string(r.State))), g.If(r.PID != 0, h.Data("pid", fmt.Sprint(r.PID))),
		h.Div(h.Class("name"), sign(r.Sign), g.Text(" "), h.A(h.Href("/servers/"+r.Path), text(r.Name))),
		r.why(),
		h.Div(h.Class("num"), some("", r.Calls, "call")),
		h.Div(h.Class("num"), g.If(r.P50 != 0, g.Text("p50 "+milliseconds(r.P50))), g.If(r.P99 != 0, h.Div(g.Text("p99 "+milliseconds(r.P99))))),
		h.Div(h.Class("num"), some("", r.Tools, "tool"), g.If(r.Prompts > 0, h.Div(some("", r.Prompts, "prompt"))),
			g.If(r.Resources > 0, h.Div(some("", r.Resources, "resource"))), g.If(r.Stale && !r.Known.IsZero(), h.Div(at("as of ", r.Known, clock)))),
		h.Div(h.Class("acts"), g.Map(r.Actions, func(a Action) g.Node {
			action := string(a)
			return post("/v1/servers/"+r.Path+"/"+action, r.Form, h.Button(h.Aria("label", action+" "+printable(r.Name)), g.Text(action)))
		})))
}

// why says how a server is, and what a person needs to know to mend it.
func (r row) why() g.Node {
	notices := r.Notices
	if !r.Detail && len(notices) > 1 {
		notices = notices[:1]
	}
	return h.Div(h.Class("why"), h.Strong(text(string(r.State))),
		at(" since ", r.Since, clock), said(" · ", r.Why), at(" · next try at ", r.NextAttempt, countDown), some(" · ", r.Restarts, "restart"),
		g.If(r.PID != 0, g.Group{g.Text(" · "), h.Span(h.Class("dim"), g.Textf("pid %d", r.PID))}),
		g.If(r.Connections > 0, g.Text(" · "+counted(r.Connections, "connection")+" of clients")),
		g.If(r.LastFailure != "" && r.LastFailure != r.Reason, h.Div(h.Class("dim"), said("last failure: ", r.LastFailure))),
		g.If(r.Mistake != "", h.Div(said("mistake: ", r.Mistake))),
		g.If(r.Stderr != "", h.Div(h.Class("dim"), g.Text("stderr: "), h.Code(text(r.Stderr)))),
		g.Map(notices, func(notice string) g.Node {
			return h.Div(said("⚠ ", notice), g.If(!r.Detail && r.More > 0, g.Textf(" and %d more", r.More)))
		}))
}

// post is a form that acts. The secret in it shows that it is of the page.
func post(action, secret string, fields ...g.Node) g.Node {
	return h.Form(h.Method("post"), h.Action(action), hidden("form", secret), g.Group(fields))
}

// hidden is what a form sends along. A browser sends it as it is, so it is not made printable.
func hidden(name, value string) g.Node {
	return h.Input(h.Type("hidden"), h.Name(name), h.Value(value))
}

// section is a list below a heading, if there is anything in it.
func section[T any](title string, all []T, one func(T) g.Node) g.Node {
	return g.If(len(all) > 0, h.Section(h.H2(g.Text(title)), h.Ul(h.Class("plain"), g.Map(all, one))))
}

// below is what stands below the rows of all servers.
func (r Report) below() g.Node {
	return h.Div(h.ID("foot"),
		section("Waiting questions", r.Questions, func(q Question) g.Node {
			return h.Li(h.Strong(text(q.Program)), said(" is asked by ", q.Server), g.Text(" · "), h.Code(text(q.Method)), said(" · for ", q.Target),
				g.Text(" · since "), countUp(q.Since))
		}),
		g.If(len(r.Nodes) > 0, h.Section(h.H2(g.Text("Other gateways of the cluster")), g.Map(r.NodesTroubleFirst(), NodeReport.node))),
		section("Clients", r.Clients, func(c ClientReport) g.Node {
			return h.Li(h.Strong(text(c.Program)), g.Text(" "), h.Span(h.Class("dim"), text(c.Revision)), said(" · ", c.User), some(" · ", c.Calls, "call"))
		}))
}

// node is another gateway with its servers. One that is silent is not shown as it was: nobody knows how it is now.
func (n NodeReport) node() g.Node {
	state := said(" ", n.State)
	if n.Silent {
		state = g.Group{g.Text(" "), h.Span(h.Class("bad"), h.Strong(g.Text("✖ does not answer")))}
	}
	return g.Group{
		h.H3(h.Strong(text(n.Name)), state, g.If(!n.At.IsZero(), g.Group{g.Text(" "), h.Span(h.Class("dim"), at("as of ", n.At, countUp))})),
		h.Ul(h.Class("plain"), h.Aria("label", "servers of "+printable(n.Name)),
			g.Map(n.Servers, func(s ServerReport) g.Node {
				return stateItem(s.State, said(" ", s.Name), g.If(s.State != Ready, said(" · ", s.Reason)), said(" · mistake: ", s.Mistake),
					at(" · next try at ", s.NextAttempt, clock), g.Map(s.Notices, func(notice string) g.Node { return said(" · ⚠ ", notice) }), some(" · ", s.Calls, "call"))
			}),
			g.If(n.More > 0, h.Li(h.Class("dim"), g.Textf("and %d more", n.More)))),
	}
}

// stateItem is an item of a list that begins with the state of a server.
func stateItem(s State, more ...g.Node) g.Node {
	class, _ := lookOf(s)
	return h.Li(h.Class(class), h.Strong(text(string(s))), g.Group(more))
}

// detailed is what stands below the row of one server.
type detailed struct {
	Detail
	Lines      []string // of standard error
	Path, Form string   // for those who may approve tools
}

// node is what a person looks for when a server is in trouble, in the order in which it helps: what was changed, what waits, who is connected, what it was
// like before, and what it has written.
func (d detailed) node() g.Node {
	return h.Div(h.ID("foot"),
		section("Changed tools", d.Pins, d.pin),
		section("In flight", d.Running, func(r Request) g.Node {
			return h.Li(h.Code(text(r.Method)), said(" ", r.Target), g.Text(" · "), h.Span(h.Class("dim"), text(r.Program)), g.Text(" · since "), countUp(r.Began))
		}),
		section("Connections", d.Connections, d.connection),
		g.If(len(d.Changes) > 0, h.Section(h.H2(g.Text("States")), h.Ol(h.Class("plain"), h.Aria("label", "states, the newest first"), g.Map(d.Changes, func(c Change) g.Node {
			class, _ := lookOf(c.State)
			return h.Li(h.Class(class), clock(c.At), g.Text(" "), h.Strong(text(string(c.State))), said(" · ", c.Reason), at(" · next try at ", c.NextAttempt, clock))
		})))),
		g.If(len(d.Lines) > 0, h.Section(h.H2(g.Text("Standard error")), long("standard error",
			g.Map(d.Lines, func(line string) g.Node { return g.Group{text(line), g.Text("\n")} })))))
}

// long is a text of many lines, which can be scrolled by keys.
func long(label string, of g.Node) g.Node {
	return h.Pre(h.TabIndex("0"), h.Role("region"), h.Aria("label", label), of)
}

// pin shows how a tool is no longer as it was approved.
func (d detailed) pin(p Pin) g.Node {
	// Nobody may know what it was (PinChange). A definition may be as long as a message.
	or := func(value, none string) g.Node {
		if value == "" {
			return g.Text(none)
		}
		return lines(start(value))
	}
	return h.Li(h.Class("warn"), h.Strong(text(p.Tool)), g.Text(" is not as it was approved"), g.If(p.Held, g.Text(", and is not offered")),
		g.Map(p.Changes, func(c PinChange) g.Node {
			return h.Dl(h.Dt(text(c.Member)), h.Dd(h.Del(h.Code(or(c.Was, "not known")))), h.Dd(h.Ins(h.Code(or(c.Is, "gone")))))
		}),
		g.If(d.Form != "", post("/v1/pins/"+d.Path, d.Form, hidden("tool", p.Tool+"@"+p.Version), h.Button(h.Aria("label", "approve "+printable(p.Tool)), g.Text("approve")))))
}

// connection is one of a single user or client. The user is logged out by the identity; what a person reads is the name.
func (d detailed) connection(c Connection) g.Node {
	user, whose := printable(c.User), printable(c.User)
	if user == "" {
		user, whose = "a user", "the user"
	}
	return stateItem(c.State, g.Text(" · "), g.If(c.Name != "", g.Group{h.Strong(text(c.Name)), g.Text(" ")}), g.Text(user),
		g.If(c.Program != "", g.Group{g.Text(" · "), h.Span(h.Class("dim"), text(c.Program))}), some(" · ", c.Calls, "call"),
		g.Text(" · since "), countUp(c.Since), said(" · ", c.Reason),
		g.If(c.Login && d.Form != "", post("/v1/logout/"+d.Path, d.Form, hidden("user", c.User), h.Button(h.Aria("label", "log out "+whose), g.Text("log out")))))
}

// document is a whole page. Its title names the server or tool first, since browsers cut the end. With the address of its events it has the script, which keeps it current.
func document(title, events string, body ...g.Node) g.Node {
	return h.Doctype(h.HTML(h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.TitleEl(said("", title), g.If(title != "", g.Text(" · ")), g.Text("bowline")),
			h.Link(h.Rel("stylesheet"), h.Href("/page.css")),
			h.Link(h.Rel("icon"), h.Href("/page.svg"), h.Type("image/svg+xml")),
			g.If(events != "", h.Script(h.Src("/page.js"), h.Defer()))),
		h.Body(g.If(events != "", h.Data("events", events)), g.Group(body))))
}

// top leads to the other pages.
func top(live g.Node, links ...g.Node) g.Node {
	return h.Div(h.ID("top"), h.A(h.Href("/"), g.Text("bowline")), g.If(len(links) > 0, g.Group{g.Text(" "), h.Nav(links...)}), live)
}

// toServer is the link to the page of a server, whose name may have any letters.
func toServer(name string) g.Node { return h.A(h.Href("/servers/"+url.PathEscape(name)), text(name)) }
