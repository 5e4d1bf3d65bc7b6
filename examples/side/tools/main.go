// Tools is a server with five tools: one with an enum and a default, one that fails, one
// that returns an image, one that reports its progress, and one that ends when its caller
// leaves.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

type query struct {
	City string `json:"city" jsonschema:"the city"`
	Unit string `json:"unit" enum:"celsius,fahrenheit" default:"celsius"`
}

type weather struct {
	Degrees int    `json:"degrees"`
	Unit    string `json:"unit"`
}

func forecast(_ context.Context, q query) (weather, error) { return weather{21, q.Unit}, nil }

func tides(_ context.Context, q query) (weather, error) {
	return weather{}, errors.New(q.City + " is not at the sea")
}

func radar(context.Context, struct{}) (*protocol.ImageContent, error) {
	picture, err := os.ReadFile("radar.png")
	return protocol.Image(picture, "image/png"), err
}

func index(ctx context.Context, in struct {
	Files []string `json:"files"`
}) (int, error) {
	for i, name := range in.Files {
		server.Progress(ctx, i+1, len(in.Files), name)
	}
	return len(in.Files), nil
}

func wait(ctx context.Context, _ struct{}) (string, error) {
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	select {
	case <-timer.C:
		return "waited", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func main() {
	s := server.New(protocol.Implementation{Name: "weather", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "forecast"}, forecast)
	server.AddTool(s, protocol.Tool{Name: "tides"}, tides)
	server.AddTool(s, protocol.Tool{Name: "radar"}, radar)
	server.AddTool(s, protocol.Tool{Name: "index"}, index)
	server.AddTool(s, protocol.Tool{Name: "wait"}, wait)
	if err := s.Run(context.Background(), &stdio.Server{}); err != nil {
		log.Fatal(err)
	}
}
