package streamable

import (
	"context"
	"sync"
	"time"
)

// A SharedStore keeps the sessions of several nodes in memory, for tests.
type SharedStore struct {
	telling sync.WaitGroup // nodes that are being told of a loss

	mu       sync.Mutex
	sessions map[string]*sharedSession
	nodes    map[string]*NodeStore // the present process of each node
}

type sharedSession struct {
	record SessionRecord
	owner  string // "": nobody owns it
}

func NewSharedStore() *SharedStore {
	return &SharedStore{sessions: make(map[string]*sharedSession), nodes: make(map[string]*NodeStore)}
}

// Node returns the SessionStore of a new process of a node, which owns nothing.
func (s *SharedStore) Node(name string) *NodeStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.sessions {
		if of.owner == name {
			of.owner = ""
		}
	}
	n := &NodeStore{shared: s, name: name, Freed: make(chan string, 100)}
	s.nodes[name] = n
	return n
}

// Kill ends a node as kill -9 does.
func (s *SharedStore) Kill(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[node].killed, s.nodes[node].away = true, true
}

// Lose makes other nodes believe that a node has ended.
func (s *SharedStore) Lose(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[node].away = true
}

// owns reports whether a node may still change a session. The caller holds mu.
func (s *SharedStore) owns(n *NodeStore, session string) bool {
	of := s.sessions[session]
	return of != nil && of.owner == n.name && s.nodes[n.name] == n && !n.killed
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

// put stores a session of a node that has ended, or of no node.
func (s *SharedStore) put(session, owner string, r SessionRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[session] = &sharedSession{r, owner}
}

// A NodeStore is the part of a SharedStore that one process of a node sees. It records what is
// called.
type NodeStore struct {
	shared       *SharedStore
	name         string
	lost         func(session string)
	killed, away bool        // guarded by shared.mu
	Freed        chan string // receives sessions when they are freed

	taking func(ctx context.Context, session string) error // is called by Take before anything else; nil: nothing

	saving func() // is called by Save before anything else; nil: nothing

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
	if n.saving != nil {
		n.saving()
	}
	n.note("Save", session, r)
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	if n.shared.sessions[session] == nil && !n.killed {
		n.shared.sessions[session] = &sharedSession{owner: n.name}
	}
	if n.shared.owns(n, session) {
		n.shared.sessions[session].record = r
	}
}

func (n *NodeStore) Take(ctx context.Context, session, identity string) (SessionRecord, error) {
	n.note("Take", session, SessionRecord{})
	if n.taking != nil {
		if err := n.taking(ctx, session); err != nil {
			return SessionRecord{}, err
		}
	}
	if ctx.Err() != nil {
		return SessionRecord{}, ctx.Err()
	}
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	of := n.shared.sessions[session]
	if of == nil || of.record.Identity != identity {
		return SessionRecord{}, ErrNoSession
	}
	if owner := n.shared.nodes[of.owner]; owner != nil {
		if !owner.away {
			return SessionRecord{}, &OwnedError{Node: of.owner}
		}
		if !owner.killed && owner.lost != nil {
			n.shared.telling.Go(func() { owner.lost(session) })
		}
	}
	of.owner = n.name
	return of.record, nil
}

func (n *NodeStore) Free(session string) {
	n.note("Free", session, SessionRecord{})
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	if n.shared.owns(n, session) {
		n.shared.sessions[session].owner = ""
	}
	select {
	case n.Freed <- session:
	default: // no test needs so many
	}
}

func (n *NodeStore) Forget(session string) {
	n.note("Forget", session, SessionRecord{})
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	if n.shared.owns(n, session) {
		delete(n.shared.sessions, session)
	}
}

// Put stores a session that nobody owns.
func (s *SharedStore) Put(session string) {
	s.put(session, "", SessionRecord{Initialize: []byte(initializeBody("2025-11-25")), Version: "2025-11-25"})
}

// A discarding store remembers nothing. It is for measuring what the handler does itself.
type discarding struct{ sessions map[string]SessionRecord }

func (*discarding) Bind(func(string))          {}
func (*discarding) Save(string, SessionRecord) {}
func (*discarding) Free(string)                {}
func (*discarding) Forget(string)              {}
func (d *discarding) Take(_ context.Context, session, _ string) (SessionRecord, error) {
	if r, known := d.sessions[session]; known {
		return r, nil
	}
	return SessionRecord{}, ErrNoSession
}
