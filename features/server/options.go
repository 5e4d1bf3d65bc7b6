package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// Options configure a Server. The zero value of each field means its default.
type Options struct {
	// Conn configures the connection of each peer: bounds, timeouts, hooks, log. With a positive
	// Conn.Liveness the server asks silent clients of legacy sessions for an answer (ADR-0025). A
	// panic in a tool, or in another callback of the program, is logged through
	// slog.Default(), unless Conn.Log or Conn.Hooks.Panic is set; see
	// conn.Tuning.Log for how to turn that off. The server also logs what it cannot
	// restore of a session.
	Conn conn.Tuning

	// Instructions tell a model how to use the server.
	Instructions string

	// ProtocolVersions are the revisions that the server supports. Default:
	// protocol.Versions.
	ProtocolVersions []string

	// PageSize is the number of entries on one page of a list. Default, also below
	// 1: 100. At most protocol.MaxItems.
	PageSize int

	// Middleware wraps the handling of all messages, in both directions. The first
	// one is the outermost.
	Middleware []Middleware

	// Audit is called exactly once for each request from a client, with how it has ended, and
	// also for those that no middleware sees: pings, malformed messages, unknown methods, and
	// what was cancelled, denied, or refused because of overload. It sees each message of a
	// batch, and what an HTTP handler has refused before a session exists; see
	// transport.Auditor. Notifications and responses that are accepted have no record. The
	// record of a call that has become a task comes when the task has begun.
	//
	// If the request was served, ctx is that of its handler, so RequestFrom(ctx) has its
	// params. Otherwise ctx has the values of the HTTP request, if there was one. Audit runs
	// before the answer is sent, and delays it, or the whole connection. So return soon, for
	// instance with the record in a bounded queue. Audit may be called concurrently, and must
	// not use the connection. A panic of Audit loses that record and nothing else; it
	// is reported to Conn.Hooks.Panic and the log.
	Audit func(ctx context.Context, r Record)

	// SessionContext returns a context whose values are visible to every handler of a
	// legacy session. The server calls it once for each session, when the client
	// initializes it. The ctx ends with the session.
	SessionContext func(ctx context.Context, s *Session) context.Context

	// Visible reports whether the client of a request may see a feature. A hidden
	// feature is not listed, and a call to it fails as if it did not exist. Decide by
	// the caller's identity, never by the session. Nil: everybody sees everything.
	Visible func(ctx context.Context, f Feature) bool

	// OnSubscribe decides whether a client may subscribe to changes of a resource:
	// nil means yes. Setting OnSubscribe advertises subscriptions. If they are
	// advertised by Capabilities.Resources alone, a client may subscribe to the
	// resources that it may read. It is called again for a subscription of a session that is
	// continued here (Session.Restored). The Origin in ctx is then that of the request that
	// continues the session, and the method is "notifications/initialized". It is not called
	// if there is no room: what all sessions are subscribed to may take 1/48 of MaxMemory, which
	// clients share; the response is then jsonrpc.CodeOverloaded.
	OnSubscribe func(ctx context.Context, uri string) error

	// OnUnsubscribe is called when a subscription ends, also when the client has
	// disconnected. Unless a legacy client has asked for the end, the context ends
	// after Conn.DrainGrace, or shortly before the deadline of Server.Close.
	OnUnsubscribe func(ctx context.Context, uri string)

	// OnRootsChanged is called when the roots of a legacy client have changed.
	OnRootsChanged func(ctx context.Context, s *Session)

	// OnLogLevel is called when a legacy client has chosen another level for log messages (Session.LogLevel), before it
	// is answered. It is not called for a session that is continued here.
	OnLogLevel func(ctx context.Context, s *Session)

	// ListTTL is how long modern clients may cache the lists of features. If Visible
	// is set, a client may not share a cached list with others. 0: clients do not
	// cache lists.
	ListTTL time.Duration

	// Node is the name of this node, if several nodes serve one endpoint: the same as
	// Router.Node of the streamable.Handler, with the same restrictions. The states of calls
	// that Wait and the ids of tasks then begin with it, so that their node can be found.
	// Clients can read it. "": this node is the only one, or nobody forwards such requests.
	Node string

	// Changes carries changes of lists, resources and tasks between the nodes that serve one
	// endpoint, so that a client learns of them whichever node it listens to. After a
	// Change with Missed, each client is told that everything it listens to may have
	// changed, within 5 s. Default: a client learns only of the changes on its own node.
	Changes Changes

	// Tasks permits tool calls to become tasks. Nil: there are no tasks.
	Tasks *TaskOptions

	// MaxMemory is what the server and a streamable.Handler may keep for all clients together, in
	// bytes: bodies, unread messages, events, tasks and requests that wait. Default: 384 MiB. Options that
	// limit one of these have a fixed part of it as their default; see docs/limits.md. It does not count
	// what handlers use, and 4 KiB for each session.
	MaxMemory int

	// LogRate is the maximum number of log messages that one client gets each second,
	// and also in one burst; see Logger. The server drops more, and reports with the
	// next message how many it dropped. The limit applies to each session, and in
	// 2026-07-28 to each request. 0: 100. Negative: no limit.
	LogRate int

	// LoggerName is the logger that messages of Logger and LogHandler name. "": they name none.
	LoggerName string

	// Asking limits the calls of features that ask their client.
	Asking AskingOptions

	// Route serves methods of MCP from their undecoded params, by name, in place of the features of this server: a
	// gateway passes them on. A message is checked as always before that: its size, the revision and its methods, and the
	// capability that the method needs, which Capabilities must have, since no feature of the server brings it. Middleware
	// sees the params as a *json.RawMessage. New panics for a method that the server does not have, or that is
	// about what it keeps of its clients: initialize, server/discover, logging/setLevel, and subscriptions to resources
	// or changes.
	Route map[string]RawHandler

	// RouteAsks says whether a call of Route to tools/call, prompts/get or resources/read may ask its client. It is called
	// before the handler, with the same context and params, on the same goroutine, and must not wait. What such a call needs costs about as
	// much as all else of it, and a place among the calls that wait. If it says no, Ask and the like fail with
	// ErrNotAsking; the handler may return InputRequired nevertheless. Nil: each may ask.
	RouteAsks func(ctx context.Context, method string, params json.RawMessage) bool

	// Fallback serves unknown methods and notifications. Its params are a
	// json.RawMessage. Nil: the server answers unknown requests with -32601.
	Fallback Handler

	// Capabilities are advertised in addition to those that follow from the features,
	// for instance extensions, experimental capabilities, and tools that are added later.
	Capabilities protocol.ServerCapabilities
}

// A RawHandler serves a method of MCP from its undecoded params, for Options.Route. The params are an object without the
// members requestState and inputResponses, which Request.State and Request.Answers have. The result must be valid JSON, and
// an object. For clients of 2026-07-28 the server adds the members that their results must have and this one
// lacks: resultType, cacheScope and ttlMs, and a _meta that names the server.
//
// A RawHandler runs as the handler of a tool does, with what its context offers: RequestFrom, Progress, Logger, Origin, and
// the end of the request. For tools/call, prompts/get and resources/read it may ask the client, as a handler with Waits does (see RouteAsks),
// or return InputRequired. A *jsonrpc.Error becomes the error of the response as it is.
type RawHandler func(ctx context.Context, params json.RawMessage) (result json.RawMessage, err error)

// AskingOptions limit calls that ask their client. The zero value of each field means
// its default.
type AskingOptions struct {
	// Secrets returns the secrets that encrypt the states which are stored at clients
	// between rounds. Each needs at least 32 random bytes. The first one seals new
	// states; any of them opens a state. To replace a secret while calls go on: add the
	// new one at the end on every node, then move it to the front on every node, and
	// remove the old one when Expiry has passed. New calls Secrets, and panics if there
	// is none or one is too short. Later, Secrets is called concurrently, for each state,
	// and has to return at once. If there is no valid secret then, the call fails, and
	// the log says why. Default: a random one for each process.
	Secrets func() [][]byte

	// Fleet says that the next round of a call may arrive at another node. It
	// requires Secrets. Features that use Waits also require Options.Node, and that the
	// nodes forward requests to each other (streamable.HandlerOptions.Router).
	Fleet bool

	// Spent remembers, for all nodes, which states were used. Default: the memory of
	// this node, for the latest 65,536 states.
	Spent Spent

	Expiry          time.Duration // how long a question can be answered; default 10 minutes
	CallExpiry      time.Duration // the time for a call, all rounds included; default 1 hour
	MaxRounds       int           // the maximum number of rounds of a call; default 32
	MaxWaiting      int           // how many calls may have a handler that waits, in 2026-07-28; default 1,024, which clients share: one alone has 38 %, and fewer than 64 go to whom comes first
	MaxWaitingBytes int           // the size of the requests of these calls, in bytes; default 24 MiB, a sixteenth of Options.MaxMemory, which clients share; a larger request is refused
}

// Spent remembers which states were used, so that no state is used twice.
type Spent interface {
	// Spend reports whether the state is used for the first time. The implementation
	// may forget the state after the given time. If Spend returns an error, the state
	// is rejected.
	Spend(ctx context.Context, state [16]byte, until time.Time) (first bool, err error)
}

// TaskOptions permit tool calls to become tasks. A task is a call that its client
// need not wait for, and that outlives its connection (the tasks extension of
// 2026-07-28, ADR-0032). The zero value of each field means its default.
//
// A tool takes part if its Execution.TaskSupport is protocol.TaskOptional or
// protocol.TaskRequired. Its handler is an ordinary one, which runs once, in this
// process. Its context ends when the client cancels the task, when the TTL has
// passed, or when the server closes, but not when the client disconnects. Progress
// becomes the status message of the task, and clients see questions in the status of
// the task. A client that did not declare the extension waits for its call as usual.
// If the tool has TaskRequired, such a client of 2026-07-28 gets an error that names
// the missing extension.
//
// Only the user who started a task, by the Identity of its Origin, may see it. If
// users are not authenticated, whoever knows the id of a task may see it.
type TaskOptions struct {
	// After is how long a call runs before it becomes a task. A call that ends sooner
	// is answered as usual. 0: a call becomes a task before its handler starts. A
	// tool with Reruns stays a call for at least one second, so that it can ask its
	// questions first. A tool with Waits becomes a task when it asks its first
	// question.
	After time.Duration

	TTL             time.Duration // how long a task lives after its creation; a handler that still runs then is cancelled; default 24 hours
	PollInterval    time.Duration // how often clients should ask for the status; default 1 second
	MaxRunning      int           // how many handlers run at the same time; default 1,024, which clients share: one alone has 38 %, and fewer than 64 go to whom comes first
	MaxRunningBytes int           // the size of the requests of all running handlers, in bytes; default 24 MiB, a sixteenth of Options.MaxMemory, which clients share; a larger request is refused

	// Store keeps the tasks. Default: a new MemoryTaskStore with 1/24 of Options.MaxMemory.
	Store TaskStore

	// Gone reports whether a node has ended, and the tasks with it that ran there (TaskRecord.Node).
	// Such a task fails when a client asks for it, since nobody knows how far it got.
	// Default: no other node is known to have ended.
	Gone func(node string) bool

	// Legacy also supports the experimental tasks of 2025-11-25. There the client
	// decides which call becomes a task, and a call of a tool with TaskRequired that
	// does not ask for a task is refused.
	Legacy bool
}

// Changes carries changes between the nodes that serve one endpoint. Implementations must be
// safe for concurrent use; stores.ChangesContract of package proptest/stores checks one. A
// Server calls Subscribe once, in New, and stop when it has closed. It publishes each list,
// resource and task at most once in 10 ms, and what is left when it closes.
type Changes interface {
	// Publish tells all other nodes of a change. It must not block. The change may be lost
	// on the way; the nodes that may have missed it then receive a Change with Missed.
	Publish(c Change)

	// Subscribe calls f, one call at a time, with each change that another node has
	// published since Subscribe returned, in the order of each publisher. After stop has
	// returned, f is not called.
	Subscribe(f func(Change)) (stop func())
}

// A Change is what has changed on a node.
type Change struct {
	Tools, Prompts, Resources bool   // the lists that have changed
	URI                       string // the resource that has changed; "" for none
	Task                      string // the task whose status has changed; "" for none

	// Missed says that any changes may have been missed, so everything may have changed. The
	// other fields are zero. A Server publishes it in place of more than 1,024 changes.
	Missed bool
}

// withDefaults returns the options that a server uses. Only ProtocolVersions is copied: the program must not change what the
// others point to.
func (o Options) withDefaults() Options {
	if o.PageSize < 1 {
		o.PageSize = 100
	}
	o.PageSize = min(o.PageSize, protocol.MaxItems)
	o.MaxMemory = cmp.Or(max(o.MaxMemory, 0), 384<<20)
	o.LogRate = cmp.Or(o.LogRate, 100)
	o.ProtocolVersions = slices.Clone(o.ProtocolVersions)
	if len(o.ProtocolVersions) == 0 {
		o.ProtocolVersions = protocol.Versions()
	}
	for _, version := range o.ProtocolVersions {
		if !slices.Contains(protocol.Versions(), version) {
			panic(fmt.Sprintf("server: ProtocolVersions: %q is not known", version))
		}
	}
	if o.Conn.Wheel == nil {
		o.Conn.Wheel = new(conn.Wheel)
	}
	o.Conn = o.Conn.Shared()
	return o
}
