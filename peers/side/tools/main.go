// Tools is a server with five tools: one with an enum and a default, one that fails, one
// that returns an image, one that reports its progress, and one that ends when its caller
// leaves.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type query struct {
	City string `json:"city" jsonschema:"the city"`
	Unit string `json:"unit,omitempty"`
}

type weather struct {
	Degrees int    `json:"degrees"`
	Unit    string `json:"unit"`
}

type indexed struct {
	Result int `json:"result"`
}

func querySchema() *jsonschema.Schema {
	schema, err := jsonschema.For[query](nil)
	if err != nil {
		log.Fatal(err)
	}
	schema.Properties["unit"].Enum = []any{"celsius", "fahrenheit"}
	schema.Properties["unit"].Default = json.RawMessage(`"celsius"`)
	return schema
}

func forecast(_ context.Context, _ *mcp.CallToolRequest, q query) (*mcp.CallToolResult, weather, error) {
	return nil, weather{21, q.Unit}, nil
}

func tides(_ context.Context, _ *mcp.CallToolRequest, q query) (*mcp.CallToolResult, weather, error) {
	return nil, weather{}, errors.New(q.City + " is not at the sea")
}

func radar(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
	picture, err := os.ReadFile("radar.png")
	if err != nil {
		return nil, nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.ImageContent{Data: picture, MIMEType: "image/png"}}}, nil, nil
}

func index(ctx context.Context, r *mcp.CallToolRequest, in struct {
	Files []string `json:"files"`
}) (*mcp.CallToolResult, indexed, error) {
	for i, name := range in.Files {
		if token := r.Params.GetProgressToken(); token != nil {
			p := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i + 1), Total: float64(len(in.Files)), Message: name}
			if err := r.Session.NotifyProgress(ctx, p); err != nil {
				return nil, indexed{}, err
			}
		}
	}
	return nil, indexed{len(in.Files)}, nil
}

func wait(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	select {
	case <-timer.C:
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "waited"}}}, nil, nil
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

func main() {
	s := mcp.NewServer(&mcp.Implementation{Name: "weather", Version: "1.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "forecast", InputSchema: querySchema()}, forecast)
	mcp.AddTool(s, &mcp.Tool{Name: "tides", InputSchema: querySchema()}, tides)
	mcp.AddTool(s, &mcp.Tool{Name: "radar"}, radar)
	mcp.AddTool(s, &mcp.Tool{Name: "index"}, index)
	mcp.AddTool(s, &mcp.Tool{Name: "wait"}, wait)
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}
