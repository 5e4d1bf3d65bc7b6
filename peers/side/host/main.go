// Host keeps a session with a server that asks its user, says when the server is lost
// and when it is back, and calls a tool of it every minute.
package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func elicit(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	fmt.Println("shop asks:", r.Params.Message)
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"size": "small"}}, nil
}

func changed(context.Context, *mcp.ToolListChangedRequest) {
	fmt.Println("shop may have other tools now")
}

func open(ctx context.Context, c *mcp.Client) *mcp.ClientSession {
	for delay := time.Second; ; delay = min(2*delay, 30*time.Second) {
		session, err := c.Connect(ctx, &mcp.CommandTransport{Command: exec.Command("shop")}, nil)
		if err == nil {
			fmt.Println("shop may have other tools now")
			return session
		}
		fmt.Println("shop is lost:", err)
		time.Sleep(delay)
	}
}

func call(ctx context.Context, session *mcp.ClientSession) {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "order"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, content := range result.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			fmt.Println(text.Text, result.IsError)
		}
	}
}

func main() {
	ctx := context.Background()
	c := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1.0"}, &mcp.ClientOptions{
		ElicitationHandler: elicit, ToolListChangedHandler: changed,
	})
	c.AddRoots(&mcp.Root{URI: "file:///home/ada"})
	session := open(ctx, c)
	ended := make(chan error)
	wait := func(session *mcp.ClientSession) { ended <- session.Wait() }
	go wait(session)
	for tick := time.Tick(time.Minute); ; {
		select {
		case <-tick:
			call(ctx, session)
		case err := <-ended:
			fmt.Println("shop is lost:", err)
			session = open(ctx, c)
			go wait(session)
		}
	}
}
