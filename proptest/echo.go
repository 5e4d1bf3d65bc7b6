package proptest

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// Echo is the peer that the suites need: it answers every request with its params, and
// ignores every notification. It serves the link until the link is lost, and returns
// the result of Conn.Run:
//
//	peer := inmem.New(func(link transport.Link) { go proptest.Echo(link) }, inmem.Options{})
func Echo(link transport.Link) error {
	return conn.Accept(link, conn.Options{Handler: EchoHandler()}).Run(context.Background())
}

// EchoHandler returns the handler of Echo. Use it if you cannot use Echo, for instance
// behind an HTTP handler, which requires its acceptor to bind a link before it returns.
//
//	accept := func(link transport.Link) {
//		c := conn.Accept(link, conn.Options{Handler: proptest.EchoHandler()})
//		c.Start(context.Background(), func(error) {})
//	}
func EchoHandler() conn.Handler { return echo{} }

type echo struct{}

func (echo) ServeRequest(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
	if in.Params == nil {
		return json.RawMessage("null"), nil
	}
	return in.Params, nil
}

func (echo) ServeNotification(context.Context, *conn.Incoming) {}

// cancelMethod announces that a request was abandoned.
const cancelMethod = "$/cancelRequest"

// cancelDialect is JSON-RPC with a notification for abandoned requests.
type cancelDialect struct{}

func (cancelDialect) Classify(jsonrpc.Message) conn.Class { return conn.Class{} }
func (cancelDialect) Probe() conn.Message                 { return conn.Message{} }
func (cancelDialect) Batches() bool                       { return false }

func (cancelDialect) Cancel(id jsonrpc.ID, _ error) conn.Message {
	return conn.Message{Method: cancelMethod, Params: fmt.Appendf(nil, `{"id":%s}`, id)}
}
