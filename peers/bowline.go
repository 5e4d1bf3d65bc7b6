package peers

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

var ourself = protocol.Implementation{Name: "bowline", Version: "1"}

// newBowlineServer speaks the given revisions, or all.
func newBowlineServer(revisions ...string) *server.Server {
	s := server.New(ourself, server.Options{PageSize: pageSize, ProtocolVersions: revisions})
	server.AddTool(s, protocol.Tool{Name: "echo"},
		func(_ context.Context, _ *server.ToolCall, in message) (string, error) { return in.Message, nil })
	server.AddTool(s, protocol.Tool{Name: "fail"},
		func(_ context.Context, _ *server.ToolCall, in message) (string, error) {
			return "", errors.New(in.Message)
		})
	server.AddTool(s, protocol.Tool{Name: "slow"},
		func(ctx context.Context, call *server.ToolCall, in duration) (string, error) {
			return "done", slowly(ctx, in, func(step int) error {
				return call.Progress(ctx, float64(step), float64(in.Steps), "")
			})
		})
	return s
}

func serveBowline(ctx context.Context, revisions []string) error {
	return newBowlineServer(revisions...).Serve(ctx, &stdio.Server{})
}

type bowlineSession struct{ session *client.Session }

func connectBowline(ctx context.Context, server []string, revision string) (Session, error) {
	return openBowline(ctx, &stdio.Command{Path: server[0], Args: server[1:]}, revision)
}

func openBowline(ctx context.Context, t transport.Transport, revision string) (Session, error) {
	c := client.New(ourself, client.Options{ProtocolVersion: revision, FailFast: true})
	session, err := c.Connect(ctx, t)
	if err != nil {
		return nil, err
	}
	return bowlineSession{session}, nil
}

func (s bowlineSession) Revision() string { return s.session.Server().ProtocolVersion }

func (s bowlineSession) Ping(ctx context.Context) error { return s.session.Ping(ctx, nil) }

func (s bowlineSession) Close(ctx context.Context) error { return s.session.Close(ctx) }

func (s bowlineSession) ListTools(ctx context.Context, cursor string) ([]string, string, error) {
	params := new(protocol.ListToolsParams)
	if cursor != "" {
		params.Cursor = &cursor
	}
	page, err := s.session.ListTools(ctx, params)
	if err != nil {
		return nil, "", err
	}
	var names []string
	for _, tool := range page.Tools {
		names = append(names, tool.Name)
	}
	if page.NextCursor == nil {
		return names, "", nil
	}
	return names, *page.NextCursor, nil
}

func (s bowlineSession) CallTool(ctx context.Context, call Call) (*Result, error) {
	arguments, err := json.Marshal(call.Arguments)
	if err != nil {
		return nil, err
	}
	view := s.session
	if call.OnProgress != nil {
		view = view.With(client.CallOptions{OnProgress: func(*protocol.ProgressParams) { call.OnProgress() }})
	}
	result, err := view.CallTool(ctx, &protocol.CallToolParams{Name: call.Tool, Arguments: arguments})
	if refused := new(jsonrpc.Error); errors.As(err, &refused) {
		return nil, &ProtocolError{int64(refused.Code), refused.Message}
	}
	if err != nil {
		return nil, err
	}
	return &Result{result.Content.Text(), result.IsError}, nil
}
