package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/cluster/internal/hop"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Take implements streamable.SessionStore.
func (s *sessions) Take(ctx context.Context, session, identity string) (streamable.SessionRecord, error) {
	if err := s.beginTake(ctx, session, identity); err != nil {
		return streamable.SessionRecord{}, err
	}
	defer s.endTake(session)
	began := s.beginner(session)
	for {
		record, err := s.take(ctx, session, identity)
		switch {
		case errors.Is(err, errNoRecord):
			return record, began.await(ctx, err)
		case !errors.Is(err, ErrConflict) && !errors.Is(err, ErrUnavailable):
			return record, err
		}
		// Another writer was faster, or the server of the Engine is perhaps being replaced. An
		// isolated node does not expect that, and its clients find another node.
		if state, _ := s.node.State(); state == Isolated || wait.Sleep(ctx, takePause) != nil {
			return streamable.SessionRecord{}, err
		}
	}
}

// newcomerPatience is how long Take waits for a process of which this node has not heard yet: it
// may have begun to serve a moment ago, and the session with it.
const newcomerPatience = time.Second

// awaitOwner waits until requests can go to the process that owns a session.
func (s *sessions) awaitOwner(ctx context.Context, o owner) {
	ctx, cancel := context.WithTimeout(ctx, newcomerPatience)
	defer cancel()
	for {
		m, _ := s.node.Member(o.Node)
		if m.Epoch == o.Epoch && m.Address != "" || wait.Sleep(ctx, takePause) != nil {
			return
		}
	}
}

// A beginner is the node where a session began, as it was known when the session was looked for.
type beginner struct {
	node *Node
	name string
	was  Member
}

func (s *sessions) beginner(session string) beginner {
	b := beginner{node: s.node, name: streamable.NodeOf(session)}
	b.was, _ = s.node.Member(b.name)
	return b
}

// await names that node as the owner if it can be reached: it may have the session, and not have saved it yet,
// because the Engine was away, for instance. Only that node knows. If it cannot be reached, await waits for another
// process that is this node. Otherwise nobody has the session, and await returns none, unless that node may
// be on its way back to the Engine: then the client is to come again.
func (b *beginner) await(ctx context.Context, none error) error {
	if b.name == "" || b.name == b.node.options.Node {
		return none
	}
	ctx, cancel := context.WithTimeout(ctx, newcomerPatience)
	defer cancel()
	door := hop.Peer{Node: b.name, Address: b.was.Address, SPKI: string(b.was.Certificate)}
	if b.was.Address != "" && !b.node.hop.Gone(ctx, door) {
		return &streamable.OwnedError{Node: b.name}
	}
	isGone := b.was.Epoch == "" && b.hasNoLease(ctx)
	for began := time.Now(); ; {
		if m, _ := b.node.Member(b.name); m.Address != "" && m.Address != b.was.Address {
			return &streamable.OwnedError{Node: b.name}
		}
		if isGone && time.Since(began) >= gonePatience && b.hasNoLease(ctx) || wait.Sleep(ctx, takePause) != nil {
			break
		}
	}
	if b.node.hasReturned(returnTime) {
		return fmt.Errorf("cluster: node %q, where the session began, may be on its way back: %w", b.name, ErrUnavailable)
	}
	return none
}

// returnTime is how long the nodes need at most, from the first to the last, when the Engine comes back: each tries every 5 s.
const returnTime = 6 * time.Second

// gonePatience is how long Take looks for a node that has no lease by what it has heard and read: both may be late.
const gonePatience = 200 * time.Millisecond

// hasNoLease reports whether the Engine says that no process is the node. One that serves has taken its lease before.
func (b *beginner) hasNoLease(ctx context.Context) bool {
	_, err := b.node.readLease(ctx, b.name)
	return errors.Is(err, ErrNoResponder)
}

// errNoRecord says that the Engine has nothing about a session.
var errNoRecord = fmt.Errorf("cluster: %w", streamable.ErrNoSession)

// take makes one attempt to take a session. If an earlier one has written the record after all, this
// node owns it already.
func (s *sessions) take(ctx context.Context, session, identity string) (none streamable.SessionRecord, err error) {
	bucket, err := s.bucket.open(ctx)
	if err != nil {
		return none, err
	}
	key := s.node.hashed(session)
	entry, err := bucket.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return none, errNoRecord
	}
	if err != nil {
		return none, err
	}
	r, err := s.node.openSession(session, entry.Value)
	if err != nil || r.Ended || string(r.Identity) != identity {
		return none, streamable.ErrNoSession
	}
	if err := s.mayTake(ctx, r); err != nil {
		return none, err
	}
	r.Takes, r.Free = r.Takes+1, false
	revision, err := bucket.Update(ctx, key, s.node.sealSession(session, r), entry.Revision)
	if err != nil {
		return none, err
	}
	record := streamable.SessionRecord{Identity: identity, Initialize: r.Initialize, Version: r.Revision, State: r.State, Streams: r.Streams}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[session] = &ownSession{id: session, record: record, takes: r.Takes, revision: revision, written: true}
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
		if err := wait.Sleep(ctx, takePause); err != nil {
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
	if r.Free || r.Owner.Node == self.Node && r.Owner.Epoch == self.Epoch { // beginTake has seen that this node does not use it
		return nil
	}
	if verdict := s.node.judge(r.Owner); verdict == dead || s.node.gone(ctx, r) {
		return nil
	}
	s.awaitOwner(ctx, r.Owner)
	return &streamable.OwnedError{Node: r.Owner.Node}
}

// gone reports whether the process that owns a session is not there any more, although its lease may
// not be over, or was never seen here.
func (n *Node) gone(ctx context.Context, r sessionRecord) bool {
	return r.Address != "" && n.hop.Gone(ctx, r.door()) && n.refused(ctx, r.Owner) == dead
}
