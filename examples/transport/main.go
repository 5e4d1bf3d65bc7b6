// The example transport implements a transport: newline-delimited JSON over TCP.
// README.md explains it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves a tool over TCP, calls it, cuts the connection and calls it again.
func run(ctx context.Context, out io.Writer) (err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	shouter := newShouter()
	var latest atomic.Pointer[transport.Link] // the latest link on the server's side
	var accepting sync.WaitGroup
	accepting.Go(func() {
		_ = Accept(listener, func(link transport.Link) { // the error only says that the listener was closed
			latest.Store(&link)
			shouter.Accept(link)
		})
	})
	defer func() {
		listener.Close()
		accepting.Wait()
		err = errors.Join(err, shouter.Close(ctx))
	}()

	c := client.New(protocol.Implementation{Name: "caller", Version: "1.0"}, client.Options{})
	session, err := c.Connect(ctx, &Dialer{Address: listener.Addr().String()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close(ctx)) }()

	// Calling the tool twice does no harm, so a call whose connection is lost may be
	// retried on the next connection.
	patient := session.With(client.CallOptions{WaitForReady: true, Retries: 3, Repeatable: true})
	if err := shout(ctx, out, patient, "hello over tcp"); err != nil {
		return err
	}
	if err := (*latest.Load()).Close(0); err != nil {
		return err
	}
	fmt.Fprintln(out, "the server has cut the connection")
	return shout(ctx, out, patient, "hello again")
}

func shout(ctx context.Context, out io.Writer, session *client.Session, text string) error {
	arguments, err := json.Marshal(words{text})
	if err != nil {
		return err
	}
	result, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "shout", Arguments: arguments})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "connection %d: %s\n", session.Conn().Status().Epoch, result.Content.Text())
	return nil
}

type words struct {
	Text string `json:"text" jsonschema:"the text to shout"`
}

func newShouter() *server.Server {
	s := server.New(protocol.Implementation{Name: "shouter", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "shout", Description: "answers in capitals"},
		func(_ context.Context, in words) (string, error) {
			return strings.ToUpper(in.Text), nil
		})
	return s
}
