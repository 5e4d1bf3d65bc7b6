// Call is a client that calls a tool with typed values. It opens a session anew when its
// server is lost. Whether a call that failed may have been executed it cannot know: it
// calls again only if it could not open a session.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os/exec"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type query struct {
	City string `json:"city"`
}

type weather struct {
	Summary string `json:"summary"`
}

type reporter struct {
	client  *mcp.Client
	session *mcp.ClientSession
}

func (r *reporter) open(ctx context.Context) error {
	if r.session != nil {
		return nil
	}
	var failed error
	for delay := time.Second; delay < 10*time.Second; delay *= 2 {
		if r.session, failed = r.client.Connect(ctx, &mcp.CommandTransport{Command: exec.Command("weather")}, nil); failed == nil {
			return nil
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return failed
}

var errTool = errors.New("the tool failed")

func (r *reporter) forecast(ctx context.Context, q query) (weather, error) {
	var w weather
	if err := r.open(ctx); err != nil {
		return w, err
	}
	result, err := r.session.CallTool(ctx, &mcp.CallToolParams{Name: "forecast", Arguments: q})
	if err != nil {
		if errors.Is(err, mcp.ErrConnectionClosed) {
			r.session = nil
		}
		return w, err
	}
	if result.IsError {
		var text strings.Builder
		for _, content := range result.Content {
			if block, ok := content.(*mcp.TextContent); ok {
				text.WriteString(block.Text)
			}
		}
		return w, fmt.Errorf("%w: %s", errTool, &text)
	}
	raw, err := json.Marshal(result.StructuredContent)
	if err != nil {
		return w, err
	}
	return w, json.Unmarshal(raw, &w)
}

func main() {
	ctx := context.Background()
	r := &reporter{client: mcp.NewClient(&mcp.Implementation{Name: "reporter", Version: "1.0"}, nil)}
	w, err := r.forecast(ctx, query{"Oslo"})
	switch {
	case err == nil:
		fmt.Println(w.Summary)
	default:
		fmt.Println(err)
	}
	if r.session != nil {
		if err := r.session.Close(); err != nil {
			log.Fatal(err)
		}
	}
}
