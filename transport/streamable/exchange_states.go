//bowline:pure

package streamable

// A stage is where the response to a request stands.
type stage uint8

const (
	// waiting: nothing of the response was written, so it can still become anything. Frames may be queued already.
	waiting stage = iota

	// asJSON: the response is one message. Nobody can come back for it, because it has no event ids.
	asJSON

	// asEvents: the response is a stream of events on a connection, or will be when its first bytes are written. It stays one: the
	// client cannot be told of another status any more.
	asEvents

	// detached: no connection writes the response, and the client will come back for the rest, which is stored.
	detached

	// closed: the response is complete, or nobody can get the rest. Nothing leads out of it, and no frame may be queued any more.
	closed

	stages = iota
)

// A turning is something that happens to a response.
type turning uint8

const (
	asked    turning = iota // the handler wants a stream of events
	answered                // the first frame to be written is also the last one
	opened                  // a frame is to be written that is not the whole response
	waited                  // it must begin without a frame, to keep the connection
	polled                  // the handler lets the client go until later
	resumed                 // the client has come on another connection
	ended                   // the last frame was queued, or the stream was ended without one
	lost                    // the connection has broken off, before everything was written
	finished                // everything was written, or the link is ending
	cut                     // the client does not read

	turnings = iota
)

// turns says which turns are possible in which stage, and where they lead. Some depend on what else is known; see exchangeState.after.
// No entry means that nothing changes. It is never an error: a handler may ask for events when the response is over, and a
// connection may break off when another one has replaced it.
var turns = [stages][turnings]struct {
	to    stage
	valid bool
}{
	waiting: {
		asked: {asEvents, true}, answered: {asJSON, true}, opened: {asEvents, true}, waited: {asEvents, true}, polled: {detached, true},
		ended: {waiting, true}, lost: {closed, true}, finished: {closed, true}, cut: {closed, true},
	},
	asJSON: {lost: {closed, true}, finished: {closed, true}, cut: {closed, true}},
	asEvents: {
		asked: {asEvents, true}, answered: {asEvents, true}, opened: {asEvents, true}, waited: {asEvents, true}, polled: {detached, true},
		resumed: {asEvents, true}, ended: {asEvents, true}, lost: {detached, true}, finished: {closed, true}, cut: {closed, true},
	},
	detached: {resumed: {asEvents, true}, ended: {closed, true}, finished: {closed, true}, cut: {closed, true}},
	closed:   {},
}

// Ids say which events of a response have ids, by which its client can come back for it.
type ids uint8

const (
	noIDs     ids = iota // it is not resumable, so nothing of it is stored
	laterIDs             // every event has one
	initialID            // and an event without a message comes before them, which only tells the id
)

// An exchangeState is all that decides what may happen to the response to a request. It is a value: whoever has it under the lock of its
// link may change it, and nobody else keeps a copy. In each state that is possible, a detached response is known and not over, and one
// that is a message is over and not known; a test tries every turn in every state.
type exchangeState struct {
	stage stage
	ids   ids
	known bool // the client may know the id of an event, so that it can come back. Only then may the response be detached
	over  bool // the last frame was queued, or will not come: nothing may follow. What is queued is still written
}

// after returns the state after a turn, and whether there was one to make.
func (s exchangeState) after(t turning) (next exchangeState, ok bool) {
	turn := turns[s.stage][t]
	if !turn.valid || s.forbids(t) {
		return s, false
	}
	next = s
	next.stage = turn.to
	switch t {
	case lost:
		if !s.known || s.over { // nobody can come back, or all of it is stored
			next.stage = closed
		}
	case ended:
		next.over = true
	case opened: // every event that is written has an id, if any has
		next.known = s.known || s.ids != noIDs
	case asked, waited, polled: // even if an answer comes before that id is written
		next.known = s.known || s.ids == initialID
	}
	return next, true
}

// forbids reports whether a turn that the stage allows is impossible for what else is known of the response.
func (s exchangeState) forbids(t turning) bool {
	switch t {
	case asked, ended:
		return s.over // the answer is there, so there is nothing to choose any more
	case polled:
		// There is nothing to wait for; or an older client, which has no id yet, would not come back and lose the answer.
		return s.over || s.ids != initialID
	case resumed:
		// Who guesses an id, instead of knowing it, must not replace the connection of another. There was none to know.
		return !s.known
	default:
		return false
	}
}

// accepts reports whether another frame may be queued. Otherwise its sender gets an error: nothing is dropped in silence.
func (s exchangeState) accepts() bool { return !s.over && s.stage != closed }

// keeps reports whether a frame is stored. A response that is a single message is not: its client never comes back for it.
func (s exchangeState) keeps(stored uint64, isLast bool) bool {
	return s.ids != noIDs && (s.known || stored > 0 || !isLast)
}
