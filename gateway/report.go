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
	Mistake string             `json:"mistake,omitempty"` // of its entry, with line and column: it was not started, or is as an earlier file said
	Status  conn.Status        `json:"status"`            // of the connection; its State is Closing if the session has ended for good, or could not be started
	Calls   int64              `json:"calls"`             // in flight
	Lists   []catalogue.Age    `json:"lists,omitempty"`
	Notices []catalogue.Notice `json:"notices,omitempty"` // what is not offered as the server has it
}

// Report describes the gateway as it is now. It never waits.
func (g *Gateway) Report() Report {
	r := Report{At: time.Now(), Refused: g.refused.Load()}
	for range g.server.Sessions() {
		r.Clients++
	}
	known := g.known.Snapshot()
	g.mu.Lock()
	order, servers, mistakes := g.order, g.servers, g.mistakes // which are replaced, and never changed
	g.mu.Unlock()
	for _, name := range order {
		s := ServerReport{Name: name, Lists: known.Ages(name), Notices: known.Notices(name)}
		if u := servers[name]; u != nil {
			s.Calls = u.calls.Load()
		}
		if wrong := mistakes[name]; wrong != nil {
			s.Mistake = wrong.Error()
		}
		s.Status.State = conn.Closing
		if session, running := g.set.Session(name); running {
			s.Status = session.Status()
		}
		r.Servers = append(r.Servers, s)
	}
	return r
}
