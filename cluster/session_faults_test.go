package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// sessionTest is a test with three nodes in virtual time. Lost are the sessions that the first two
// have lost, as "node: session".
type sessionTest struct {
	t       *testing.T
	service *clustertest.Service
	nodes   [3]*cluster.Node
	engines [3]*clustertest.Engine
	stores  [3]streamable.SessionStore
	lost    chan string
}

func inSessions(t *testing.T, test func(s *sessionTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &sessionTest{t: t, lost: make(chan string, 100)}
		s.nodes, s.engines, s.service = threeNodes(t)
		for i, n := range s.nodes {
			s.stores[i] = n.Sessions()
			s.stores[i].Bind(func(session string) { s.lost <- n.Name() + ": " + session })
		}
		test(s)
	})
}

// save saves a session at a node, and waits until it is stored.
func (s *sessionTest) save(node int, session string, streams uint64) {
	s.stores[node].Save(session, sessionOf("ada", streams))
	s.nodes[node].Flush(s.t.Context())
}

// taken takes a session, and checks its record.
func (s *sessionTest) taken(node int, session string, streams uint64) {
	s.t.Helper()
	r, err := s.stores[node].Take(s.t.Context(), session, "ada")
	if err != nil || r.Streams != streams {
		s.t.Errorf("node %s takes %s and gets %d, %v, want %d", s.nodes[node].Name(), session, r.Streams, err, streams)
	}
}

// owned checks that a node which does not have a session is told who has.
func (s *sessionTest) owned(node int, session, owner string) {
	s.t.Helper()
	_, err := s.stores[node].Take(s.t.Context(), session, "ada")
	var owned *streamable.OwnedError
	if !errors.As(err, &owned) || owned.Node != owner {
		s.t.Errorf("node %s takes %s and gets %v, want that node %s has it", s.nodes[node].Name(), session, err, owner)
	}
}

// gone checks that there is no such session.
func (s *sessionTest) gone(node int, session string) {
	s.t.Helper()
	for _, identity := range []string{"ada", ""} {
		if r, err := s.stores[node].Take(s.t.Context(), session, identity); !errors.Is(err, streamable.ErrNoSession) {
			s.t.Errorf("node %s takes %s, which has ended, for %q, and gets %+v, %v", s.nodes[node].Name(), session, identity, r, err)
		}
	}
}

// wantLost checks which sessions were lost until now.
func (s *sessionTest) wantLost(want ...string) {
	s.t.Helper()
	got := map[string]bool{}
	for range len(s.lost) {
		got[<-s.lost] = true
	}
	for _, w := range want {
		if !got[w] {
			s.t.Errorf("not lost: %q", w)
		}
		delete(got, w)
	}
	if len(got) > 0 {
		s.t.Errorf("lost: %v", got)
	}
}

// A session that another node has taken and ended stays ended, also for an owner that was cut off
// and believes in it.
//
// Guarantees: G-0082.4
func TestEndedSessionStaysEnded(t *testing.T) {
	inSessions(t, func(s *sessionTest) {
		for _, session := range []string{"ended", "freed and ended", "taken"} {
			s.save(0, session, 1)
		}
		s.engines[0].Cut()
		rest(s.t, 25*time.Second)
		for _, session := range []string{"ended", "freed and ended", "taken"} {
			s.taken(1, session, 1)
		}
		s.stores[1].Forget("ended")
		s.stores[1].Free("freed and ended")
		s.nodes[1].Flush(s.t.Context())
		s.taken(2, "freed and ended", 1)
		s.stores[2].Forget("freed and ended")
		s.nodes[2].Flush(s.t.Context())
		s.gone(1, "ended")
		s.stores[0].Save("ended", sessionOf("ada", 9))
		s.engines[0].Heal()
		rest(s.t, time.Minute)
		s.wantLost("a: ended", "a: freed and ended", "a: taken")
		s.stores[0].Save("ended", sessionOf("ada", 10)) // too late
		rest(s.t, time.Minute)
		s.wantLost("a: ended")
		for node := range s.nodes {
			s.gone(node, "ended")
			s.gone(node, "freed and ended")
		}
		s.owned(0, "taken", "b")
	})
}

// Sessions that end where they began leave nothing in the engine, however many there are.
//
// Guarantees: G-0082.4
func TestEndedSessionsTakeNoRoom(t *testing.T) {
	inSessions(t, func(s *sessionTest) {
		for i := range 100 {
			session := fmt.Sprint(i)
			s.stores[0].Save(session, sessionOf("ada", 1))
			if i%2 == 0 {
				s.nodes[0].Flush(s.t.Context())
			}
			s.stores[0].Forget(session)
		}
		rest(s.t, 10*time.Second)
		if n := len(s.values()); n != 0 {
			s.t.Errorf("%d values are left of 100 sessions", n)
		}
	})
}

// values returns what the engine has of sessions.
func (s *sessionTest) values() (all []string) {
	bucket, err := s.engines[2].Bucket(s.t.Context(), cluster.SessionBucket())
	if err != nil {
		s.t.Fatal(err)
	}
	for key, err := range bucket.Keys(s.t.Context(), "") {
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, key)
	}
	return all
}

// After the engine has lost everything, its revisions begin again. Records are written again by
// themselves, and the numbers of before mislead nobody: a node that was cut off learns that it has
// lost a session, whatever revision the record of the new owner has.
//
// Guarantees: G-0082.3
func TestSessionsOfAnEmptyEngine(t *testing.T) {
	for name, c := range map[string]struct {
		saves int // before a is cut off
		lost  int // reads of sessions, when a is back
	}{
		"equal revision": {}, "higher revision": {saves: 20}, "equal revision, and the first reads are lost": {lost: 3},
	} {
		t.Run(name, func(t *testing.T) {
			inSessions(t, func(s *sessionTest) {
				s.save(0, "taken", 1)
				for range c.saves {
					s.save(0, "taken", 1)
				}
				s.save(0, "kept", 1)
				s.engines[0].Cut()
				rest(s.t, 25*time.Second)
				s.taken(1, "taken", 1)
				s.service.Wipe()
				rest(s.t, time.Minute)
				s.owned(2, "taken", "b")
				lost := c.lost
				s.engines[0].Faults(func(op clustertest.Operation) clustertest.Fault {
					loses := lost > 0 && op.Name == "get" && op.Subject == "session"
					if loses {
						lost--
					}
					return clustertest.Fault{LoseResult: loses}
				})
				s.engines[0].Heal()
				rest(s.t, time.Minute)
				s.owned(2, "kept", "a")
				s.wantLost("a: taken")
				s.save(1, "taken", 5)
				s.save(0, "kept", 5)
				s.stores[1].Free("taken")
				s.stores[0].Free("kept")
				rest(s.t, 5*time.Second)
				s.taken(2, "taken", 5)
				s.taken(2, "kept", 5)
				s.wantLost()
			})
		})
	}
}

// If the owner before writes its record into an empty engine first, the owner that took the
// session from it replaces that.
//
// Guarantees: G-0082.3
func TestFormerOwnerIsFirstInAnEmptyEngine(t *testing.T) {
	inSessions(t, func(s *sessionTest) {
		s.save(0, "s", 1)
		s.engines[0].Cut()
		rest(s.t, 25*time.Second)
		s.taken(1, "s", 1)
		s.engines[1].Cut()
		s.service.Wipe()
		s.engines[0].Heal()
		rest(s.t, time.Minute)
		s.owned(2, "s", "a")
		s.engines[1].Heal()
		rest(s.t, time.Minute)
		s.owned(2, "s", "b")
		s.save(0, "s", 7)
		s.wantLost("a: s")
		s.owned(2, "s", "b")
	})
}

// A view that is old misleads nobody: not the owner, which it shows the record of the owner before,
// and not a node that wants to take the session.
//
// Guarantees: G-0082.2
func TestSessionsWithOldViews(t *testing.T) {
	inSessions(t, func(s *sessionTest) {
		s.save(1, "s", 1)
		s.stores[1].Free("s")
		s.nodes[1].Flush(s.t.Context())
		s.engines[0].Freeze() // it shows the free record on
		s.engines[1].Freeze()
		s.taken(0, "s", 1)
		s.engines[0].Faults(func(op clustertest.Operation) clustertest.Fault {
			return clustertest.Fault{LoseResult: op.Name == "update" && op.Subject == "session"}
		})
		s.stores[0].Save("s", sessionOf("ada", 2)) // is accepted, and seems to fail
		rest(s.t, 8*time.Second)
		s.engines[0].Faults(nil)
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		defer cancel()
		if r, err := s.stores[1].Take(ctx, "s", "ada"); err == nil {
			s.t.Errorf("b got record %d from an old view", r.Streams)
		}
		rest(s.t, 5*time.Second)
		s.engines[0].Thaw()
		s.engines[1].Thaw()
		rest(s.t, 10*time.Second)
		s.wantLost()
		s.save(0, "s", 3)
		s.stores[0].Free("s")
		rest(s.t, time.Second)
		s.taken(1, "s", 3)
	})
}

// While the engine cannot be reached, the newest record of each session waits, and a session that has
// ended meanwhile is never written.
func TestSessionsWithoutTheEngine(t *testing.T) {
	inSessions(t, func(s *sessionTest) {
		s.engines[0].Cut()
		for n := range 50 {
			s.stores[0].Save("s", sessionOf("ada", uint64(n)))
			s.stores[0].Save("t", sessionOf("ada", uint64(n)))
		}
		s.stores[0].Forget("t")
		rest(s.t, 10*time.Second)
		began := time.Now()
		if s.nodes[0].Flush(s.t.Context()); time.Since(began) != 0 {
			s.t.Errorf("the node waits %v for an engine that is away", time.Since(began))
		}
		sent, _ := s.engines[0].Messages()
		s.engines[0].Heal()
		rest(s.t, 2*time.Second)
		if now, _ := s.engines[0].Messages(); now-sent > 12 {
			s.t.Errorf("%d messages were sent for one session", now-sent)
		}
		s.owned(1, "s", "a")
		s.gone(1, "t")
		s.stores[0].Free("s")
		rest(s.t, time.Second)
		s.taken(1, "s", 49)
	})
}

// If there is no room for a record, it is written when there is.
func TestSessionsWithoutRoom(t *testing.T) {
	inSessions(t, func(s *sessionTest) {
		s.service.Full(true)
		s.stores[0].Save("s", sessionOf("ada", 1))
		rest(s.t, 2*time.Second)
		s.gone(1, "s")
		s.service.Full(false)
		rest(s.t, 10*time.Second)
		s.owned(1, "s", "a")
	})
}

// Sessions that do not fit keep no others from being given up, and end without a write. Those that go on are
// written when there is room; meanwhile an engine that is full is not asked for all of them again and again.
//
// Guarantees: G-0082.6
func TestSessionsThatDoNotFit(t *testing.T) {
	inSessions(t, func(s *sessionTest) {
		s.save(0, "old", 1)
		s.save(0, "older", 1)
		bucket, err := s.engines[2].Bucket(s.t.Context(), cluster.SessionBucket())
		if err != nil {
			s.t.Fatal(err)
		}
		size, last := 64<<10, uint64(0)
		for i := 0; size > 10; i++ {
			revision, err := bucket.Put(s.t.Context(), fmt.Sprint("fill", i), make([]byte, size))
			switch {
			case err == nil:
				last = revision
			case errors.Is(err, cluster.ErrFull):
				size /= 8
			default:
				s.t.Fatal(err)
			}
		}
		if last == 0 {
			s.t.Fatal("nothing has filled the bucket")
		}
		const many = 200
		for i := range many {
			s.stores[0].Save(fmt.Sprint("new", i), sessionOf("ada", 1))
		}
		rest(s.t, 2*time.Second)
		asked, _ := s.engines[0].Messages()
		rest(s.t, 10*time.Second)
		if now, _ := s.engines[0].Messages(); now-asked > 11*70 { // 64 a second, at both ends too, and the lease
			s.t.Errorf("a full engine was asked %d times in 10 s for %d sessions", now-asked, many)
		}
		s.stores[0].Free("old") // a record that is freed must not be larger
		s.stores[0].Forget("older")
		rest(s.t, 2*time.Second)
		s.taken(1, "old", 1)
		s.gone(1, "older")
		for i := 1; i < many; i++ {
			s.stores[0].Forget(fmt.Sprint("new", i))
		}
		rest(s.t, 2*time.Second)
		if r := s.nodes[0].Report(); r.Sessions > 1 {
			s.t.Errorf("of %d sessions that have ended, %d are still to be written", many-1, r.Sessions-1)
		}
		s.owned(1, "new0", "a")
		s.wantLost()
	})
}

// The engine learns neither ids nor what is stored, and a record opens only where it was put.
func TestRecordsOfSessionsAreSealed(t *testing.T) {
	inSessions(t, func(s *sessionTest) {
		s.save(0, "secret-id", 1)
		s.save(0, "other-id", 1)
		bucket, err := s.engines[2].Bucket(s.t.Context(), cluster.SessionBucket())
		if err != nil {
			s.t.Fatal(err)
		}
		var entries []cluster.Entry
		for _, key := range s.values() {
			got, err := bucket.Get(s.t.Context(), key)
			if err != nil {
				s.t.Fatal(err)
			}
			for _, secret := range []string{"secret-id", "ada", "initialize", "2025-11-25"} {
				if strings.Contains(key+string(got.Value), secret) {
					s.t.Errorf("the engine learns %q", secret)
				}
			}
			entries = append(entries, got)
		}
		if len(entries) != 2 {
			s.t.Fatalf("the engine has %d records, want 2", len(entries))
		}
		if _, err := bucket.Update(s.t.Context(), entries[0].Key, entries[1].Value, entries[0].Revision); err != nil {
			s.t.Fatal(err)
		}
		refused := s.nodes[1].Report().RefusedRecords
		none := 0
		for _, id := range []string{"secret-id", "other-id"} {
			if _, err := s.stores[1].Take(s.t.Context(), id, "ada"); errors.Is(err, streamable.ErrNoSession) {
				none++
			}
		}
		if now := s.nodes[1].Report().RefusedRecords; none != 1 || now != refused+1 {
			s.t.Errorf("%d records were refused, and %d sessions are none", now-refused, none)
		}
	})
}

// serveSeenBy has a node serve other nodes, and waits until one of them knows.
func serveSeenBy(t *testing.T, n, other testNode) {
	t.Helper()
	serve(t, n, http.NotFoundHandler())
	other.await(t, n.Name()+" serves other nodes", func() bool {
		m, _ := other.Member(n.Name())
		return m.Epoch == n.Self().Epoch && m.Address != ""
	})
}

// A session of which nothing is saved may be at the node where it began, as long as that can be reached: while the engine is away it saves nothing, and
// other nodes do not see its lease. That node itself knows.
//
// Guarantees: G-0082.7
func TestASessionThatIsNotSavedYet(t *testing.T) {
	s := clustertest.New(clustertest.Options{})
	a, b := join(t, s, "a"), join(t, s, "b")
	serveSeenBy(t, a, b)
	var owned *streamable.OwnedError
	if _, err := b.Sessions().Take(t.Context(), "a.s", "ada"); !errors.As(err, &owned) || owned.Node != "a" {
		t.Errorf("another node: got %v, want that the session may be at a", err)
	}
	if _, err := a.Sessions().Take(t.Context(), "a.s", "ada"); !errors.Is(err, streamable.ErrNoSession) {
		t.Errorf("its own node: got %v, want that there is no such session", err)
	}
}

// A node that the Engine cannot reach, and whose door is there, keeps its sessions: nobody answers its control requests, but the process runs.
//
// Guarantees: G-0082.2
func TestSessionOfANodeWithoutTheEngine(t *testing.T) {
	s := clustertest.New(clustertest.Options{})
	a, b := join(t, s, "a"), join(t, s, "b")
	serveSeenBy(t, a, b)
	a.Sessions().Save("s", sessionOf("ada", 1))
	a.Flush(t.Context())
	a.engine.Cut()
	var owned *streamable.OwnedError
	if r, err := b.Sessions().Take(t.Context(), "s", "ada"); !errors.As(err, &owned) || owned.Node != "a" {
		t.Errorf("another node takes %+v, %v, want that a has it", r, err)
	}
}

// A node that has heard of an earlier process of the owner only says who the owner is when it has heard of the process that is.
func TestSessionOfAProcessThatIsNotKnownYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		before := join(t, s, "a")
		before.Announce("10.0.0.1:1")
		e := &lateEngine{Engine: s.Engine()}
		b, err := cluster.Join(t.Context(), e, options("b"))
		if err != nil {
			t.Fatal(err)
		}
		advance(time.Second)
		e.late.Store(true)
		closeNode(t, before.Node)
		a := join(t, s, "a")
		a.Sessions().Save("s", sessionOf("ada", 1))
		a.Flush(t.Context())
		a.Announce("10.0.0.1:2")
		var owned *streamable.OwnedError
		_, err = b.Sessions().Take(t.Context(), "s", "ada")
		if m, _ := b.Member("a"); !errors.As(err, &owned) || m.Epoch != a.Self().Epoch || m.Address != "10.0.0.1:2" {
			t.Errorf("got %v while the node knows %+v", err, m)
		}
		closeNode(t, b)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A lateEngine shows changes late.
type lateEngine struct {
	cluster.Engine
	late atomic.Bool
}

func (e *lateEngine) Bucket(ctx context.Context, o cluster.BucketOptions) (cluster.Bucket, error) {
	b, err := e.Engine.Bucket(ctx, o)
	return lateBucket{b, e}, err
}

type lateBucket struct {
	cluster.Bucket
	engine *lateEngine
}

func (b lateBucket) Watch(ctx context.Context, prefix string) iter.Seq[cluster.Entry] {
	return func(yield func(cluster.Entry) bool) {
		for entry := range b.Bucket.Watch(ctx, prefix) {
			if b.engine.late.Load() {
				<-time.NewTimer(200 * time.Millisecond).C
			}
			if !yield(entry) {
				return
			}
		}
	}
}

// When the Engine comes back, the nodes come one after the other. The first one does not say of a session which began
// at another while the Engine was away that there is none: the client is to come again, until that node had its time.
//
// Guarantees: G-0082.7
func TestNodesComeBackOneAfterTheOther(t *testing.T) {
	for name, returns := range map[string]bool{"it comes back": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			inSessions(t, func(s *sessionTest) {
				s.engines[0].Cut()
				s.engines[1].Cut()
				rest(s.t, 25*time.Second)
				s.stores[0].Save("a.s", sessionOf("ada", 1))
				s.engines[1].Heal()
				rest(s.t, 2*time.Second)
				if _, err := s.stores[1].Take(s.t.Context(), "a.s", "ada"); !errors.Is(err, cluster.ErrUnavailable) {
					s.t.Errorf("the first node that is back: got %v, want that nobody can say", err)
				}
				if returns {
					s.engines[0].Heal()
				}
				rest(s.t, 7*time.Second)
				if returns {
					s.owned(1, "a.s", "a")
					return
				}
				s.gone(1, "a.s")
				s.engines[0].Heal()
				rest(s.t, 7*time.Second)
			})
		})
	}
}

// A node whose process was killed, started again and perhaps killed again is known for dead as the
// owner of its sessions at once, also by nodes that have never seen that process, and also if the
// next one has its address.
//
// Guarantees: G-0082.5
func TestSessionOfAnEarlierProcess(t *testing.T) {
	for name, c := range map[string]struct {
		starts      int
		sameAddress bool
	}{
		"started again": {1, false}, "started again at its address": {1, true},
		"started twice": {2, false}, "started twice at its address": {2, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := clustertest.New(clustertest.Options{})
			a, watch := join(t, s, "a"), join(t, s, "watch")
			serveSeenBy(t, a, watch)
			a.Sessions().Save("s", sessionOf("ada", 1))
			a.Flush(t.Context())
			m, _ := a.Member("a")
			for range c.starts {
				a.kill(t)
				o := options("a")
				if c.sameAddress {
					o.Hop = m.Address
				}
				a = joinWith(t, s, o, &cluster.Clock{})
				serveSeenBy(t, a, watch)
			}
			b := join(t, s, "b")
			began := time.Now()
			for ctx := t.Context(); ; {
				r, err := b.Sessions().Take(ctx, "s", "ada")
				if err == nil && r.Streams == 1 {
					break
				}
				if time.Since(began) > guard/3 {
					t.Fatalf("got %v", err)
				}
			}
			if took := time.Since(began); took > cluster.LeaseTTL/2 {
				t.Errorf("the session was taken after %v", took)
			}
		})
	}
}
