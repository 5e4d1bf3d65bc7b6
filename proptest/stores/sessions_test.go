package stores_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/proptest/stores"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// sessionFlaws are ways to break a sharedMap.
type sessionFlaws struct {
	grantAll       bool // a living owner does not keep its session
	anyIdentity    bool
	strangersFree  bool // a Take by a stranger makes the session free
	strangersLearn bool // a stranger learns that a session has an owner
	ignoreCase     bool // session ids are compared without case
	keepForgotten  bool
	writeLost      bool // a node that has lost a session writes on
	freeLost       bool // a node that has lost a session frees it
	forgetLost     bool // a node that has lost a session deletes it
	silent         bool // losses are not reported
	inside         bool // losses are reported from within Save
	keepFirst      bool // a record is not replaced
	dropVersion    bool
	anonymous      bool // owners are not named
	takeLate       bool // a Take whose context has ended takes the session, for nobody
	notFreed       bool
	byName         bool // a node that has started again is taken for the one before
}

// A sharedMap keeps the sessions of several nodes in memory. Without flaws it is right.
type sharedMap struct {
	sessionFlaws

	mu       sync.Mutex
	sessions map[string]*mapped
	nodes    map[string]*mapNode // the nodes that are believed to be alive
}

type mapped struct {
	owner *mapNode
	r     streamable.SessionRecord
}

type mapNode struct {
	*sharedMap
	name string
	lost func(string)
	told sync.WaitGroup
}

func (m *sharedMap) key(session string) string {
	if m.ignoreCase {
		return strings.ToLower(session)
	}
	return session
}

func (n *mapNode) Bind(lost func(string)) { n.lost = lost }

func (n *mapNode) Save(session string, r streamable.SessionRecord) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dropVersion {
		r.Version = ""
	}
	switch kept := n.sessions[n.key(session)]; {
	case kept == nil:
		n.sessions[n.key(session)] = &mapped{n, r}
	case kept.owner == n || n.writeLost:
		if !n.keepFirst {
			kept.r = r
		}
		if kept.owner != n {
			n.told.Go(func() { n.lost(session) })
		}
	case n.silent:
	case n.inside:
		n.lost(session)
	default:
		n.told.Go(func() { n.lost(session) })
	}
}

func (n *mapNode) Take(ctx context.Context, session, identity string) (streamable.SessionRecord, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	kept := n.sessions[n.key(session)]
	if kept == nil {
		return streamable.SessionRecord{}, streamable.ErrNoSession
	}
	owner := kept.owner
	if owner != nil && n.nodes[owner.name] != owner && !(n.byName && n.nodes[owner.name] != nil) {
		owner = nil
	}
	if kept.r.Identity != identity && !n.anyIdentity && !(n.strangersLearn && owner != nil) {
		if n.strangersFree {
			kept.owner = nil
		}
		return streamable.SessionRecord{}, streamable.ErrNoSession
	}
	switch {
	case owner == nil || n.grantAll:
	case n.anonymous:
		return streamable.SessionRecord{}, &streamable.OwnedError{}
	default:
		return streamable.SessionRecord{}, &streamable.OwnedError{Node: owner.name}
	}
	if ctx.Err() == nil || n.takeLate {
		kept.owner = n
	}
	return kept.r, ctx.Err()
}

func (n *mapNode) Free(session string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if kept := n.sessions[n.key(session)]; kept != nil && (kept.owner == n || n.freeLost) && !n.notFreed {
		kept.owner = nil
	}
}

func (n *mapNode) Forget(session string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if kept := n.sessions[n.key(session)]; kept != nil && (kept.owner == n || n.forgetLost) && !n.keepForgotten {
		delete(n.sessions, n.key(session))
	}
}

// harness returns a new map for three nodes.
func (flaws sessionFlaws) harness(t *testing.T) stores.Sessions {
	m := &sharedMap{sessionFlaws: flaws, sessions: make(map[string]*mapped), nodes: make(map[string]*mapNode)}
	alive := func(name string, n *mapNode) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.nodes[name] = n; n == nil {
			delete(m.nodes, name)
		}
	}
	return stores.Sessions{
		Nodes: 3,
		Start: func(name string) streamable.SessionStore {
			n := &mapNode{sharedMap: m, name: name}
			t.Cleanup(n.told.Wait)
			alive(name, n)
			return n
		},
		Settle: func(string) {},
		Kill:   func(name string) { alive(name, nil) },
		Lose:   func(name string) { alive(name, nil) },
	}
}

// The suite accepts a right store, also one that belongs to one process at a time.
//
// Guarantees: G-0080.2
func TestSessionStoreContract(t *testing.T) {
	stores.SessionStoreContract(t, sessionFlaws{}.harness, proptest.ContractOptions{})
	t.Run("one node", func(t *testing.T) {
		stores.SessionStoreContract(t, func(t *testing.T) stores.Sessions {
			h := sessionFlaws{}.harness(t)
			h.Nodes, h.Lose = 1, nil
			return h
		}, proptest.ContractOptions{})
	})
}

// The suite fails on a store that breaks the contract.
//
// Guarantees: G-0080.2
func TestSessionStoreContractSeesBreaches(t *testing.T) {
	with := func(flaws sessionFlaws) func(*testing.T) {
		return func(t *testing.T) {
			stores.SessionStoreContract(t, flaws.harness, proptest.ContractOptions{Guard: 2 * time.Second})
		}
	}
	wantCaught(t, []violation{
		{"a living owner does not keep its session", with(sessionFlaws{grantAll: true}), "of 12 Takes have the session"},
		{"anybody takes a session", with(sessionFlaws{anyIdentity: true}), `there is no session for "i", and its Take at node a got`},
		{"a stranger frees a session", with(sessionFlaws{strangersFree: true}), "the session is of node"},
		{"a stranger learns of an owner", with(sessionFlaws{strangersLearn: true}), "streamable: the session is served by node"},
		{"ids are compared without case", with(sessionFlaws{ignoreCase: true}), "and the newest record is"},
		{"an ended session is kept", with(sessionFlaws{keepForgotten: true}), `there is no session for "i"`},
		{"a former owner writes on", with(sessionFlaws{writeLost: true}), "and the newest record is"},
		{"a former owner frees a session", with(sessionFlaws{freeLost: true}), "the session is of node b"},
		{"a former owner ends a session", with(sessionFlaws{forgetLost: true}), "the session can be taken"},
		{"a loss is not reported", with(sessionFlaws{silent: true}), "and its owner was not told"},
		{"a loss is reported from within Save", with(sessionFlaws{inside: true}), "from within another of its methods"},
		{"the first record stays", with(sessionFlaws{keepFirst: true}), "and the newest record is"},
		{"a part of the record is lost", with(sessionFlaws{dropVersion: true}), "and the newest record is"},
		{"the owner is not named", with(sessionFlaws{anonymous: true}), `named ""`},
		{"a Take that failed keeps the session", with(sessionFlaws{takeLate: true}), "the session can be taken"},
		{"a session is not freed", with(sessionFlaws{notFreed: true}), "the session can be taken"},
		{"a node that was started again owns what it owned", with(sessionFlaws{byName: true}), "the session can be taken"},
	})
}
