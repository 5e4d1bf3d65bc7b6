package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A pair is a session and the server's end of its link. It is also the
// transport of the session: for every link, it passes the other end to the
// server.
type pair struct {
	fleet   *fleet
	session *client.Session // nil until it is connected
	epoch   uint64          // the incarnation that was cut

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
	p.fleet.server.Accept(serverLink)
	return clientLink, nil
}

// connect opens the session.
func (p *pair) connect(ctx context.Context) (err error) {
	p.session, err = p.fleet.client.Connect(ctx, p)
	return err
}

// call makes one call of a tool, and counts how it ended.
func (p *pair) call(ctx context.Context, tool string) error {
	_, err := p.session.CallTool(ctx, &protocol.CallToolParams{Name: tool, Arguments: json.RawMessage(`{}`)})
	p.fleet.ledger.Report(err)
	return err
}

// cut closes the link at the server's end immediately. Queued frames are lost.
func (p *pair) cut(down bool) error {
	p.epoch = p.session.Conn().Status().Epoch
	p.mu.Lock()
	p.down, p.attempted = down, time.Time{}
	link := p.serverLink
	p.mu.Unlock()
	return link.Close(0)
}

func (p *pair) endOutage() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

func (p *pair) firstAttempt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attempted
}

// awaitBack waits until an incarnation after the one that was cut is ready, and
// returns when it became ready.
func (p *pair) awaitBack(ctx context.Context) (time.Time, error) {
	for {
		status := p.session.Conn().Status()
		switch {
		case status.State == conn.Ready && status.Epoch > p.epoch:
			return status.Since, nil
		case status.State == conn.Closing:
			return time.Time{}, status.Reason
		}
		select {
		case <-status.Changed():
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("still %s: %w", status.State, context.Cause(ctx))
		}
	}
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
