package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// Several questions together, each under a key of its own. The user may answer one and
// decline the other.
func ExampleAsk() {
	form := func(field string) json.RawMessage {
		return json.RawMessage(`{"type":"object","properties":{"` + field + `":{"type":"string"}},"required":["` + field + `"]}`)
	}
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "book"}, func(ctx context.Context, _ struct{}) (string, error) {
		answers, err := server.Ask(ctx, protocol.InputRequests{
			"meal": &protocol.ElicitParams{Message: "Which meal?", RequestedSchema: form("meal")},
			"seat": &protocol.ElicitParams{Message: "Which seat?", RequestedSchema: form("seat")},
		})
		if err != nil {
			return "", err
		}
		text := ""
		for _, key := range slices.Sorted(maps.Keys(answers)) {
			answer := answers[key].(*protocol.ElicitResult) // the answer to an elicitation always has this type
			text += fmt.Sprintf("%s: %s %s\n", key, answer.Action, answer.Content)
		}
		return text, nil
	}, server.Asks(server.Reruns, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}))

	user := client.Options{Elicit: func(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		if p.Message == "Which seat?" {
			return client.Decline()
		}
		return client.Accept(map[string]string{"meal": "soup"})
	}}
	use(s, user, func(ctx context.Context, session *client.Session) error {
		text, err := client.Call[string](ctx, session, "book", nil)
		fmt.Print(text)
		return err
	})
	// Output:
	// meal: accept {"meal":"soup"}
	// seat: decline
}

// A page on which the user enters what neither client nor model may see.
func ExampleElicitURL() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "connect"}, func(ctx context.Context, _ struct{}) (string, error) {
		switch err := server.ElicitURL(ctx, "Connect your account", "https://example.com/connect"); {
		case errors.Is(err, server.ErrDeclined):
			return "Then not.", nil
		case err != nil:
			return "", err
		default:
			return "Call again when you have finished there.", nil
		}
	}, server.Asks(server.Waits, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{URL: &protocol.Capability{}}}))

	user := client.Options{ElicitURL: func(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		fmt.Println("open", p.URL)
		return client.Accept(nil)
	}}
	use(s, user, func(ctx context.Context, session *client.Session) error {
		text, err := client.Call[string](ctx, session, "connect", nil)
		fmt.Println(text)
		return err
	})
	// Output:
	// open https://example.com/connect
	// Call again when you have finished there.
}

// A handler that keeps its own state between two rounds. The state travels encrypted
// through the client, so that the next round may come to any node.
func ExampleInputRequired() {
	type state struct{ Draft string }
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "write"}, func(ctx context.Context, in struct {
		About string `json:"about"`
	}) (string, error) {
		r := server.RequestFrom(ctx)
		var last state
		asked, err := r.State(&last)
		if err != nil {
			return "", err
		}
		if !asked { // this is the first round
			return "", &server.InputRequired{
				State: state{Draft: "a text about " + in.About},
				Requests: protocol.InputRequests{"sure": &protocol.ElicitParams{
					Message: "Publish it?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`),
				}},
			}
		}
		if answer, ok := r.Answers["sure"].(*protocol.ElicitResult); !ok || answer.Action != protocol.ElicitAccept {
			return "kept " + last.Draft, nil
		}
		return "published " + last.Draft, nil
	})

	user := client.Options{Elicit: func(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		fmt.Println(p.Message)
		return client.Accept(nil)
	}}
	use(s, user, func(ctx context.Context, session *client.Session) error {
		text, err := client.Call[string](ctx, session, "write", map[string]string{"about": "knots"})
		fmt.Println(text)
		return err
	})
	// Output:
	// Publish it?
	// published a text about knots
}
