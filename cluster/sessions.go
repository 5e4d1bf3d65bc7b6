package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

const (
	sessionBucket = "session"

	// sessionTTL is how long the record of a session lasts that nobody saves.
	sessionTTL = 24 * time.Hour

	maxSessionValue = 64 << 10
	maxSessionBytes = 256 << 20 // of all records

	// maxSaves is how many sessions are written at a time.
	maxSaves = 64

	saveAttempt  = 5 * time.Second
	takePause    = 20 * time.Millisecond // between attempts
	flushTimeout = 3 * time.Second
)

// Sessions returns a store of sessions that all nodes share. Call it once, and give the store to one
// Handler: Handlers with stores of the same cluster would take the sessions of each other. The
// owner of a session is decided by compare-and-set writes: a node takes a session only if its owner has
// given it up or is certainly dead.
//
// Records that nobody saves for 24 hours are deleted, so SessionIdle may be two days at most. While
// the Engine cannot be reached, sessions are served on, and saved when it is back; none can be
// taken. An Engine that has lost everything gets all records again.
func (n *Node) Sessions() streamable.SessionStore {
	s := &sessions{
		node:   n,
		bucket: n.lateBucket(sessionOptions()),
		own:    make(map[string]*ownSession), taking: make(map[string]bool), idle: make(chan struct{}),
	}
	close(s.idle)
	n.onReport(s.report)
	n.onClose(s.flush)
	s.term = n.self().Term
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx.Err() == nil {
		n.running.Go(s.follow)
	}
	return s
}

func sessionOptions() BucketOptions {
	return BucketOptions{Name: sessionBucket, TTL: sessionTTL, MaxBytes: maxSessionBytes, MaxValue: maxSessionValue}
}

// sessions is the store of the sessions of one Handler.
type sessions struct {
	node   *Node
	bucket *lateBucket
	lost   func(session string)

	mu     sync.Mutex
	own    map[string]*ownSession // by id
	taking map[string]bool        // sessions for which Take runs
	ends   []*ownSession          // those to write that were given up, oldest first
	queue  []*ownSession          // the others to write, oldest first
	noRoom []*ownSession          // those that the Engine has refused, to be queued again after a pause
	pauses bool                   // queueAgain runs
	flying int                    // how many are being written
	idle   chan struct{}          // closed while nothing is to be written
	term   uint64                 // of the lease, when the records were written
}

// An ownSession is a session of this node. Its fields are guarded by sessions.mu.
type ownSession struct {
	id       string
	record   streamable.SessionRecord
	takes    uint64 // how often it was taken until it came here
	revision uint64 // of its value; 0: none is known
	written  bool   // the Engine may have a value
	look     bool   // the value is to be read before it is written
	dirty    bool   // the value is to be written
	queued   bool   // it is in ends, queue or noRoom, or being written
	end      sessionEnd
}

// A sessionEnd says what becomes of a session that this node gives up.
type sessionEnd uint8

const (
	goesOn sessionEnd = iota
	freed
	forgotten
)

// Bind implements streamable.SessionStore.
func (s *sessions) Bind(lost func(session string)) { s.lost = lost }

func (s *sessions) report(r *Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Sessions += len(s.own)
	for _, o := range s.own {
		if o.queued {
			r.Unsaved++
		}
	}
}

// Save implements streamable.SessionStore.
func (s *sessions) Save(session string, r streamable.SessionRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.own[session]
	if o == nil {
		o = &ownSession{id: session}
		s.own[session] = o
	}
	if o.end == goesOn {
		o.record = r
		s.enqueue(o)
	}
}

// Free implements streamable.SessionStore.
func (s *sessions) Free(session string) { s.giveUp(session, freed) }

// Forget implements streamable.SessionStore.
func (s *sessions) Forget(session string) { s.giveUp(session, forgotten) }

func (s *sessions) giveUp(session string, how sessionEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.own[session]; o != nil && o.end == goesOn {
		o.end = how
		s.pass(o)
		s.enqueue(o)
	}
}

// pass has a session that waits and was given up written before all others: that may make room for
// them. The caller holds s.mu.
func (s *sessions) pass(o *ownSession) {
	for _, waiting := range []*[]*ownSession{&s.queue, &s.noRoom} {
		if i := slices.Index(*waiting, o); i >= 0 {
			*waiting = slices.Delete(*waiting, i, i+1)
			s.ends = append(s.ends, o)
		}
	}
}

// prepare opens the bucket before there is a session to write: to create it can take seconds, and
// a session that was not written ends with its process.
func (s *sessions) prepare() {
	for {
		ctx, cancel := context.WithTimeout(s.node.ctx, saveAttempt)
		_, err := s.bucket.open(ctx)
		cancel()
		if err == nil || wait.Sleep(s.node.ctx, retryEvery) != nil {
			return
		}
	}
}

// follow writes all records again whenever this node had to make its lease again: others may take
// what was written under the one before, or have taken it, or the Engine has lost it.
func (s *sessions) follow() {
	s.prepare()
	for {
		_, changed := s.node.State()
		s.renew(s.node.self().Term)
		select {
		case <-changed:
		case <-s.node.ctx.Done():
			return
		}
	}
}

func (s *sessions) renew(term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.term == term {
		return
	}
	s.term = term
	for _, o := range s.own {
		o.look = o.written
		s.enqueue(o)
	}
}

// enqueue has a session written soon. The caller holds s.mu.
func (s *sessions) enqueue(o *ownSession) {
	o.dirty = true
	if !o.queued {
		if s.nothing() {
			s.idle = make(chan struct{})
		}
		o.queued = true
		if o.end == goesOn {
			s.queue = append(s.queue, o)
		} else {
			s.ends = append(s.ends, o)
		}
	}
	s.pump()
}

// nothing reports whether nothing is to be written. The caller holds s.mu.
func (s *sessions) nothing() bool {
	return s.flying+len(s.ends)+len(s.queue)+len(s.noRoom) == 0
}

// pump begins to write as many sessions as may be written at a time. The caller holds s.mu.
func (s *sessions) pump() {
	n := s.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(s.ends)+len(s.queue) > 0 && s.flying < maxSaves && n.ctx.Err() == nil {
		next := &s.ends
		if len(s.ends) == 0 {
			next = &s.queue
		}
		o := (*next)[0]
		*next = (*next)[1:]
		s.flying++
		n.running.Go(func() { s.write(o) })
	}
	if len(s.noRoom) > 0 && !s.pauses && n.ctx.Err() == nil {
		s.pauses = true
		n.running.Go(s.queueAgain)
	}
}

// queueAgain queues the sessions that were refused, after a pause: as many as can be written at a
// time, so that a full bucket is not asked for all of them each second.
func (s *sessions) queueAgain() {
	stopped := wait.Sleep(s.node.ctx, retryEvery)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pauses = false
	if stopped != nil {
		return
	}
	again := min(len(s.noRoom), maxSaves)
	s.queue = append(s.queue, s.noRoom[:again]...)
	s.noRoom = s.noRoom[again:]
	s.pump()
}

// refused reports whether the Engine has not written a value, and will not as long as nothing changes.
func refused(err error) bool { return errors.Is(err, ErrFull) || errors.Is(err, ErrInvalid) }

// write writes a session until its value is the newest, another node has taken it, or the Engine has
// no room for it.
func (s *sessions) write(o *ownSession) {
	ours := true
	var end sessionEnd // that of the last attempt
	var err error
	for ours && s.begin(o, &end) {
		if ours, err = s.attempt(o); refused(err) || err != nil && wait.Sleep(s.node.ctx, retryEvery) != nil {
			break
		}
	}
	s.ended(o, ours)
	if !ours && s.lost != nil {
		s.lost(o.id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying--
	switch {
	case refused(err) && o.end != end: // it was given up meanwhile
		s.ends = append(s.ends, o)
	case refused(err):
		s.noRoom = append(s.noRoom, o)
	}
	if s.nothing() {
		close(s.idle)
	}
	s.pump()
}

// begin reports whether there is something to write, and sets the end that is to be written.
func (s *sessions) begin(o *ownSession, end *sessionEnd) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	*end = o.end
	if !o.dirty {
		o.queued = false // the next change enqueues it again
		return false
	}
	o.dirty = false
	return true
}

// attempt writes a session once, and reports whether it still is one of this node.
func (s *sessions) attempt(o *ownSession) (ours bool, err error) {
	s.mu.Lock()
	w := *o
	o.look = false
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.node.ctx, saveAttempt)
	defer cancel()
	bucket, err := s.bucket.open(ctx)
	ours = true
	if err == nil && w.look {
		ours, err = s.settle(ctx, bucket, &w)
	}
	if err == nil && ours {
		ours, err = s.put(ctx, bucket, &w)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o.revision, o.written = w.revision, w.written
	o.dirty = o.dirty || err != nil
	o.look = o.look || err != nil && w.look
	return ours, err
}

// ended forgets a session that is not one of this node any more, unless its end is still to be written.
func (s *sessions) ended(o *ownSession, ours bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if (!ours || o.end != goesOn && !o.queued) && s.own[o.id] == o {
		delete(s.own, o.id)
	}
}

var errOldView = errors.New("cluster: the view of a session is old")

// put writes the value of a session, and reports whether it still is one of this node. A session that
// has ended leaves a short value if an older record may still come: that of an owner from which it
// was taken, or one of this node whose outcome is unknown. Otherwise it leaves nothing.
func (s *sessions) put(ctx context.Context, bucket Bucket, w *ownSession) (ours bool, err error) {
	if w.end == forgotten && !w.written {
		return true, nil
	}
	key, revision, before := s.node.hashed(w.id), uint64(0), w.written
	w.written = true
	switch {
	case w.end == forgotten && w.takes == 0 && w.revision != 0:
		err = bucket.Delete(ctx, key, w.revision)
	case w.revision == 0:
		revision, err = bucket.Create(ctx, key, s.value(w), 0)
	default:
		revision, err = bucket.Update(ctx, key, s.value(w), w.revision)
	}
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrExists) {
		if ours, err = s.settle(ctx, bucket, w); ours && err == nil {
			err = errOldView
		}
		return ours, err
	}
	switch {
	case err == nil:
		w.revision = revision
	case refused(err):
		w.written = before
	}
	return true, err
}

// value returns the sealed value of a session.
func (s *sessions) value(w *ownSession) []byte {
	if w.end == forgotten {
		return s.node.sealSession(w.id, sessionRecord{Takes: w.takes, Ended: true})
	}
	r := &w.record
	return s.node.sealSession(w.id, sessionRecord{
		Takes: w.takes, Free: w.end == freed, Identity: []byte(r.Identity), Initialize: r.Initialize, Revision: r.Version, State: r.State, Streams: r.Streams,
	})
}

// settle reads whose a session is. If it is one of this node, w gets the revision that the next write
// replaces. Revisions do not tell which of two records is newer, since they begin again when
// the Engine has lost everything; the number of takes does. The view may be old: then that write
// is refused.
func (s *sessions) settle(ctx context.Context, bucket Bucket, w *ownSession) (ours bool, err error) {
	entry, err := bucket.Get(ctx, s.node.hashed(w.id))
	if errors.Is(err, ErrNotFound) { // it has expired, or the Engine has lost it
		w.revision = 0
		return true, nil
	}
	if err != nil {
		return true, err
	}
	r, err := s.node.openSession(w.id, entry.Value)
	self := s.node.self()
	switch {
	case err != nil: // a node of another version has it
		return false, nil
	case r.Takes < w.takes, r.Takes == w.takes && !r.Ended && r.Owner.Node == self.Node && r.Owner.Epoch == self.Epoch:
		w.revision = entry.Revision
		return true, nil
	default:
		return false, nil
	}
}

// flush waits until everything is written, for a few seconds at most, and not without the Engine.
func (s *sessions) flush(ctx context.Context) {
	if connected, _ := s.node.engine.Connected(); !connected {
		return
	}
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
