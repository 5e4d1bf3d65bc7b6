package server

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/internal/turn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// A host is what peers and their calls know of their server: what it is called, what it was set to, and who is told of changes. It
// knows nothing of tools, tasks, sessions and the like: these stand on it, and it has to work without any of them. What is needed of them
// here is set in New, before the first peer.
type host struct {
	info        protocol.Implementation
	rawInfo     json.RawMessage             // info in encoded form
	rawMeta     json.RawMessage             // the _meta of most modern results; it contains info
	known       atomic.Pointer[knownClient] // the modern client whose _meta was decoded last
	options     Options
	owner       any     // the *Server, for Session.Server; the host itself needs nothing of it
	handle      Handler // the middleware, and then innermost
	noOrigin    transport.Origin
	methods     atomic.Pointer[map[string]*method] // copied when it changes
	turns       *turn.Scheduler[sender]            // of the work for requests that do not come with another one
	hub         *changes.Hub
	askingCalls *asking.Calls   // those that ask their client
	ctx         context.Context // the context of OnUnsubscribe and of other callbacks at the end of sessions

	capabilities interface {
		modern() *protocol.ServerCapabilities // what modern clients see; shared
	}
	maySubscribe func(ctx context.Context, uri string) error
	taskStatus   func(ctx context.Context, p *peer, id string) (params any, err error)
}

// guarded runs code of the program that belongs to no peer, and reports its panic.
// Some of it runs on goroutines on which a panic would end the process.
func (h *host) guarded(where string, f func()) {
	defer func() {
		if value := recover(); value != nil {
			h.options.Conn.ReportPanic(where, &conn.PanicError{Value: value, Stack: debug.Stack()})
		}
	}()
	f()
}

// log returns the log for what concerns no hook.
func (h *host) log() *slog.Logger {
	if log := h.options.Conn.Log; log != nil {
		return log
	}
	return slog.Default()
}

// These are the defaults of conn.Tuning.
const (
	defaultStopGrace  = 100 * time.Millisecond
	defaultDrainGrace = 5 * time.Second
)

func (h *host) drainGrace() time.Duration {
	return cmp.Or(max(h.options.Conn.DrainGrace, 0), defaultDrainGrace)
}

// afterwards returns a context for what the program is told when a client has left or a
// subscription has ended. It has the values of ctx. It ends after DrainGrace, or earlier if
// Close no longer waits.
// The function must be called, or a timer stays until then. What has ended ctx may be the very thing that the program
// is told of, so that end does not count.
func (h *host) afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.drainGrace())
	stop := context.AfterFunc(h.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
