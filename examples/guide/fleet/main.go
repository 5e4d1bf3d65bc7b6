// Fleet keeps sessions with several servers, by name.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// open starts a session with each server without waiting for any: a server that is away
// does not delay the others.
func open(ctx context.Context, c *client.Client) error {
	servers := map[string]transport.Transport{
		"weather": &stdio.Command{Path: "weather"},
		"tools":   &stdio.Command{Path: "bowline", Args: []string{"serve", "--stdio"}},
		"search":  &streamable.Client{URL: "http://127.0.0.1:1/mcp"}, // nobody is there
	}
	for name, t := range servers {
		if _, err := c.Start(ctx, name, t); err != nil {
			return fmt.Errorf("start %s: %w", name, err)
		}
	}
	return nil
}

// list counts the tools of every server that is ready within five seconds. It waits for all
// of them at the same time.
func list(ctx context.Context, c *client.Client) {
	waiting, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := c.AwaitReady(waiting); err != nil {
		log.Print(err) // names each server that is away
	}
	for session := range c.Sessions() { // in the order of their names
		if state := session.Status().State; state != client.Ready {
			fmt.Printf("%s: %s\n", session.Name(), state)
			continue
		}
		tools := 0
		for _, err := range session.Tools(ctx) {
			if err != nil {
				fmt.Printf("%s: %v\n", session.Name(), err)
				break
			}
			tools++
		}
		fmt.Printf("%s: %s, %d tools\n", session.Name(), session.Status().State, tools)
	}
}

func run(ctx context.Context) (err error) {
	c := client.New(protocol.Implementation{Name: "fleet", Version: "1.0"}, client.Options{})
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	if err := open(ctx, c); err != nil {
		return err
	}
	list(ctx, c)
	if session, found := c.Session("weather"); found {
		answer, err := client.Call[map[string]any](ctx, session, "forecast", map[string]string{"city": "Rome"})
		fmt.Println("Rome:", answer["sky"], err)
	}
	return nil
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}
