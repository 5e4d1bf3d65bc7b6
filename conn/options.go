package conn

import (
	"context"
	"log/slog"
	"time"

	"github.com/bowline-mcp/bowline/telemetry"
)

// Options configure a Conn. The zero value of each field means the default
// that its comment states. A negative number means the default too, except for
// Liveness.
type Options struct {
	// Name identifies the connection in telemetry and errors.
	Name string

	// Owner is a value for those who look a Conn up by its name: the session of
	// a client, for instance. The Conn stores it and does nothing else with it.
	Owner any

	// Dialect tells the Conn what messages mean. Nil: plain JSON-RPC.
	Dialect Dialect

	// Handler serves the peer's requests and notifications. Nil: requests are
	// answered with "method not found", and notifications are dropped.
	Handler Handler

	// Handshake makes a new link of an initiator ready. The Conn calls it once
	// per incarnation, on a goroutine of its own, and ends its context with the
	// incarnation. If it returns an error, the link is closed and the Conn tries
	// again. Nil: a link is ready at once.
	Handshake func(ctx context.Context, incarnation *Incarnation) error

	// Final reports whether an initiator should close for this reason instead of
	// trying again. It is called once for each incarnation that was lost or could
	// not begin. It must return quickly and must not call the Conn. If it panics,
	// the Conn tries again. Nil: the Conn always tries again.
	Final func(Reason) bool

	// Hooks receive telemetry events.
	Hooks telemetry.Hooks

	// Log receives what a program that has no hooks would never learn: a panic of
	// code that was handed in, as an error, and each connection that was lost or
	// could not be made and will be tried again, as a warning, as is the first handler
	// that is stuck (CancelGrace). Nil: slog.Default(), for a panic unless there is
	// Hooks.Panic, for connections unless there is Hooks.Transition, and for handlers
	// unless there is Hooks.Stuck. slog.New(slog.DiscardHandler) keeps the Conn silent.
	Log *slog.Logger

	// RequestTimeout bounds each attempt of a call. Default: 30 s.
	RequestTimeout time.Duration

	// InitTimeout bounds opening a link and its handshake together. Time spent
	// waiting at a Gate does not count. Each time it expires, the next attempt has
	// twice as long, up to 2 min, until the Conn is ready. Default: 10 s.
	InitTimeout time.Duration

	// BackoffMin is the delay before the first reconnection. Each further delay
	// is twice as long, up to BackoffMax. Defaults: 1 s and 30 s.
	BackoffMin, BackoffMax time.Duration

	// BackoffJitter spreads each delay by this fraction either way, within
	// BackoffMin and BackoffMax. Default: 0.2.
	BackoffJitter float64

	// ProvenAfter is how long the Conn must be ready for the next loss to begin
	// the delays anew. Default: 30 s.
	ProvenAfter time.Duration

	// TombstoneSweep is how often the Conn discards what it remembers of requests
	// that ended without an answer. Default: 60 s.
	TombstoneSweep time.Duration

	// Liveness is how long the peer of an initiator may be silent. After that the
	// Conn sends a probe (Dialect.Probe), and another after as long again. If
	// nothing at all has come in after a third such time, the link is lost
	// (LivenessLost). Rounded up to a quarter of a second. Zero: 5 s if the link
	// says when bytes come in (transport.Hearing), as pipes and sockets do;
	// otherwise the peer is not probed. Over HTTP, where a probe is a request of its
	// own (transport.Requesting), zero means 5 s while a call, a request that stays
	// open or a subscription waits for the peer, and else one minute. Negative: the
	// peer is never probed.
	Liveness time.Duration

	// Wheel times the probes of many Conns with one timer. Nil: the Conn has its
	// own.
	Wheel *Wheel

	// Gate bounds how many of the initiators that share it connect at once. Nil:
	// no bound.
	Gate *Gate

	// StopGrace is how long Stop waits for the link to close and for handlers to
	// return. Default: 100 ms.
	StopGrace time.Duration

	// DrainGrace is how long Close waits for work in flight if its context has no
	// deadline, how long it leaves the link to close, and how long an acceptor
	// goes on serving after the peer has closed its sending side. Default: 5 s.
	DrainGrace time.Duration

	// Credit is how many frames a stream may deliver before the first of them is
	// processed. Default: 1.
	Credit int

	// SendSlots is how many calls and notifications may be on their way to the
	// link. Further callers wait. Default: 1024.
	SendSlots int

	// MaxServing is how many of the peer's requests are served at once, without
	// those that stay open. Default: 128.
	MaxServing int

	// CancelGrace is how long a handler may go on after the peer has cancelled its
	// request, or left it. After that it is stuck: Hooks.Stuck is told, and for the
	// first one the log, and it counts for MaxServing and MaxStreaming no more. Its
	// request still counts for MaxHeld, and stuck handlers beyond eight times
	// MaxServing count in full. When the Conn ends, handlers have StopGrace. Default:
	// 10 s.
	CancelGrace time.Duration

	// MaxStreaming is how many of the peer's requests that stay open (Streaming)
	// are served at once. Further ones are refused. Default: 1024.
	MaxStreaming int

	// MaxWaiting is how many of the peer's requests wait when MaxServing are
	// being served. Further ones are refused. Default: 16,384; a peer with larger
	// requests meets MaxHeld first.
	MaxWaiting int

	// MaxNotifications is how many notifications wait for the handler. Beyond
	// that some are dropped (ADR-0004, ADR-0006). Default: 1024.
	MaxNotifications int

	// MaxHeld bounds the bytes of the peer's requests being served or waiting,
	// and separately the bytes of its notifications that wait. One message of any
	// size is always accepted. Default: 64 MiB.
	MaxHeld int

	// MaxMalformed is how many malformed frames in a row end the link: lines that
	// a child prints on its standard output, for instance. Whatever it is, 16 MiB of
	// them in a row end the link too. Default: 10,000.
	MaxMalformed int
}

func (o Options) withDefaults() Options {
	o.RequestTimeout = positive(o.RequestTimeout, 30*time.Second)
	o.InitTimeout = positive(o.InitTimeout, 10*time.Second)
	o.BackoffMin = positive(o.BackoffMin, time.Second)
	o.BackoffMax = max(positive(o.BackoffMax, 30*time.Second), o.BackoffMin)
	o.BackoffJitter = positive(o.BackoffJitter, 0.2)
	o.ProvenAfter = positive(o.ProvenAfter, 30*time.Second)
	o.TombstoneSweep = positive(o.TombstoneSweep, time.Minute)
	o.StopGrace = positive(o.StopGrace, 100*time.Millisecond)
	o.DrainGrace = positive(o.DrainGrace, 5*time.Second)
	o.Credit = positive(o.Credit, 1)
	o.SendSlots = positive(o.SendSlots, 1024)
	o.MaxServing = positive(o.MaxServing, 128)
	o.CancelGrace = positive(o.CancelGrace, 10*time.Second)
	o.MaxStreaming = positive(o.MaxStreaming, 1024)
	o.MaxWaiting = positive(o.MaxWaiting, 16_384)
	o.MaxNotifications = positive(o.MaxNotifications, 1024)
	o.MaxHeld = positive(o.MaxHeld, 64<<20)
	o.MaxMalformed = positive(o.MaxMalformed, 10_000)
	if o.Dialect == nil {
		o.Dialect = plain{}
	}
	if o.Handler == nil {
		o.Handler = refuser{}
	}
	if o.Final == nil {
		o.Final = func(Reason) bool { return false }
	}
	if o.Wheel == nil {
		o.Wheel = new(Wheel)
	}
	return o
}

// positive returns the value, or the standard one if the value is not above zero.
func positive[N int | float64 | time.Duration](value, standard N) N {
	if value > 0 {
		return value
	}
	return standard
}
