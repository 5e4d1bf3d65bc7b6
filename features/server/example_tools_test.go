package server_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/google/jsonschema-go/jsonschema"
)

// Five tools: one with an enum and a default, one that fails, one that returns an
// image, one that reports its progress, and one that ends when its caller cancels.
func ExampleAddTool() {
	s := server.New(protocol.Implementation{Name: "weather", Version: "1.0"}, server.Options{})
	type query struct {
		City string `json:"city" jsonschema:"the city"`
		Unit string `json:"unit" enum:"celsius,fahrenheit" default:"celsius"`
	}
	type weather struct {
		Degrees int    `json:"degrees"`
		Unit    string `json:"unit"`
	}
	server.AddTool(s, protocol.Tool{Name: "forecast"}, func(_ context.Context, q query) (weather, error) {
		return weather{Degrees: 21, Unit: q.Unit}, nil
	})
	server.AddTool(s, protocol.Tool{Name: "tides"}, func(_ context.Context, q query) (weather, error) {
		return weather{}, errors.New(q.City + " is not at the sea") // the model gets this text
	})
	server.AddTool(s, protocol.Tool{Name: "radar"}, func(context.Context, struct{}) (*protocol.ImageContent, error) {
		return protocol.Image([]byte("\x89PNG…"), "image/png"), nil
	})
	server.AddTool(s, protocol.Tool{Name: "index"}, func(ctx context.Context, in struct {
		Files []string `json:"files"`
	}) (int, error) {
		for i, name := range in.Files {
			server.Progress(ctx, i+1, len(in.Files), name)
		}
		return len(in.Files), nil
	})
	server.AddTool(s, protocol.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		server.Progress(ctx, 1, 2, "waiting")
		<-ctx.Done() // the caller has cancelled the call or disconnected
		return "", context.Cause(ctx)
	})

	use(s, client.Options{}, func(ctx context.Context, session *client.Session) error {
		oslo := map[string]any{"city": "Oslo"}
		today, err := client.Call[weather](ctx, session, "forecast", oslo)
		fmt.Println(today, err)

		_, err = client.Call[weather](ctx, session, "forecast", map[string]any{"city": "Oslo", "unit": "kelvin"})
		fmt.Println("a unit that does not exist is refused:", errors.As(err, new(*client.ToolError)))

		_, err = client.Call[weather](ctx, session, "tides", oslo)
		fmt.Println(err)

		picture, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "radar"})
		if err != nil {
			return err
		}
		fmt.Println(picture.Content[0].(*protocol.ImageContent).MIMEType)

		reporting := session.With(client.CallOptions{OnProgress: func(p *protocol.ProgressParams) { fmt.Println(p.Message) }})
		files, err := client.Call[int](ctx, reporting, "index", map[string]any{"files": []string{"notes.md"}})
		fmt.Println(files, err)

		leaving, leave := context.WithCancel(ctx)
		impatient := session.With(client.CallOptions{OnProgress: func(*protocol.ProgressParams) { leave() }})
		_, err = client.Call[string](leaving, impatient, "wait", nil)
		fmt.Println("cancelled:", errors.Is(err, context.Canceled))
		return nil
	})
	// Output:
	// {21 celsius} <nil>
	// a unit that does not exist is refused: true
	// client: tool "tides" failed: Oslo is not at the sea
	// image/png
	// notes.md
	// 1 <nil>
	// cancelled: true
}

// A schema may be written by hand, for what no type says: here a list without duplicates.
func ExampleInputSchema() {
	s := server.New(protocol.Implementation{Name: "labels", Version: "1.0"}, server.Options{})
	labels := &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string"}, UniqueItems: true}
	schema := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{"labels": labels}, Required: []string{"labels"}}
	server.AddTool(s, protocol.Tool{Name: "count"}, func(_ context.Context, in struct {
		Labels []string `json:"labels"`
	}) (int, error) {
		return len(in.Labels), nil
	}, server.InputSchema(schema))

	use(s, client.Options{}, func(ctx context.Context, session *client.Session) error {
		n, err := client.Call[int](ctx, session, "count", map[string]any{"labels": []string{"red", "round"}})
		fmt.Println(n, err)
		_, err = client.Call[int](ctx, session, "count", map[string]any{"labels": []string{"red", "red"}})
		fmt.Println(err)
		return nil
	})
	// Output:
	// 2 <nil>
	// client: tool "count" failed: invalid arguments: /labels has two equal elements
}

// A custom method, and a client that calls it.
func ExampleAddMethod() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	type phrase struct {
		Text string `json:"text"`
	}
	server.AddMethod(s, "latin/translate", func(_ context.Context, p phrase) (phrase, error) {
		return phrase{Text: "salve, " + p.Text}, nil
	})

	use(s, client.Options{ProtocolVersion: protocol.LatestLegacy}, func(ctx context.Context, session *client.Session) error {
		raw, err := session.Request(ctx, "latin/translate", phrase{Text: "munde"})
		fmt.Println(string(raw))
		return err
	})
	// Output: {"text":"salve, munde"}
}

// One logger for the program's own log and for the client of the request.
func ExampleLogHandler() {
	own := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	log := slog.New(server.LogHandler(own))
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "clone"}, func(ctx context.Context, _ struct{}) (string, error) {
		log.WarnContext(ctx, "large", "repo", "linux") // without the context only the program's own log gets it
		return "cloned", nil
	})

	messages := make(chan string, 1)
	o := client.Options{LogLevel: protocol.LogInfo, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
		if m, ok := e.(*client.LogMessage); ok {
			messages <- string(m.Data)
		}
	}}
	use(s, o, func(ctx context.Context, session *client.Session) error {
		_, err := client.Call[string](ctx, session, "clone", nil)
		fmt.Println("the client got", <-messages)
		return err
	})
	// Output:
	// level=WARN msg=large repo=linux
	// the client got {"msg":"large","repo":"linux"}
}
