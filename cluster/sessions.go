package cluster

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/internal/pause"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

const (
	sessionBucket = "session"
	sealSession   = "session"

	// sessionTTL is how long the record of a session lasts that nobody saves.
	sessionTTL = 24 * time.Hour

	maxSessionValue = 64 << 10
	maxSessionBytes = 256 << 20 // of all records

	// maxSaves is how many sessions are written at a time.
	maxSaves = 64

	saveAttempt  = 5 * time.Second
	takePause    = 20 * time.Millisecond // between attempts
	flushTimeout = 3 * time.Second
	doorTimeout  = time.Second
)

// Sessions returns a store of sessions that all nodes share. Give each Handler a separate one. The
// owner of a session is decided by compare-and-set writes: a node takes a session only if its owner has
// given it up or is certainly dead.
//
// Records that nobody saves for 24 hours are deleted, so SessionIdle may be two days at most. While
// the Engine cannot be reached, sessions are served on, and saved when it is back; none can be
// taken. An Engine that has lost everything gets all records again.
func (n *Node) Sessions() streamable.SessionStore {
	s := &sessions{
		node:   n,
		bucket: n.lateBucket(BucketOptions{Name: sessionBucket, TTL: sessionTTL, MaxBytes: maxSessionBytes, MaxValue: maxSessionValue}),
		own:    make(map[string]*ownSession), taking: make(map[string]bool), idle: make(chan struct{}),
	}
	close(s.idle)
	n.onReport(func(r *Report) { r.Sessions += s.count() })
	n.onClose(s.flush)
	s.term = n.self().Term
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx.Err() == nil {
		n.running.Go(s.follow)
	}
	return s
}

// A sessionRecord is the value of a session, whose key is the hash of its id.
type sessionRecord struct {
	Version    int    `json:"v"`
	Owner      owner  `json:"owner"`
	Free       bool   `json:"free,omitempty"`     // the owner has given it up
	Identity   []byte `json:"identity,omitempty"` // which need not be UTF-8
	Initialize []byte `json:"initialize"`
	Revision   string `json:"revision"` // of MCP
	State      []byte `json:"state,omitempty"`
	Streams    uint64 `json:"streams"`
}

// sessions are those of one Handler.
type sessions struct {
	node   *Node
	bucket *lateBucket
	lost   func(session string)

	mu     sync.Mutex
	own    map[string]*ownSession // by id
	taking map[string]bool        // sessions for which Take runs
	queue  []*ownSession          // those to write, oldest first
	flying int                    // how many are being written
	idle   chan struct{}          // closed while nothing is to be written
	term   uint64                 // of the lease, when the records were written
}

// An ownSession is a session of this node. Its fields are guarded by sessions.mu.
type ownSession struct {
	id       string
	record   streamable.SessionRecord
	revision uint64 // of its value; 0: none was written
	dirty    bool   // the value is to be written
	queued   bool   // it is in the queue, or being written
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

func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.own)
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
		s.enqueue(o)
	}
}

// follow writes all records again whenever this node had to make its lease again: others may take
// what was written under the one before.
func (s *sessions) follow() {
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
		s.enqueue(o)
	}
}

// enqueue has a session written soon. The caller holds s.mu.
func (s *sessions) enqueue(o *ownSession) {
	o.dirty = true
	if o.queued {
		return
	}
	if len(s.queue) == 0 && s.flying == 0 {
		s.idle = make(chan struct{})
	}
	o.queued = true
	s.queue = append(s.queue, o)
	s.pump()
}

// pump begins to write as many sessions as may be written at a time. The caller holds s.mu.
func (s *sessions) pump() {
	n := s.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(s.queue) > 0 && s.flying < maxSaves && n.ctx.Err() == nil {
		o := s.queue[0]
		s.queue = s.queue[1:]
		s.flying++
		n.running.Go(func() { s.write(o) })
	}
}

// write writes a session until its value is the newest, or another node has taken it.
func (s *sessions) write(o *ownSession) {
	ours := true
	for ours && s.begin(o) {
		var err error
		if ours, err = s.attempt(o); err != nil && pause.For(s.node.ctx, retryEvery) != nil {
			break
		}
	}
	s.ended(o, ours)
	if !ours && s.lost != nil {
		s.lost(o.id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flying--; s.flying == 0 && len(s.queue) == 0 {
		close(s.idle)
	}
	s.pump()
}

// begin reports whether there is something to write.
func (s *sessions) begin(o *ownSession) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
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
	value, revision, end := s.encode(o), o.revision, o.end
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.node.ctx, saveAttempt)
	defer cancel()
	written, ours, err := s.put(ctx, o.id, value, revision, end)
	s.mu.Lock()
	defer s.mu.Unlock()
	o.revision = written
	o.dirty = o.dirty || err != nil
	return ours, err
}

// ended forgets a session that is not one of this node any more.
func (s *sessions) ended(o *ownSession, ours bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if (!ours || o.end != goesOn) && s.own[o.id] == o {
		delete(s.own, o.id)
	}
}

// encode returns the value of a session. The caller holds s.mu.
func (s *sessions) encode(o *ownSession) []byte {
	return s.seal(o.id, sessionRecord{
		Version: recordVersion, Owner: s.node.self(), Free: o.end == freed, Identity: []byte(o.record.Identity), Initialize: o.record.Initialize,
		Revision: o.record.Version, State: o.record.State, Streams: o.record.Streams,
	})
}

func (s *sessions) seal(session string, r sessionRecord) []byte {
	return s.node.seal(sealSession, sessionBucket+"/"+hashed(session), encode(r))
}

// put writes or deletes the value of a session that has a revision; 0 means none was written. It
// returns its revision from now on, and whether the session still is one of this node.
func (s *sessions) put(ctx context.Context, session string, value []byte, revision uint64, end sessionEnd) (written uint64, ours bool, err error) {
	bucket, err := s.bucket.open(ctx)
	if err != nil {
		return revision, true, err
	}
	key := hashed(session)
	switch {
	case end == forgotten && revision == 0:
		// A write whose outcome is unknown may have left a value.
		return s.settle(ctx, bucket, session, revision, end)
	case end == forgotten:
		err = bucket.Delete(ctx, key, revision)
	case revision == 0:
		written, err = bucket.Create(ctx, key, value, 0)
	default:
		written, err = bucket.Update(ctx, key, value, revision)
	}
	switch {
	case err == nil:
		return written, true, nil
	case errors.Is(err, ErrConflict), errors.Is(err, ErrExists):
		return s.settle(ctx, bucket, session, revision, end)
	default:
		return revision, true, err
	}
}

var errOldView = errors.New("cluster: the view of a session is old")

// settle finds out whose a session is, after a write that was refused. If it is ours, because an
// earlier write had an effect after all, it returns its revision and errOldView: the caller
// tries again.
func (s *sessions) settle(ctx context.Context, bucket Bucket, session string, revision uint64, end sessionEnd) (written uint64, ours bool, err error) {
	entry, err := bucket.Get(ctx, hashed(session))
	if errors.Is(err, ErrNotFound) {
		if end == forgotten {
			return 0, true, nil
		}
		return 0, true, errOldView // the value has expired, or the Engine has lost it
	}
	if err != nil {
		return revision, true, err
	}
	r, err := s.decode(session, entry.Value)
	self := s.node.self()
	switch {
	case err == nil && r.Owner.Node == self.Node && r.Owner.Epoch == self.Epoch && entry.Revision > revision:
		return entry.Revision, true, errOldView
	case entry.Revision <= revision:
		return revision, true, errOldView
	default:
		return revision, false, nil
	}
}

func (s *sessions) decode(session string, sealed []byte) (sessionRecord, error) {
	var r sessionRecord
	plain, err := s.node.open(sealSession, sessionBucket+"/"+hashed(session), sealed)
	if err == nil {
		if err = decodeRecord(plain, &r); err != nil {
			s.node.sealer.refused.Add(1)
		}
	}
	return r, err
}

// Take implements streamable.SessionStore.
func (s *sessions) Take(ctx context.Context, session, identity string) (streamable.SessionRecord, error) {
	if err := s.beginTake(ctx, session, identity); err != nil {
		return streamable.SessionRecord{}, err
	}
	defer s.endTake(session)
	for {
		record, err := s.take(ctx, session, identity)
		if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrUnavailable) {
			return record, err
		}
		// Another writer was faster, or the server of the Engine is perhaps being replaced.
		if pause.For(ctx, takePause) != nil {
			return streamable.SessionRecord{}, err
		}
	}
}

// take makes one attempt to take a session. If an earlier one has written the record after all, this
// node owns it already.
func (s *sessions) take(ctx context.Context, session, identity string) (none streamable.SessionRecord, err error) {
	bucket, err := s.bucket.open(ctx)
	if err != nil {
		return none, err
	}
	entry, err := bucket.Get(ctx, hashed(session))
	if errors.Is(err, ErrNotFound) {
		return none, streamable.ErrNoSession
	}
	if err != nil {
		return none, err
	}
	r, err := s.decode(session, entry.Value)
	if err != nil || string(r.Identity) != identity {
		return none, streamable.ErrNoSession
	}
	if err := s.mayTake(ctx, r); err != nil {
		return none, err
	}
	r.Owner, r.Free = s.node.self(), false
	revision, err := bucket.Update(ctx, hashed(session), s.seal(session, r), entry.Revision)
	if err != nil {
		return none, err
	}
	record := streamable.SessionRecord{Identity: identity, Initialize: r.Initialize, Version: r.Revision, State: r.State, Streams: r.Streams}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[session] = &ownSession{id: session, record: record, revision: revision}
	return record, nil
}

// beginTake waits until a session that this node gives up is given up.
func (s *sessions) beginTake(ctx context.Context, session, identity string) error {
	for {
		s.mu.Lock()
		o := s.own[session]
		switch {
		case o != nil && (o.end == forgotten || o.record.Identity != identity):
			s.mu.Unlock()
			return streamable.ErrNoSession
		case s.taking[session], o != nil && o.end == goesOn:
			s.mu.Unlock()
			return &streamable.OwnedError{Node: s.node.options.Node}
		case o == nil:
			s.taking[session] = true
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		if err := pause.For(ctx, takePause); err != nil {
			return err
		}
	}
}

func (s *sessions) endTake(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taking, session)
}

// mayTake returns nil if a session has no living owner.
func (s *sessions) mayTake(ctx context.Context, r sessionRecord) error {
	self := s.node.self()
	if r.Free || r.Owner.Node == self.Node && r.Owner.Epoch == self.Epoch { // and Take has seen that it is not in use
		return nil
	}
	verdict := s.node.judge(r.Owner)
	if verdict != dead && s.node.doorRefuses(ctx, r.Owner.Node) {
		verdict = s.node.refused(ctx, r.Owner)
	}
	if verdict == dead {
		return nil
	}
	return &streamable.OwnedError{Node: r.Owner.Node}
}

// doorRefuses reports whether the door of a node refuses connections now.
func (n *Node) doorRefuses(ctx context.Context, node string) bool {
	m, found := n.Member(node)
	return found && m.Address != "" && refuses(ctx, m.Address)
}

// refuses reports whether a machine refuses a connection.
func refuses(ctx context.Context, address string) bool {
	dialer := net.Dialer{Timeout: doorTimeout}
	link, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		_ = link.Close() // nothing was sent
		return false
	}
	const onWindows = syscall.Errno(10061) // WSAECONNREFUSED, which package syscall does not declare
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, onWindows)
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
