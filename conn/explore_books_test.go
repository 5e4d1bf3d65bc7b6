package conn

// A scene is a core and everything around it: callers, a link for each
// incarnation, the peer, handlers and the clock. It is what the shell and the
// transports would be, and keeps the books that the invariants are checked by.
type scene struct {
	plan *plan
	core *core
	now  instant

	visits    [epochs]visitBook // by epoch
	links     [epochs]linkBook
	bound     uint64 // whose lanes these are
	lanes     [lanes]laneBook
	calls     [ownLanes + 1]callBook // by id; the first is the notification
	questions [questions]questionBook

	room     uint8 // frames the link has room for: none, one, or any
	moved    bool  // it has taken something since it was last busy
	refused  bool  // it owes a Writable
	oversize bool  // the next frame that can be is too large
	severed  bool  // nothing can be sent any more, and the loss is on its way
	crowded  bool  // many notifications wait for their handler

	probes  uint8   // sent so far; their ids follow firstProbe
	heardAt instant // of the last that came in, or of being ready

	state      State // as told by the transitions
	closed     bool
	terminated bool

	present  event    // being stepped
	returned []event  // what the link did not take
	said     []string // effects in words, when somebody reads them
	digest   uint64   // of the effects since the last choice
	talks    bool
	fault    error // the first invariant that did not hold
}

type visitBook struct {
	asked bool // for a place at the gate
	came  bool // it was told of one
	left  bool
}

type linkBook struct {
	opening bool // Open has not returned
	open    bool // bound
	shaking bool // the handshake has not returned
	over    bool // Lost was said
	ended   bool // Ended was said
	closing uint8
	gone    bool
	closeBy instant // from then on it may be left behind
}

type laneBook struct {
	opened   bool
	complete bool // the peer has said its last
	over     bool // it is gone from the link
	ended    bool // this side has said its last
	cut      bool // lost, to be taken up again
	partial  bool // the rest of a batch is on its way
	answered bool // it has brought what it was for
	credit   int8
	floor    instant // not to be taken up before
}

type callBook struct {
	made, accepted, settled, answered bool
	taken                             bool // by the link
	unsent                            bool // the link has said that it never left
	failed                            bool // the link has said that it failed
	epoch                             uint64
	lane                              uint8 // notification: where it goes
}

type questionBook struct {
	incoming *Incoming
	epoch    uint64
	asked    bool
	running  bool // its handler
	served   bool
	answered bool
	large    bool               // its answer was too large for the link
	before   [ownLanes + 1]bool // calls that had been sent on its stream when it was asked
	excused  bool               // it will not be answered: cancelled, or its stream or link is lost
}
