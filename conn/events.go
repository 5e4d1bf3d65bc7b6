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

// An event is one thing that happened, as the core sees it. All kinds share one struct, so that
// slices of events can be reused; the comment of a field names the kinds that use it. The core
// may read an event only in its step: the shell uses it again. What the core keeps, it copies;
// what it does not use is nil or opaque to it, so that the core can be tested without a shell.
type event struct {
	kind eventKind
	// callMade, notificationMade: the handshake makes it
	handshake bool
	// callMade, notificationMade: a handler of this Conn makes it; streamLost: what is being
	// served goes on
	serving bool
	// callMade: no cancellation is sent for it
	silent bool
	// busy: the link refused this frame; false: it was behind the refused frame
	tried bool
	// busy, tick: the link has accepted a frame since it was last busy
	moved bool
	// linkOpened: the link reports when bytes come in
	reportsBytes bool
	// linkOpened: a probe on the link is a separate request
	requestPerProbe bool
	// started: the link is a transport.Detacher
	detaches bool
	// tick: the link is a transport.Detacher, and the peer does not listen, so that no probe could reach it
	away bool
	// failed: the peer certainly did not get the message
	unsent bool
	// nothing more comes on the stream
	last bool
	// streamLost: the stream can be resumed
	resumable bool
	// callMade: the request stays open until either side ends it
	streaming bool
	// callMade: progress restarts its timeout
	restarts bool
	// the link lends its goroutine to the loop; opaque to the core
	works bool
	// credit used: 1, or 0 for all messages of a batch but the last
	frames uint8
	// malformed: bytes of the frame, as far as they count; 0 for all messages of a batch but the
	// last
	size  int32
	epoch uint64
	// callLeft, replied, progressed, streamOpened: our request; malformed: the request that it was
	// meant to answer, or 0; tick, doubted, handshakeDone: an id for a probe, if one may be due
	id int64
	// the stream that the frame came in on
	stream transport.Stream
	// requested, notified, cancelled, handled; the core uses its key, its size and what the dialect
	// has said, and sets belongs
	incoming *Incoming
	// replied: the result; progressed: the params; handled: the frame of the answer
	payload []byte
	// progressed: the method of the notification
	method string
	// replied: the peer's error
	fault *jsonrpc.Error
	// callMade, notificationMade, probed, malformed, busy, failed, doubted; callLeft: the caller's
	// notification; the core copies it
	out *outboundFrame
	// callLeft, malformed, failed, doubted, stopAsked, linkGone, interrupted
	err error
	// tick: when bytes last came in; 0 if none came in since the last frame or tick
	readAt instant
	// callMade: its timeout, 0 for none; requested: how long the link has held it; drainAsked: how
	// long the drain may take; openFailed, handshakeFailed, linkLost, streamLost: the delay that
	// the peer asked for
	timeout time.Duration
	// callMade: the maximum of an extended timeout
	limit time.Duration
	// openFailed, handshakeFailed, linkLost, streamLost, busy, writable, doubted, tick: a random
	// number in [0,1), drawn by the shell
	random float64
	// the task that ends with this event; the core does not use it
	task *task
	// the batch that the message came in; nil if it was a frame by itself
	batch *batch
	// nil if the kind needs none of these fields
	*eventExtra
}

// eventExtra has the fields that few kinds of events and effects use. They are behind a pointer because each call
// copies about twelve events and effects.
type eventExtra struct {
	// transitioned
	from, to State
	// openFailed, handshakeFailed, linkLost, streamLost, transitioned; askPlace, openLink: the
	// reason for the state from now on
	reason Reason
	// linkLost: the frames that were certainly not sent; malformed: the requests that it may have
	// been meant to answer, if it names several
	tags []transport.Tag
	// started, linkOpened, bind; closeLink: a link that was never attached
	link transport.Link
}

// unboundLink returns the link that an event or effect brings, or nil. Whoever drops an event or
// effect must close it: nobody else knows of it.
func (p *eventExtra) unboundLink() transport.Link {
	if p == nil {
		return nil
	}
	return p.link
}

// failure returns the error of the task whose last event this is, or nil.
func (ev *event) failure() error {
	if ev.eventExtra == nil {
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

// The order matters: of the events that step does not name, those before replied go to onLifecycle,
// and the others to onTraffic.
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

// An effect is one action for the shell. The shell performs effects in order and does not block.
// What one effect needs from the effects before it holds when the shell comes to it: for
// instance, the link is bound before it is granted credit. A shell that left one out, or changed
// the order, would break a guarantee without the core being able to notice.
type effect struct {
	kind effectKind
	// settle; late: how the request ended, 0 if that is forgotten
	cause Cause
	// settle
	delivery Delivery
	// stallBegun, stallEnded
	stall Stall
	// grant; missed: how many probes in a row; violation: the size of the frame
	frames int
	epoch  uint64
	// settle, late, unknown
	id int64
	// grant, endStream, resumeStream
	stream transport.Stream
	// settle, progress
	call *call
	// serve, unserved, cancelServing, stuck, notify
	incoming *Incoming
	// transmit
	out outboundFrame
	// settle: the result; progress: the params
	payload []byte
	// progress: the method of the notification
	method string
	// settle (a peer error is its *jsonrpc.Error), cancelServing, endTasks, violation; unserved:
	// why
	err error
	// serve: when the handler must have started, 0 for never; transitioned: the time of the next
	// attempt, 0 for none; stallEnded: how long the stall lasted; closeLink: how long the close
	// may take
	at instant
	// nil if the kind needs none of these fields
	*eventExtra
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
	detach                   // close the connection on which the peer listens
	stuck                    // a handler still runs although its request was cancelled long ago
	late                     // a reply to a request that has ended
	unknown                  // a reply to a request that was never made
	terminate                // the core has no more work
)
