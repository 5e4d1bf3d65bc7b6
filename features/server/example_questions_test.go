package server_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

type shirt struct {
	Size string `json:"size" enum:"small,large"`
}

type address struct {
	Street string `json:"street"`
	Email  string `json:"email" format:"email"`
}

// order asks two questions and has a side effect between them. It runs once, and
// releases its reservation if the user declines the second question.
func order(ctx context.Context, _ struct{}) (string, error) {
	wanted, err := server.Elicit[shirt](ctx, "Which size?")
	if err != nil {
		return "", err
	}
	fmt.Println("reserved:", wanted.Size)
	to, err := server.Elicit(ctx, "Where to?", address{Email: "ada@example.com"})
	if err != nil {
		fmt.Println("released:", wanted.Size)
		return "", err
	}
	return "It goes to " + to.Street + ", the bill to " + to.Email + ".", nil
}

// The client's model takes a while, and says how far it is. The tool passes that on to the caller.
func ExampleOnProgress() {
	s := server.New(protocol.Implementation{Name: "writer", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "write"}, func(ctx context.Context, _ struct{}) (string, error) {
		watched := server.OnProgress(ctx, func(p *protocol.ProgressParams) { server.Progress(ctx, p.Progress, p.Total, p.Message) })
		written, err := server.Sample(watched, &protocol.CreateMessageParams{MaxTokens: 100, Messages: []protocol.SamplingMessage{
			{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text("Write a poem.")}},
		}})
		if err != nil {
			return "", err
		}
		return written.Content.Text(), nil
	}, server.Asks(server.Waits, protocol.ClientCapabilities{Sampling: &protocol.SamplingCapability{}}))

	model := client.Options{ProtocolVersion: protocol.LatestLegacy, Sample: func(ctx context.Context, _ *client.Session, _ *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
		client.Progress(ctx, 50, 100, "tokens")
		return &protocol.CreateMessageResult{Role: protocol.RoleAssistant, Model: "m", Content: protocol.SamplingContents{protocol.Text("Roses are red.")}}, nil
	}}
	use(s, model, func(ctx context.Context, session *client.Session) error {
		show := func(p *protocol.ProgressParams) { fmt.Println(p.Progress, "of", p.Total, p.Message) }
		text, err := client.Call[string](ctx, session.With(client.CallOptions{OnProgress: show}), "write", nil)
		fmt.Println(text)
		return err
	})
	// Output:
	// 50 of 100 tokens
	// Roses are red.
}

// Two questions, with a side effect between them: Waits makes the handler wait for
// the answers, in both eras.
func ExampleElicit() {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		s := server.New(protocol.Implementation{Name: "shop", Version: "1.0"}, server.Options{})
		server.AddTool(s, protocol.Tool{Name: "order"}, order,
			server.Asks(server.Waits, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}))

		patient := true
		user := client.Options{ProtocolVersion: version, Elicit: func(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			switch {
			case strings.HasPrefix(p.Message, "Which"):
				return client.Accept(shirt{"small"})
			case patient: // the form's default supplies the email
				return client.Accept(map[string]string{"street": "5 Main St"})
			default:
				return client.Decline()
			}
		}}
		use(s, user, func(ctx context.Context, session *client.Session) error {
			fmt.Println(client.Call[string](ctx, session, "order", nil))
			patient = false
			_, err := client.Call[string](ctx, session, "order", nil)
			fmt.Println(err)
			return nil
		})
	}
	// Output:
	// reserved: small
	// It goes to 5 Main St, the bill to ada@example.com. <nil>
	// reserved: small
	// released: small
	// client: tool "order" failed: the user declined
	// reserved: small
	// It goes to 5 Main St, the bill to ada@example.com. <nil>
	// reserved: small
	// released: small
	// client: tool "order" failed: the user declined
}

// A client is asked for its roots once, and again after it has reported that they have changed.
func ExampleRoots() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "where"}, func(ctx context.Context, _ struct{}) (string, error) {
		roots, err := server.Roots(ctx)
		if err != nil {
			return "", err
		}
		return roots[0].URI, nil
	}, server.Asks(server.Reruns, protocol.ClientCapabilities{Roots: &protocol.RootsCapability{}}))

	project := "file:///home/ada/shop"
	o := client.Options{ProtocolVersion: protocol.LatestLegacy, Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
		fmt.Println("asked")
		return []protocol.Root{{URI: project}}, nil
	}}
	use(s, o, func(ctx context.Context, session *client.Session) error {
		fmt.Println(client.Call[string](ctx, session, "where", nil))
		fmt.Println(client.Call[string](ctx, session, "where", nil))
		project = "file:///home/ada/bakery"
		if err := session.Client().RootsChanged(ctx); err != nil {
			return err
		}
		fmt.Println(client.Call[string](ctx, session, "where", nil))
		return nil
	})
	// Output:
	// asked
	// file:///home/ada/shop <nil>
	// asked
	// file:///home/ada/shop <nil>
	// asked
	// file:///home/ada/bakery <nil>
}

// A tool that uses the model of its client.
func ExampleSample() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "summarize"}, func(ctx context.Context, in struct {
		Text string `json:"text"`
	}) (string, error) {
		answer, err := server.Sample(ctx, &protocol.CreateMessageParams{
			MaxTokens: 200,
			Messages: []protocol.SamplingMessage{
				{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text("Sum up: " + in.Text)}},
			},
		})
		if err != nil {
			return "", err
		}
		return answer.Content.Text(), nil
	}, server.Asks(server.Reruns, protocol.ClientCapabilities{Sampling: &protocol.SamplingCapability{}}))

	model := client.Options{Sample: func(_ context.Context, _ *client.Session, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
		text := fmt.Sprintf("%d characters", len(p.Messages[0].Content.Text()))
		return &protocol.CreateMessageResult{Role: protocol.RoleAssistant, Model: "counter", Content: protocol.SamplingContents{protocol.Text(text)}}, nil
	}}
	use(s, model, func(ctx context.Context, session *client.Session) error {
		text, err := client.Call[string](ctx, session, "summarize", map[string]string{"text": "a long story"})
		fmt.Println(text)
		return err
	})
	// Output: 20 characters
}
