package client

import (
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// CallOptions apply to the calls of a view of a session, see Session.With.
type CallOptions struct {
	// Timeout ends a call without an answer. Zero: Options.Conn.RequestTimeout,
	// whose default is 30 s. Negative: only the context bounds it. It begins
	// when the request is made, and anew when it is made again: waits for ready
	// have the context alone.
	Timeout time.Duration

	// ProgressRestarts asks for progress, and has each notification of it begin
	// the timeout anew, but never beyond MaxTimeout after the request was made.
	ProgressRestarts bool

	// MaxTimeout bounds a call whose timeout is prolonged: by its progress, or
	// while the server is served in what it asks in order to answer. Zero: ten
	// times the timeout.
	MaxTimeout time.Duration

	// WaitForReady waits for a server, until the context ends, instead of
	// failing at once while there is none.
	WaitForReady bool

	// Epoch is the server session that the calls are for, as conn.Status.Epoch
	// numbers them: in any other they fail with conn.ErrStale, not sent, also
	// when they wait or are made again. Zero: whichever there is; a call of a
	// stateful tool is then for the session that is ready when it is made.
	Epoch uint64

	// Retries is how many more times a call is made when its connection was
	// lost, see conn.Request.Retries. One that the server may have executed is
	// made again if it is safe: all calls are but those of tools, for which
	// Repeatable or the server says so, see Options.TrustAnnotations.
	Retries int

	// Repeatable says that to call these tools twice does no harm. It does not
	// count for stateful tools.
	Repeatable bool

	// OnAttempt is told of each attempt that has failed and is to be followed
	// by another: on the calling goroutine, before the method returns.
	OnAttempt func(conn.Attempt)

	// ToolMode overrides what is known of the mode of a tool, see
	// Options.ToolModes. Empty: that is what counts.
	ToolMode protocol.ToolMode

	// OnProgress is told how far a call has come: on the calling goroutine,
	// before the method returns. While it runs only the newest progress is
	// kept. What is malformed, or does not say how far, is ignored. Nil: no
	// progress is asked for.
	OnProgress func(*protocol.ProgressParams)
}

func (o *CallOptions) wantsProgress() bool { return o.OnProgress != nil || o.ProgressRestarts }

// request is what the options make of a call of a method.
func (o *CallOptions) request(method string, encode func(int64, uint64) (conn.Message, error)) conn.Request {
	r := conn.Request{
		Method: method, MessageFor: encode, Epoch: o.Epoch,
		Timeout: o.Timeout, ProgressRestarts: o.ProgressRestarts, MaxTimeout: o.MaxTimeout,
		WaitForReady: o.WaitForReady,
		Retries:      o.Retries, Repeatable: o.Repeatable, OnAttempt: o.OnAttempt,
	}
	if o.OnProgress != nil {
		r.OnProgress = progressTo(o.OnProgress)
	}
	return r
}
