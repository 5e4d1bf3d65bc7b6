package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/bowline-mcp/bowline/cluster"
)

const (
	lookForServers = time.Second      // how often to look which servers are there
	sayEvery       = 10 * time.Second // how often to say which are not
	electionWithin = 15 * time.Second // how long servers may take to elect a leader
	newWithin      = 3 * time.Second  // the same when they are new
)

// Bucket implements cluster.Engine.
func (m *member) Bucket(ctx context.Context, o cluster.BucketOptions) (cluster.Bucket, error) {
	m.busy.Add(1)
	defer m.busy.Add(-1)
	return m.Engine.Bucket(ctx, o)
}

// sayWaiting says which servers it waits for, as long as it does, until ctx ends.
func (m *member) sayWaiting(ctx context.Context) {
	look := time.NewTicker(lookForServers)
	defer look.Stop()
	for s := (saying{seeds: m.options.Seeds}); ; {
		select {
		case now := <-look.C:
			m.mu.Lock()
			own := m.server
			m.mu.Unlock()
			if own == nil {
				break // the process that has the server says it
			}
			there, err := own.there()
			if err != nil {
				break // it is being closed
			}
			s.isNew = own.isNew
			if level, line := s.next(now, there, m.busy.Load() > 0); line != "" {
				m.options.log().Log(ctx, level, line)
			}
		case <-ctx.Done():
			return
		}
	}
}

// there returns the names of the servers that have found each other.
func (s *Server) there() (map[string]bool, error) {
	routes, err := s.server.Routez(&natsserver.RoutezOptions{})
	if err != nil {
		return nil, err
	}
	names := map[string]bool{s.state.Name: true}
	for _, route := range routes.Routes {
		names[route.RemoteName] = true
	}
	return names, nil
}

// A saying decides what to say about servers that are not there.
type saying struct {
	seeds []string
	isNew bool // this server had nothing when it started, so that an election is soon over

	last  time.Time // when it has said that it waits; zero: it does not
	stuck time.Time // since when more than half are there, and that was not enough
}

// need returns how many servers are needed now, of which so many are there, and why it is not just more than half. These are enough, but not if
// what they keep is lost or does not exist yet: then they need all others but one to agree on a first leader, and three to create a bucket.
func (s *saying) need(now time.Time, there int, busy bool) (need int, why string) {
	need = len(s.seeds)/2 + 1
	if there < need || !busy {
		s.stuck = time.Time{}
	} else if s.stuck.IsZero() {
		s.stuck = now
	}
	patience := electionWithin
	if s.isNew {
		patience = newWithin
	}
	if !s.stuck.IsZero() && now.Sub(s.stuck) >= patience {
		need = max(len(s.seeds)-1, replicas)
		why = fmt.Sprintf(" (a cluster that is new or has lost its data needs %d at first)", need)
	}
	return need, why
}

// next returns what to say now; "" for nothing. Busy says that something waits for the servers.
func (s *saying) next(now time.Time, there map[string]bool, busy bool) (level slog.Level, line string) {
	need, why := s.need(now, len(there), busy)
	switch {
	case len(there) >= need && s.stuck.IsZero() && !s.last.IsZero():
		s.last = time.Time{}
		return slog.LevelInfo, fmt.Sprintf("%d of %d nodes are there, which is enough", len(there), len(s.seeds))
	case len(there) >= need || now.Sub(s.last) < sayEvery-lookForServers/2:
		return 0, ""
	}
	s.last = now
	var missing []string
	for _, seed := range s.seeds {
		if !there[serverName(seed)] {
			missing = append(missing, seed)
		}
	}
	return slog.LevelWarn, fmt.Sprintf("waiting for %d more of %d nodes: %s%s", need-len(there), len(s.seeds), strings.Join(missing, ", "), why)
}
