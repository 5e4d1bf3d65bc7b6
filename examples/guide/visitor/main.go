// Visitor lists the tools of a server that wants a login.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/url"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

func main() {
	address := flag.String("url", "https://example.com/mcp", "`URL` of the server")
	flag.Parse()
	if err := list(context.Background(), *address); err != nil {
		log.Fatal(err)
	}
}

// newLogin returns an Authorizer for a server. It keeps the login in files that all
// programs of the user share.
func newLogin(address string) (*auth.Authorizer, error) {
	dir, err := auth.DefaultDir()
	if err != nil {
		return nil, err
	}
	return auth.New(auth.Options{
		Resource:   address,
		ClientName: "Visitor of the guide",
		Offline:    true, // ask for a refresh token, so that the user logs in only once
		Store:      auth.NewFiles(dir, nil),
		Interact:   auth.Loopback(auth.LoopbackOptions{Open: show}),
	}), nil
}

// show opens the page on which the user logs in.
func show(ctx context.Context, page *url.URL) error {
	fmt.Fprintln(os.Stderr, "log in at", page)
	return auth.Browse(ctx, page)
}

// list prints the tools of the server. The first request that needs a token starts the
// login and waits for it.
func list(ctx context.Context, address string) error {
	login, err := newLogin(address)
	if err != nil {
		return err
	}
	defer login.Close() // waits for a token that is being refreshed, and saves it
	c := client.New(protocol.Implementation{Name: "visitor", Version: "1.0"}, client.Options{
		Conn: conn.Tuning{InitTimeout: 5 * time.Minute}, // time for the user to log in
	})
	defer c.Close(ctx)
	session, err := c.Connect(ctx, &streamable.Client{URL: address, Authorizer: login})
	var missing *auth.LoginError
	if errors.As(err, &missing) {
		return fmt.Errorf("no login: %w", missing.Err)
	}
	if err != nil {
		return err
	}
	for tool, err := range session.Tools(ctx) {
		if err != nil {
			return err
		}
		fmt.Println(tool.Name)
	}
	return nil
}
