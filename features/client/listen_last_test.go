package client_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// When nothing is wanted any more, no subscription stays open.
//
// Guarantees: G-0030.4
func TestTheLastSubscriptionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := grantingServer()
		session, err := connect(t, s, client.Options{}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 2; n++ {
			if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"}); err != nil {
				t.Fatal(err)
			}
			if err := session.Unsubscribe(t.Context(), &protocol.UnsubscribeParams{URI: "file:///a"}); err != nil {
				t.Fatal(err)
			}
			pass(2 * time.Second)
			synctest.Wait()
			if asked, ended := len(s.received(protocol.MethodListen)), len(s.received(protocol.NotificationCancelled)); asked != n || ended != n {
				t.Errorf("after %d turns %d subscriptions were asked for, and %d were cancelled", n, asked, ended)
			}
		}
	})
}

// If the newest subscription fails for good, the one before is the newest again: when it ends, it is asked for again, what it reports
// then counts as changed, and if it fails, too, nobody waits for its reports.
//
// Guarantees: G-0030.4, G-0030.5
func TestTheOneBeforeASubscriptionThatFails(t *testing.T) {
	for _, works := range []bool{true, false} {
		t.Run(fmt.Sprint("it works again: ", works), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reported events
				s, fails := grantingServer(), false
				s.on(protocol.MethodListen, func(f frame, before func(frame) []string) []string {
					if fails {
						return []string{f.fault(-32602, `null`)}
					}
					return before(f)
				})
				session, err := connect(t, s, client.Options{OnEvent: reported.on}, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				reported.want(t, "connected", "tools")
				subscribe := func(uri string) error {
					return session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: uri})
				}
				if err := subscribe("file:///a"); err != nil {
					t.Fatal(err)
				}
				watch := watchInBackground(t, session, "file:///a")
				reads := len(s.received(protocol.MethodReadResource))
				asked := s.received(protocol.MethodListen)
				reported.want(t, "subscribed")
				fails = true
				if err := subscribe("file:///b"); !errors.Is(err, &jsonrpc.Error{Code: -32602}) {
					t.Errorf("got %v, want the error of the server", err)
				}
				pass(time.Minute)
				reported.want(t, "after the failure")
				wantEnded(t, watch, false)
				fails = !works
				s.sendFrame(asked[len(asked)-1].result(`{"resultType":"complete"}`))
				pass(time.Minute)
				wantEnded(t, watch, !works)
				again := len(s.received(protocol.MethodReadResource)) - reads
				if works {
					reported.want(t, "asked for again", "tools", "updated file:///a")
				} else {
					reported.want(t, "asked for again", "refused file:///a")
				}
				if works != (again == 1) {
					t.Errorf("the resource was read %d times again; the server reports it: %t", again, works)
				}
			})
		})
	}
}

// If a server does not acknowledge a subscription in time, Restored says so, Subscribe waits for its answer, and a Watch does not live without
// one. Later the server may accept the resource, which counts as a change, or refuse it, of which the program knows.
//
// Guarantees: G-0030.5, G-0030.11
func TestServerThatAnswersAfterRestored(t *testing.T) {
	for _, accepts := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var reported events
			s := onSecondLink(grantingServer(), acknowledgesNothing)
			session, err := connect(t, s, client.Options{OnEvent: reported.on}, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			reported.want(t, "connected", "tools")
			subscribe := func() error {
				return session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"})
			}
			if err := subscribe(); err != nil {
				t.Fatal(err)
			}
			watch := watchInBackground(t, session, "file:///a")
			reported.want(t, "subscribed")
			reconnect(t, s, session)
			pass(31 * time.Second)
			reported.want(t, "after the timeout", "lost", "restored but for 1")
			if err := subscribe(); !errors.Is(err, client.ErrTimedOut) {
				t.Errorf("Subscribe at a server that does not answer: got %v, want %v", err, client.ErrTimedOut)
			}
			wantEnded(t, watch, true)
			asked := s.received(protocol.MethodListen)
			if newest := asked[len(asked)-1]; accepts {
				s.sendFrame(newest.grants())
				reported.want(t, "after the acknowledgement", "tools", "updated file:///a")
			} else {
				s.sendFrame(newest.fault(-32602, `null`))
				reported.want(t, "after the refusal")
			}
		})
	}
}

// If a server accepts for a Watch what it had refused before, that counts as a change for the Subscribe of the same resource, too.
//
// Guarantees: G-0030.11
func TestWatchOfARefusedSubscription(t *testing.T) {
	for version, s := range map[string]*fakeServer{protocol.Latest: grantingServer(), protocol.LatestLegacy: {answer: allAnswers(protocol.LatestLegacy)}} {
		synctest.Test(t, func(t *testing.T) {
			var reported events
			refuses := false
			for _, method := range []string{protocol.MethodListen, protocol.MethodSubscribe} {
				s.on(method, func(f frame, before func(frame) []string) []string {
					if refuses {
						return []string{f.fault(-32602, `null`)}
					}
					return before(f)
				})
			}
			session, err := connect(t, s, client.Options{OnEvent: reported.on, ProtocolVersion: version}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // so that the first reports are not those of the resource
			if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"}); err != nil {
				t.Fatal(err)
			}
			refuses = true
			reconnect(t, s, session)
			has := func(event string) bool {
				synctest.Wait()
				reported.mu.Lock()
				defer reported.mu.Unlock()
				return slices.Contains(reported.all, event)
			}
			if update := has("updated file:///a"); update || !has("restored but for 1") {
				t.Errorf("%s: got the events %q, want Restored with one failure, and no update", version, reported.all)
			}
			refuses = false
			wantEnded(t, watchInBackground(t, session, "file:///a"), false)
			if !has("updated file:///a") {
				t.Errorf("%s: the program was not told that file:///a is reported again", version)
			}
		})
	}
}

// A Watch that goes on when its resource was refused asks for it again. If the server accepts it then, the program is told for its Subscribe, too.
//
// Guarantees: G-0030.11
func TestWatchAsksAgainForARefusedSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported events
		s := grantingServer()
		s.on(protocol.MethodListen, func(f frame, before func(frame) []string) []string {
			if strings.Contains(string(f.Params), "file:///b") && len(s.received(protocol.MethodListen)) == 3 {
				return f.grantsOnly(`["file:///b"]`)
			}
			return before(f)
		})
		session := openFake(t, s, client.Options{OnEvent: reported.on, ProtocolVersion: protocol.Latest})
		synctest.Wait()
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"}); err != nil {
			t.Fatal(err)
		}
		ended := watchInBackground(t, session, "file:///a")
		reported.mu.Lock()
		reported.all = nil // the first acknowledgements may count as changes
		reported.mu.Unlock()
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///b"}); err != nil {
			t.Fatal(err)
		}
		wantEnded(t, ended, false)
		reported.want(t, "refused for a moment", "refused file:///a", "updated file:///a")
	})
}
