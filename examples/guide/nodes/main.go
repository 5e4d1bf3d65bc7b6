// Nodes is an MCP server that runs on several nodes behind one URL.
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// remove asks before it deletes. It is added with Reruns, so it runs again when the
// answer arrives, on whichever node that is.
func remove(ctx context.Context, in struct {
	Bucket string `json:"bucket"`
}) (string, error) {
	if err := server.Confirm(ctx, "Delete "+in.Bucket+"?"); err != nil {
		return "", err
	}
	return "deleted " + in.Bucket, nil
}

// newNode makes one node. The secret is the same on every node. Others are the other
// nodes, by name: each is a streamable.Forward to the URL of that node.
func newNode(self string, secret []byte, others map[string]http.Handler) *streamable.Handler {
	s := server.New(protocol.Implementation{Name: "nodes", Version: "1.0"}, server.Options{
		Asking: server.AskingOptions{Fleet: true, Secrets: func() [][]byte { return [][]byte{secret} }},
	})
	server.AddTool(s, protocol.Tool{Name: "node", Description: "Names the node."},
		func(context.Context, struct{}) (string, error) { return self, nil })
	server.AddTool(s, protocol.Tool{Name: "remove", Description: "Deletes a bucket."}, remove,
		server.Asks(server.Reruns, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}))
	return streamable.NewHandler(s, streamable.HandlerOptions{
		Router: &streamable.Nodes{Self: self, Others: others},
	})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	others := make(map[string]http.Handler)
	flag.Func("other", "another node: `NAME=URL` (repeatable)", func(given string) error {
		name, address, _ := strings.Cut(given, "=")
		node, err := url.Parse(address)
		if err == nil && node.Host == "" {
			err = errors.New("not NAME=URL")
		}
		others[name] = streamable.Forward(node)
		return err
	})
	self := flag.String("self", "", "the `name` of this node")
	address := flag.String("http", "127.0.0.1:8080", "serve on this `address`")
	flag.Parse()
	secret, err := hex.DecodeString(os.Getenv("SECRET"))
	if err != nil {
		return fmt.Errorf("SECRET: %w", err)
	}
	endpoint := newNode(*self, secret, others)
	mux := http.NewServeMux()
	mux.Handle("/mcp", endpoint)
	return endpoint.ListenAndServe(ctx, &http.Server{Addr: *address, Handler: mux})
}
