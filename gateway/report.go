package gateway

import (
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
)

// A Report is a snapshot of a Gateway.
type Report struct {
	At      time.Time      `json:"at"`
	Clients int            `json:"clients"` // sessions of the legacy revisions; modern clients have none
	Refused int64          `json:"refused"` // questions of servers that no client could be asked
	Servers []ServerReport `json:"servers"` // in the order of the file
}

// A ServerReport describes one server of the file.
type ServerReport struct {
	Name    string             `json:"name"`
	Status  conn.Status        `json:"status"` // of the connection; its State is Closing if the session has ended for good, or could not be started
	Calls   int64              `json:"calls"`  // in flight
	Lists   []catalogue.Age    `json:"lists,omitempty"`
	Notices []catalogue.Notice `json:"notices,omitempty"` // what is not offered as the server has it
}

// Report describes the gateway as it is now. It never waits.
func (g *Gateway) Report() Report {
	r := Report{At: time.Now(), Refused: g.refused.Load()}
	for range g.server.Sessions() {
		r.Clients++
	}
	g.mu.Lock()
	all := make([]*upstream, 0, len(g.order))
	for _, name := range g.order {
		all = append(all, g.servers[name])
	}
	g.mu.Unlock()
	known := g.known.Snapshot()
	for _, u := range all {
		s := ServerReport{Name: u.Name, Calls: u.calls.Load(), Lists: known.Ages(u.Name), Notices: known.Notices(u.Name)}
		s.Status.State = conn.Closing
		if session, running := g.set.Session(u.Name); running {
			s.Status = session.Status()
		}
		r.Servers = append(r.Servers, s)
	}
	return r
}
