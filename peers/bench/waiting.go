package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// manyWaiting is how many questions one client may have at the same time.
const manyWaiting = 32

// waitingCalls weighs calls that wait: at a handler, for the user, and as a task, which is a call that has returned while its handler goes on.
// Client, server and what is before it are in this process.
func waitingCalls(ctx context.Context, m *measurement) error {
	tools := []string{"call", "question", "task"}
	if m.before != nil {
		tools = tools[:2] // the two kinds of tasks are not translated
	}
	for _, tool := range tools {
		if err := waitingAt(ctx, m, tool); err != nil {
			return err
		}
	}
	return nil
}

func waitingAt(ctx context.Context, m *measurement, tool string) error {
	begun := make(chan struct{}, manyWaiting)
	session, prefix, err := m.waitingClient(ctx, waitingServer(begun))
	if err != nil {
		return err
	}
	before := m.weigh()
	ended := make(chan error, manyWaiting)
	for range manyWaiting {
		go func() { ended <- waitFor(ctx, session, prefix+tool) }()
	}
	for range manyWaiting {
		<-begun
	}
	m.addHeld(tool, before, manyWaiting)
	if n := len(ended); n > 0 && tool != "task" {
		return errors.Join(fmt.Errorf("%d calls have not waited", n), <-ended)
	}
	return nil // they wait until this process ends
}

// waitingClient has a user who does not answer. Its login is known: a modern client that nothing is known of may not be asked
// beside another.
func (m *measurement) waitingClient(ctx context.Context, s *server.Server) (session *client.Session, prefix string, err error) {
	if m.before != nil {
		prefix = "s0__"
		if s, err = m.before(s); err != nil {
			return nil, "", err
		}
	}
	c := client.New(bowlineInfo(), client.Options{
		ProtocolVersion: revisionToAsk(m.revision), FailFast: true, Tasks: true, Calls: client.CallOptions{Timeout: -1},
		Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			select {}
		},
	})
	session, err = connectBowline(ctx, c, m.revision, inmem.New(func(link transport.Link) { s.Accept(loggedIn{link}) }, inmem.Options{}))
	return session, prefix, err
}

// A loggedIn link says whose messages come over it, as an HTTP server does that checks tokens.
type loggedIn struct{ transport.Link }

// Bind implements transport.Link.
func (l loggedIn) Bind(r transport.Receiver) { l.Link.Bind(ofUser{r}) }

type ofUser struct{ transport.Receiver }

// Receive implements transport.Receiver.
func (r ofUser) Receive(in transport.Inbound) {
	in.Origin = &transport.Origin{Identity: "ada"}
	r.Receiver.Receive(in)
}

// waitFor calls a tool, and returns when a task has begun.
func waitFor(ctx context.Context, s *client.Session, tool string) error {
	params := &protocol.CallToolParams{Name: tool, Arguments: json.RawMessage(`{}`)}
	if tool == "task" {
		_, err := s.StartTool(ctx, params)
		return err
	}
	result, err := s.CallTool(ctx, params)
	if err == nil && result.IsError {
		err = errors.New(result.Content.Text())
	}
	return err
}

// waitingServer has a tool that waits, one that does so as a task, and one that asks the user.
func waitingServer(begun chan<- struct{}) *server.Server {
	s := server.New(bowlineInfo(), server.Options{Tasks: &server.TaskOptions{Legacy: true}})
	waits := func(context.Context, nothing) (string, error) {
		begun <- struct{}{}
		select {}
	}
	server.AddTool(s, protocol.Tool{Name: "call"}, waits)
	server.AddTool(s, protocol.Tool{Name: "task", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskRequired}}, waits)
	server.AddTool(s, protocol.Tool{Name: "question"}, func(ctx context.Context, _ nothing) (string, error) {
		begun <- struct{}{}
		_, err := server.Elicit[struct{ Name string }](ctx, "Who are you?")
		return "done", err
	}, server.Asks(server.Reruns, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}))
	return s
}

// gatewayBefore is a gateway over one server in this process, whose connections to it have a revision.
func gatewayBefore(revision string) func(*server.Server) (*server.Server, error) {
	return func(s *server.Server) (*server.Server, error) {
		g := gateway.New(gateway.Options{Each: func(of *mcpjson.Server, o *client.Options) {
			o.ProtocolVersion, of.Transport = revisionToAsk(revision), inmem.New(s.Accept, inmem.Options{})
		}})
		file, err := mcpjson.Parse("mcp.json", []byte(`{"mcpServers":{"s0":{"command":"/bin/s0"}}}`))
		if err == nil {
			_, err = g.Apply(context.Background(), file)
		}
		return g.Server(), err
	}
}
