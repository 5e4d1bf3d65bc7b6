package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A pair is a session and the server's end of its link. It is the transport of
// the session, whose every link the server is given the other end of.
type pair struct {
	fleet   *fleet
	session *client.Session // nil until it is connected
	epoch   uint64          // the incarnation that was cut

	mu        sync.Mutex
	far       transport.Link // the server's end
	away      bool           // there is no server
	attempted time.Time      // when the first link after a cut was asked for
}

var errAway = errors.New("the server is away")

// Open implements transport.Transport.
func (p *pair) Open(context.Context) (transport.Link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.attempted.IsZero() {
		p.attempted = time.Now()
	}
	if p.away {
		return nil, errAway
	}
	ours, theirs := inmem.Pipe(inmem.Options{})
	p.far = theirs
	p.fleet.server.Accept(theirs)
	return ours, nil
}

// connect begins the session.
func (p *pair) connect(ctx context.Context) (err error) {
	p.session, err = p.fleet.client.Connect(ctx, p)
	return err
}

// call makes one call of a tool, and enters how it ended.
func (p *pair) call(ctx context.Context, tool string) error {
	_, err := p.session.CallTool(ctx, &protocol.CallToolParams{Name: tool, Arguments: json.RawMessage(`{}`)})
	p.fleet.books.enter(err)
	return err
}

// cut ends the link at the server's end, without a word and with all that is on
// its way.
func (p *pair) cut(away bool) error {
	p.epoch = p.session.Conn().Status().Epoch
	p.mu.Lock()
	p.away, p.attempted = away, time.Time{}
	far := p.far
	p.mu.Unlock()
	return far.Close(0)
}

func (p *pair) comeBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = false
}

func (p *pair) firstAttempt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attempted
}

// awaitBack waits until an incarnation after the one that was cut is ready, and
// returns since when it is.
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
