//bowline:pure

package conn

import (
	"cmp"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// An instant is a time on the Conn's own monotonic clock: the duration since
// the Conn was created. As a deadline, zero means never.
type instant = time.Duration

// An event is one thing that happened, as the core sees it. All kinds share one
// struct, so that slices of events can be reused; the comment of a field names
// the kinds that use it.
type event struct {
	kind            eventKind
	handshake       bool  // callMade, notificationMade: the handshake makes it
	serving         bool  // callMade, notificationMade: a handler of this Conn makes it; streamLost: what is being served goes on
	silent          bool  // callMade: no cancellation is sent for it
	tried           bool  // busy: the link refused this frame; false: it was behind the refused frame
	moved           bool  // busy, tick: the link has accepted a frame since it was last busy
	reportsBytes    bool  // linkOpened: the link reports when bytes come in
	requestPerProbe bool  // linkOpened: a probe on the link is a separate request
	unsent          bool  // failed: the peer certainly did not get the message
	last            bool  // nothing more comes on the stream
	resumable       bool  // streamLost: the stream can be resumed
	streaming       bool  // callMade: the request stays open until either side ends it
	restarts        bool  // callMade: progress restarts its timeout
	works           bool  // the link lends its goroutine to the loop; opaque to the core
	frames          uint8 // credit used: 1, or 0 for all messages of a batch but the last
	size            int32 // malformed: bytes of the frame, as far as they count; 0 for all messages of a batch but the last
	epoch           uint64
	id              int64            // callLeft, replied, progressed, streamOpened: our request; malformed: the request that it was meant to answer, or 0; tick, doubted, handshakeDone: an id for a probe, if one may be due
	stream          transport.Stream // the stream that the frame came in on
	incoming        *Incoming        // requested, notified, cancelled, handled; the core reads only its key
	payload         []byte           // replied: the result; progressed: the params; handled: the frame of the answer
	method          string           // progressed: the method of the notification
	fault           *jsonrpc.Error   // replied: the peer's error
	out             *outboundFrame   // callMade, notificationMade, probed, malformed, busy, failed, doubted; callLeft: the caller's notification; the core copies it
	err             error            // callLeft, malformed, failed, doubted, stopAsked, linkGone, interrupted
	heardAt         instant          // tick: when bytes last came in; 0 if none came in since the last frame or tick
	timeout         time.Duration    // callMade: its timeout, 0 for none; requested: how long the link has held it; drainAsked: how long the drain may take; openFailed, handshakeFailed, linkLost, streamLost: the delay that the peer asked for
	limit           time.Duration    // callMade: the maximum of an extended timeout
	random          float64          // openFailed, handshakeFailed, linkLost, streamLost, busy, writable, doubted, tick: a random number in [0,1), drawn by the shell
	task            *task            // the task that ends with this event; the core does not use it
	batch           *batch           // the batch that the message came in; nil if it was a frame by itself
	*particulars                     // nil if the kind needs none of these fields
}

// particulars holds fields that few kinds use. They are behind a pointer because each call
// copies about twelve events and effects.
type particulars struct {
	from, to State           // transitioned
	reason   Reason          // openFailed, handshakeFailed, linkLost, streamLost, transitioned; askPlace, openLink: the reason for the state from now on
	tags     []transport.Tag // linkLost: the frames that were certainly not sent; malformed: the requests that it may have been meant to answer, if it names several
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

	// From the program.
	started          // Run began; an acceptor brings its link
	callMade         // a request, encoded
	notificationMade // a notification, encoded
	callLeft         // the caller gave up
	woken            // Wake was called
	drainAsked
	stopAsked

	// From the queue of notifications.
	crowded // many notifications wait
	eased   // only few wait again
	quiet   // none waits, and none is with the handler

	// From the incarnation.
	admitted // the gate has a place for this Conn
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
	cancelled // the peer cancels one of its requests
	probed    // the peer probes this side; out is the answer
	malformed // a frame that is not a valid message; out is the answer that it needs, if any
	streamOpened
	streamLost

	// From sending.
	busy     // the link did not accept this frame
	failed   // this message was not sent, but the link continues
	doubted  // something else than the peer answered this message, or the peer may have forgotten the session
	writable // the link has room again

	handled // a handler has returned
	tick    // the deadline has passed

	// From the shell to itself.
	overdue     // the loop has waited for its tasks for long enough
	interrupted // the loop ends without closing the Conn for good
	parkDue     // the wheel's tick for parking an idle loop; id is the slot
)

// An effect is one action for the shell. The shell performs effects in order and does not
// block.
type effect struct {
	kind         effectKind
	cause        Cause    // settle; late: how the request ended, 0 if that is forgotten
	delivery     Delivery // settle
	stall        Stall    // stallBegun, stallEnded
	frames       int      // grant; missed: how many probes in a row; violation: the size of the frame
	epoch        uint64
	id           int64            // settle, late, unknown
	stream       transport.Stream // grant, endStream, resumeStream
	call         *call            // settle, progress
	incoming     *Incoming        // serve, unserved, cancelServing, stuck, notify
	out          outboundFrame    // transmit
	payload      []byte           // settle: the result; progress: the params
	method       string           // progress: the method of the notification
	err          error            // settle (a peer error is its *jsonrpc.Error), cancelServing, endTasks, violation; unserved: why
	at           instant          // serve: when the handler must have started, 0 for never; transitioned: the time of the next attempt, 0 for none; stallEnded: how long the stall lasted; closeLink: how long the close may take
	*particulars                  // nil if the kind needs none of these fields
}

type effectKind uint8

const (
	_             effectKind = iota
	askPlace                 // wait for a place at the gate
	leaveGate                // give back the place, or stop waiting for one
	openLink                 // ask the transport for a link
	bind                     // attach the link and grant its first credit
	handshake                // run the handshake
	transmit                 // offer the frame to the link
	offerMore                // report the link writable if it has taken what was offered
	grant                    // grant credit to a stream
	endStream                // end a stream from this side
	resumeStream             // resume a stream that was cut
	stallBegun               // the core begins to withhold credit
	stallEnded               // the core has granted the withheld credit
	settle                   // give a caller its outcome
	progress                 // pass progress to a caller
	serve                    // run the handler of a request
	unserved                 // a request has ended, and its handler was not called
	cancelServing            // cancel the context of a request being served
	notify                   // pass a notification to the handler
	awaitQuiet               // report when no notification waits and none is with the handler
	endTasks                 // cancel everything that runs for the incarnation
	closeLink                // close the link
	transitioned             // the state has changed
	violation                // the peer broke a rule; the connection continues
	missed                   // the peer was silent after a probe
	stuck                    // a handler still runs although its request was cancelled long ago
	late                     // a reply to a request that has ended
	unknown                  // a reply to a request that was never made
	terminate                // the core has no more work
)
