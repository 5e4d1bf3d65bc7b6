package streamable

import (
	"encoding/json"
	"net/http"

	"github.com/bowline-mcp/bowline/protocol"
)

// A Caller is the sender of a request, as established by HandlerOptions.Check.
// Handlers read it as transport.Origin.Principal. Implementations must be safe for
// concurrent use.
//
// If it also has the method Until() time.Time, streams end when that time comes: a
// GET, and a POST of subscriptions/listen. They end as if the network had broken: the
// client reconnects, is checked again, and loses no message. Other requests run to
// their end. The zero Time means that streams do not end.
type Caller interface {
	// Identity returns the identity of the caller, such as a user id; see
	// HandlerOptions.Identify.
	Identity() string

	// Allow returns nil to permit an operation, or the response that denies it. The
	// handler calls it for each request and notification. For a batch, it calls Allow
	// for all messages before it delivers the first.
	Allow(op Operation) *Denial
}

// NewCaller returns a Caller with an identity that may do everything. It is all you
// need to check API keys.
func NewCaller(identity string) Caller { return unrestricted(identity) }

type unrestricted string

func (u unrestricted) Identity() string { return string(u) }

func (unrestricted) Allow(Operation) *Denial { return nil }

// An Operation is the method and the params of a message.
type Operation struct {
	Method string          // of MCP, such as "tools/call"
	Params json.RawMessage // as the client sent them; read-only
}

// Name returns the name of the tool or prompt, the URI of the resource or the id of the
// task that an operation is about; "" for other methods. It reads the params.
func (o Operation) Name() string {
	method, _ := protocol.MethodInfo(o.Method)
	return method.NameOf(o.Params)
}

// A Denial is a server's response to a request that it does not serve. Nothing of the request was
// executed.
type Denial struct {
	Status int         // such as 401 or 403
	Header http.Header // such as WWW-Authenticate; it is not changed
	Text   string      // for people
}
