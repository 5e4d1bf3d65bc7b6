package streamable

import (
	"bytes"
	"net/http"

	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Requests without a session are served where they arrive, except for those that need what
// only one process has: the next round of a call whose handler waits, and requests for a
// task. The client carries the name of its node in requestState or taskId (ADR-0075).

// named returns a handler that forwards a modern request to the node that it names, or nil
// if this node serves it. Nobody has checked the name. A request is forwarded only once.
func (a *arrival) named() http.Handler {
	if a.h.options.Router == nil || a.wasForwarded() {
		return nil
	}
	if node := nodeOf(a.body); node != "" && node != a.h.node {
		return a.h.options.Router.ReachNode(node)
	}
	return nil
}

// nodeOf returns the node that a modern request names, or "".
func nodeOf(b *body) string {
	const longest = len(`"`+nodename.StateVersion+nodename.Mark) + nodename.Longest // the part of a state that has the name
	switch method, _ := protocol.MethodInfo(b.Method); {
	case method.NameParam == "taskId":
		return nodename.Of(method.NameOf(b.Params))
	case !bytes.Contains(b.Params, []byte(`"requestState"`)): // most requests; no client escapes this name
		return ""
	}
	state, repeated := jsonrpc.Member(b.Params, "requestState")
	if repeated || len(state) == 0 || state[0] != '"' {
		return "" // the server refuses it
	}
	return nodename.OfState(string(state[1:min(len(state), longest)])) // no client escapes this part
}
