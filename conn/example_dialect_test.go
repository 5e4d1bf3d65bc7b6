package conn_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// lsp is the Dialect of the Language Server Protocol, as far as it cancels requests.
type lsp struct{}

func (lsp) Classify(m jsonrpc.Message) conn.Class {
	var params struct{ ID int64 }
	if m.Method != "$/cancelRequest" || json.Unmarshal(m.Params, &params) != nil {
		return conn.Class{}
	}
	return conn.Class{Kind: conn.Cancellation, Request: jsonrpc.IntegerID(params.ID)}
}

func (lsp) Cancel(id jsonrpc.ID, _ error) conn.Message {
	return conn.Message{Method: "$/cancelRequest", Params: json.RawMessage(fmt.Sprintf(`{"id":%s}`, id))}
}

func (lsp) Probe() conn.Message { return conn.Message{} } // LSP has no ping
func (lsp) Batches() bool       { return false }

// languageServer is a Handler whose requests last until they are cancelled.
type languageServer struct{ began, ended chan error }

func (s languageServer) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	if in.Method == "initialize" {
		return json.RawMessage(`{"capabilities":{}}`), nil
	}
	s.began <- nil
	<-ctx.Done()
	s.ended <- context.Cause(ctx)
	return nil, ctx.Err()
}

func (languageServer) ServeNotification(context.Context, *conn.Incoming) {}

// initialize is the handshake of the protocol. It runs for each new link.
func initialize(ctx context.Context, i *conn.Incarnation) error {
	if _, err := i.Call(ctx, conn.Request{Method: "initialize", Params: json.RawMessage(`{}`)}); err != nil {
		return err
	}
	return i.Notify(ctx, "initialized", json.RawMessage(`{}`))
}

// With a Dialect and a handshake, a Conn speaks another protocol over JSON-RPC. Here, a call whose
// context ends also ends the context of its handler.
func ExampleDialect() {
	server := languageServer{make(chan error), make(chan error)}
	listener := inmem.New(func(link transport.Link) {
		_ = conn.Accept(link, conn.Options{Dialect: lsp{}, Handler: server}).Start(context.Background(), func(error) {})
	}, inmem.Options{})
	client := conn.New(listener, conn.Options{Dialect: lsp{}, Handshake: initialize})
	if err := client.Start(context.Background(), func(error) {}); err != nil {
		fmt.Println(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error)
	go func() {
		_, err := client.Call(ctx, conn.Request{Method: "textDocument/references", WaitForReady: true})
		failed <- err
	}()
	<-server.began
	cancel()
	fmt.Println(<-failed)
	fmt.Println(<-server.ended)
	fmt.Println(client.Close(context.Background()))
	// Output:
	// textDocument/references: cancelled; it may have been executed
	// conn: cancelled by the peer
	// <nil>
}
