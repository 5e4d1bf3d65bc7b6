//bowline:pure

package conn

import (
	"cmp"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// An instant is a time on the Conn's own monotonic clock: the duration since
// the Conn was made. Zero means never where a deadline is meant.
type instant = time.Duration

// An event is one thing that happened, as the core sees it. It is flat, so
// that events live in reused slices; each kind says which fields it uses.
type event struct {
	kind         eventKind
	handshake    bool  // callMade, notificationMade: made by the handshake strategy
	serving      bool  // callMade, notificationMade: made by a handler of this Conn
	silent       bool  // callMade: no cancellation is sent for it
	tried        bool  // busy: this very frame was offered to the link
	moved        bool  // busy, tick: the link has taken something since it was last busy
	heard        bool  // streamLost: the stream has brought something since it was last resumed
	hearing      bool  // linkOpened: the link says when bytes come in
	costly       bool  // linkOpened: a probe on it is a request of its own
	unsent       bool  // failed: the peer certainly has not got it
	last         bool  // nothing more comes on the stream
	resumable    bool  // streamLost
	streaming    bool  // callMade: the request stays open until either side ends it
	restarts     bool  // callMade: progress restarts its timeout
	works        bool  // the link lends its goroutine to the loop; opaque to the core
	frames       uint8 // credit used: 1, or 0 for all messages of a batch but the last
	size         int32 // malformed: bytes of the frame, as far as they count; 0 for all messages of a batch but the last
	epoch        uint64
	id           int64            // ours: callLeft, replied, progressed, streamOpened; malformed: what it was meant to answer, or 0; tick: one for a probe, if it may be due
	stream       transport.Stream // where it came in
	incoming     *Incoming        // requested, notified, cancelled, handled; opaque but for its key
	payload      []byte           // replied: the result; progressed: the params; handled: the frame of the answer
	method       string           // progressed: of the notification
	fault        *jsonrpc.Error   // replied: the peer's error
	out          *outboundFrame   // callMade, notificationMade, probed, malformed, busy, failed; callLeft: whose notification; copied by the core
	err          error            // callLeft, malformed, failed, stopAsked, linkGone, interrupted
	heardAt      instant          // tick: when bytes have come in last, 0 if none since the last frame or tick
	timeout      time.Duration    // callMade: 0 for none; drainAsked: how long it may take; openFailed, handshakeFailed, linkLost, streamLost: the delay that the peer has asked for
	limit        time.Duration    // callMade: what its timeout may be extended to
	random       float64          // in [0,1), drawn by the shell: openFailed, handshakeFailed, linkLost, streamLost, busy, writable, tick
	task         *task            // whose last event this is; opaque to the core
	batch        *batch           // what it came in, if that is not a frame of its own
	*particulars                  // nil if it has none
}

// particulars holds fields that few kinds use. They are behind a pointer because each call
// copies about twelve events and effects.
type particulars struct {
	from, to State           // transitioned
	reason   Reason          // openFailed, handshakeFailed, linkLost, streamLost, transitioned; askPlace, openLink: what the state is for now
	tags     []transport.Tag // linkLost: what was certainly not sent
	link     transport.Link  // started, linkOpened, bind; closeLink: a link that was never attached
}

// unboundLink returns the link that an event or effect brings, or nil.
func (p *particulars) unboundLink() transport.Link {
	if p == nil {
		return nil
	}
	return p.link
}

// failure returns the error of the task whose last event this is, or nil.
func (ev *event) failure() error {
	if ev.particulars == nil {
		return ev.err
	}
	return cmp.Or(ev.reason.Err, ev.err)
}

// notice returns the caller of a notification that was not sent, if the event is about one.
// Otherwise it returns nil.
func (ev *event) notice() *call {
	if ev.out == nil || !ev.out.notification {
		return nil
	}
	return ev.out.call
}

type eventKind uint8

const (
	_ eventKind = iota

	// From the embedding program.
	started          // Run began; an acceptor brings its link
	callMade         // a request, encoded
	notificationMade // a notification, encoded
	callLeft         // its caller gave up
	woken            // the peer is back
	drainAsked
	stopAsked

	// From the queue of notifications.
	crowded // many wait
	eased   // few wait again

	// From the incarnation.
	admitted // the gate has a place for it
	linkOpened
	openFailed
	handshakeDone
	handshakeFailed
	linkEnded // the peer will send nothing more
	linkLost
	linkGone // Close of the link has returned

	// From the link's reading goroutine.
	replied
	requested
	notified
	progressed
	cancelled // the peer cancels a request of its own
	probed    // a liveness probe; frame is its answer
	malformed // a frame that is no message; frame is the answer due, if any
	streamOpened
	streamLost

	// From sending.
	busy     // the link had no room for this frame
	failed   // this message did not go out; the link lives on
	writable // there is room again

	handled // a handler has returned
	tick    // the deadline has passed

	// The shell's own.
	overdue     // tasks were waited for long enough
	interrupted // the loop ends without closing the Conn for good
	parkDue     // the wheel's tick: an idle loop may park; id is the slot
)

// An effect is one thing the shell shall do, without blocking, in order.
type effect struct {
	kind         effectKind
	cause        Cause    // settle; late: how its request ended, 0 when that is forgotten
	delivery     Delivery // settle
	stall        Stall    // stallBegun, stallEnded
	frames       int      // grant; missed: how many in a row
	epoch        uint64
	id           int64            // settle, late, unknown
	stream       transport.Stream // grant, endStream, resumeStream
	call         *call            // settle, progress
	incoming     *Incoming        // serve, cancelServing, stuck, notify
	out          outboundFrame    // transmit
	payload      []byte           // settle: the result; progress: the params
	method       string           // progress: of the notification
	err          error            // settle (a peer error is its *jsonrpc.Error), cancelServing, endTasks, violation
	at           instant          // transitioned: the next attempt, 0 for none; stallEnded: how long it was; closeLink: how long it may take
	*particulars                  // nil if it has none
}

type effectKind uint8

const (
	_             effectKind = iota
	askPlace                 // wait at the gate
	leaveGate                // give back the place, or the wait for one
	openLink                 // ask the transport for a link
	bind                     // attach the link and grant its first credit
	handshake                // run the handshake strategy
	transmit                 // offer the frame to the link
	offerMore                // report the link writable if it has taken what was offered
	grant                    // give a stream credit
	endStream                // end a stream from this side
	resumeStream             // take up a stream that was cut
	stallBegun               // credit is withheld
	stallEnded               // and given back
	settle                   // tell a caller its one outcome
	progress                 // hand progress to a caller
	serve                    // run the handler of a request
	cancelServing            // cancel the context of a request being served
	notify                   // hand a notification to the handler
	endTasks                 // cancel everything the incarnation runs
	closeLink                // close the link
	transitioned             // the state has changed
	violation                // the peer broke a rule; nothing is lost
	missed                   // nothing was heard after a probe
	stuck                    // a handler goes on although its request was cancelled long ago
	late                     // a reply to a request that has ended
	unknown                  // a reply to a request never made
	terminate                // the core has no more work
)
