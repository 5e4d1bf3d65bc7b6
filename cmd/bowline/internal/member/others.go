package member

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/internal/wait"
)

const (
	askEvery  = 2 * time.Second  // while somebody looks
	lookedFor = 10 * time.Second // after the last look
)

// Others asks the other gateways of the cluster how their servers are, while somebody looks: nothing is sent otherwise. It has one goroutine, until Close.
type Others struct {
	node   *cluster.Node
	notify func() // something else is known

	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup
	kick    chan struct{} // capacity one: somebody looks

	mu     sync.Mutex
	looked time.Time
	asked  chan struct{} // closed when they were asked once more
	at     time.Time     // when that was
	known  []admin.NodeReport
}

// Others begins to tell the other nodes what told returns, and to ask them; nil in no cluster.
func (p *Node) Others(told func() json.RawMessage, notify func()) *Others {
	if p.node == nil {
		return nil
	}
	p.node.Describe(told)
	o := &Others{node: p.node, notify: notify, kick: make(chan struct{}, 1), asked: make(chan struct{})}
	o.ctx, o.end = context.WithCancel(context.Background())
	o.running.Go(o.follow)
	return o
}

// Close ends it. The node says nothing more of its program.
func (o *Others) Close() {
	o.node.Describe(func() json.RawMessage { return nil })
	o.end()
	o.running.Wait()
}

// Nodes returns what is known, and waits until the nodes were asked, or ctx ends, unless that was just now.
func (o *Others) Nodes(ctx context.Context) (self string, others []admin.NodeReport) {
	o.mu.Lock()
	o.looked = time.Now()
	asked, isOld := o.asked, time.Since(o.at) > 2*askEvery
	o.mu.Unlock()
	select {
	case o.kick <- struct{}{}:
	default:
	}
	if isOld {
		select {
		case <-asked:
		case <-o.ctx.Done():
		case <-ctx.Done():
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.node.Name(), o.known
}

func (o *Others) follow() {
	for {
		o.mu.Lock()
		isLooked := time.Since(o.looked) < lookedFor
		o.mu.Unlock()
		if isLooked {
			o.ask()
			if wait.Sleep(o.ctx, askEvery) != nil {
				return
			}
			continue
		}
		select {
		case <-o.kick:
		case <-o.ctx.Done():
			return
		}
	}
}

// ask asks all nodes, for a second at most. Of one that does not answer, what it said last stays.
func (o *Others) ask() {
	reports, err := o.node.Reports(o.ctx)
	now := time.Now()
	o.mu.Lock()
	before := make(map[string]admin.NodeReport, len(o.known))
	for _, n := range o.known {
		before[n.Name] = n
	}
	var known []admin.NodeReport
	for _, r := range reports {
		if r.Name != o.node.Name() {
			known = append(known, nodeOf(r, now))
		}
	}
	if silent := (*cluster.SilentError)(nil); errors.As(err, &silent) {
		for _, name := range silent.Nodes {
			n := before[name]
			n.Name, n.Silent = name, true
			known = append(known, n)
		}
	}
	o.known, o.at = known, now
	close(o.asked)
	o.asked = make(chan struct{})
	o.mu.Unlock()
	o.notify()
}

func nodeOf(r cluster.Report, at time.Time) admin.NodeReport {
	n := admin.NodeReport{Name: r.Name, State: string(r.State), At: at}
	if r.Draining {
		n.State = "draining"
	}
	if json.Unmarshal(r.Program, &n.NodeServers) != nil { // it is no gateway, or one of another version
		n.NodeServers = admin.NodeServers{}
	}
	return n
}
