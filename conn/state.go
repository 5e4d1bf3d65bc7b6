//bowline:pure

package conn

import "fmt"

// A State is where a Conn is in its life (ADR-0001).
type State string

const (
	Starting     State = "starting"     // a link is being opened, or is to be once there is a place at the Gate
	Initializing State = "initializing" // a link is attached; the handshake runs
	Ready        State = "ready"        // calls are accepted
	Backoff      State = "backoff"      // waiting for the next attempt
	Closing      State = "closing"      // terminal
)

// A ReasonKind is why a Conn is in its state, as a value to switch on.
type ReasonKind string

const (
	Started           ReasonKind = "started"            // Run began
	Queued            ReasonKind = "queued"             // it waits for a place at Options.Gate
	Admitted          ReasonKind = "admitted"           // it has one, and a link is being opened
	LinkOpened        ReasonKind = "link opened"        // a live link was attached
	Handshaken        ReasonKind = "handshaken"         // the handshake strategy is satisfied
	RetryDue          ReasonKind = "retry due"          // the delay of the backoff has passed
	Woken             ReasonKind = "woken"              // somebody said that the peer is back
	OpenFailed        ReasonKind = "open failed"        // the transport could not open a link
	ExecutableMissing ReasonKind = "executable missing" // the peer's command cannot be found or run
	AuthRequired      ReasonKind = "auth required"      // the peer wants to know who asks, or refuses who does (*transport.StatusError)
	HandshakeFailed   ReasonKind = "handshake failed"   // the handshake strategy returned an error
	Incompatible      ReasonKind = "incompatible"       // peer and handshake share no protocol (ErrIncompatible)
	InitTimedOut      ReasonKind = "init timed out"     // starting and initializing took longer than InitTimeout
	LinkBroken        ReasonKind = "link broken"        // the link ended
	Exited            ReasonKind = "exited"             // the peer's process ended (*transport.ExitError)
	StreamLost        ReasonKind = "stream lost"        // the stream that would have carried the answer ended; the link lives on
	CrashLooping      ReasonKind = "crash-looping"      // three losses in a row before the Conn had proved itself
	Malformed         ReasonKind = "malformed"          // too many malformed frames in a row
	Oversized         ReasonKind = "oversized"          // a frame above the limit (*transport.OversizedError)
	LivenessLost      ReasonKind = "liveness lost"      // the peer was silent, and gave no sign of life when asked
	PeerNotReading    ReasonKind = "peer not reading"   // nothing could be written for too long
	PeerEnded         ReasonKind = "peer ended"         // the peer closed its side in good order
	Interrupted       ReasonKind = "interrupted"        // Run's context ended with ErrInterrupted
	Stopped           ReasonKind = "stopped"            // Stop, or the end of Run's context
	Drained           ReasonKind = "drained"            // Close, and nothing was left to do
)

// A Reason says why: a kind to switch on, and the error behind it where there
// is one. It is itself an error, so that it can be wrapped and matched.
type Reason struct {
	Kind ReasonKind
	Err  error // may be nil
}

func (r Reason) Error() string {
	if r.Kind == "" && r.Err == nil {
		return "not started"
	}
	if r.Err == nil {
		return string(r.Kind)
	}
	return fmt.Sprintf("%s: %v", r.Kind, r.Err)
}

func (r Reason) Unwrap() error { return r.Err }

// weather reports whether waiting a little may help. What is not weather is
// retried at the longest delay only.
func (r Reason) weather() bool {
	return r.Kind != ExecutableMissing && r.Kind != Incompatible && r.Kind != AuthRequired
}
