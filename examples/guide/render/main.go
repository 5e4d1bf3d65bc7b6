// Render is an MCP server over HTTP with a tool that takes long, and a client that
// leaves and comes back for the result.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A Scene is what render draws.
type Scene struct {
	Scene  string `json:"scene"`
	Frames int    `json:"frames" default:"3" minimum:"1" maximum:"100000"`
}

// render is an ordinary tool. Its progress becomes the status message of the task. Its
// context ends when the task is cancelled, not when the client disconnects.
func render(ctx context.Context, in Scene) (string, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for frame := range in.Frames {
		server.Progress(ctx, frame, in.Frames, "rendering "+in.Scene)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	return fmt.Sprintf("%s: %d frames", in.Scene, in.Frames), nil
}

// newServer turns a call into a task after 200 ms. A call that ends sooner is answered
// as usual.
func newServer() *server.Server {
	s := server.New(protocol.Implementation{Name: "render", Version: "1.0"}, server.Options{
		Tasks: &server.TaskOptions{
			After:        200 * time.Millisecond,
			TTL:          time.Hour, // from its start; then the task is cancelled and removed
			PollInterval: 200 * time.Millisecond,
		},
	})
	server.AddTool(s, protocol.Tool{
		Name: "render", Description: "Renders a scene.",
		Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional},
	}, render)
	return s
}

// comeBack waits for the task whose id is in the file. If there is no file, it starts a
// task, writes its id to the file, and returns.
func comeBack(ctx context.Context, session *client.Session, file string) error {
	id, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		task, err := session.StartTool(ctx, &protocol.CallToolParams{Name: "render", Arguments: []byte(`{"scene":"sea","frames":10}`)})
		if err != nil {
			return err
		}
		fmt.Println("begun")
		return os.WriteFile(file, []byte(task.ID()), 0o600)
	case err != nil:
		return err
	}
	result, err := session.Task(string(id)).Wait(ctx) // even if the connection breaks meanwhile
	if err != nil {
		return err
	}
	fmt.Println(result.Content.Text())
	return os.Remove(file)
}

func main() {
	address := flag.String("http", "127.0.0.1:8080", "serve on this `address`")
	from := flag.String("from", "", "be a client of the server at this `URL`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *address, *from); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, address, from string) error {
	if from == "" {
		endpoint := streamable.NewHandler(newServer(), streamable.HandlerOptions{})
		mux := http.NewServeMux()
		mux.Handle("/mcp", endpoint)
		return endpoint.ListenAndServe(ctx, &http.Server{Addr: address, Handler: mux})
	}
	c := client.New(protocol.Implementation{Name: "render", Version: "1.0"}, client.Options{Tasks: true})
	defer c.Close(context.WithoutCancel(ctx))
	session, err := c.Connect(ctx, &streamable.Client{URL: from})
	if err != nil {
		return err
	}
	return comeBack(ctx, session, "task.txt")
}
