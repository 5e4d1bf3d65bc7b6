//bowline:pure

package actor

// A State says who has a loop, and whether its own goroutine waits for it. It is the only
// place that says so.
type State uint8

// The states. In the first three nobody has the loop, in the others one goroutine has it.
const (
	Closed  State = iota // no event is accepted, because the loop has not begun, or has ended
	Parked               // the loop has no goroutine
	Resting              // the loop's own goroutine waits
	Lent                 // a lent goroutine has the loop, and the loop has no other
	Beside               // a lent goroutine has the loop, while the loop's own waits
	Own                  // the loop's own goroutine has the loop
	Last                 // so it has, for the last time: no other goroutine gets the loop
	Waiting              // so it has, and waits for the last events
	states
)

// A Change is what a goroutine does with a loop.
type Change uint8

// The changes. A goroutine that brings an event makes one of the first four; only one that has
// the loop makes another, except that anybody opens a closed one.
const (
	Post Change = iota // brings an event and goes on, perhaps because its caller holds a lock
	Lend               // brings an event and lends itself
	Tick               // the same for a timer, which would rather have the own goroutine wake, so that it can end
	Done               // brings the result of a job, and could become the loop's own
	open
	rest
	wait
	resume
	adopt
	last
	end
	changes
)

// An outcome says what follows from a change for the goroutine that made it.
type outcome uint8

const (
	impossible outcome = iota // a mistake of the program
	refused                   // the event is not accepted
	leaves                    // the goroutine that made the change does not have the loop, or has it no longer
	has                       // the goroutine that made the change has the loop now
	starts                    // it must start the loop's own goroutine, which has the loop
	wakes                     // it must wake the loop's own goroutine, which has the loop
)

// A row says what a change leads to.
type row struct {
	to   State
	then outcome
}

// table says which changes are possible, and what they lead to. An event is never left where nobody
// has the loop, and the loop never passes to two goroutines: a test goes through every order.
var table = [states][changes]row{
	Closed: {
		Post: {Closed, refused}, Lend: {Closed, refused}, Tick: {Closed, refused}, Done: {Closed, refused},
		open: {Lent, has},
		last: {Last, has}, // after a panic behind the end
	},
	// A goroutine that has done a job stays: to start another one would grow another stack.
	Parked: {
		Post: {Own, starts}, Lend: {Lent, has}, Tick: {Lent, has}, Done: {Own, has},
	},
	// A tick wakes the loop's own goroutine, since only that can end itself.
	Resting: {
		Post: {Own, wakes}, Lend: {Beside, has}, Tick: {Own, wakes}, Done: {Beside, has},
	},
	Lent: {
		Post: {Lent, leaves}, Lend: {Lent, leaves}, Tick: {Lent, leaves}, Done: {Lent, leaves},
		rest: {Parked, leaves}, resume: {Own, starts}, adopt: {Own, has},
	},
	// Here a lent goroutine must not become the loop's own: the one that waits would wait forever.
	Beside: {
		Post: {Beside, leaves}, Lend: {Beside, leaves}, Tick: {Beside, leaves}, Done: {Beside, leaves},
		rest: {Resting, leaves}, resume: {Own, wakes},
	},
	Own: {
		Post: {Own, leaves}, Lend: {Own, leaves}, Tick: {Own, leaves}, Done: {Own, leaves},
		rest: {Parked, leaves}, wait: {Resting, leaves}, last: {Last, has}, end: {Closed, leaves},
	},
	// The loop is never given up from here on, so the goroutine that ends it has it until it is closed.
	Last: {
		Post: {Last, leaves}, Lend: {Last, leaves}, Tick: {Last, leaves}, Done: {Last, leaves},
		wait: {Waiting, leaves}, last: {Last, has} /* after a panic in what Last began */, end: {Closed, leaves},
	},
	Waiting: {
		Post: {Last, wakes}, Lend: {Last, wakes}, Tick: {Last, wakes}, Done: {Last, wakes},
	},
}

// A Held is the token of the goroutine that has a loop. Functions that use the loop take it, so
// that nobody calls them who does not have it. The goroutine loses it with Rest, Resume or
// End, and must not touch the loop after that; Adopt returns another one for it. The zero Held is the token of nobody.
type Held struct{ in State }

// OK reports whether the goroutine has the loop.
func (h Held) OK() bool { return h.in != Closed }

// Own reports whether the goroutine is the loop's own, and may go on after this turn.
func (h Held) Own() bool { return h.in == Own }

// Beside reports whether the loop's own goroutine waits meanwhile. That cannot change while
// another goroutine has the loop.
func (h Held) Beside() bool { return h.in == Beside }

var stateNames = [states]string{"closed", "parked", "resting", "lent", "beside", "own", "last", "waiting"}

func (s State) String() string { return stateNames[s] }

var changeNames = [changes]string{"post", "lend", "tick", "done", "open", "rest", "wait", "resume", "adopt", "last", "end"}

func (c Change) String() string { return changeNames[c] }
