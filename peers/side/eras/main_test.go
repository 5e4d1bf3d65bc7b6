// Package eras tests a tool that asks, in memory and with a client of each era.
package eras

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

func order(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	answer, asked := r.Params.InputResponses["size"].(*mcp.ElicitResult)
	if !asked {
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"size": &mcp.ElicitParams{
			Message: "Which size?", RequestedSchema: map[string]any{
				"type": "object", "required": []string{"size"},
				"properties": map[string]any{"size": map[string]any{"type": "string", "enum": []string{"small", "large"}}},
			},
		}}}, nil, nil
	}
	if answer.Action != "accept" {
		return nil, nil, errors.New("the user gave no answer")
	}
	text := fmt.Sprintf("a %v one", answer.Content["size"])
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
}

func small(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"size": "small"}}, nil
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOrder(t *testing.T) {
	s := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "order"}, order)
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			near, far := mcp.NewInMemoryTransports()
			serving, err := s.Connect(t.Context(), far, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer serving.Wait()
			c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1.0"}, &mcp.ClientOptions{ElicitationHandler: small})
			session, err := c.Connect(t.Context(), near, &mcp.ClientSessionOptions{ProtocolVersion: revision})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "order"})
			if err != nil || result.IsError || len(result.Content) != 1 {
				t.Fatalf("got %+v, %v", result, err)
			}
			if got := result.Content[0].(*mcp.TextContent).Text; got != "a small one" {
				t.Errorf("got %q", got)
			}
		})
	}
}
