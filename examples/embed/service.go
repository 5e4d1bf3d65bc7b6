package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport"
)

// A service consists of a session with an MCP server, and an HTTP server that depends
// on it.
type service struct {
	tree    *supervisor.Supervisor
	session *client.Session
	web     *web
}

// start returns when the session and the HTTP server are ready. After that, the tree
// owns them. Its Close first lets the HTTP server finish the requests that it is
// serving, and then closes the session.
func start(ctx context.Context, tools transport.Transport, address string, log *slog.Logger) (*service, error) {
	s := &service{tree: supervisor.New(supervisor.Options{Name: "service", Strategy: supervisor.RestForOne})}
	if err := s.begin(ctx, tools, address, log); err != nil {
		return nil, errors.Join(err, s.tree.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *service) begin(ctx context.Context, tools transport.Transport, address string, log *slog.Logger) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c := client.New(protocol.Implementation{Name: "embed", Version: "1.0"}, client.Options{
		Supervisor: s.tree,
		Conn:       conn.Tuning{Name: "tools"},
	})
	if s.session, err = c.Connect(ctx, tools); err != nil {
		return err
	}
	s.web = &web{address: address, handler: routes(s.session, log)}
	_, err = s.tree.Start(ctx, supervisor.ChildSpec{
		ID: "http", Init: s.web.listen, Run: s.web.serve, Drain: s.web.drain,
	})
	return err
}
