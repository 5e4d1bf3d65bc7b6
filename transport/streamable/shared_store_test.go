package streamable

import (
	"context"
	"sync"
	"time"
)

// A SharedStore keeps the sessions of several nodes in memory, for tests.
type SharedStore struct {
	mu       sync.Mutex
	sessions map[string]*sharedSession
	dead     map[string]bool // nodes that have ended without a word
}

type sharedSession struct {
	record SessionRecord
	owner  string // "": nobody owns it
}

func NewSharedStore() *SharedStore {
	return &SharedStore{sessions: make(map[string]*sharedSession), dead: make(map[string]bool)}
}

// Node returns the SessionStore of a node.
func (s *SharedStore) Node(name string) *NodeStore { return &NodeStore{shared: s, name: name} }

// Kill makes the sessions of a node available for others.
func (s *SharedStore) Kill(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead[node] = true
}

// record returns what is stored of a session.
func (s *SharedStore) record(session string) (r SessionRecord, owner string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.sessions[session]; of != nil {
		return of.record, of.owner, true
	}
	return SessionRecord{}, "", false
}

// A NodeStore is the part of a SharedStore that one node sees. It records what is called.
type NodeStore struct {
	shared *SharedStore
	name   string
	lost   func(session string)

	taking func(ctx context.Context, session string) error // is called by Take before anything else; nil: nothing

	mu    sync.Mutex
	calls []storeCall
}

type storeCall struct {
	method, session string
	at              time.Time
	record          SessionRecord // of Save
}

func (n *NodeStore) note(method, session string, r SessionRecord) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, storeCall{method, session, time.Now(), r})
}

// of returns the calls of a method.
func (n *NodeStore) of(method string) (calls []storeCall) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.calls {
		if c.method == method {
			calls = append(calls, c)
		}
	}
	return calls
}

func (n *NodeStore) Bind(lost func(string)) {
	n.note("Bind", "", SessionRecord{})
	n.lost = lost
}

func (n *NodeStore) Save(session string, r SessionRecord) {
	n.note("Save", session, r)
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	of := n.shared.sessions[session]
	if of == nil {
		of = &sharedSession{owner: n.name}
		n.shared.sessions[session] = of
	}
	if of.owner == n.name {
		of.record = r
	}
}

func (n *NodeStore) Take(ctx context.Context, session, identity string) (SessionRecord, error) {
	n.note("Take", session, SessionRecord{})
	if n.taking != nil {
		if err := n.taking(ctx, session); err != nil {
			return SessionRecord{}, err
		}
	}
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	of := n.shared.sessions[session]
	switch {
	case of == nil || of.record.Identity != identity:
		return SessionRecord{}, ErrNoSession
	case of.owner != "" && !n.shared.dead[of.owner]:
		return SessionRecord{}, &OwnedError{Node: of.owner}
	}
	of.owner = n.name
	return of.record, nil
}

func (n *NodeStore) Free(session string) {
	n.note("Free", session, SessionRecord{})
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	if of := n.shared.sessions[session]; of != nil && of.owner == n.name {
		of.owner = ""
	}
}

func (n *NodeStore) Forget(session string) {
	n.note("Forget", session, SessionRecord{})
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	if of := n.shared.sessions[session]; of != nil && of.owner == n.name {
		delete(n.shared.sessions, session)
	}
}
