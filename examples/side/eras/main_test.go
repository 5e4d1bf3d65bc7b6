// Package eras tests a tool that asks, in memory and with a client of each era.
package eras

import (
	"context"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/mcptest"
	"github.com/bowline-mcp/bowline/protocol"
	"go.uber.org/goleak"
)

type size struct {
	Size string `json:"size" enum:"small,large"`
}

func order(ctx context.Context, _ struct{}) (string, error) {
	wanted, err := server.Elicit[size](ctx, "Which size?")
	return "a " + wanted.Size + " one", err
}

func small(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	return client.Accept(size{"small"})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOrder(t *testing.T) {
	s := server.New(protocol.Implementation{Name: "shop", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "order"}, order,
		server.Asks(server.Reruns, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}))
	mcptest.Eras(t, s, mcptest.Options{Client: client.Options{Elicit: small}}, func(t *testing.T, session *client.Session) {
		if got, err := client.Call[string](t.Context(), session, "order", nil); err != nil || got != "a small one" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}
