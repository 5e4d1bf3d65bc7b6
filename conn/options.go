package conn

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/bowline-mcp/bowline/telemetry"
)

// Options say what a Conn serves, and how. The zero value of each field means the default
// that its comment states.
type Options struct {
	// Owner is any value of your program that belongs to the Conn, such as the session
	// of a client. Code that finds the Conn by its name gets it by Control.Owner. The Conn
	// only stores it.
	Owner any

	// Dialect tells the Conn what messages mean. Nil: plain JSON-RPC.
	Dialect Dialect

	// Handler serves the peer's requests and notifications. Nil: requests are
	// answered with "method not found", and notifications are dropped.
	Handler Handler

	// Handshake prepares a new link of an initiator, for instance by a request to
	// initialize. The Conn calls it once per incarnation, on a separate goroutine,
	// and ends its context with the incarnation. If it returns an error, the Conn
	// closes the link and tries again. Nil: a link is ready as soon as it is open.
	Handshake func(ctx context.Context, incarnation *Incarnation) error

	Tuning
}

// Tuning are the options that do not depend on what a Conn serves: clients and servers set the
// others themselves, and offer these to the program. The zero value of each field means the default
// that its comment states. A negative number means the default too, except for Liveness and
// Patience.
type Tuning struct {
	// Name identifies the connection in telemetry and errors.
	Name string

	// Final reports whether an initiator should close for this reason instead of
	// trying again. The Conn calls it once for each link that it has lost or could
	// not open. It must return quickly and must not call the Conn. If it panics, the
	// Conn tries again. Nil: the Conn always tries again.
	Final func(Reason) bool

	// Hooks receive telemetry events.
	Hooks telemetry.Hooks

	// Log receives what a program without hooks would not notice. A panic in a callback
	// is logged as an error. Each loss of a connection, each failed attempt to connect
	// that will be repeated, and the first handler that is stuck (CancelGrace) are
	// logged as warnings, and so is a frame that is no valid message, at most one in ten
	// seconds. When a lost connection is back, that is logged as information. Nil:
	// slog.Default(), which then gets no panics if Hooks.Panic is set, no connections if
	// Hooks.Transition is set, none that are back if Hooks.Gap is set either, no handlers
	// if Hooks.Stuck is set, and no frames if Hooks.Violation is set. To log nothing, use
	// slog.New(slog.DiscardHandler).
	Log *slog.Logger

	// RequestTimeout limits each attempt of a call. Default: 30 s.
	RequestTimeout time.Duration

	// InitTimeout limits the time to open a link and complete its handshake. Time
	// spent waiting at a Gate does not count. Each time it expires, the timeout of
	// the next attempt doubles, up to 2 min, until the Conn is ready. Default: 10 s.
	// With the default, a peer that is a process (transport.Traits) may take 60 s
	// until its first message, because it may install itself first. From then on the
	// 10 s apply.
	InitTimeout time.Duration

	// BackoffMin is the first delay before a reconnection, and BackoffMax the longest.
	// Each further delay is twice as long. If a link was proven, the first attempt after
	// it does not wait for BackoffMin, but for 100 ms at most. Defaults: 1 s and 30 s.
	BackoffMin, BackoffMax time.Duration

	// BackoffJitter spreads each delay by this fraction either way, within
	// BackoffMin and BackoffMax. Default: 0.2.
	BackoffJitter float64

	// ProvenAfter says when a link counts as proven: if the Conn was ready for that long
	// before a loss, it reconnects at once, and the delays start again. Default: 30 s.
	ProvenAfter time.Duration

	// TombstoneSweep is how often the Conn discards what it remembers of requests
	// that ended without an answer. Default: 60 s.
	TombstoneSweep time.Duration

	// Liveness is how long the peer may be silent. After that time
	// the Conn sends a probe (Dialect.Probe), and after twice that time a second one.
	// If nothing at all has come in after three times that time, the link is lost
	// (LivenessLost). Values are rounded up to a quarter of a second. Zero: 5 s if
	// the link reports when bytes come in (transport.LinkTraits), as pipes and sockets
	// do; over HTTP, where a probe is a separate request (LinkTraits.RequestPerMessage), 5 s
	// while a call, a request that stays open or a subscription waits for the peer, and
	// otherwise one minute; on other links the peer is not probed. Negative: the peer is
	// never probed.
	//
	// An acceptor probes its peer only if Liveness is positive. If the peer can come back on
	// another connection (transport.Detacher), only its present one is closed, and the link
	// goes on. A peer without such a connection is not probed.
	//
	// If something else than the peer answers, such as a proxy whose back end is dead, the
	// Conn sends a probe immediately, whatever the silence, and a second one after this
	// time or 5 s, whichever is shorter. If something else answers both, the link is
	// lost.
	Liveness time.Duration

	// Wheel times the probes of many Conns with one timer, and hands memory from those
	// that become idle to those that become busy. Nil: the Conn has its own.
	Wheel *Wheel

	// Gate limits how many of the initiators that share it connect at the same time.
	// Nil: no limit.
	Gate *Gate

	// StopGrace is how long Stop waits for the link to close and for handlers to
	// return. Default: 100 ms.
	StopGrace time.Duration

	// DrainGrace is how long Close waits for running work if its context has no
	// deadline, and how long it then waits for the link to close. It is also how long
	// an acceptor keeps serving after the peer has closed its sending side. Default:
	// 5 s.
	DrainGrace time.Duration

	// Credit is how many frames a stream may deliver before the first of them is
	// processed. Default: 1.
	Credit int

	// SendSlots is how many calls and notifications may be on their way to the
	// link. Further callers wait. Default: 1024.
	SendSlots int

	// MaxServing is how many of the peer's requests are served at the same time, not
	// counting those that stay open. Default: 128.
	MaxServing int

	// CancelGrace is how long a handler may keep running after the peer has cancelled
	// or abandoned its request. After that the handler is stuck: the Conn reports it
	// to Hooks.Stuck, the first one also to the log, and no longer counts it for
	// MaxServing and MaxStreaming. Its request still counts for MaxHeld. If more than
	// eight times MaxServing handlers are stuck, the others count in full. When the
	// Conn ends, handlers have only StopGrace. Default: 10 s.
	CancelGrace time.Duration

	// MaxStreaming is how many of the peer's requests that stay open (Streaming) are
	// served at the same time. The Conn refuses more. Default: 1024.
	MaxStreaming int

	// MaxWaiting is how many of the peer's requests may wait while MaxServing are
	// being served. The Conn refuses more. Default: 16,384; a peer with large
	// requests reaches MaxHeld first.
	MaxWaiting int

	// Patience limits how long a request of the peer may wait for its handler, from the
	// arrival of the whole request. After that the Conn refuses it with
	// jsonrpc.CodeOverloaded, so the peer knows that it was not executed. Default: 10 s.
	// Negative: no limit.
	Patience time.Duration

	// MaxNotifications is how many notifications may wait for the handler. If there
	// are more, the Conn drops some (ADR-0004, ADR-0006). Default: 1024.
	MaxNotifications int

	// MaxHeld bounds the bytes of the peer's requests being served or waiting,
	// and separately the bytes of its notifications that wait. A message counts with what
	// its values take when they are decoded (jsonrpc.Message.Memory). One message of any
	// size is always accepted. Default: 64 MiB.
	//
	// It applies to each Conn, after the link has delivered a message.
	// streamable.HandlerOptions.MaxHeld applies to all clients together.
	MaxHeld int

	// MaxMalformed is how many malformed frames in a row end the link. Such frames
	// may be lines that a child prints on its standard output. Independently of this
	// number, 16 MiB of malformed frames in a row end the link. Default: 10,000.
	MaxMalformed int

	setsInit bool // the program has set InitTimeout, so it holds for processes too

	shared *Tuning // the result of Shared, if the program called it
}

// Shared returns options that many Conns can share, which saves about 300 bytes for each
// Conn. Set Name and Final in a copy for each Conn. Changes of other fields after Shared have
// no effect. If Wheel is nil, all Conns with these options share one Wheel.
func (t Tuning) Shared() Tuning {
	t.shared = t.common()
	return t
}

// ownOptions are the options that each Conn has for itself.
type ownOptions struct {
	name      string
	owner     any
	dialect   Dialect
	handler   Handler
	handshake func(context.Context, *Incarnation) error
	final     func(Reason) bool
}

// split returns the options that Conns may share and those that they may not, with
// every default filled in.
func (o Options) split() (common *Tuning, own ownOptions) {
	own = ownOptions{o.Name, o.Owner, o.Dialect, o.Handler, o.Handshake, o.Final}
	if own.dialect == nil {
		own.dialect = plainDialect{}
	}
	if own.handler == nil {
		own.handler = refusingHandler{}
	}
	if own.final == nil {
		own.final = func(Reason) bool { return false }
	}
	return o.common(), own
}

// common returns the options that Conns may share.
func (t Tuning) common() *Tuning {
	if t.shared != nil {
		return t.shared
	}
	all := t.withDefaults()
	all.Name, all.Final = "", nil
	return &all
}

func (t Tuning) withDefaults() Tuning {
	t.RequestTimeout = positive(t.RequestTimeout, 30*time.Second)
	t.setsInit = t.InitTimeout > 0
	t.InitTimeout = positive(t.InitTimeout, 10*time.Second)
	t.BackoffMin = positive(t.BackoffMin, time.Second)
	t.BackoffMax = max(positive(t.BackoffMax, 30*time.Second), t.BackoffMin)
	t.BackoffJitter = positive(t.BackoffJitter, 0.2)
	t.ProvenAfter = positive(t.ProvenAfter, 30*time.Second)
	t.TombstoneSweep = positive(t.TombstoneSweep, time.Minute)
	t.StopGrace = positive(t.StopGrace, 100*time.Millisecond)
	t.DrainGrace = positive(t.DrainGrace, 5*time.Second)
	t.Credit = positive(t.Credit, 1)
	t.SendSlots = positive(t.SendSlots, 1024)
	t.MaxServing = positive(t.MaxServing, 128)
	t.CancelGrace = positive(t.CancelGrace, 10*time.Second)
	t.MaxStreaming = positive(t.MaxStreaming, 1024)
	t.MaxWaiting = positive(t.MaxWaiting, 16_384)
	t.Patience = cmp.Or(t.Patience, 10*time.Second)
	t.MaxNotifications = positive(t.MaxNotifications, 1024)
	t.MaxHeld = positive(t.MaxHeld, 64<<20)
	t.MaxMalformed = positive(t.MaxMalformed, 10_000)
	if t.Wheel == nil {
		t.Wheel = new(Wheel)
	}
	return t
}

// positive returns the value, or the standard one if the value is not above zero.
func positive[N int | float64 | time.Duration](value, standard N) N {
	if value > 0 {
		return value
	}
	return standard
}
