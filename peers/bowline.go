package peers

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

var bowlineInfo = protocol.Implementation{Name: "bowline", Version: "1"}

// newBowlineServer speaks the given revisions, or all.
func newBowlineServer(revisions ...string) *server.Server {
	s := server.New(bowlineInfo, server.Options{PageSize: pageSize, ProtocolVersions: revisions})
	server.AddTool(s, protocol.Tool{Name: "echo"},
		func(_ context.Context, in message) (string, error) { return in.Message, nil })
	server.AddTool(s, protocol.Tool{Name: "fail"},
		func(_ context.Context, in message) (string, error) {
			return "", errors.New(in.Message)
		})
	server.AddTool(s, protocol.Tool{Name: "slow"},
		func(ctx context.Context, in duration) (string, error) {
			return "done", slowly(ctx, in, func(step int) error {
				server.Progress(ctx, step, in.Steps, "")
				return nil
			})
		})
	server.AddTool(s, protocol.Tool{Name: "grow"},
		func(_ context.Context, _ nothing) (string, error) {
			server.AddTool(s, protocol.Tool{Name: grown},
				func(context.Context, nothing) (string, error) { return "", nil })
			return "", nil
		})
	return s
}

func serveBowline(ctx context.Context, revisions []string) error {
	return newBowlineServer(revisions...).Serve(ctx, &stdio.Server{})
}

func handleBowline(revisions []string) (http.Handler, func(context.Context) error) {
	s := newBowlineServer(revisions...)
	handler := streamable.NewHandler(s, streamable.HandlerOptions{})
	return handler, func(ctx context.Context) error { return errors.Join(s.Close(ctx), handler.Close(0)) }
}

type bowlineSession struct {
	session *client.Session
	changes event
}

func connectBowline(ctx context.Context, server Endpoint, revision string) (Session, error) {
	if server.URL == "" {
		return openBowline(ctx, &stdio.Command{Path: server.Command[0], Args: server.Command[1:]}, revision)
	}
	deletions := &deletions{to: newPool()}
	session, err := openBowline(ctx, &streamable.Client{URL: server.URL, HTTP: &http.Client{Transport: deletions}}, revision)
	if err != nil {
		return nil, err
	}
	return deletingSession{session.(bowlineSession), deletions}, nil
}

// openBowline leaves out the latest revision, as users do, because the client
// asks for that one by default.
func openBowline(ctx context.Context, t transport.Transport, revision string) (Session, error) {
	changes := newEvent()
	options := client.Options{
		ProtocolVersion: revision, FailFast: true,
		OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if _, ok := e.(*client.ToolsChanged); ok {
				changes.set()
			}
		},
	}
	if revision == protocol.Latest {
		options.ProtocolVersion = ""
	}
	session, err := client.New(bowlineInfo, options).Connect(ctx, observed(ctx, t))
	if err != nil {
		return nil, err
	}
	return bowlineSession{session, changes}, nil
}

func (s bowlineSession) ToolsChanged(ctx context.Context) error { return s.changes.await(ctx) }

func (s bowlineSession) Revision() string { return s.session.Server().ProtocolVersion }

func (s bowlineSession) Ping(ctx context.Context) error { return s.session.Ping(ctx) }

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
	if failed, refused := new(conn.CallError), new(jsonrpc.Error); errors.As(err, &failed) && failed.Cause == conn.PeerError && errors.As(err, &refused) {
		return nil, &ProtocolError{refused.Code, refused.Message}
	}
	if err != nil {
		return nil, err
	}
	return &Result{result.Content.Text(), result.IsError}, nil
}
