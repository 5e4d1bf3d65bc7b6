package server_test

import (
	"context"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A tool that takes long is an ordinary function. The client begins it, and fetches its
// result later.
func ExampleTaskOptions() {
	ctx := context.Background()
	s := server.New(protocol.Implementation{Name: "render", Version: "1.0"}, server.Options{
		Tasks: &server.TaskOptions{PollInterval: 100 * time.Millisecond},
	})
	defer s.Close(ctx)
	server.AddTool(s, protocol.Tool{
		Name:      "render",
		Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional},
	}, func(ctx context.Context, in struct{ Scene string }) (string, error) {
		server.Progress(ctx, 1, 2, "half of it") // becomes the status message of the task
		return "rendered the " + in.Scene, nil
	})

	c := client.New(protocol.Implementation{Name: "host", Version: "1.0"}, client.Options{Tasks: true})
	defer c.Close(ctx)
	session, err := c.Connect(ctx, inmem.New(s.Accept, inmem.Options{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	task, err := session.StartTool(ctx, &protocol.CallToolParams{Name: "render", Arguments: []byte(`{"Scene":"sea"}`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := session.Task(task.ID()).Wait(ctx) // also possible in another run of the program
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Content.Text())
	// Output: rendered the sea
}
