package client

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client/internal/cache"
	"github.com/bowline-mcp/bowline/features/internal/reports"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
)

// Options configure a Client. The zero value of each field means its default.
type Options struct {
	// Calls are the default CallOptions of every session. Session.With returns a view
	// of a session with other options.
	Calls CallOptions

	// Elicit shows a form to the user and returns the answer; see Accept and Decline. The
	// client fills in the schema's defaults for missing fields. In 2025-06-18 it leaves
	// out defaults that are lists, because answers of that revision have no lists. An
	// answer that does not fit the schema is an error.
	//
	// Elicit, ElicitURL, Sample and Roots may run at the same time, several of each, in
	// every revision. Each one is limited only by its context, which ends when the
	// server cancels the question, when the connection is lost, or when the call that
	// led to the question ends. Progress tells the server how far the answer is. Setting one
	// of them advertises the capability to every server. If one panics, the server gets an internal error, and
	// Options.Conn.Hooks.Panic is called.
	//
	// If Elicit or ElicitURL returns an error, or an answer that does not fit the form, a
	// legacy server is told that the user gave no answer ("cancel"), and the program gets
	// a *NotAnswered event. In 2026-07-28 the call fails with an *InputError.
	Elicit func(ctx context.Context, s *Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error)

	// ElicitURL asks the user to open a page. Show the whole URL, ask for consent,
	// and never fetch it yourself (2025-11-25 client/elicitation).
	ElicitURL func(ctx context.Context, s *Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error)

	// Sample lets servers use the program's model. Set SampleTools if Sample supports
	// CreateMessageParams.Tools; otherwise requests with tools are refused. So is a
	// conversation with a tool_use that has no tool_result. Before 2025-11-25 an answer is
	// one block: text blocks are sent as one, and other answers of several are an error.
	Sample      func(ctx context.Context, s *Session, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error)
	SampleTools bool

	// Roots lists the places that servers may work in. Call Client.RootsChanged when
	// they change.
	Roots func(ctx context.Context, s *Session) ([]protocol.Root, error)

	// OnEvent receives what a session learns without asking; see Event. The session
	// calls it for one event at a time, in order, on a separate goroutine. OnEvent
	// may be slow: a change that is already waiting is not queued again. If the
	// server sends more than OnEvent can handle, the client reads more slowly, or
	// drops messages by the rules of ADR-0006.
	//
	// OnEvent may call the server, and Session.Stop. It must not call Session.Close:
	// Close would wait for OnEvent until Options.Conn.StopGrace has passed, and then
	// name it in a *conn.StuckError. The context ends with the session. OnEvent may
	// run before Connect has returned. A panic loses only that event, and is reported
	// to Options.Conn.Hooks.Panic.
	//
	// If OnEvent is nil, a modern server is not asked to report changes of its lists.
	OnEvent func(ctx context.Context, s *Session, e Event)

	// OnLog gets the log messages of servers in place of OnEvent, for a program that brings them to clients of its own. It runs where
	// notifications are received, one at a time and in order, and must not wait. Asking(ctx) returns the calls of Relay and Request to which the
	// message may belong, for which see CallOptions.AwaitLogs. One that belongs to another call, or came on the stream of a call that
	// has ended, is an event.
	OnLog func(ctx context.Context, s *Session, m *LogMessage)

	// LogLevel asks every server that offers logging for messages of this level and
	// above, which come as *LogMessage events. Session.SetLogLevel changes it for one
	// session. Empty: the client asks for none, but a legacy server may send some anyway.
	LogLevel protocol.LogLevel

	// Middleware wraps every request and notification, in both directions. The first
	// is the outermost.
	Middleware []Middleware

	// Tasks permits modern servers to turn tool calls into tasks, so that a long call
	// needs no open connection. CallTool and Call wait for a task as for any other
	// call, even if the connection is lost in between. If their context ends, they
	// cancel the task, which takes at most a second. CallOptions.Timeout then applies
	// to each single request. StartTool returns the task without waiting.
	Tasks bool

	// CacheBytes limits the cache of each session, in bytes. The cache holds lists
	// and the contents of resources, for as long as the server permits by ttlMs
	// (2026-07-28 server/utilities/caching) and at most 24 h. A cached result also
	// expires when the server reports a change of it, or when the session gets
	// another server. If the cache is full, the least recently used results go first.
	// Sessions never share results, even within one Client. See CallOptions.Fresh,
	// CallOptions.MaxStale and Session.ClearCache. Zero: 16 MiB. Negative: no cache.
	CacheBytes int64

	// MaxRounds is how often a server may ask for input before it answers one call
	// (2026-07-28 basic/patterns/mrtr), or before a task ends. Zero: 10.
	MaxRounds int

	// Capabilities are advertised in addition to those that follow from the handlers
	// above. Use them for extensions and experimental capabilities.
	Capabilities protocol.ClientCapabilities

	// ProtocolVersion is the revision to ask for. With a legacy revision, the client
	// opens a session by initialize, and uses the legacy revision with which the server
	// answers. With a modern one, the client connects only to servers that support
	// exactly that revision.
	//
	// Default: protocol.Latest if the server answers server/discover, otherwise a
	// legacy session. If a server does not answer server/discover at all, the client
	// waits for five seconds once, or for half of Options.Conn.InitTimeout if that is
	// less.
	ProtocolVersion string

	// ToolModes says for each tool, by name, whether its calls depend on earlier
	// calls of the session. The mode of a tool without an entry is the
	// protocol.MetaToolMode in the _meta of its last listing, or else
	// protocol.Stateless. See Session.CallTool.
	ToolModes map[string]protocol.ToolMode

	// TrustAnnotations makes the client believe the server's annotations: a tool that
	// it lists with readOnlyHint or idempotentHint may be called twice; see
	// CallOptions.Retries. By default, annotations are ignored, as the specification
	// demands.
	TrustAnnotations bool

	// FailFast ends a session at its first failure. Use it for commands that run
	// once.
	FailFast bool

	// Supervisor runs the connections. Nil: each session has its own supervisor.
	Supervisor *supervisor.Supervisor

	// Conn configures the connection of each session: timeouts, backoff, bounds,
	// hooks, log. Failed attempts to connect, lost connections, and panics in the
	// program's code are logged through slog.Default(), unless Conn.Log or Conn.Hooks
	// is set; see conn.Tuning.Log for how to turn that off. The client applies Final in
	// addition to its own rules; see Connect.
	//
	// Connect names a session Conn.Name or, if that is empty, after its command or
	// host (transport.Traits): "bowline", "mcp.example.com". If another session has
	// that name, Connect adds a suffix: "bowline-2". Start takes the name as an
	// argument.
	//
	// The sessions of one Client share a Wheel and a Gate. If Conn has none, the
	// Client creates them with their defaults.
	Conn conn.Tuning
}

// CallOptions apply to the calls of a Session, or of a view of it: see
// Options.Calls and Session.With. The zero value of each field means its default.
type CallOptions struct {
	// Timeout is how long to wait for an answer. It starts when the request is sent,
	// and again on each retry. Time spent waiting for a server does not count; only
	// the context limits that. Zero: Options.Conn.RequestTimeout, whose default is 30
	// s. Negative: only the context limits the call.
	Timeout time.Duration

	// ProgressRestarts asks the server for progress, and restarts the timeout with
	// each report, up to MaxTimeout after the request was sent.
	ProgressRestarts bool

	// MaxTimeout limits a call whose timeout is extended by progress, or while the
	// client answers a question from the server. Zero: ten times the timeout.
	MaxTimeout time.Duration

	// WaitForReady makes a call wait until there is a server, or the context ends.
	// Otherwise a call fails immediately while there is no server.
	WaitForReady bool

	// Epoch binds the calls to one server session, by its number (conn.Status.Epoch).
	// When that session has ended, they fail with ErrStale and are not sent, even if
	// they were waiting or being retried. Session.Pin sets Epoch. Zero: each attempt goes
	// to the session that is ready then. Only a call of a stateful tool is bound to the
	// session that is ready when the call begins.
	Epoch uint64

	// Retries is how often a call is retried after its connection was lost. It is also
	// retried while there is no server, and after an answer with HTTP status 429, or 503
	// with Retry-After. See conn.Request.Retries for the delays. Zero: no retries.
	// Negative: no limit.
	//
	// If the server may have executed a call before the connection was lost, the call is
	// retried only if that is safe. Every method except CallTool, Call, StartTool and
	// Request is safe to repeat. These four are retried then only with Repeatable; a tool
	// call also if Options.TrustAnnotations is set and the annotations of the tool permit
	// it.
	Retries int

	// Repeatable declares that it does no harm to make these calls twice; see Retries. It
	// has no effect on stateful tools.
	Repeatable bool

	// ManualInput makes a call return a result that asks for input, instead of
	// answering with the handlers of Options; see InputRequired of the result. The
	// program then calls again itself, with InputParams.
	ManualInput bool

	startsTask bool // return the task, if the call becomes one, without waiting for it

	// Fresh makes a call ask the server even if the cache holds a valid result; see
	// Options.CacheBytes.
	Fresh bool

	// MaxStale permits a call to return an old result while the server is away, if it
	// was received at most that long ago. It applies to lists and to the contents of
	// resources; Received says when a result came. Such calls do not wait for the
	// server. The client keeps the results of such calls for MaxStale (at most 24 h,
	// and within Options.CacheBytes), even if the server allows no caching. A call
	// that is bound to one server session never gets a result from another.
	MaxStale time.Duration

	// OnAttempt receives each failed attempt that will be retried, on the calling
	// goroutine, before the method returns.
	OnAttempt func(conn.Attempt)

	// ToolMode overrides the mode of a tool; see Options.ToolModes.
	ToolMode protocol.ToolMode

	// AwaitLogs makes Relay and Request return, or fail, only after Options.OnLog has had the messages that came before. So Asking
	// still has the call then. OnEvent must not make such calls.
	AwaitLogs bool

	// LogLevel asks a modern server for messages of this level and above that are about these calls, in place of that of the session. A legacy
	// server knows the level of the session only; see Session.SetLogLevel.
	LogLevel protocol.LogLevel

	// OnProgress receives the progress of a call, on the calling goroutine, before
	// the method returns. While it runs only the newest progress is kept. Malformed
	// progress is ignored. Nil: the call asks for no progress.
	OnProgress func(*protocol.ProgressParams)

	pages *cache.Pages[*peer] // set by a range over the pages of a list; otherwise nil
}

// cacheUse returns which cached results the call accepts.
func (o *CallOptions) cacheUse() cache.Use[*peer] {
	return cache.Use[*peer]{Pages: o.pages, Fresh: o.Fresh, MaxStale: o.MaxStale}
}

func (o *CallOptions) wantsProgress() bool { return o.OnProgress != nil || o.ProgressRestarts }

// request returns the request for a call with these options.
func (o *CallOptions) request(method string, messages conn.MessageMaker) conn.Request {
	r := conn.Request{
		Method: method, MessageFor: messages, Epoch: o.Epoch,
		Timeout: o.Timeout, ProgressRestarts: o.ProgressRestarts, MaxTimeout: o.MaxTimeout,
		WaitForReady: o.WaitForReady,
		Retries:      o.Retries, Repeatable: o.Repeatable, OnAttempt: o.OnAttempt,
	}
	if o.OnProgress != nil {
		r.OnProgress = reports.To(o.OnProgress)
	}
	return r
}

// capabilities returns what the client advertises.
func (o *Options) capabilities(legacy bool) protocol.ClientCapabilities {
	all := o.Capabilities
	if o.Tasks && !legacy {
		all.Extensions = maps.Clone(all.Extensions)
		if all.Extensions == nil {
			all.Extensions = make(map[string]json.RawMessage)
		}
		all.Extensions[protocol.ExtensionTasks] = json.RawMessage("{}")
	}
	if o.Elicit != nil || o.ElicitURL != nil {
		all.Elicitation = new(protocol.ElicitationCapability)
		if o.Elicit != nil {
			all.Elicitation.Form = new(protocol.Capability)
		}
		if o.ElicitURL != nil {
			all.Elicitation.URL = new(protocol.Capability)
		}
	}
	if o.Sample != nil {
		all.Sampling = new(protocol.SamplingCapability)
		if o.SampleTools {
			all.Sampling.Tools = new(protocol.Capability)
		}
	}
	if o.Roots != nil {
		all.Roots = &protocol.RootsCapability{ListChanged: legacy}
	}
	return all
}
