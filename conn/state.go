//bowline:pure

package conn

import "encoding/json"

// A State is a stage in the life of a Conn (ADR-0001).
type State string

const (
	Starting     State = "starting"     // opening a link, or waiting for a place at the Gate
	Initializing State = "initializing" // the link is open, and the handshake runs
	Ready        State = "ready"        // calls are accepted
	Backoff      State = "backoff"      // waiting before the next attempt to connect
	Closing      State = "closing"      // stopped or closed, for good
)

// A ReasonKind says why a Conn is in its state, as a value to switch on.
type ReasonKind string

const (
	Started           ReasonKind = "started"            // an acceptor has begun to run
	Queued            ReasonKind = "queued"             // waiting for a place at Options.Gate
	Admitted          ReasonKind = "admitted"           // the Gate had a place; a link is being opened
	LinkOpened        ReasonKind = "link opened"        // the transport has opened a link
	Handshaken        ReasonKind = "handshaken"         // the handshake succeeded
	RetryDue          ReasonKind = "retry due"          // the delay of the backoff has passed
	Woken             ReasonKind = "woken"              // Wake ended the backoff
	OpenFailed        ReasonKind = "open failed"        // the transport could not open a link
	ExecutableMissing ReasonKind = "executable missing" // the peer's command cannot be found or executed
	AuthRequired      ReasonKind = "auth required"      // the peer denied access (*transport.StatusError), or the transport needs a login (transport.ErrAuthRequired)
	HandshakeFailed   ReasonKind = "handshake failed"   // the handshake returned an error
	Incompatible      ReasonKind = "incompatible"       // peer and program share no protocol (ErrIncompatible)
	InitTimedOut      ReasonKind = "init timed out"     // starting and initializing took too long; see Options.InitTimeout
	LinkBroken        ReasonKind = "link broken"        // the link ended
	SessionExpired    ReasonKind = "session expired"    // the peer does not know the link's session any more (transport.ErrSessionExpired)
	Exited            ReasonKind = "exited"             // the peer's process ended (*transport.ExitError)
	StreamLost        ReasonKind = "stream lost"        // the stream that would carry the answer ended; the link did not
	CrashLooping      ReasonKind = "crash-looping"      // the third or a later loss in a row, none after Options.ProvenAfter
	Malformed         ReasonKind = "malformed"          // Options.MaxMalformed malformed frames in a row, or 16 MiB of them
	Oversized         ReasonKind = "oversized"          // a frame was larger than allowed (*transport.OversizedError)
	LivenessLost      ReasonKind = "liveness lost"      // the peer was silent and did not react to probes, or something else answered them
	PeerNotReading    ReasonKind = "peer not reading"   // nothing could be written for 10 s
	PeerEnded         ReasonKind = "peer ended"         // the peer ended the connection properly
	Interrupted       ReasonKind = "interrupted"        // Run's context ended with ErrInterrupted
	Stopped           ReasonKind = "stopped"            // Stop was called, or Run's context ended
	Drained           ReasonKind = "drained"            // Close was called, and has finished
)

// A Reason says why a Conn is in its state. It is an error, so it can be wrapped,
// and matched with errors.As. Its text names the cause once, in words for people, and
// need not contain the Kind, which is for programs and metrics.
type Reason struct {
	Kind ReasonKind
	Err  error // what caused it; may be nil
}

func (r Reason) Unwrap() error { return r.Err }

// MarshalJSON writes the kind, and the text of what caused it.
func (r Reason) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Kind  ReasonKind `json:"kind"`
		Error string     `json:"error,omitempty"`
	}{r.Kind, textOf(r.Err)})
}

// textOf is the text of an error, or "" if there is none.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// isTemporary reports whether waiting a little may help. After any other reason
// the Conn tries again at the longest delay only.
func (r Reason) isTemporary() bool {
	return r.Kind != ExecutableMissing && r.Kind != Incompatible && r.Kind != AuthRequired
}
