package gateway

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/protocol"
)

// Report describes the gateway as it is now, but for its Endpoint, which the program knows. It never waits.
func (g *Gateway) Report() admin.Report {
	r := g.totals()
	g.mu.Lock()
	r.File, r.Applied = g.file, g.applied
	if g.refusal != nil {
		r.Mistakes = strings.Split(g.refusal.Error(), "\n")
	}
	order, servers, mistakes := g.order, g.servers, g.mistakes // which are replaced, and never changed
	g.mu.Unlock()
	r.Clients = g.clients(servers)
	r.Ready = !r.Applied.IsZero() && !g.notifier.isClosed()
	known := g.known.Snapshot()
	for _, name := range order {
		s := admin.ServerReport{Name: name, State: admin.Misconfigured}
		if u := servers[name]; u != nil {
			s = g.describe(u, known)
			r.Called = append(r.Called, u.calls(name)...)
		}
		if wrong := mistakes[name]; wrong != nil {
			s.Mistake = wrong.Error()
		}
		r.Servers = append(r.Servers, s)
	}
	return r
}

// totals is what a report says of all servers together, and of the gateway whatever its file is.
func (g *Gateway) totals() admin.Report {
	r := admin.Report{At: time.Now(), Version: g.options.Info.Version, Refused: g.waiting.refusals(), NotOffered: g.notOffered.Load(), Questions: g.waiting.list(), Servers: []admin.ServerReport{}}
	r.Unclaimed, r.NotEnriched, r.PagesRefused = g.levels.unclaimed.Load(), g.enricher.failed.Load(), g.logins.refused.Load()
	r.StatesRefused = g.statesRefused.Load()
	if wrong := g.unsaved.Load(); wrong != nil {
		r.Notices = append(r.Notices, *wrong)
	}
	return r
}

// clients are those of the legacy revisions: the modern ones have no session.
func (g *Gateway) clients(servers map[string]*upstream) []admin.ClientReport {
	all, calls := []admin.ClientReport{}, make(map[*server.Session]int)
	for _, u := range servers {
		u.countBySession(calls)
	}
	for session := range g.server.Sessions() {
		of := session.Client()
		client := admin.ClientReport{Program: programOf(of), Revision: of.ProtocolVersion, Calls: calls[session]}
		if at, known := g.members.Load(session); known {
			if of := at.(*member).user.Load(); of != nil {
				client.User = of.String()
			}
		}
		all = append(all, client)
	}
	return all
}

func (g *Gateway) describe(u *upstream, known *catalogue.Snapshot) admin.ServerReport {
	s := admin.ServerReport{Name: u.Name, State: admin.Stopped, Stderr: u.stderr.Last()}
	u.record.describe(&s)
	s.Limited, s.Queued = u.asked.Refused.Load(), u.asked.Waiting()
	for _, age := range known.Ages(u.Name) {
		switch age.Kind {
		case catalogue.Tools:
			s.Tools, s.Known = age.Entries, age.At
		case catalogue.Prompts:
			s.Prompts = age.Entries
		default: // templates are resources, too
			s.Resources += age.Entries
		}
	}
	session, running := g.set.Session(u.Name)
	s.Notices = append(noticesOf(u, known), u.excess.notices(session)...)
	s.Connections, s.Users = len(u.ofOwners()), u.users()
	if failure, asleep := u.use.IsAsleep(); asleep {
		s.OnDemand, s.Reason, s.LastFailure = true, "starts on demand", failure
	} else if running {
		s.Connection(session.Status())
	} else if wrong := u.failed.Load(); wrong != nil {
		s.State, s.Reason = admin.Misconfigured, *wrong
	}
	if s.State == admin.Ready || s.State == admin.Starting {
		s.PID = int(u.pid.Load())
	}
	return s
}

// noticesOf says what of a server is not offered as it is.
func noticesOf(u *upstream, known *catalogue.Snapshot) (notices []string) {
	if u.ring.Load() {
		notices = append(notices, (&RingError{u.Name}).Error())
	}
	for _, notice := range known.Notices(u.Name) {
		notices = append(notices, fmt.Sprintf("%s: %s", notice.Kind, notice.Text))
	}
	return notices
}

// Changed returns a channel that is closed when Report may say something else than it does after this call.
func (g *Gateway) Changed() <-chan struct{} { return g.notifier.next(g.causes) }

// Notify closes what Changed has returned, for what a program shows beside the Report.
func (g *Gateway) Notify() { g.notifier.notify() }

// causes tell of changes that no code of this package makes.
func (g *Gateway) causes() []<-chan struct{} {
	all := []<-chan struct{}{g.known.Changed()}
	for _, u := range g.upstreams() {
		for _, c := range u.connections() {
			if session, running := g.lifecycle.session(u, c); running {
				all = append(all, session.Status().Changed())
			}
		}
	}
	return all
}

// Detail returns what a report does not have of a server. Ok is false if the file has no such server.
func (g *Gateway) Detail(name string) (d admin.Detail, ok bool) {
	u := g.upstream(name)
	if u == nil {
		return d, false
	}
	d.Changes, d.Running = u.history()
	d.Connections = g.owned(u)
	for _, c := range g.known.Snapshot().Changed(name) {
		d.Pins = append(d.Pins, pinOf(c))
	}
	for _, item := range g.known.Snapshot().Items(catalogue.Tools) {
		if item.Server == name {
			d.Tools = append(d.Tools, toolOf(item))
		}
	}
	return d, true
}

// owned describes the connections with a server that not all clients share.
func (g *Gateway) owned(u *upstream) (all []admin.Connection) {
	places, uses := u.pool.All()
	for i, p := range places {
		var program string
		if of, _ := p.Owner.Session.(*server.Session); of != nil {
			program = programOf(of.Client())
		}
		var status *conn.Status
		if session, running := g.lifecycle.session(u, p.Value); running {
			now := session.Status()
			status = &now
		}
		c := admin.ConnectionOf(p.Owner.User, program, uses[i].Since, uses[i].Calls, status)
		c.Name = p.Value.userOf().name
		c.Login = u.logsIn()
		all = append(all, c)
	}
	return all
}

// users are those who have connections of their own with a server, as people know them.
func (u *upstream) users() (all []string) {
	for _, c := range u.ofOwners() {
		if shown := c.userOf().String(); shown != "" && !slices.Contains(all, shown) {
			all = append(all, shown)
		}
	}
	slices.Sort(all)
	return all
}

// toolOf reads what the catalogue has taken over: a tool that cannot be decoded has its name.
func toolOf(item catalogue.Item) admin.Tool {
	var tool protocol.Tool
	_ = protocol.Unmarshal(item.Raw, &tool)
	return admin.Tool{Name: item.Name, Title: tool.Title, Description: tool.Description, Schema: tool.InputSchema}
}
