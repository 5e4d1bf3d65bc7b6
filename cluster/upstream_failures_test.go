package cluster_test

import (
	"bytes"
	"context"
	"encoding/base32"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// Failures count in a row: those from before the server has run for a while do not make its node give it up.
//
// Guarantees: G-0079.10
func TestAServerThatHasRunMayFailAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.join("a", "b")
		s.awaitReady("a", "b")
		from := s.holder()
		for _, lasting := range []time.Duration{time.Second, time.Second, time.Minute, time.Second} {
			advance(lasting)
			s.machine.crash()
			advance(2 * time.Second)
			s.awaitReady("a", "b")
		}
		if s.holder() != from {
			t.Errorf("the server runs on %q after %v, want that node %q keeps it", s.holder(), s.machine.startedOn(), from)
		}
	})
}

// After a node has let others try, it fails as often again before it does so the next time.
//
// Guarantees: G-0079.10
func TestFailuresCountAnewAfterANodeHasGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		var givenUp atomic.Int64
		n := s.addWithLog("a", onRecord(func(r slog.Record) {
			if strings.Contains(r.Message, "fails on this node") {
				givenUp.Add(1)
			}
		}))
		s.machine.fail(nil, nil, []string{"a"})
		for i := range 3*maxFailures - 1 {
			if link, err := n.upstream.Open(t.Context()); err == nil {
				link.Close(0)
			}
			synctest.Wait()
			if got, want := givenUp.Load(), int64(i+1)/maxFailures; got != want {
				t.Errorf("after %d failures the node has given up %d times, want %d", i+1, got, want)
			}
		}
	})
}

// A waking connection counts how often it is woken.
type waking struct{ woken atomic.Int64 }

func (w *waking) Wake()               { w.woken.Add(1) }
func (*waking) Done() <-chan struct{} { return nil }

// A connection that got no server is woken as soon as what it has waited for changes: the claim of the server, that of a node which
// takes it, or a node.
//
// Guarantees: G-0079.10
func TestConnectionsAreWokenByLeases(t *testing.T) {
	name := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte("machine"))
	for what, key := range map[string]string{"the claim": "srv." + name, "a move": "move." + name, "a node": ""} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site) {
				a, b, w := s.add("a", cluster.UpstreamOptions{}), s.add("b", cluster.UpstreamOptions{}), new(waking)
				change := func() { s.add("c", cluster.UpstreamOptions{}) }
				if key != "" {
					release, _ := b.claim(t, key)
					change = func() {
						if err := release(t.Context()); err != nil {
							t.Error(err)
						}
					}
				} else {
					s.machine.fail(errBroken, []string{"a"}, nil)
				}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(transport.WithWaker(t.Context(), w), time.Second)
				defer cancel()
				if _, err := a.upstream.Open(ctx); err == nil {
					t.Fatal("the server was opened")
				}
				advance(10 * time.Second) // whoever was to be woken because of an earlier change has been
				before := w.woken.Load()
				change()
				synctest.Wait()
				if w.woken.Load() == before {
					t.Error("the connection was not woken")
				}
			})
		})
	}
}

// A node on which the server has not started keeps its claim for the connection that will try again, for 40 s.
//
// Guarantees: G-0079.10
func TestAClaimIsKeptAfterAFailedStart(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		n := s.add("a", cluster.UpstreamOptions{})
		ended := make(chan struct{})
		defer close(ended)
		s.machine.fail(errBroken, []string{"a"}, nil)
		if _, err := n.upstream.Open(transport.WithWaker(t.Context(), resting(ended))); err == nil {
			t.Fatal("the server has started")
		}
		s.add("b", cluster.UpstreamOptions{}).start(s)
		advance(38 * time.Second)
		if got := s.machine.startedOn(); len(got) != 1 {
			t.Errorf("the server was started on %v although a connection may come back", got)
		}
		advance(4 * time.Second) // as in TestAClaimIsKeptForAConnection
		if got := s.machine.startedOn(); len(got) != 2 || s.holder() != "b" {
			t.Errorf("the server was started on %v, and runs on %q", got, s.holder())
		}
	})
}

// An exclusive server has the name of its own transport, or else that by which nodes know it, and starts a process if that one does. What the
// program does with its options later changes nothing.
//
// Guarantees: G-0079.10
func TestAnUpstreamIsAsItWasConfigured(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.zone = "here"
		on := map[string]string{"zone": "here"}
		n := s.add("a", cluster.UpstreamOptions{On: on})
		on["zone"] = "elsewhere"
		link, err := n.upstream.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		link.Close(0)
		if got := transport.TraitsOf(n.upstream); got.Name != "machine" || !got.StartsProcess {
			t.Errorf("got the traits %+v", got)
		}
		named := &stdio.Command{Path: "/bin/echo"}
		if got, want := transport.TraitsOf(n.Upstream("other", named, cluster.UpstreamOptions{})), transport.TraitsOf(named); want.Name == "" || got.Name != want.Name {
			t.Errorf("got the name %q, want %q", got.Name, want.Name)
		}
	})
}

// The longest frame of a command holds also for clients of other nodes than that on which it runs.
//
// Guarantees: G-0079.6
func TestFramesOfAnotherNodeAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.join("a")
		s.awaitReady("a")
		n := s.add("b", cluster.UpstreamOptions{})
		link, err := n.Upstream("machine", &stdio.Command{Path: "/bin/echo", MaxFrame: 1000}, cluster.UpstreamOptions{}).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer link.Close(0)
		if err := link.Send(transport.Outbound{Frame: bytes.Repeat([]byte(" "), 1001)}); err == nil {
			t.Error("a frame is sent that is too long for the command")
		}
	})
}
