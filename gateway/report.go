package gateway

import (
	"fmt"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
)

// Report describes the gateway as it is now, but for its Endpoint, which the program knows. It never waits.
func (g *Gateway) Report() admin.Report {
	r := admin.Report{At: time.Now(), Version: g.options.Info.Version, Refused: g.refused.Load(), Clients: g.clients(), Servers: []admin.ServerReport{}}
	if wrong := g.unsaved.Load(); wrong != nil {
		r.Notices = append(r.Notices, *wrong)
	}
	g.mu.Lock()
	r.File, r.Applied = g.file, g.applied
	if g.refusal != nil {
		r.Mistakes = strings.Split(g.refusal.Error(), "\n")
	}
	order, servers, mistakes := g.order, g.servers, g.mistakes // which are replaced, and never changed
	g.mu.Unlock()
	r.Ready = !r.Applied.IsZero() && !g.eye.isClosed()
	known := g.known.Snapshot()
	for _, name := range order {
		s := admin.ServerReport{Name: name, State: admin.Misconfigured}
		if u := servers[name]; u != nil {
			s = g.describe(u, known)
		}
		if wrong := mistakes[name]; wrong != nil {
			s.Mistake = wrong.Error()
		}
		r.Servers = append(r.Servers, s)
	}
	return r
}

// clients are those of the legacy revisions: the modern ones have no session.
func (g *Gateway) clients() []admin.ClientReport {
	all := []admin.ClientReport{}
	for session := range g.server.Sessions() {
		of := session.Client()
		all = append(all, admin.ClientReport{Program: of.Info.Name + " " + of.Info.Version, Revision: of.ProtocolVersion})
	}
	return all
}

func (g *Gateway) describe(u *upstream, known *catalogue.Snapshot) admin.ServerReport {
	s := admin.ServerReport{Name: u.Name, State: admin.Stopped, Calls: int(u.calls.Load()), Stderr: u.stderr.Last()}
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
	for _, notice := range known.Notices(u.Name) {
		s.Notices = append(s.Notices, fmt.Sprintf("%s: %s", notice.Kind, notice.Text))
	}
	session, running := g.set.Session(u.Name)
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

// Changed returns a channel that is closed when Report may say something else than it does after this call.
func (g *Gateway) Changed() <-chan struct{} { return g.eye.open(g.causes) }

// causes tell of changes that no code of this package makes.
func (g *Gateway) causes() []<-chan struct{} {
	all := []<-chan struct{}{g.known.Changed()}
	for session := range g.set.Sessions() {
		all = append(all, session.Status().Changed())
	}
	return all
}
