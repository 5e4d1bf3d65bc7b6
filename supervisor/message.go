//bowline:pure

package supervisor

import "time"

// An instant is a time on the supervisor's own monotonic clock: the duration
// since it was made. Zero means never where a deadline is meant.
type instant = time.Duration

// A message is one thing that happened, as the core sees it. Each kind says
// which fields it uses.
type message struct {
	kind   messageKind
	child  uint64 // whom it is about
	traits traits // added

	failed  bool    // ended: with an error, or a panic
	final   bool    // ended: no Run goes on from there
	resumes bool    // ended: another Run would go on from there, so it is closed if none does
	keeps   bool    // stopAsked: those that are stopped start again with the supervisor
	due     instant // drainAsked
}

type messageKind uint8

const (
	_ messageKind = iota

	// From the embedding program, or from the parent.
	begun        // the supervisor, which has stopped, starts again, and the children it has kept
	added        // a child, while the supervisor runs
	stopAsked    // of the supervisor
	drainAsked   // of the supervisor
	haltAsked    // of one child
	restartAsked // of one child

	// From a child's goroutines.
	initialized // its Init has returned
	drained     // its Drain has returned, and its Run has not
	ended       // nothing of it runs any more

	tick // the timer fired
)

// An effect is one thing the shell shall do, without blocking, in order.
type effect struct {
	kind  effectKind
	child uint64  // whom it is about
	again bool    // halt: it is to run again
	due   instant // drain
}

type effectKind uint8

const (
	_        effectKind = iota
	launch              // run the child
	drain               // run the Drain of the child
	halt                // end the child's context
	dismiss             // close what no Run goes on with
	stuck               // the child ignores its stop
	retire              // the child is over
	giveUp              // this child was restarted once too often
	ready               // the children that were kept have been started
	conclude            // the supervisor has stopped
)
