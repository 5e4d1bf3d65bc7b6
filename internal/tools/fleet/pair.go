package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/fleet"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A pair is a session and the server's end of its link. It is also the
// transport of the session: for every link, it passes the other end to the
// server.
type pair struct {
	fleet.Member
	of    *pairs
	epoch uint64 // the incarnation that was cut

	mu         sync.Mutex
	serverLink transport.Link // the server's end
	down       bool           // the server accepts no link
	attempted  time.Time      // when the first link after a cut was opened or refused
}

var errServerDown = errors.New("the server is down")

// Open implements transport.Transport.
func (p *pair) Open(context.Context) (transport.Link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.attempted.IsZero() {
		p.attempted = time.Now()
	}
	if p.down {
		return nil, errServerDown
	}
	clientLink, serverLink := inmem.Pipe(inmem.Options{})
	p.serverLink = serverLink
	p.of.server.Accept(serverLink)
	return clientLink, nil
}

// back reports whether an incarnation is one after the one that was cut.
func (p *pair) back(epoch uint64) bool { return epoch > p.epoch }

// connect opens the session.
func (p *pair) connect(ctx context.Context) (err error) {
	p.Session, err = p.of.client.Connect(ctx, p)
	return err
}

// call makes one call of a tool, and counts how it ended.
func (p *pair) call(ctx context.Context, tool string) error {
	_, err := p.Session.CallTool(ctx, &protocol.CallToolParams{Name: tool, Arguments: json.RawMessage(`{}`)})
	p.of.ledger.Report(err)
	return err
}

// cut closes the link at the server's end immediately. Queued frames are lost.
func (p *pair) cut(down bool) error {
	p.epoch = p.Session.Conn().Status().Epoch
	p.mu.Lock()
	p.down, p.attempted = down, time.Time{}
	link := p.serverLink
	p.mu.Unlock()
	return link.Close(0)
}

// endOutage lets links be opened again. The clients are not told: they come by themselves.
func (p *pair) endOutage() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

// firstAttempt returns when the client came for the first time after the cut, whether it was let in or not.
func (p *pair) firstAttempt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attempted
}

// The tools of the pairs' server.
const (
	countTool = "count" // a tool that answers immediately
	holdTool  = "hold"  // a tool that answers when all calls are released
)

// tools counts what the server has executed.
type tools struct {
	executed  atomic.Int64  // how many calls of both tools were executed
	abandoned atomic.Int64  // how many of these calls were cancelled before their answer
	holding   atomic.Int64  // how many calls of hold are running
	released  chan struct{} // closed to release these calls
}

func newTools() *tools { return &tools{released: make(chan struct{})} }

// server returns a server with these tools.
func (t *tools) server() *server.Server {
	s := server.New(protocol.Implementation{Name: "fleet", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: countTool}, t.count)
	server.AddTool(s, protocol.Tool{Name: holdTool}, t.hold)
	return s
}

func (t *tools) count(context.Context, struct{}) (string, error) {
	t.executed.Add(1)
	return "counted", nil
}

func (t *tools) hold(ctx context.Context, _ struct{}) (string, error) {
	t.executed.Add(1)
	t.holding.Add(1)
	defer t.holding.Add(-1)
	select {
	case <-t.released:
		return "held", nil
	case <-ctx.Done():
		t.abandoned.Add(1)
		return "", context.Cause(ctx)
	}
}
