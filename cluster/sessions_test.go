package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/proptest/stores"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A sessionCluster starts and kills nodes for the contract of their session stores.
type sessionCluster struct {
	t       *testing.T
	service *clustertest.Service
	nodes   map[string]*runningNode
	view    *cluster.Observer
	door    string // an address that refuses connections: that of every node
	killed  []cluster.Owner
}

func newSessionCluster(t *testing.T) *sessionCluster {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &sessionCluster{t: t, service: clustertest.New(clustertest.Options{}), nodes: map[string]*runningNode{}, door: listener.Addr().String()}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if c.view, err = cluster.Observe(t.Context(), c.service.Engine(), options("")); err != nil {
		t.Fatal(err)
	}
	return c
}

// close ends the nodes that are running.
func (c *sessionCluster) close() {
	for _, n := range c.nodes {
		closeNode(c.t, n.node)
		_ = n.engine.Close()
	}
	c.view.Close()
}

type runningNode struct {
	node   *cluster.Node
	engine *clustertest.Engine
}

func (c *sessionCluster) start(name string) streamable.SessionStore {
	e := c.service.Engine()
	n, err := cluster.Join(c.t.Context(), e, options(name))
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes[name] = &runningNode{n, e}
	c.notice(n)
	n.Announce(c.door)
	for m, _ := c.view.Member(name); m.Address == "" || m.Epoch != n.Self().Epoch; m, _ = c.view.Member(name) {
		runtime.Gosched()
	}
	return n.Sessions()
}

// settle waits until a node has written everything.
func (c *sessionCluster) settle(name string) { c.nodes[name].node.Flush(c.t.Context()) }

// kill ends a node: nobody answers for it any more, and its door refuses connections.
func (c *sessionCluster) kill(name string) {
	killed := c.nodes[name]
	delete(c.nodes, name)
	c.killed = append(c.killed, killed.node.Self())
	if err := killed.engine.Close(); err != nil {
		c.t.Fatal(err)
	}
	closeNode(c.t, killed.node)
	for _, other := range c.nodes {
		c.notice(other.node)
	}
}

// notice makes a node know who was killed, at once instead of after 20 s.
func (c *sessionCluster) notice(n *cluster.Node) {
	for _, owner := range c.killed {
		n.SawEnd(owner)
	}
}

// A history joins and kills nodes, so there are fewer of them than by default.
//
// Guarantees: G-0082.1
func TestSessionsOfACluster(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	given := checks.Value.String()
	if given == checks.DefValue {
		if err := checks.Value.Set("10"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = checks.Value.Set(given) }() // it was valid before
	}
	stores.SessionStoreContract(t, func(t *testing.T) stores.Sessions {
		c := newSessionCluster(t)
		return stores.Sessions{Nodes: 3, Start: c.start, Settle: c.settle, Kill: c.kill, Close: c.close}
	}, proptest.ContractOptions{})
}

func sessionOf(identity string, streams uint64) streamable.SessionRecord {
	return streamable.SessionRecord{Identity: identity, Initialize: json.RawMessage(`{"jsonrpc":"2.0"}`), Version: "2025-11-25", Streams: streams}
}

// A session of a node that is cut off is served on and not taken before its lease is over. When the
// node is back, it learns which of its sessions others have taken, and saves the others.
//
// Guarantees: G-0082.2
func TestSessionsOfANodeThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, _ := threeNodes(t)
		a, b := nodes[0].Sessions(), nodes[1].Sessions()
		lost := make(chan string, 10)
		a.Bind(func(session string) { lost <- session })
		b.Bind(func(session string) { t.Errorf("node b has lost %q", session) })
		for i := range 3 {
			a.Save(fmt.Sprint(i), sessionOf("ada", 1))
		}
		nodes[0].Flush(t.Context())
		engines[0].Cut()
		rest(t, 10*time.Second)
		var owned *streamable.OwnedError
		if _, err := b.Take(t.Context(), "0", "ada"); !errors.As(err, &owned) || owned.Node != "a" {
			t.Errorf("after ten seconds: %v", err)
		}
		rest(t, 15*time.Second)
		if _, err := b.Take(t.Context(), "0", "eve"); !errors.Is(err, streamable.ErrNoSession) {
			t.Errorf("for somebody else: %v", err)
		}
		if r, err := b.Take(t.Context(), "0", "ada"); err != nil || r.Streams != 1 {
			t.Errorf("after the lease: %+v, %v", r, err)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := a.Take(ctx, "5", "ada"); err == nil || errors.Is(err, streamable.ErrNoSession) || time.Since(began) > 0 {
			t.Errorf("without the engine, after %v: %v", time.Since(began), err)
		}
		a.Save("2", sessionOf("ada", 2))
		if r := nodes[0].Report(); r.Sessions != 3 || r.Unsaved != 1 {
			t.Errorf("without the engine: %d sessions, %d unsaved", r.Sessions, r.Unsaved)
		}
		engines[0].Heal()
		if session := <-lost; session != "0" {
			t.Errorf("node a has lost %q", session)
		}
		rest(t, 10*time.Second)
		if r := nodes[0].Report(); r.Sessions != 2 || r.Unsaved != 0 {
			t.Errorf("with the engine again: %d sessions, %d unsaved", r.Sessions, r.Unsaved)
		}
		if _, err := b.Take(t.Context(), "1", "ada"); !errors.As(err, &owned) {
			t.Errorf("a session of the node that is back: %v", err)
		}
	})
}

// An engine that has lost everything gets the records again.
//
// Guarantees: G-0082.3
func TestSessionsAreWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _, service := threeNodes(t)
		a, b := nodes[0].Sessions(), nodes[1].Sessions()
		a.Bind(func(session string) { t.Errorf("lost %q", session) })
		a.Save("s", sessionOf("ada", 1))
		nodes[0].Flush(t.Context())
		service.Wipe()
		rest(t, time.Minute) // leases are made again
		a.Save("s", sessionOf("ada", 2))
		nodes[0].Flush(t.Context())
		var owned *streamable.OwnedError
		if _, err := b.Take(t.Context(), "s", "ada"); !errors.As(err, &owned) {
			t.Errorf("the record was not written again: %v", err)
		}
		a.Free("s")
		nodes[0].Flush(t.Context())
		if r, err := b.Take(t.Context(), "s", "ada"); err != nil || r.Streams != 2 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A write whose answer was lost is not taken for that of another node.
func TestSessionSurvivesLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, engines, _ := threeNodes(t)
		a, b := nodes[0].Sessions(), nodes[1].Sessions()
		a.Bind(func(session string) { t.Errorf("lost %q", session) })
		for i, op := range []string{"create", "update", "update", "delete"} {
			lost := false
			engines[0].Faults(func(o clustertest.Operation) clustertest.Fault {
				lose := !lost && o.Name == op && o.Subject == "session"
				lost = lost || lose
				return clustertest.Fault{LoseResult: lose}
			})
			switch op {
			case "delete":
				a.Forget("s")
			default:
				a.Save("s", sessionOf("ada", uint64(i)))
			}
			rest(t, 20*time.Second)
			nodes[0].Flush(t.Context())
			engines[0].Faults(nil)
			if !lost {
				t.Errorf("no answer to %s was lost", op)
			}
		}
		if _, err := b.Take(t.Context(), "s", "ada"); !errors.Is(err, streamable.ErrNoSession) {
			t.Errorf("a session that has ended: %v", err)
		}
	})
}

// A node that has just begun to serve, of which another one has not heard yet, is waited for. So a
// request of its first session finds it. A session that nobody has is unknown soon.
func TestSessionsOfANewNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _, service := threeNodes(t)
		b := nodes[1].Sessions()
		for _, saved := range []bool{false, true} {
			name := fmt.Sprintf("new-%v", saved)
			n := join(t, service, name)
			session := name + ".s"
			if saved {
				n.Sessions().Save(session, sessionOf("ada", 1))
				n.Flush(t.Context())
			}
			time.AfterFunc(300*time.Millisecond, func() { n.Announce("192.0.2.1:1") })
			began := time.Now()
			_, err := b.Take(t.Context(), session, "ada")
			var owned *streamable.OwnedError
			if took := time.Since(began); !errors.As(err, &owned) || owned.Node != name || took < 300*time.Millisecond || took > 400*time.Millisecond {
				t.Errorf("saved %v: after %v: %v", saved, took, err)
			}
			closeNode(t, n.Node)
		}
		for session, most := range map[string]time.Duration{"nobody.s": 250 * time.Millisecond, "b.s": 0, "s": 0} {
			began := time.Now()
			if _, err := b.Take(t.Context(), session, "ada"); !errors.Is(err, streamable.ErrNoSession) || time.Since(began) > most {
				t.Errorf("session %q: after %v: %v", session, time.Since(began), err)
			}
		}
	})
}

// The bucket is there before the first session: a session that is not written ends with its node.
func TestSessionsAreWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := join(t, clustertest.New(clustertest.Options{}), "a")
		n.lag(2*time.Second, 0, "bucket")
		a := n.Sessions()
		rest(t, 3*time.Second)
		began := time.Now()
		a.Save("s", sessionOf("ada", 1))
		n.Flush(t.Context())
		if took := time.Since(began); took > 0 || n.Report().Unsaved != 0 {
			t.Errorf("after %v, %d sessions are not saved", took, n.Report().Unsaved)
		}
		n.lag(time.Second, 0, "create")
		a.Save("late", sessionOf("ada", 1))
		rest(t, 500*time.Millisecond)
		if unsaved := n.Report().Unsaved; unsaved != 1 {
			t.Errorf("while a session is being written, %d are not saved, want 1", unsaved)
		}
		closeNode(t, n.Node)
	})
}

// What is saved of a session after it was given up counts for nothing: the next node goes on with what it was then.
//
// Guarantees: G-0082.4
func TestASaveAfterTheEnd(t *testing.T) {
	inSessions(t, func(s *sessionTest) {
		s.save(0, "s", 1)
		s.engines[0].Faults(func(clustertest.Operation) clustertest.Fault { return clustertest.Fault{Delay: time.Second} })
		s.stores[0].Free("s")
		s.stores[0].Save("s", sessionOf("ada", 7))
		s.nodes[0].Flush(s.t.Context())
		s.taken(1, "s", 1)
	})
}

// When more sessions wait than are written at a time, ends go first: nobody goes on with a session that has ended.
func TestEndsOfSessionsAreWrittenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := clustertest.New(clustertest.Options{})
		a, b := join(t, service, "a"), join(t, service, "b")
		store, other := a.Sessions(), b.Sessions()
		store.Save("ended", sessionOf("ada", 1))
		a.Flush(t.Context())
		a.lag(time.Second, 0, "create", "update", "delete", "put")
		for i := range 300 {
			store.Save(fmt.Sprint(i), sessionOf("ada", 1))
		}
		store.Forget("ended")
		rest(t, 2500*time.Millisecond) // in which less than half of them are written
		if _, err := other.Take(t.Context(), "ended", "ada"); !errors.Is(err, streamable.ErrNoSession) {
			t.Errorf("another node takes it: %v, want ErrNoSession", err)
		}
		if n := a.Report().Unsaved; n < 100 {
			t.Fatalf("only %d sessions wait", n)
		}
		closeNode(t, a.Node)
		closeNode(t, b.Node)
	})
}

// A session that is given up while the engine refuses its record does not wait for room.
//
// Guarantees: G-0082.6
func TestSessionGivenUpWhileItIsRefused(t *testing.T) {
	inSessions(t, func(s *sessionTest) {
		s.save(0, "old", 1)
		s.service.Full(true)
		s.engines[0].Faults(func(op clustertest.Operation) clustertest.Fault {
			if op.Subject == cluster.SessionBucket().Name && op.Name == "create" {
				return clustertest.Fault{Delay: 500 * time.Millisecond}
			}
			return clustertest.Fault{}
		})
		s.stores[0].Save("new", sessionOf("ada", 1))
		rest(s.t, 400*time.Millisecond)
		s.stores[0].Forget("new")
		rest(s.t, 200*time.Millisecond)
		if r := s.nodes[0].Report(); r.Sessions != 1 || r.Unsaved != 0 {
			s.t.Errorf("of %d sessions %d are still to be written, want that of one session none is", r.Sessions, r.Unsaved)
		}
		s.service.Full(false)
		s.gone(1, "new")
	})
}

// Records that the engine does not take, however often they are sent, keep no others from being saved.
//
// Guarantees: G-0082.6
func TestSessionsThatAreTooLong(t *testing.T) {
	inSessions(t, func(s *sessionTest) {
		long := sessionOf("ada", 1)
		long.State = make([]byte, 64<<10)
		for i := range 100 {
			s.stores[0].Save(fmt.Sprint("long", i), long)
		}
		rest(s.t, 2*time.Second)
		s.stores[0].Save("short", sessionOf("ada", 1))
		rest(s.t, 2*time.Second)
		if n := len(s.values()); n != 1 {
			s.t.Errorf("the engine has %d records, want that of the session which is not too long", n)
		}
		s.owned(1, "short", "a")
	})
}

// Of two requests that a node gets at the same time for a session that was given up, one takes it, and the other is told where it is.
//
// Guarantees: G-0082.1
func TestTwoTakesOfASession(t *testing.T) {
	inSessions(t, func(s *sessionTest) {
		s.save(0, "s", 1)
		s.stores[0].Free("s")
		s.nodes[0].Flush(s.t.Context())
		s.engines[1].Faults(func(clustertest.Operation) clustertest.Fault { return clustertest.Fault{Delay: 10 * time.Millisecond} })
		results := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := s.stores[1].Take(s.t.Context(), "s", "ada")
				results <- err
			}()
		}
		rest(s.t, time.Second)
		first, second := <-results, <-results
		if first != nil {
			first, second = second, first
		}
		if owned := (*streamable.OwnedError)(nil); first != nil || !errors.As(second, &owned) || owned.Node != "b" {
			s.t.Errorf("one got %v, and the other %v, want that one takes it and the other learns that node b has it", first, second)
		}
	})
}

// An engine that cannot be reached for a moment, as when one of its servers is replaced, does not keep a node from a session.
func TestTakeWhileTheEngineIsAwayForAMoment(t *testing.T) {
	inSessions(t, func(s *sessionTest) {
		s.save(0, "s", 1)
		s.stores[0].Free("s")
		s.nodes[0].Flush(s.t.Context())
		s.engines[1].Cut()
		time.AfterFunc(100*time.Millisecond, s.engines[1].Heal)
		s.taken(1, "s", 1)
	})
}

// A node that has taken a session and has not got the answer takes it again, even if it had to make its lease anew meanwhile.
//
// Guarantees: G-0082.1
func TestTakeAgainAfterALostAnswer(t *testing.T) {
	inSessions(t, func(s *sessionTest) {
		s.save(0, "s", 1)
		s.stores[0].Free("s")
		s.nodes[0].Flush(s.t.Context())
		s.engines[1].Faults(func(op clustertest.Operation) clustertest.Fault {
			return clustertest.Fault{LoseResult: op.Name == "update" && op.Subject == cluster.SessionBucket().Name}
		})
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		defer cancel()
		if _, err := s.stores[1].Take(ctx, "s", "ada"); err == nil {
			s.t.Error("a take without an answer succeeds")
		}
		s.engines[1].Faults(nil)
		s.engines[1].Cut()
		rest(s.t, 25*time.Second)
		s.engines[1].Heal()
		rest(s.t, 10*time.Second)
		s.taken(1, "s", 1)
	})
}

// Of a session that is not saved, a node whose door is shut is not named as the owner, although its lease is not over.
//
// Guarantees: G-0082.7
func TestASessionOfADoorThatIsShut(t *testing.T) {
	inSessions(t, func(s *sessionTest) {
		s.nodes[0].Announce("127.0.0.1:1") // where nobody listens
		rest(s.t, time.Second)
		if _, err := s.stores[1].Take(s.t.Context(), "a.s", "ada"); !errors.Is(err, streamable.ErrNoSession) {
			s.t.Errorf("got %v, want that there is no such session", err)
		}
	})
}
