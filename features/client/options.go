package client

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
)

// Options configure a Client. The zero value of each field means its default.
type Options struct {
	// Calls are the CallOptions that every session begins with. Session.With gives
	// a view with others.
	Calls CallOptions

	// Elicit answers a question to the user that comes as a form: see Accept and
	// Decline. Fields that the answer leaves out get the defaults of the schema, and
	// an answer that does not fit the schema is an error.
	//
	// Elicit, ElicitURL, Sample and Roots run on goroutines of their own, several at
	// once, in the legacy revisions as well as in 2026-07-28. Each is bounded by its
	// context alone, which ends when the server cancels the question, when its
	// connection is lost, or when the call that led to the question ends. Setting one
	// advertises it to every server. A panic is answered as an internal error and
	// reported to Options.Conn.Hooks.Panic.
	//
	// If Elicit or ElicitURL returns an error, a legacy server is told that the user
	// gave no answer ("cancel"); of a call in 2026-07-28 it becomes the *InputError.
	Elicit func(ctx context.Context, s *Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error)

	// ElicitURL answers a question to the user that is a page to open. Show the whole
	// URL, ask for consent, and never fetch it yourself (2025-11-25
	// client/elicitation).
	ElicitURL func(ctx context.Context, s *Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error)

	// Sample lets servers use the program's model. SampleTools says that it knows
	// CreateMessageParams.Tools; a request that has tools is refused otherwise.
	Sample      func(ctx context.Context, s *Session, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error)
	SampleTools bool

	// Roots lists the places that servers may work in. Call Client.RootsChanged when
	// they change.
	Roots func(ctx context.Context, s *Session) ([]protocol.Root, error)

	// OnEvent receives what a session learns without asking: see Event. Events come
	// one at a time and in order, on a goroutine of the session's own. It may take
	// its time: changes that are waiting already are not queued again, and a server
	// that sends more than the program takes is slowed down or loses messages as
	// ADR-0006 says.
	//
	// OnEvent may call the server, and Session.Stop. It must not call Session.Close:
	// Close would wait for it until Options.Conn.StopGrace has passed, and then name
	// it in a *conn.StuckError. Its context ends with the session. It may run before
	// Connect has returned. A panic costs that event alone and is reported to
	// Options.Conn.Hooks.Panic.
	//
	// If OnEvent is nil, a modern server is not asked to report changes of its lists.
	OnEvent func(ctx context.Context, s *Session, e Event)

	// LogLevel asks every server that offers logging for messages of this level and
	// above, which come as *LogMessage events. Session.SetLogLevel changes it for one
	// session. Empty: the client asks for none. A legacy server may send some all the
	// same.
	LogLevel protocol.LogLevel

	// Middleware wraps every request and notification, in both directions. The first
	// is the outermost.
	Middleware []Middleware

	// Tasks lets modern servers make tasks of calls of tools: they need not hold a
	// connection for a call that takes long. CallTool and Call wait for a task as for
	// any other call, through losses of the connection; the end of their context
	// cancels it, for which they take a second at most. CallOptions.Timeout is then for each request alone. StartTool hands
	// the task out.
	Tasks bool

	// CacheBytes bounds what each session keeps of results that its server allows to
	// be used again: lists and the contents of resources, with ttlMs (2026-07-28
	// server/utilities/caching). What was used longest ago goes first. A result is
	// used until its lifetime is over, which is 24 h at most, until the server reports
	// a change of it, or until the session has another server. Another session, even
	// of the same Client, never gets it. See CallOptions.Fresh, CallOptions.MaxStale
	// and Session.ClearCache. Zero: 16 MiB. Negative: nothing is kept.
	CacheBytes int64

	// MaxRounds bounds how often a server may ask for input before it answers one
	// call (2026-07-28 basic/patterns/mrtr), or before a task has ended. Zero: 10.
	MaxRounds int

	// Capabilities are advertised beside those that follow from the handlers above:
	// extensions and experimental ones.
	Capabilities protocol.ClientCapabilities

	// ProtocolVersion is the revision to ask for. A legacy one opens a session by
	// initialize, in whichever legacy revision the server answers with. A modern one
	// is spoken with a server that supports it, and with no other.
	//
	// Default: protocol.Latest with a server that answers server/discover, and a
	// legacy session with any other. A server that does not answer server/discover
	// costs five seconds once, or half of Options.Conn.InitTimeout if that is less.
	ProtocolVersion string

	// ToolModes says of tools, by name, whether their calls depend on earlier calls
	// of the session. For a tool without an entry the mode is what the server said in
	// _meta as protocol.MetaToolMode when it listed the tool last, and else
	// protocol.Stateless. See Session.CallTool.
	ToolModes map[string]protocol.ToolMode

	// TrustAnnotations believes the server: a tool that it lists with readOnlyHint or
	// idempotentHint may be called twice, see CallOptions.Retries. Otherwise
	// annotations count for nothing, as the specification asks.
	TrustAnnotations bool

	// FailFast makes the first failure final: for commands that run once.
	FailFast bool

	// Supervisor runs the connections. Nil: each session has one of its own.
	Supervisor *supervisor.Supervisor

	// Conn configures the connection of each session: timeouts, backoff, bounds,
	// hooks, log. Attempts to connect that fail, lost connections, and panics of the
	// program's code are logged through slog.Default(), unless Conn.Log or Conn.Hooks
	// takes them; see conn.Options.Log for how to silence that. The client sets Dialect, Handler, Handshake and Owner itself, and
	// consults Final in addition to its own rules: see Connect.
	//
	// Connect names a session Conn.Name or, if that is empty, by its command or host
	// (transport.Named): "bowline", "mcp.example.com". If another session has that
	// name, it gets a suffix: "bowline-2". Start is given a name for each.
	//
	// The sessions of one Client share a Wheel and a Gate. If Conn has none, the
	// Client makes them with their defaults.
	Conn conn.Options
}

// CallOptions apply to the calls of a Session, or of a view of it: see
// Options.Calls and Session.With. The zero value of each field means its default.
type CallOptions struct {
	// Timeout ends a call without an answer. It starts when the request is sent, and
	// again on each retry. Time spent waiting for a server does not count; only the
	// context bounds that. Zero: Options.Conn.RequestTimeout, whose default is 30 s.
	// Negative: only the context bounds the call.
	Timeout time.Duration

	// ProgressRestarts asks for progress, and restarts the timeout whenever some
	// comes, but never beyond MaxTimeout after the request was sent.
	ProgressRestarts bool

	// MaxTimeout bounds a call whose timeout is prolonged: by its progress, or while
	// the client answers a question of the server's. Zero: ten times the timeout.
	MaxTimeout time.Duration

	// WaitForReady waits for a server until the context ends. Otherwise a call fails
	// at once while there is none.
	WaitForReady bool

	// Epoch binds the calls to one server session, by its number (conn.Status.Epoch).
	// When that session is over they fail with ErrStale and are not sent, even if
	// they wait or are retried. Session.Pin sets Epoch. Zero: calls go to whichever
	// session there is, except that a call of a stateful tool is bound to the session
	// that is ready when the call is made.
	Epoch uint64

	// Retries is how many more times a call is made when its connection was lost. A
	// call that the server may have executed is made again only if that is safe: all
	// calls are, except those of tools, for which Repeatable or the server must say
	// so. See Options.TrustAnnotations and conn.Request.Retries.
	Retries int

	// Repeatable says that calling these tools twice does no harm. It has no effect
	// on stateful tools.
	Repeatable bool

	// ManualInput hands out a result that asks for input instead of answering it from
	// the handlers of Options: see InputRequired of the result. The program then makes
	// the call again itself, with InputParams.
	ManualInput bool

	startsTask bool // hand out the task that a call becomes

	// Fresh asks the server even if a result is kept that it allows to be used again:
	// see Options.CacheBytes.
	Fresh bool

	// MaxStale says that while the server is away a list, or the contents of a
	// resource, is better than none if the server gave it at most so long ago: its
	// Received says when. Calls do not wait for the server then. What a call with
	// MaxStale gets is kept for that long, even if the server allows it no lifetime.
	// The bound of Options.CacheBytes holds, and 24 h at most. A call that is bound to
	// one server session gets nothing from another.
	MaxStale time.Duration

	// OnAttempt is called for each attempt that failed and will be followed by
	// another, on the calling goroutine, before the method returns.
	OnAttempt func(conn.Attempt)

	// ToolMode overrides what is known of the mode of a tool, see Options.ToolModes.
	ToolMode protocol.ToolMode

	// OnProgress receives the progress of a call, on the calling goroutine, before
	// the method returns. While it runs only the newest progress is kept. Malformed
	// progress is ignored. Nil: the call asks for no progress.
	OnProgress func(*protocol.ProgressParams)

	pages *keptPages // of a range over the pages of a list; nil: it is none
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
		r.OnProgress = progressTo(o.OnProgress)
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
