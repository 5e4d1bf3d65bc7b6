package main

import (
	"context"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// The tools of the pairs' server.
const (
	countIt = "count" // counts itself, and answers at once
	holdOn  = "hold"  // answers when all are released
)

// tools are the server's own book of what it has executed.
type tools struct {
	executed  atomic.Int64  // calls of either tool
	abandoned atomic.Int64  // of those, calls whose caller was gone before there was an answer
	holding   atomic.Int64  // calls that are being held
	released  chan struct{} // closed when they are let go
}

func newTools() *tools { return &tools{released: make(chan struct{})} }

// server offers the tools.
func (t *tools) server() *server.Server {
	s := server.New(protocol.Implementation{Name: "fleet", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: countIt}, t.count)
	server.AddTool(s, protocol.Tool{Name: holdOn}, t.hold)
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
