package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/nats/embedded"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// serveNode serves an endpoint as the node of a cluster, until ctx ends or "bowline drain" ends the
// node. The engine is that of embedded.Join or nats.Connect.
func serveNode(ctx context.Context, engine cluster.Engine, name string, key []byte, listener net.Listener) error {
	n, err := cluster.Join(ctx, engine, cluster.Options{Cluster: "prod", Node: name, Key: key})
	if err != nil {
		return err
	}
	s := server.New(protocol.Implementation{Name: "shop", Version: "1.0"}, server.Options{
		Node: n.Name(), Changes: n.Changes(),
		Asking: server.AskingOptions{Fleet: true, Secrets: n.Keys("asking"), Spent: n.Spent()},
		Tasks:  &server.TaskOptions{Store: n.Tasks(), Gone: n.Gone},
	})
	server.AddTool(s, protocol.Tool{Name: "node", Description: "Names the node."},
		func(context.Context, struct{}) (string, error) { return n.Name(), nil })
	handler := streamable.NewHandler(s, streamable.HandlerOptions{Router: n.Router(), Sessions: n.Sessions()})
	last := context.WithoutCancel(ctx)
	if err := n.Serve(handler); err != nil {
		return errors.Join(err, n.Close(last))
	}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- handler.Serve(serving, &http.Server{Handler: handler}, listener) }()
	select {
	case err = <-served: // the listener has failed
		return errors.Join(err, n.Close(last))
	case <-n.Draining():
	case <-ctx.Done():
	}
	stop()
	return errors.Join(n.Drain(last), <-served, n.Close(last))
}

func Example() {
	if err := example(); err != nil {
		fmt.Println(err)
	}
	// Output: a
}

func example() error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	folder, err := os.MkdirTemp("", "example-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	engine, err := embedded.Join(ctx, embedded.Options{Folder: folder, Cluster: "prod"})
	if err != nil {
		return err
	}
	defer engine.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	key := []byte("32 random bytes, the same for all")[:cluster.KeySize]
	served := make(chan error, 1)
	go func() { served <- serveNode(ctx, engine, "a", key, listener) }()

	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{})
	session, err := c.Connect(ctx, &streamable.Client{URL: "http://" + listener.Addr().String()})
	if err != nil {
		return err
	}
	name, err := client.Call[string](ctx, session, "node", struct{}{})
	if err != nil {
		return err
	}
	fmt.Println(name)
	err = c.Close(ctx)
	stop()
	return errors.Join(err, <-served)
}
