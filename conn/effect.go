//bowline:pure

package conn

import (
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// An effect is one thing the shell shall do, without blocking, in order.
type effect struct {
	kind     effectKind
	from, to State // transitioned
	epoch    uint64
	id       int64            // settle, late, unknown
	stream   transport.Stream // grant, endStream, resumeStream
	call     *call            // settle, progress
	incoming *Incoming        // serve, cancelServing, notify
	out      outboundFrame    // transmit
	payload  []byte           // settle: the result; progress: the params
	method   string           // progress: of the notification
	cause    Cause            // settle; late: how its request ended, 0 when that is forgotten
	delivery Delivery         // settle
	err      error            // settle (a peer error is its *jsonrpc.Error), cancelServing, endTasks, violation
	reason   Reason           // transitioned; askPlace, openLink: what the state is for now
	at       instant          // transitioned: the next attempt, 0 for none; stallEnded: how long it was
	frames   int              // grant; missed: how many in a row
	stall    Stall            // stallBegun, stallEnded
	grace    time.Duration    // closeLink
	link     transport.Link   // bind; closeLink: a link that was never attached
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
	late                     // a reply to a request that has ended
	unknown                  // a reply to a request never made
	terminate                // nothing is left to do
)
