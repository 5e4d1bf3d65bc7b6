package proptest

import (
	"fmt"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// cancelMethod announces that a request was abandoned.
const cancelMethod = "$/cancelRequest"

// cancelling is JSON-RPC with a notification for abandoned requests.
type cancelling struct{}

func (cancelling) Classify(*jsonrpc.Message) conn.Class { return conn.Class{} }
func (cancelling) Probe() conn.Message                  { return conn.Message{} }
func (cancelling) Batches() bool                        { return false }

func (cancelling) Cancel(id int64, _ error) conn.Message {
	return conn.Message{Method: cancelMethod, Params: fmt.Appendf(nil, `{"id":%d}`, id)}
}
