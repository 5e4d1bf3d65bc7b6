package restore

import (
	"context"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// A Session is what a Restorer needs of the session that it belongs to. It must be the same in
// every call. It is not stored, so that an idle session is smaller.
type Session interface {
	Conn() *conn.Conn
	Present() Server            // the present or last server; nil before the first
	Caller(epoch uint64) Caller // makes requests that only the server of this epoch gets
	WantsEvents() bool          // the program hears of changes
	Subscribed(bool)            // a legacy server may now report changes, or may not any more

	// These make the errors of the program.
	Explain(error) error           // of a failed call
	Lacks(capability string) error // for a server without a capability

	// These tell the program, and may be called while nobody wants events.
	StartsAway()                                        // the session has no server yet
	Lost(epoch uint64, why conn.Reason, next time.Time) // once or more for each epoch
	Restored(failures []error)
	Refused(uri string, why error)        // the server does not report changes of a resource any more
	Granted(*protocol.SubscriptionFilter) // reports begin, and changes before were not reported
}

// A Server is the server of one incarnation. Two of them are equal if they are the same.
type Server interface {
	Epoch() uint64
	Modern() bool
	Version() string
	Offers(method string) bool
	Has(capability string) bool
	Members() protocol.Meta // the _meta of every modern request; read-only
}

// A Caller makes requests with the options of one caller.
type Caller interface {
	Session() Session

	// Require returns the present server. It waits for one if the options say so. The
	// method is for its error.
	Require(ctx context.Context, method, capability string) (Server, error)

	// These requests are bound to one server.
	SetLogLevel(context.Context, Server, protocol.LogLevel) error
	Subscribe(ctx context.Context, s Server, uri string) error
	Unsubscribe(ctx context.Context, s Server, uri string) error

	// Limited returns a context with the time limit of a request. Leaving does so for a last
	// request of a caller whose context may have ended.
	Limited(context.Context) (context.Context, context.CancelFunc)
	Leaving(context.Context) (context.Context, context.CancelFunc)

	// Failed returns the error of a request that has waited in ctx.
	Failed(ctx context.Context, method string, d conn.Delivery, err error) error
}

// isCurrent reports whether a server is still the present one.
func isCurrent(s Server, status conn.Status) bool {
	return status.State == conn.Ready && status.Epoch == s.Epoch()
}
