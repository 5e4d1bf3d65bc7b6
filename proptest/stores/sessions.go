package stores

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Sessions are the nodes whose stores SessionStoreContract checks. The nodes share what they
// store, which is nothing at first. Nodes are called "a", "b" and "c".
type Sessions struct {
	// Nodes is how many nodes can run at the same time, at most 3: 1 if only one process at
	// a time can use the store.
	Nodes int

	// Start starts a node that is not running, perhaps again after Kill, and returns its
	// store.
	Start func(node string) streamable.SessionStore

	// Settle returns when every node can see what a node has saved, freed and forgotten.
	Settle func(node string)

	// Kill ends a node without warning, as kill -9 does. What it did since the last Settle
	// may be lost. When Kill returns, the other nodes know that it has ended. Its store is
	// not used any more.
	Kill func(node string)

	// Lose makes the other nodes believe that a node has ended, although its store is used
	// on. When Lose returns, they do. Nil: that cannot happen.
	Lose func(node string)

	// Close ends the nodes that are running, when the suite does not need them any more. Nil:
	// they may run until the test ends.
	Close func()
}

// SessionStoreContract checks the contract of streamable.SessionStore.
//
// Guarantees: G-0080.2
func SessionStoreContract(t *testing.T, open func(t *testing.T) Sessions, o proptest.ContractOptions) {
	with := func(t *testing.T, tb cleanupTB) *sessions { return openSessions(t, tb, open, o) }
	contract(t, with, []clause[*sessions]{
		{"a session is taken with its newest record", (*sessions).newestRecord},
		{"nobody else takes a session", (*sessions).identityIsChecked},
		{"sessions are told apart", (*sessions).sessionsAreDistinct},
		{"a session with a living owner is not taken", (*sessions).ownerIsNamed},
		{"a free session is taken at any node", (*sessions).freeIsTaken},
		{"a session that has ended is gone", (*sessions).forgottenIsGone},
		{"one of many takes gets the session", (*sessions).oneTakeWins},
		{"a take that failed takes nothing away", (*sessions).takeWithoutTime},
		{"a node learns that it has lost a session", (*sessions).lossIsReported},
	}, "sessions agree with a map", func(s *sessions, rt *rapid.T) { (&sessionModel{sessions: s}).run(rt) })
}

// sessions are the Sessions under test.
type sessions struct {
	Sessions
	t       cleanupTB
	ctx     context.Context // ends the test if something hangs
	running map[string]*sessionNode
}

// A sessionNode is a node that is running.
type sessionNode struct {
	streamable.SessionStore
	name string
	busy sync.Mutex  // held while use runs, and while a loss is reported
	lost chan string // the sessions that the store has reported as lost
}

func openSessions(t *testing.T, tb cleanupTB, open func(*testing.T) Sessions, o proptest.ContractOptions) *sessions {
	s := &sessions{Sessions: open(t), t: tb, ctx: guarded(tb, o), running: make(map[string]*sessionNode)}
	if s.Close != nil {
		tb.Cleanup(s.Close)
	}
	return s
}

// names returns the names of all nodes that can run at the same time.
func (s *sessions) names() []string { return []string{"a", "b", "c"}[:s.Nodes] }

func (s *sessions) start(name string) *sessionNode {
	n := &sessionNode{SessionStore: s.Start(name), name: name, lost: make(chan string, 64)}
	n.Bind(func(session string) {
		n.busy.Lock()
		defer n.busy.Unlock()
		select {
		case n.lost <- session:
		default:
			s.t.Errorf("node %s was told of more than 64 losses", name)
		}
	})
	s.running[name] = n
	return n
}

// use uses the store of a node, as a handler does that must not be called meanwhile.
func (s *sessions) use(n *sessionNode, do func()) {
	s.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.busy.Lock()
		defer n.busy.Unlock()
		do()
	}()
	select {
	case <-done:
	case <-s.ctx.Done():
		s.t.Fatalf("the store reported a loss from within another of its methods, or one of them did not return")
	}
}

func (s *sessions) kill(n *sessionNode) {
	delete(s.running, n.name)
	s.Kill(n.name)
}

// restart kills a node, and starts the one with a name.
func (s *sessions) restart(n *sessionNode, name string) *sessionNode {
	s.kill(n)
	if other := s.running[name]; other != nil {
		return other
	}
	return s.start(name)
}

// wantRecord takes a session, and checks its record.
func (s *sessions) wantRecord(n *sessionNode, session string, want streamable.SessionRecord) {
	s.t.Helper()
	got, err := n.Take(s.ctx, session, want.Identity)
	if err != nil {
		s.t.Fatalf("the session can be taken, and a Take at node %s got %v", n.name, err)
	}
	if !sameRecord(got, want) {
		s.t.Fatalf("a Take got %s, and the newest record is %s", textOf(got), textOf(want))
	}
}

func (s *sessions) wantNone(n *sessionNode, session, identity string) {
	s.t.Helper()
	if r, err := n.Take(s.ctx, session, identity); !errors.Is(err, streamable.ErrNoSession) {
		s.t.Fatalf("there is no session for %q, and its Take at node %s got %s, %v", identity, n.name, textOf(r), err)
	}
}

func (s *sessions) wantOwned(n *sessionNode, session, identity, owner string) {
	s.t.Helper()
	r, err := n.Take(s.ctx, session, identity)
	var owned *streamable.OwnedError
	if !errors.As(err, &owned) {
		s.t.Fatalf("the session is of node %s, and a Take at node %s got %s, %v", owner, n.name, textOf(r), err)
	}
	if s.Nodes > 1 && owned.Node != owner {
		s.t.Fatalf("the session is of node %s, and a Take at node %s named %q", owner, n.name, owned.Node)
	}
}

func sameRecord(a, b streamable.SessionRecord) bool {
	return a.Identity == b.Identity && bytes.Equal(a.Initialize, b.Initialize) && a.Version == b.Version &&
		bytes.Equal(a.State, b.State) && a.Streams == b.Streams
}

// textOf returns a record as text, at most some hundred bytes.
func textOf(r streamable.SessionRecord) string {
	return fmt.Sprintf("{%.80q %.80q %.80q %.80q %d}", r.Identity, r.Initialize, r.Version, r.State, r.Streams)
}

// recordOf returns record number n of an identity.
func recordOf(identity string, n int) streamable.SessionRecord {
	return streamable.SessionRecord{
		Identity: identity, Initialize: json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`), Version: "2025-11-25",
		State: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)), Streams: uint64(n),
	}
}

func (s *sessions) newestRecord() {
	node := s.start("a")
	long := append(append([]byte(`"`), bytes.Repeat([]byte("é"), streamable.MaxStoredInitialize/2-1)...), '"')
	records := []streamable.SessionRecord{
		recordOf("i", 1), {}, {Identity: "https://as.example\x00ü\xff'", Version: strings.Repeat("v", 1000)},
		{Initialize: json.RawMessage(" {\n\"a\" : 1e0,\"b\":\"\\u0041\"} "), State: json.RawMessage("null"), Streams: math.MaxUint64},
		{Initialize: json.RawMessage("not JSON"), State: json.RawMessage{0, 255}}, {Initialize: long, State: long},
	}
	for i, r := range records {
		session := fmt.Sprintf("session %d", i)
		for n := range 5 {
			older := recordOf(r.Identity, n)
			node.Save(session, older)
		}
		node.Save(session, r)
	}
	for i, r := range records {
		s.Settle(node.name)
		node = s.restart(node, s.names()[i%s.Nodes])
		s.wantRecord(node, fmt.Sprintf("session %d", i), r)
	}
}

func (s *sessions) identityIsChecked() {
	node := s.start("a")
	identities := []string{"", "i", "I", "i ", "i\x00", "https://as i"}
	for _, identity := range identities {
		node.Save("session of "+identity, recordOf(identity, 1))
	}
	check := func(of string) {
		for _, identity := range identities {
			if identity != of {
				s.wantNone(node, "session of "+of, identity)
			}
		}
	}
	s.Settle(node.name)
	for _, of := range identities { // a stranger does not learn either whether a session has an owner
		check(of)
	}
	node = s.restart(node, "a")
	for _, of := range identities {
		check(of)
		s.wantRecord(node, "session of "+of, recordOf(of, 1))
		check(of)
	}
}

func (s *sessions) sessionsAreDistinct() {
	node := s.start("a")
	ids := []string{
		"a", "A", "a ", "a.b", "a/b", "..", "*", ">", "a\x00b", "a\x00", "é", "e\u0301",
		strings.Repeat("x", 256), strings.Repeat("x", 255), "node~5f8a9d52-6f0b-4a39-9d3e-3c9f3a1e8b11",
	}
	for n, id := range ids {
		node.Save(id, recordOf("i", n))
	}
	s.Settle(node.name)
	node = s.restart(node, "a")
	for n, id := range ids {
		s.wantRecord(node, id, recordOf("i", n))
	}
	s.wantNone(node, "b", "i")
	s.wantNone(node, "", "i")
}

func (s *sessions) ownerIsNamed() {
	for _, name := range s.names() {
		s.start(name)
	}
	owner := s.running["a"]
	owner.Save("s", recordOf("i", 1))
	for n := range 3 {
		s.Settle(owner.name)
		for _, other := range s.running {
			s.wantOwned(other, "s", "i", owner.name)
		}
		s.kill(owner)
		s.start(owner.name) // again, under the same name
		owner = s.running[s.names()[n%s.Nodes]]
		s.wantRecord(owner, "s", recordOf("i", n+1))
		owner.Save("s", recordOf("i", n+2))
	}
}

func (s *sessions) freeIsTaken() {
	for _, name := range s.names() {
		s.start(name)
	}
	owner := s.running["a"]
	owner.Save("s", recordOf("i", 0))
	for n := range 6 {
		owner.Save("s", recordOf("i", n))
		owner.Free("s")
		s.Settle(owner.name)
		next := s.running[s.names()[n/2%s.Nodes]]
		s.wantRecord(next, "s", recordOf("i", n))
		owner = next
		s.wantOwned(owner, "s", "i", owner.name)
	}
	owner.Free("s")
	s.Settle(owner.name)
	s.wantRecord(s.restart(owner, "a"), "s", recordOf("i", 5))
}

func (s *sessions) forgottenIsGone() {
	node := s.start("a")
	for _, id := range []string{"at once", "when stored", "when taken", "kept"} {
		node.Save(id, recordOf("i", 1))
	}
	node.Forget("at once")
	node.Forget("never seen")
	s.Settle(node.name)
	node.Forget("when stored")
	s.Settle(node.name)
	node = s.restart(node, "a")
	s.wantRecord(node, "when taken", recordOf("i", 1))
	node.Save("when taken", recordOf("i", 2))
	node.Forget("when taken")
	s.Settle(node.name)
	for _, id := range []string{"at once", "when stored", "when taken", "never seen"} {
		s.wantNone(node, id, "i")
	}
	node = s.restart(node, "a")
	for _, id := range []string{"at once", "when stored", "when taken", "never seen"} {
		s.wantNone(node, id, "i")
	}
	node.Forget("kept") // it is not of this node yet
	s.Settle(node.name)
	s.wantRecord(node, "kept", recordOf("i", 1))
}

func (s *sessions) oneTakeWins() {
	first := s.start("a")
	const rounds = 8
	for round := range rounds {
		first.Save(fmt.Sprint("session ", round), recordOf("i", round))
	}
	s.Settle(first.name)
	s.kill(first)
	for _, name := range s.names() {
		s.start(name)
	}
	for round := range rounds {
		session := fmt.Sprint("session ", round)
		var winners atomic.Int64
		var group sync.WaitGroup
		for n := range 12 {
			node := s.running[s.names()[n%s.Nodes]]
			group.Go(func() {
				if r, err := node.Take(s.ctx, session, "i"); err == nil {
					winners.Add(1)
					if !sameRecord(r, recordOf("i", round)) {
						s.t.Errorf("a Take among many got %s", textOf(r))
					}
				} else if errors.Is(err, streamable.ErrNoSession) {
					s.t.Errorf("the session was taken, and a Take got %v", err)
				}
			})
		}
		group.Wait()
		if winners.Load() > 1 {
			s.t.Fatalf("%d of 12 Takes have the session", winners.Load())
		}
		if winners.Load() == 0 {
			s.wantRecord(s.running["a"], session, recordOf("i", round))
		}
	}
}

func (s *sessions) takeWithoutTime() {
	node := s.start("a")
	node.Save("s", recordOf("i", 1))
	s.Settle(node.name)
	node = s.restart(node, "a")
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	if r, err := node.Take(ended, "s", "i"); err == nil {
		if !sameRecord(r, recordOf("i", 1)) {
			s.t.Fatalf("a Take whose context had ended got %s", textOf(r))
		}
		return
	} else if errors.Is(err, streamable.ErrNoSession) {
		s.t.Fatalf("there is a session, and a Take whose context had ended got %v", err)
	}
	s.wantRecord(node, "s", recordOf("i", 1))
}

func (s *sessions) lossIsReported() {
	if s.Lose == nil {
		return
	}
	old, next := s.start("a"), s.start("b")
	for n := range 3 {
		session := fmt.Sprint("s", n)
		old.Save(session, recordOf("i", 1))
		s.Settle(old.name)
		s.Lose(old.name)
		s.wantRecord(next, session, recordOf("i", 1))
		next.Save(session, recordOf("i", 3))
		s.Settle(next.name)
		s.use(old, func() {
			old.Save(session, recordOf("i", 2))
			switch n {
			case 1:
				old.Free(session)
			case 2:
				old.Forget(session)
			}
		})
		if n == 0 {
			s.awaitLoss(old, session)
		}
		s.Settle(old.name)
		s.kill(old)
		s.wantOwned(next, session, "i", next.name)
		old = s.start("a")
		s.kill(next)
		s.wantRecord(old, session, recordOf("i", 3))
		old.Forget(session)
		next = s.start("b")
	}
}

func (s *sessions) awaitLoss(n *sessionNode, session string) {
	s.t.Helper()
	select {
	case lost := <-n.lost:
		if lost != session {
			s.t.Fatalf("another node has taken %q, and %q was reported as lost", session, lost)
		}
	case <-s.ctx.Done():
		s.t.Fatalf("another node has taken the session, and its owner was not told: %v", context.Cause(s.ctx))
	}
}
