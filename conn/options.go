package conn

import (
	"context"
	"time"

	"github.com/bowline-mcp/bowline/telemetry"
)

// Options configure a Conn. The zero value of each field means the default
// stated beside it, and so does a number below zero, but for Liveness.
type Options struct {
	// Name tells connections apart in telemetry and errors.
	Name string

	// Owner is what the Conn belongs to, for those who find it by its name: the
	// session of a client, for instance. The Conn only keeps it.
	Owner any

	// Dialect says what messages mean. Nil: plain JSON-RPC.
	Dialect Dialect

	// Handler serves the peer's requests and notifications. Nil: requests are
	// answered with "method not found", notifications dropped.
	Handler Handler

	// Handshake makes an initiator's new link ready. It runs in its own
	// goroutine once per incarnation; its context ends with the incarnation.
	// Nil: a link is ready at once.
	Handshake func(ctx context.Context, incarnation *Incarnation) error

	// Final reports whether an initiator shall close for this reason instead
	// of trying again. The loop calls it, once for each incarnation that was
	// lost or failed to begin: it must be quick, and not call the Conn. One that
	// panics has called nothing final. Nil: nothing is final.
	Final func(Reason) bool

	// Hooks are told what happens.
	Hooks telemetry.Hooks

	RequestTimeout time.Duration // per attempt of a call; 30 s
	InitTimeout    time.Duration // starting and initializing together, but for the wait at a Gate; 10 s
	BackoffMin     time.Duration // first delay; 1 s
	BackoffMax     time.Duration // longest delay; 30 s
	BackoffJitter  float64       // spread either way; 0.2
	ProvenAfter    time.Duration // ready for this long resets the backoff; 30 s
	TombstoneSweep time.Duration // 60 s

	// Liveness is how long the peer of an initiator may be silent. After that it
	// is asked for a sign of life, and again after as long; when it has given
	// none by a third time, the link is lost (LivenessLost). Anything that comes
	// in is one. Zero: 5 s, where the link says how much it has heard, as over
	// pipes and sockets (transport.Hearing). Negative: for ever. Rounded up to
	// a quarter of a second.
	Liveness time.Duration

	// Wheel keeps the time of that for many Conns. Nil: the Conn has its own.
	Wheel *Wheel

	// Gate bounds how many of the initiators that share it begin at once. Nil:
	// none waits for another.
	Gate *Gate

	StopGrace  time.Duration // what Stop leaves to the link and to handlers; 100 ms
	DrainGrace time.Duration // what Close leaves to the link, and to work when its context has no deadline; what the end of a server's input leaves to its handlers; 5 s

	Credit           int // frames a stream may deliver ahead; 1
	SendSlots        int // calls and notifications on their way to the link; 256
	MaxServing       int // the peer's requests served at once; 128
	MaxStreaming     int // those of them that stay open, counted apart; 1024
	MaxWaiting       int // the peer's requests that wait for that; 1024
	MaxNotifications int // notifications that wait for their handler; 1024 (ADR-0004, ADR-0006)
	MaxHeld          int // bytes of frames of requests served or waiting, and again of notifications waiting; one always fits; 64 MiB
	MaxMalformed     int // malformed frames in a row that end the link; 100
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
	o.SendSlots = positive(o.SendSlots, 256)
	o.MaxServing = positive(o.MaxServing, 128)
	o.MaxStreaming = positive(o.MaxStreaming, 1024)
	o.MaxWaiting = positive(o.MaxWaiting, 1024)
	o.MaxNotifications = positive(o.MaxNotifications, 1024)
	o.MaxHeld = positive(o.MaxHeld, 64<<20)
	o.MaxMalformed = positive(o.MaxMalformed, 100)
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

// positive is the value, or the standard one where that is not above zero.
func positive[N int | float64 | time.Duration](value, standard N) N {
	if value > 0 {
		return value
	}
	return standard
}
