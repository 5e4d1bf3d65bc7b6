// Weather is an MCP server with two tools.
package main

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A Query holds the arguments of the tool forecast. Its tags become the JSON schema.
type Query struct {
	City string `json:"city" jsonschema:"the city, in English"`
	Unit string `json:"unit" enum:"celsius,fahrenheit" default:"celsius"`
}

// Weather is the result of the tool.
type Weather struct {
	Degrees float64 `json:"degrees"`
	Sky     string  `json:"sky"`
}

// forecast is an ordinary function. Its error is for the model, which reads it and
// may try again with other arguments.
func forecast(_ context.Context, q Query) (Weather, error) {
	var w Weather
	switch q.City {
	case "Oslo":
		w = Weather{Degrees: 4, Sky: "rain"}
	case "Rome":
		w = Weather{Degrees: 21, Sky: "clear"}
	default:
		return Weather{}, fmt.Errorf("there is no forecast for %s, only for Oslo and Rome", q.City)
	}
	if q.Unit == "fahrenheit" {
		w.Degrees = w.Degrees*9/5 + 32
	}
	return w, nil
}

// survey reports its progress and logs to the client. It stops early when its context
// ends.
func survey(ctx context.Context, in struct {
	Cities []string `json:"cities"`
}) (map[string]Weather, error) {
	found := make(map[string]Weather, len(in.Cities))
	for i, city := range in.Cities {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		server.Progress(ctx, i+1, len(in.Cities), city)
		w, err := forecast(ctx, Query{City: city})
		if err != nil {
			server.Logger(ctx).Warn("left out", "city", city, "why", err)
			continue
		}
		found[city] = w
	}
	return found, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s := server.New(protocol.Implementation{Name: "weather", Version: "1.0"}, server.Options{
		Instructions: "Ask for one city at a time, or use survey for many.",
	})
	server.AddTool(s, protocol.Tool{Name: "forecast", Description: "Tells the weather of tomorrow."}, forecast)
	server.AddTool(s, protocol.Tool{Name: "survey", Description: "Tells the weather of many cities."}, survey)
	if err := s.Run(ctx, &stdio.Server{}); err != nil {
		log.Fatal(err)
	}
}
