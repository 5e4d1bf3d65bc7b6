package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/transport"
)

// Calls from all nodes reach one server, which runs on one node, and cost no message of the
// Engine.
//
// Guarantees: G-0079.6
func TestAllNodesReachOneServer(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.join("a", "b", "c")
		s.awaitReady("a", "b", "c")
		s.mustReach("a", "b", "c")
		if started := s.machine.startedOn(); len(started) != 1 || s.holder() != started[0] {
			t.Errorf("the server was started on %v, and %q reports it", started, s.holder())
		}
		sent := s.messages()
		for range 100 {
			s.mustReach("a", "b", "c")
		}
		if now := s.messages(); now != sent {
			t.Errorf("300 calls cost %d messages of the engine", now-sent)
		}
	})
}

func (s *site) messages() (all uint64) {
	for _, n := range s.nodes {
		sent, _ := n.engine.Messages()
		all += sent
	}
	return all
}

// A node that is killed loses the server to another one when its claim has expired. Calls in
// flight are lost, perhaps executed, and none is executed twice.
//
// Guarantees: G-0079.7, G-0079.8
func TestAnotherNodeRunsTheServerOfADeadOne(t *testing.T) {
	for _, inFlight := range []int{0, 1, 100} {
		t.Run(fmt.Sprint(inFlight, " in flight"), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site) {
				s.join("a", "b", "c")
				s.awaitReady("a", "b", "c")
				dead := s.holder()
				calls := s.callInFlight(inFlight, s.others(dead)...)
				s.kill(dead)
				calls.Wait()
				if took := s.awaitReady(s.others(dead)...); took > cluster.LeaseTTL+2*time.Second {
					t.Errorf("another node runs the server after %v", took)
				}
				s.mustReach(s.others(dead)...)
				s.mustNotHaveExecutedTwice()
			})
		})
	}
}

// callInFlight makes calls from each of some nodes which end with the server. It returns when all
// have reached the server.
func (s *site) callInFlight(n int, nodes ...string) *sync.WaitGroup {
	calls := new(sync.WaitGroup)
	for _, node := range nodes {
		session := s.nodes[node].session
		for i := range n {
			calls.Go(func() {
				_, err := client.Call[string](s.t.Context(), session, "wait", map[string]string{"text": fmt.Sprint(node, i)})
				var call *conn.CallError
				if !errors.As(err, &call) || call.Cause != conn.LinkLost || call.Delivery != conn.Unknown {
					s.t.Errorf("a call of node %s in flight ended with %v, want that the link was lost and the delivery is unknown", node, err)
				}
			})
		}
	}
	for range n * len(nodes) {
		<-s.machine.waiting
	}
	return calls
}

func (s *site) mustNotHaveExecutedTwice() {
	s.t.Helper()
	s.machine.mu.Lock()
	defer s.machine.mu.Unlock()
	for text, times := range s.machine.executed {
		if text != "" && times > 1 {
			s.t.Errorf("call %q was executed %d times", text, times)
		}
	}
}

// A node that cannot reach the Engine ends its server before another one can start it, and uses
// that of the other node when it is back.
//
// Guarantees: G-0079.6, G-0079.8
func TestANodeThatIsCutOffEndsItsServer(t *testing.T) {
	for _, inFlight := range []int{0, 1, 100} {
		t.Run(fmt.Sprint(inFlight, " in flight"), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site) {
				s.join("a", "b", "c")
				s.awaitReady("a", "b", "c")
				cut := s.holder()
				calls := s.callInFlight(inFlight, "a", "b", "c")
				s.nodes[cut].engine.Cut()
				advance(cluster.LeaseHeld - 6*time.Second)
				if s.machine.runs() != 1 {
					t.Error("the server ended although its claim holds")
				}
				advance(7 * time.Second)
				if s.machine.runs() != 0 {
					t.Error("the server runs on after its claim")
				}
				calls.Wait()
				if took := s.awaitReady(s.others(cut)...); took > 5*time.Second {
					t.Errorf("another node runs the server %v later", took)
				}
				s.mustReach(s.others(cut)...)
				s.nodes[cut].engine.Heal()
				if took := s.awaitReady(cut); took > 5*time.Second {
					t.Errorf("the node that was cut off is back after %v", took)
				}
				s.mustReach("a", "b", "c")
				s.mustNotHaveExecutedTwice()
			})
		})
	}
}

// A node whose process was paused passes no call to its server when it continues after its claim,
// and says that it was not executed.
//
// Guarantees: G-0079.8
func TestAPausedNodePassesNoCallOn(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.join("a", "b")
		s.awaitReady("a", "b")
		paused := s.holder()
		s.nodes[paused].clock.Jump(cluster.LeaseHeld + time.Second)
		for _, node := range []string{"a", "b"} {
			if _, err := s.who(node, "late"); !client.NotExecuted(err) {
				t.Errorf("a call through node %s after the claim ended with %v, want that it was not executed", node, err)
			}
		}
		if s.machine.executions("late") != 0 {
			t.Error("the server has executed a call after its claim")
		}
		advance(time.Minute)
		s.awaitReady("a", "b")
		s.mustReach("a", "b")
	})
}

// A drain lets calls end, refuses others as not executed, and gives the server to another node
// within a second.
//
// Guarantees: G-0079.7
func TestADrainMovesTheServer(t *testing.T) {
	for _, inFlight := range []int{0, 1, 100} {
		t.Run(fmt.Sprint(inFlight, " in flight"), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site) {
				s.join("a", "b", "c")
				s.awaitReady("a", "b", "c")
				from, who := s.holder(), s.mustReach("a", "b", "c")
				calls := s.wait(inFlight, who)
				drained := make(chan error, 1)
				go func() { drained <- s.nodes[from].Drain(t.Context()) }()
				synctest.Wait()
				if inFlight > 0 {
					if _, err := s.nodes[s.others(from)[0]].upstream.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "does not run here") {
						t.Errorf("another node that opened a link during the drain got %v", err)
					}
					soon, cancel := context.WithTimeout(t.Context(), time.Second)
					if _, err := s.nodes[from].upstream.Open(soon); err == nil || !strings.Contains(err.Error(), "has to end first") {
						t.Errorf("this node opened a link during the drain and got %v", err)
					}
					cancel()
					if _, err := s.who(from, "late"); !client.NotExecuted(err) {
						t.Errorf("a call during the drain ended with %v, want that it was not executed", err)
					}
				}
				if inFlight > 0 {
					advance(10 * time.Minute) // as long as the calls take
				}
				close(s.machine.hold)
				calls.Wait()
				if err := <-drained; err != nil {
					t.Error(err)
				}
				if took := s.awaitReady("a", "b", "c"); took > time.Second {
					t.Errorf("the server is at another node after %v", took)
				}
				if now := s.mustReach("a", "b", "c"); now == who || s.holder() == from {
					t.Errorf("the server is still %s on %s", now, s.holder())
				}
			})
		})
	}
}

// A node where the program is missing leaves the server to others for a minute.
//
// Guarantees: G-0079.10
func TestANodeWithoutTheProgramLetsOthersRunIt(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		first := s.preferred("a", "b")
		s.machine.fail(exec.ErrNotFound, []string{first}, nil)
		for _, name := range []string{"a", "b"} {
			s.add(name, cluster.UpstreamOptions{})
		}
		synctest.Wait()
		s.nodes["a"].start(s)
		s.nodes["b"].start(s)
		if took := s.awaitReady("a", "b"); took > 2*time.Second { // as in TestAnUnusedClaimIsGivenUp
			t.Errorf("another node runs the server after %v", took)
		}
		if got := s.machine.startedOn(); len(got) != 2 || got[0] != first || got[1] == first {
			t.Errorf("the server was started on %v, want that %s tried once", got, first)
		}
	})
}

// preferred returns which of some nodes claims the server first.
func (s *site) preferred(names ...string) string {
	var members []cluster.Member
	for _, name := range names {
		members = append(members, cluster.Member{Name: name})
	}
	for _, name := range names {
		if cluster.RankOf("machine", name, members, nil) == 0 {
			return name
		}
	}
	s.t.Fatal("no node comes first")
	return ""
}

// A node on which the server fails three times in a row leaves it to others for a minute. If there
// is no other, it goes on trying.
//
// Guarantees: G-0079.10
func TestANodeWhereTheServerFailsLetsOthersTry(t *testing.T) {
	for name, fail := range map[string]func(m *machine, nodes ...string){
		"start": func(m *machine, nodes ...string) { m.fail(errBroken, nodes, nil) },
		"exit":  func(m *machine, nodes ...string) { m.fail(nil, nil, nodes) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site) {
				first := s.preferred("a", "b")
				fail(s.machine, first)
				s.join(first)
				advance(20 * time.Second)
				if got := len(s.machine.startedOn()); got < 4 {
					t.Errorf("the only node has tried %d times", got)
				}
				second := map[string]string{"a": "b", "b": "a"}[first]
				fail(s.machine, first, second)
				s.join(second)
				tried := len(s.machine.startedOn())
				advance(30 * time.Second)
				if got := s.machine.startedOn()[tried:]; !slices.Contains(got, second) {
					t.Errorf("the other node does not try: %v", got)
				}
				fail(s.machine, first)
				if took := s.awaitReady("a", "b"); took > 4*time.Minute || s.holder() != second {
					t.Errorf("%s runs the server after %v, want %s", s.holder(), took, second)
				}
			})
		})
	}
}

// A server that is started again while its node notices that it fails there keeps its claim.
//
// Guarantees: G-0079.6
func TestAServerThatIsStartedAgainKeepsItsClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		var again transport.Link
		n := s.addWithLog("a", onRecord(func(r slog.Record) {
			if strings.Contains(r.Message, "fails on this node") && again == nil {
				s.machine.fail(nil, nil, nil)
				link, err := s.nodes["a"].upstream.Open(context.Background())
				if err != nil {
					t.Error(err)
				}
				again = link
			}
		}))
		s.machine.fail(nil, nil, []string{"a"})
		for range maxFailures {
			if link, err := n.upstream.Open(t.Context()); err == nil {
				link.Close(0)
			}
			synctest.Wait()
		}
		if again == nil {
			t.Fatal("the node has not noticed that the server fails")
		}
		s.add("b", cluster.UpstreamOptions{}).start(s)
		advance(time.Minute)
		if s.holder() != "a" || s.machine.runs() != 1 {
			t.Errorf("the server runs on %q, and was started on %v", s.holder(), s.machine.startedOn())
		}
		again.Close(0)
	})
}

// onRecord is a slog.Handler that calls a function.
type onRecord func(slog.Record)

func (onRecord) Enabled(context.Context, slog.Level) bool        { return true }
func (f onRecord) Handle(_ context.Context, r slog.Record) error { f(r); return nil }
func (f onRecord) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f onRecord) WithGroup(string) slog.Handler                 { return f }

// Only nodes with the labels run the server. The others use it.
//
// Guarantees: G-0079.10
func TestOnlyNodesThatFitRunTheServer(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		on := cluster.UpstreamOptions{On: map[string]string{"zone": "y"}}
		for _, name := range []string{"a", "b"} { // their zone is x
			s.add(name, on).start(s)
		}
		advance(time.Minute)
		if got := s.machine.startedOn(); len(got) > 0 {
			t.Errorf("the server runs on %v", got)
		}
		status := s.nodes["a"].session.Status()
		if !strings.Contains(status.LastFailure.Error(), "lacks the labels") {
			t.Errorf("the client says %v", status.LastFailure)
		}
		s.zone = "y"
		s.add("c", on).start(s)
		if took := s.awaitReady("a", "b", "c"); took > 5*time.Second || s.holder() != "c" {
			t.Errorf("%q runs the server after %v", s.holder(), took)
		}
		s.mustReach("a", "b", "c")
	})
}

// However long connections have failed, they are back as soon as another node can run the server.
//
// Guarantees: G-0079.10
func TestNobodyWaitsLongerThanNecessary(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.join("a", "b", "c")
		s.awaitReady("a", "b", "c")
		hidden := s.holder()
		s.doors.shut(hidden, true)
		advance(17*time.Minute + 123*time.Millisecond) // until they try every 30 s
		for _, node := range s.others(hidden) {
			status := s.nodes[node].session.Status()
			if status.State != conn.Backoff || !strings.Contains(fmt.Sprint(status.LastFailure), "connection refused") {
				t.Errorf("node %s is %s: %v", node, status.State, status.LastFailure)
			}
		}
		if err := s.nodes[hidden].Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if took := s.awaitReady(s.others(hidden)...); took > time.Second {
			t.Errorf("the others are back after %v", took)
		}
	})
}

// Connections that began while the engine was away are back with it.
//
// Guarantees: G-0079.10
func TestConnectionsAreBackWithTheEngine(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		n := s.add("a", cluster.UpstreamOptions{})
		n.engine.Cut()
		advance(time.Minute)
		n.start(s)
		advance(10*time.Minute + 7*time.Second)
		n.engine.Heal()
		if took := s.awaitReady("a"); took > 3*time.Second {
			t.Errorf("the server is there %v after the engine", took)
		}
	})
}

// A node whose connections have ended gives the server up, and at once when it is closed.
//
// Guarantees: G-0079.10
func TestAnUnusedClaimIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.join("a", "b", "c")
		s.awaitReady("a", "b", "c")
		first := s.holder()
		s.nodes[first].stop()
		advance(2 * time.Second)
		second := s.holder()
		if second == first || second == "" {
			t.Fatalf("the server is on %q, and was on %q", second, first)
		}
		s.awaitReady(s.others(first)...)
		s.nodes[second].stop()
		closeNode(t, s.nodes[second].Node)
		delete(s.nodes, second)
		delete(s.nodes, first)
		// Its connection may be woken before it waits, and is woken again a second later. Then it lets the
		// first node come first, which is still there, and perhaps the second one, half a second each.
		for name := range s.nodes {
			if took := s.awaitReady(name); took > 2*time.Second {
				t.Errorf("node %s has the server after %v", name, took)
			}
		}
	})
}

// A connection that is there keeps the claim of its node for 40 s, and no longer.
//
// Guarantees: G-0079.10
func TestAClaimIsKeptForAConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		n := s.add("a", cluster.UpstreamOptions{})
		ended := make(chan struct{})
		defer close(ended)
		link, err := n.upstream.Open(transport.WithWaker(t.Context(), resting(ended)))
		if err != nil {
			t.Fatal(err)
		}
		advance(time.Minute) // which the claim lasts because the server runs
		link.Close(0)
		s.add("b", cluster.UpstreamOptions{}).start(s)
		advance(38 * time.Second)
		if got := s.machine.startedOn(); len(got) != 1 {
			t.Errorf("the server was started on %v although a connection may come back", got)
		}
		advance(4 * time.Second) // its connection may be woken before it waits, and is woken again a second later
		if got := s.machine.startedOn(); len(got) != 2 || s.holder() != "b" {
			t.Errorf("the server was started on %v, and runs on %q", got, s.holder())
		}
	})
}

// A resting connection asks for nothing, until the channel is closed.
type resting chan struct{}

func (resting) Wake()                   {}
func (r resting) Done() <-chan struct{} { return r }

// Close cuts a drain short that waits for calls.
//
// Guarantees: G-0079.7
func TestCloseEndsADrain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.join("a")
		s.awaitReady("a")
		calls := s.callInFlight(1, "a")
		drained := make(chan error, 1)
		go func() { drained <- s.nodes["a"].Drain(t.Context()) }()
		synctest.Wait()
		began := time.Now()
		closeNode(t, s.nodes["a"].Node)
		if err := <-drained; err == nil || time.Since(began) > 10*time.Second {
			t.Errorf("Drain returned %v after %v, want that a call was cut short", err, time.Since(began))
		}
		calls.Wait()
		if s.machine.runs() != 0 {
			t.Error("the server runs on")
		}
	})
}

// Close ends the server, and only then another node can run it.
//
// Guarantees: G-0079.6, G-0079.7
func TestCloseEndsTheServer(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.join("a", "b")
		s.awaitReady("a", "b")
		closed := s.holder()
		closeNode(t, s.nodes[closed].Node)
		if s.machine.runsOn(closed) { // the other node may run it already
			t.Error("the server runs on after Close")
		}
		delete(s.nodes, closed)
		for node := range s.nodes {
			if took := s.awaitReady(node); took > time.Second {
				t.Errorf("the other node runs the server after %v", took)
			}
		}
	})
}

// A server that does not end is not started again, here or elsewhere, as long as its node is there.
//
// Guarantees: G-0079.6
func TestAServerThatDoesNotEndKeepsItsClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.join("a", "b")
		s.awaitReady("a", "b")
		from := s.holder()
		s.machine.mu.Lock()
		s.machine.stuck = errBroken
		s.machine.mu.Unlock()
		s.machine.crash()
		advance(5 * time.Minute)
		if got := s.machine.startedOn(); len(got) != 1 {
			t.Errorf("the server was started on %v", got)
		}
		if why := s.nodes[from].session.Status().LastFailure; !errors.Is(why, errBroken) {
			t.Errorf("the connection says %v", why)
		}
		if err := s.nodes[from].Drain(t.Context()); err != nil {
			t.Errorf("Drain: %v", err)
		}
		advance(time.Minute)
		if got := s.machine.startedOn(); len(got) != 1 {
			t.Errorf("after a drain, the server was started on %v", got)
		}
	})
}

// A node that cannot renew its claim starts no server that it would soon have to end.
//
// Guarantees: G-0079.8
func TestNoServerIsStartedForSeconds(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.join("a")
		s.awaitReady("a")
		s.nodes["a"].engine.Cut()
		advance(11 * time.Second) // of 17
		s.machine.crash()
		advance(10 * time.Minute)
		if got := s.machine.startedOn(); len(got) != 1 {
			t.Errorf("the server was started %d times", len(got))
		}
		s.nodes["a"].engine.Heal()
		if took := s.awaitReady("a"); took > 3*time.Second {
			t.Errorf("the server is back %v after the engine", took)
		}
	})
}

// Connections that ask for a link at the same time get one server.
//
// Guarantees: G-0079.6
func TestConnectionsThatOpenAtOnceShareTheServer(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.machine.slow = time.Second
		n := s.add("a", cluster.UpstreamOptions{})
		first := *n
		first.start(s)
		n.start(s)
		s.awaitReady("a")
		advance(5 * time.Second)
		if got := s.machine.startedOn(); len(got) != 1 {
			t.Errorf("the server was started %d times", len(got))
		}
	})
}

// Several clients of one node use one server. One that is configured anew is not started while the
// old one runs.
//
// Guarantees: G-0079.6
func TestClientsOfOneNodeShareTheServer(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.join("a")
		s.awaitReady("a")
		link, err := s.nodes["a"].upstream.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		link.Close(0)
		s.mustReach("a")
		again := s.nodes["a"].Upstream("machine", s.machine.on("a"), cluster.UpstreamOptions{})
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := again.Open(soon); err == nil || !strings.Contains(err.Error(), "has to end first") {
			t.Errorf("got %v, want that the old server still runs", err)
		}
		s.nodes["a"].stop()
		link, err = again.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		link.Close(0)
		closeNode(t, s.nodes["a"].Node)
		if _, err := again.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("got %v of a closed node", err)
		}
		late := s.nodes["a"].Upstream("another", s.machine.on("a"), cluster.UpstreamOptions{})
		if _, err := late.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("got %v of a closed node", err)
		}
	})
}

// A node that learns that another one has claimed the server before that one knows it itself does
// not have to wait.
//
// Guarantees: G-0079.10
func TestANodeMayBeAskedBeforeItKnowsThatItHasTheClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		for _, name := range []string{"a", "b"} {
			s.add(name, cluster.UpstreamOptions{}).lag(0, 300*time.Millisecond, "create")
		}
		synctest.Wait()
		first := s.preferred("a", "b")
		s.nodes[first].start(s)
		s.nodes[s.others(first)[0]].start(s)
		if took := s.awaitReady("a", "b"); took > 500*time.Millisecond {
			t.Errorf("both nodes reach the server after %v", took)
		}
	})
}

// A server whose claim is lost while it starts is ended before anybody gets a link to it.
//
// Guarantees: G-0079.8
func TestAClaimThatIsLostDuringTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.machine.slow = cluster.LeaseHeld + time.Second // also the second time
		n := s.add("a", cluster.UpstreamOptions{})
		opened := make(chan error, 1)
		go func() {
			_, err := n.upstream.Open(t.Context())
			opened <- err
		}()
		synctest.Wait()
		n.engine.Cut()
		if err := <-opened; err == nil || s.machine.runs() != 0 {
			t.Errorf("Open returned %v, and %d servers run without a claim", err, s.machine.runs())
		}
		n.engine.Heal()
		advance(cluster.LeaseTTL)
		link, err := n.upstream.Open(t.Context())
		if err != nil {
			t.Fatalf("the server does not start when the engine is back: %v", err)
		}
		link.Close(0)
	})
}

// A program that ends its sessions has not failed: its node keeps the claim for the next one.
//
// Guarantees: G-0079.10
func TestSessionsThatEndAreNoFailures(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.join("a", "b")
		s.awaitReady("a", "b")
		holder := s.holder()
		for range maxFailures + 1 {
			s.nodes[holder].stop()
			s.nodes[holder].start(s)
			s.awaitReady("a", "b")
			if s.holder() != holder {
				t.Fatalf("the server has moved from %s to %s", holder, s.holder())
			}
		}
	})
}

const maxFailures = 3

// All nodes agree on the order in which they claim a server, and servers spread.
//
// Guarantees: G-0079.10
func TestRanksAreAnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,4}`), 1, 8, rapid.ID).Draw(t, "nodes")
		server := rapid.String().Draw(t, "server")
		var members []cluster.Member
		var fit []string
		for _, name := range names {
			m := cluster.Member{Name: name, Labels: map[string]string{"zone": rapid.SampledFrom([]string{"x", "y"}).Draw(t, "zone")}, Draining: rapid.Bool().Draw(t, "draining")}
			members = append(members, m)
			if m.Labels["zone"] == "x" && !m.Draining {
				fit = append(fit, name)
			}
		}
		wanted := map[string]string{"zone": "x"}
		ranks := make([]int, len(fit))
		for _, name := range fit {
			rank := cluster.RankOf(server, name, members, wanted)
			if rank >= len(fit) {
				t.Fatalf("node %s has rank %d of %v", name, rank, fit)
			}
			ranks[rank]++
		}
		if slices.Contains(ranks, 0) {
			t.Fatalf("got %v nodes by rank, want one each", ranks)
		}
	})
	first := map[string]int{}
	members := []cluster.Member{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	for i := range 300 {
		for _, m := range members {
			if cluster.RankOf(fmt.Sprint("server ", i), m.Name, members, nil) == 0 {
				first[m.Name]++
			}
		}
	}
	for _, m := range members {
		if first[m.Name] < 70 || first[m.Name] > 130 {
			t.Errorf("of 300 servers, nodes are the first for %v", first)
		}
	}
}
