package streamable

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// savingPause is the minimum time between two Saves of a session whose state changes.
	savingPause = 100 * time.Millisecond

	// renewalPause is the minimum time between two Saves of sessions in which nothing has
	// changed. With more than 10,000 sessions it is less, so that each has its turn.
	renewalPause = 90 * time.Millisecond

	// numbersStep is how many numbers of streams a session reserves at a time.
	numbersStep = 1024

	// mostNumbers is the highest number that a record may have. Nobody uses up so many.
	mostNumbers = 1 << 62
)

// savings stores the sessions of one handler. One timer saves what has changed, and saves
// each session again after some time, so that the store keeps it. A nil *savings stores
// nothing.
type savings struct {
	store   SessionStore
	every   time.Duration  // how long after its last Save a session is saved again
	pause   time.Duration  // the minimum time between two of these Saves
	running sync.WaitGroup // counts the timer while it is set or its function runs

	mu             sync.Mutex
	timer          *time.Timer // nil: it is not set
	at             time.Time   // when it fires
	changed        []change    // the next one first
	oldest, newest *savedSession
	renewed        time.Time // when a session was last saved again
	closed         bool
}

// A change is a session whose state has changed, and when it is saved for that reason.
type change struct {
	of *savedSession
	at time.Time
}

func newSavings(o *HandlerOptions) *savings {
	if o.Sessions == nil || o.Stateless {
		return nil
	}
	every := o.SessionIdle / 4
	return &savings{store: o.Sessions, every: every, pause: min(renewalPause, 2*every/time.Duration(o.MaxSessions))}
}

// A savedSession is a session that is stored. Its phase only goes forward: unsaved or taken, then live,
// then over. After over nothing is saved: another node may own the session, and a late record
// would replace a newer one.
//
// The list by the last Save and the changes are of savings, and change under its mu. That is taken
// while the session's mu is held, never the other way round.
//
// The methods that a link of any session needs may be
// called on nil, which is a session that is not.
type savedSession struct {
	by        *savings
	id        string
	continues bool            // an earlier process began the session
	kept      json.RawMessage // the state that the process before has stored
	used      uint64          // earlier processes may have used the numbers up to this one
	reserved  atomic.Uint64   // this process may use the numbers up to this one

	mu     sync.Mutex // held while the store is called, so that the last record is the newest
	record SessionRecord
	phase  phase

	// In the list of savings, by the last Save. Guarded by savings.mu.
	older, newer *savedSession
	saved        time.Time
	due          time.Time // when a change is saved; zero: nothing has changed
}

// A phase is what the store knows about a session.
type phase uint8

const (
	unsaved phase = iota // the store does not know the session
	taken                // this node owns the session, but does not serve it yet
	live                 // this node owns and serves the session
	over                 // this node has nothing to do with the session any more
)

// begin returns what is stored of a session that begins, or nil if nothing is.
func (s *savings) begin(session, identity string, initialize []byte) *savedSession {
	if s == nil || len(initialize) > MaxStoredInitialize {
		return nil
	}
	k := &savedSession{by: s, id: session, record: SessionRecord{Identity: identity, Initialize: slices.Clone(initialize)}}
	k.reserved.Store(numbersStep)
	return k
}

// resume returns what is stored of a session that this node has taken.
func (s *savings) resume(session string, r SessionRecord) *savedSession {
	k := &savedSession{by: s, id: session, continues: true, kept: r.State, used: r.Streams, record: r, phase: taken}
	k.reserved.Store(r.Streams + numbersStep)
	return k
}

// reserve says that a number is used. It reports whether the session must be saved
// because of that: some time before the numbers run out, since that may take a while. The
// caller holds the mu of the link.
// A number that two processes use would name two events, and a client would miss one of them.
func (k *savedSession) reserve(number uint64) (due bool) {
	if k == nil || number+numbersStep/2 < k.reserved.Load() {
		return false
	}
	k.reserved.Store((number/numbersStep + 2) * numbersStep)
	return true
}

// numbersUsed returns up to which number earlier processes may have used them.
func (k *savedSession) numbersUsed() uint64 {
	if k == nil {
		return 0
	}
	return k.used
}

// serve says that this node serves the session from now on, and saves it.
func (k *savedSession) serve(version string) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	// It may have ended while its server began it again.
	if k.phase != over {
		k.phase, k.record.Version = live, version
		k.save()
	}
}

// keep saves the state of the server, soon.
func (k *savedSession) keep(state []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if bytes.Equal(state, k.record.State) {
		return
	}
	// Before the session is live, serve will save it; after it is over, no record may follow.
	if k.record.State = state; k.phase == live && k.by.mayBeSaved(k) {
		k.save()
	}
}

// isTaken reports whether this node owns the session and does not serve it yet.
func (k *savedSession) isTaken() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.phase == taken
}

// saveAgain saves a session that this node serves.
func (k *savedSession) saveAgain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.phase == live {
		k.save()
	}
}

// save saves the session. The caller holds mu.
func (k *savedSession) save() {
	k.put()
	k.by.wasSaved(k)
}

// put gives the store the record, under mu: records must reach it in their order.
func (k *savedSession) put() {
	k.record.Streams = k.reserved.Load()
	k.by.store.Save(k.id, k.record)
}

// end ends what this node has to do with the session. If the session goes on, anyone may
// take it; otherwise it has ended. The first end counts.
func (k *savedSession) end(goesOn bool) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	phase := k.phase
	k.phase = over
	changed := k.by.remove(k)
	switch {
	case phase == unsaved || phase == over:
	case !goesOn:
		k.by.store.Forget(k.id)
	default:
		// Another process may take it from now on, and must not go on with an old state.
		if changed {
			k.put()
		}
		k.by.store.Free(k.id)
	}
}

// lose says that another node has the session. The caller calls end, which then tells the store
// nothing.
func (k *savedSession) lose() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.phase = over
}

// mayBeSaved reports whether a session that has changed is saved now. Otherwise the timer
// saves it.
// The caller holds k.mu.
func (s *savings) mayBeSaved(k *savedSession) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch {
	case !k.due.IsZero():
		return false
	case now.Sub(k.saved) >= savingPause:
		return true
	}
	k.due = now.Add(savingPause)
	// The pause is the same for all, so the list is in the order of time.
	s.changed = append(s.changed, change{k, k.due})
	s.arm()
	return false
}

// wasSaved moves a session to the end of the list.
func (s *savings) wasSaved(k *savedSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlink(k)
	k.saved, k.due = time.Now(), time.Time{}
	if k.older = s.newest; k.older == nil {
		s.oldest = k
	} else {
		k.older.newer = k
	}
	s.newest = k
	s.arm()
}

// remove removes a session, and reports whether it has changed since its last Save.
func (s *savings) remove(k *savedSession) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, k.due = !k.due.IsZero(), time.Time{}
	s.unlink(k)
	return changed
}

// unlink removes a session from the list, if it is there.
func (s *savings) unlink(k *savedSession) {
	switch {
	case k.older != nil:
		k.older.newer = k.newer
	case s.oldest == k:
		s.oldest = k.newer
	}
	switch {
	case k.newer != nil:
		k.newer.older = k.older
	case s.newest == k:
		s.newest = k.older
	}
	k.older, k.newer = nil, nil
}

// arm sets the timer for what is due next.
// The caller holds mu.
func (s *savings) arm() {
	next := s.next()
	switch {
	case s.closed || next.IsZero() || s.timer != nil && !next.Before(s.at):
		return
	case s.timer != nil && !s.timer.Stop():
		return // it fires now, and is set again then
	// Counted once while it is set, however often that moves.
	case s.timer == nil:
		s.running.Add(1)
	}
	s.at, s.timer = next, time.AfterFunc(time.Until(next), s.fire)
}

// next returns when something is due, or the zero time if nothing will be.
func (s *savings) next() (next time.Time) {
	if s.oldest != nil {
		next = s.oldest.saved.Add(s.every)
		if rested := s.renewed.Add(s.pause); rested.After(next) {
			next = rested
		}
	}
	if len(s.changed) > 0 && (next.IsZero() || s.changed[0].at.Before(next)) {
		next = s.changed[0].at
	}
	return next
}

// fire saves what is due.
// It saves without mu, because the mu of a session comes before it.
func (s *savings) fire() {
	defer s.running.Done()
	for _, k := range s.takeDue(time.Now()) {
		k.saveAgain()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arm()
}

// takeDue returns the sessions that have changed, and at most one of the others.
// One at a time, so that sessions that began together do not come to the store together, again and
// again.
func (s *savings) takeDue(now time.Time) (due []*savedSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	passed := 0
	for _, c := range s.changed {
		if c.at.After(now) {
			break
		}
		if passed++; c.of.due.Equal(c.at) { // otherwise it was saved meanwhile
			due = append(due, c.of)
		}
	}
	s.changed = slices.Delete(s.changed, 0, passed)
	if k := s.oldest; k != nil && now.Sub(k.saved) >= s.every && now.Sub(s.renewed) >= s.pause {
		s.renewed = now
		due = append(due, k)
	}
	return due
}

// close stops the timer, and waits for its function.
func (s *savings) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		if s.timer.Stop() {
			s.timer = nil
			s.running.Done()
		}
	}
	s.mu.Unlock()
	s.running.Wait()
}
