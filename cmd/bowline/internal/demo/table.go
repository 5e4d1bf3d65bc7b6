package demo

import (
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/conn"
)

// A table shows how the servers are, in place, below the story. Its methods but
// run and stop are called under the story's mutex.
type table struct {
	servers []*server
	drawn   int // lines
	enough  chan struct{}
	over    chan struct{} // closed when run has ended
}

func newTable(servers []*server) *table {
	return &table{servers: servers, enough: make(chan struct{}), over: make(chan struct{})}
}

// run draws the table anew five times a second.
func (t *table) run(s *story) {
	defer close(t.over)
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			s.mu.Lock()
			if s.table == t {
				t.erase(s)
				t.draw(s)
			}
			s.mu.Unlock()
		case <-t.enough:
			return
		}
	}
}

func (t *table) stop() {
	close(t.enough)
	<-t.over
}

func (t *table) erase(s *story) {
	if t.drawn > 0 {
		s.write(fmt.Sprintf("\x1b[%dA\r\x1b[J", t.drawn))
	}
	t.drawn = 0
}

func (t *table) draw(s *story) {
	s.write(s.paint(faint, fmt.Sprintf("  %-8s %-13s %9s %9s %9s %9s", "server", "state", "in flight", "answered", "failed", "restarts")) + "\n")
	for _, server := range t.servers {
		status, stats := server.session.Conn().Status(), server.session.Conn().Stats()
		answered := stats.Settled[conn.Answered][conn.Sent]
		color := green
		if status.State != conn.Ready {
			color = red
		}
		s.write(s.paint(color, fmt.Sprintf("  %-8s %-13s %9d %9d %9d %9d", server.name, status.State,
			stats.Calls-stats.Ended(), answered, stats.Ended()-answered, status.Epoch-1)) + "\n")
	}
	t.drawn = len(t.servers) + 1
}
