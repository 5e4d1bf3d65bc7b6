package conn_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
)

// A pipe is a script that says how much it has heard, as pipes and sockets do.
type pipe struct {
	*script
	bytes atomic.Uint64
}

func (p *pipe) Heard() (uint64, bool) { return p.bytes.Load(), true }

// A peer that hangs is lost within three silences, and another is opened.
//
// Guarantees: G-0025.1, G-0025.5
func TestSilentPeerIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var opened []*pipe
		r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
			opened = append(opened, &pipe{script: &script{}})
			return opened[len(opened)-1], nil
		}), conn.Options{Dialect: dialect{}}))
		synctest.Wait()
		pass(15*time.Second - 1)
		if state := r.State(); state != conn.Ready {
			t.Fatalf("in %s", state)
		}
		if got := opened[0].frames(); len(got) != 2 {
			t.Fatalf("the peer was asked %q", got)
		}
		pass(time.Second / 4) // what the wheel rounds up to
		if status := r.Status(); status.State != conn.Backoff || status.Reason.Kind != conn.LivenessLost {
			t.Fatalf("%s (%v)", status.State, status.Reason)
		}
		pass(2 * time.Second)
		if len(opened) != 2 || r.State() != conn.Ready {
			t.Fatalf("%d links, %s", len(opened), r.State())
		}
		r.Stop()
		<-r.ended
	})
}

// Bytes of a frame that is not complete are heard.
//
// Guarantees: G-0025.2
func TestSlowFrameKeepsTheLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &pipe{script: &script{}}
		r := start(conn.New(opens(p), conn.Options{Dialect: dialect{}}))
		synctest.Wait()
		for range 100 {
			p.bytes.Add(1)
			pass(time.Second)
		}
		if status := r.Status(); status.Epoch != 1 || len(p.frames()) != 0 {
			t.Fatalf("%s (%v), asked %q", status.State, status.Reason, p.frames())
		}
		r.Stop()
		<-r.ended
	})
}

// A link that does not say how much it hears is left alone.
//
// Guarantees: G-0025.5
func TestSilenceInMemoryMeansNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := scripted(t, s, conn.Options{Dialect: dialect{}})
		pass(time.Hour)
		if len(s.frames()) != 0 || r.State() != conn.Ready {
			t.Fatalf("%s, asked %q", r.State(), s.frames())
		}
		r.Stop()
		<-r.ended
	})
}

// Conns that share a wheel are watched each by itself, and leave it when they
// end.
//
// Guarantees: G-0025.6
func TestConnsShareAWheel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		wheel := new(conn.Wheel)
		var links []*pipe
		var runs []run
		for range 100 {
			p := &pipe{script: &script{}}
			links = append(links, p)
			runs = append(runs, start(conn.New(opens(p), conn.Options{Dialect: dialect{}, Wheel: wheel})))
		}
		synctest.Wait()
		pass(6 * time.Second)
		for i, r := range runs {
			if len(links[i].frames()) != 1 {
				t.Fatalf("peer %d was asked %q", i, links[i].frames())
			}
			r.Stop()
			<-r.ended
		}
		pass(time.Hour) // a tick that is left would find no loop
	})
}
