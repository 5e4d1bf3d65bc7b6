package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// onSecondLink changes the answers of a server on its second link.
func onSecondLink(s *fakeServer, answer func(frame) []string) *fakeServer {
	inner := s.answer
	s.answer = func(f frame) []string {
		if f.Link == 2 {
			if replies := answer(f); replies != nil {
				return replies
			}
		}
		return inner(f)
	}
	return s
}

// grantsOnly returns an acknowledgement of reports of the tools and of some resources.
func (f frame) grantsOnly(resources string) []string {
	f.Params = []byte(`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":` + resources + `}}`)
	return []string{f.grants()}
}

// offering lets a modern server offer other capabilities.
func offering(capabilities string) func(frame) []string {
	return func(f frame) []string {
		if f.Method != protocol.MethodDiscover {
			return nil
		}
		return []string{f.result(`{"supportedVersions":["2026-07-28"],"capabilities":` + capabilities + `}`)}
	}
}

// watchInBackground watches a resource. The channel gets the error that ends the Watch.
func watchInBackground(t *testing.T, session *client.Session, uri string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		for _, err := range session.Watch(t.Context(), uri) {
			if err != nil {
				ended <- err
			}
		}
	}()
	synctest.Wait()
	return ended
}

// wantEnded checks whether a Watch has ended, once the bubble is idle.
func wantEnded(t *testing.T, ended <-chan error, want bool) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-ended:
		if !want || !errors.As(err, new(*client.CallError)) {
			t.Errorf("the Watch ended with %v, want that: %t, and a *client.CallError", err, want)
		}
	default:
		if want {
			t.Error("the Watch continues, want it to end with an error")
		}
	}
}

// If the next server does not accept a subscription, Restored says so, Subscribe asks again
// and fails, and a Watch ends with the error. The server after that is asked again.
//
// Guarantees: G-0030.1, G-0030.5
func TestSubscriptionThatTheNextServerRefuses(t *testing.T) {
	without := strings.Replace(modernCapabilities, `"subscribe":true`, `"subscribe":false`, 1)
	onListen := func(answer response) func(frame) []string {
		return func(f frame) []string {
			if f.Method != protocol.MethodListen {
				return nil
			}
			return answer(f)
		}
	}
	for name, test := range map[string]struct {
		version  string
		second   func(frame) []string // the answers of the second server that differ
		failures int
		refused  []string
		accepted []string
	}{
		"one is not granted": {protocol.Latest, onListen(func(f frame) []string { return f.grantsOnly(`["file:///a"]`) }), 1, []string{"file:///b"}, []string{"file:///a"}},
		"nothing is granted": {protocol.Latest, onListen(func(f frame) []string { return f.grantsOnly(`[]`) }), 2, []string{"file:///a", "file:///b"}, nil},
		"others are granted": {protocol.Latest, onListen(func(f frame) []string { return f.grantsOnly(`["file:///a/b","file:///c"]`) }), 2, []string{"file:///a", "file:///b"}, nil},
		"not offered":        {protocol.Latest, offering(without), 2, []string{"file:///a", "file:///b"}, nil},
		"nothing is offered": {protocol.Latest, offering(`{"tools":{},"resources":{}}`), 1, []string{"file:///a", "file:///b"}, nil},
		"no such method":     {protocol.Latest, onListen(withFault(-32601, `null`)), 1, []string{"file:///a", "file:///b"}, nil},
		"legacy": {protocol.LatestLegacy, func(f frame) []string {
			if f.Method == protocol.MethodSubscribe && strings.Contains(string(f.Params), "file:///b") {
				return []string{f.fault(-32603, `null`)}
			}
			return nil
		}, 1, []string{"file:///b"}, []string{"file:///a"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := grantingServer()
				if test.version == protocol.LatestLegacy {
					s.answer = allAnswers(protocol.LatestLegacy)
				}
				var mu sync.Mutex
				var failures [][]error
				session, err := connect(t, onSecondLink(s, test.second), client.Options{
					ProtocolVersion: test.version,
					OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
						if restored, ok := e.(*client.Restored); ok {
							mu.Lock()
							defer mu.Unlock()
							failures = append(failures, restored.Failures)
						}
					},
				}, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				subscribe := func(uri string) error {
					return session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: uri})
				}
				watches := make(map[string]<-chan error)
				for _, uri := range []string{"file:///a", "file:///b"} {
					if err := subscribe(uri); err != nil {
						t.Fatal(err)
					}
					watches[uri] = watchInBackground(t, session, uri)
				}
				reconnect(t, s, session)
				mu.Lock()
				if len(failures) != 1 || len(failures[0]) != test.failures {
					t.Errorf("got the failures %v, want %d once", failures, test.failures)
				}
				mu.Unlock()
				for _, uri := range test.refused {
					wantEnded(t, watches[uri], true)
					if err := subscribe(uri); err == nil {
						t.Errorf("Subscribe to %s succeeded at a server that refuses it, want an error", uri)
					}
				}
				for _, uri := range test.accepted {
					wantEnded(t, watches[uri], false)
					if err := subscribe(uri); err != nil {
						t.Errorf("Subscribe to %s: got %v, want nil", uri, err)
					}
				}
				reconnect(t, s, session)
				mu.Lock()
				if len(failures) != 2 || len(failures[1]) != 0 {
					t.Errorf("at the third server: got the failures %v, want none", failures)
				}
				mu.Unlock()
				for uri := range watches {
					if err := subscribe(uri); err != nil {
						t.Errorf("Subscribe to %s at the third server: got %v, want nil", uri, err)
					}
					s.sendFrame(updated(uri))
				}
				for _, uri := range test.accepted {
					wantEnded(t, watches[uri], false)
				}
			})
		})
	}
}

// A server that refuses a whole request because of one resource leaves the others
// subscribed: the earlier request continues.
//
// Guarantees: G-0030.4, G-0030.5
func TestRefusedSubscriptionLeavesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := grantingServer()
		inner := s.answer
		s.answer = func(f frame) []string {
			if f.Method == protocol.MethodListen && strings.Contains(string(f.Params), "file:///no") {
				return []string{f.fault(-32602, `null`)}
			}
			return inner(f)
		}
		session, err := connect(t, s, client.Options{}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"}); err != nil {
			t.Fatal(err)
		}
		watch := watchInBackground(t, session, "file:///a")
		for range 20 {
			if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///no"}); err == nil {
				t.Error("Subscribe succeeded, want an error")
			}
			wantEnded(t, watch, false)
		}
		reads := len(s.received(protocol.MethodReadResource))
		s.sendFrame(updated("file:///a"))
		wantEnded(t, watch, false)
		if got := len(s.received(protocol.MethodReadResource)); got != reads+1 {
			t.Errorf("got %d reads after an update, want %d", got, reads+1)
		}
	})
}

// If a server grants less when its subscription is made again, Subscribe asks again and
// fails, and a Watch ends with the error.
//
// Guarantees: G-0030.5
func TestSubscriptionThatIsNotGrantedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := grantingServer()
		inner, less := s.answer, false
		s.answer = func(f frame) []string {
			if f.Method == protocol.MethodListen && less {
				return f.grantsOnly(`["file:///a"]`)
			}
			return inner(f)
		}
		session, err := connect(t, s, client.Options{}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		stays, ends := watchInBackground(t, session, "file:///a"), watchInBackground(t, session, "file:///b")
		less = true
		asked := s.received(protocol.MethodListen)
		s.sendFrame(asked[len(asked)-1].result(`{"resultType":"complete"}`))
		pass(10 * time.Second)
		wantEnded(t, stays, false)
		wantEnded(t, ends, true)
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///b"}); err == nil {
			t.Error("Subscribe succeeded without a grant, want an error")
		}
		if epoch := session.Status().Epoch; epoch != 1 {
			t.Errorf("got %d servers, want 1", epoch)
		}
	})
}

// A server may refuse a resource that the session wants still, and grant it later. Each Subscribe gets the answer that the server
// gives then.
//
// Guarantees: G-0030.11
func TestSubscribeAsksAServerThatHasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuses := true
		s := onSecondLink(grantingServer(), func(f frame) []string {
			if f.Method != protocol.MethodListen || !refuses {
				return nil
			}
			return f.grantsOnly(`["file:///b"]`)
		})
		session, err := connect(t, s, client.Options{}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		subscribe := func() error {
			return session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"})
		}
		if err := subscribe(); err != nil {
			t.Fatal(err)
		}
		reconnect(t, s, session)
		synctest.Wait()
		for range 2 {
			before := len(s.received(protocol.MethodListen))
			if err := subscribe(); err == nil {
				t.Error("Subscribe succeeded at a server that refuses, want an error")
			}
			if got := len(s.received(protocol.MethodListen)) - before; got != 1 {
				t.Errorf("the server was asked %d times, want once", got)
			}
		}
		refuses = false
		if err := subscribe(); err != nil {
			t.Errorf("Subscribe failed with %v at a server that accepts it now", err)
		}
		before := len(s.received(protocol.MethodListen))
		if err := subscribe(); err != nil || len(s.received(protocol.MethodListen)) != before {
			t.Errorf("Subscribe returned %v, and the server was asked again; it has accepted before", err)
		}
	})
}

// If a server reports a resource no more that Subscribe has asked for, the program is told, once; and if the server reports it
// again, that counts as a change.
//
// Guarantees: G-0030.11
func TestRefusedLater(t *testing.T) {
	for name, refuse := range map[string]func(*testing.T, *fakeServer, *client.Session){
		"its reports end": func(_ *testing.T, s *fakeServer, _ *client.Session) {
			asked := s.received(protocol.MethodListen)
			s.sendFrame(asked[len(asked)-1].result(`{"resultType":"complete"}`))
		},
		"another subscription": func(t *testing.T, _ *fakeServer, session *client.Session) {
			if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///c"}); err == nil {
				t.Error("Subscribe succeeded, want an error")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reported events
				s, less := grantingServer(), false
				s.on(protocol.MethodListen, func(f frame, before func(frame) []string) []string {
					if less {
						return f.grantsOnly(`["file:///b"]`)
					}
					return before(f)
				})
				session, err := connect(t, s, client.Options{OnEvent: reported.on}, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				reported.want(t, "connected", "tools")
				for _, uri := range []string{"file:///a", "file:///b"} {
					if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: uri}); err != nil {
						t.Fatal(err)
					}
				}
				reported.want(t, "subscribed")
				count := func(event string) (n int) {
					synctest.Wait()
					reported.mu.Lock()
					defer reported.mu.Unlock()
					for _, e := range reported.all {
						if e == event {
							n++
						}
					}
					return n
				}
				less = true
				for range 2 {
					refuse(t, s, session)
					pass(10 * time.Second)
				}
				if a, b := count("refused file:///a"), count("refused file:///b"); a != 1 || b != 0 {
					t.Errorf("the program was told %d and %d times that a and b are refused, want 1 and 0", a, b)
				}
				less = false
				if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///d"}); err != nil {
					t.Error(err)
				}
				if got := count("updated file:///a"); got != 1 {
					t.Errorf("the program was told %d times that a may have changed, want 1", got)
				}
			})
		})
	}
}

// A Watch goes on if the link breaks while it subscribes.
//
// Guarantees: G-0030.5
func TestWatchThatLosesItsServerAtFirst(t *testing.T) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		synctest.Test(t, func(t *testing.T) {
			s, method := grantingServer(), protocol.MethodListen
			if version == protocol.LatestLegacy {
				s.answer, method = allAnswers(version), protocol.MethodSubscribe
			}
			session, err := connect(t, ignoringFirst(method, 1, s), client.Options{ProtocolVersion: version}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			watch := watchInBackground(t, session, "file:///a")
			reconnect(t, s, session)
			pass(time.Second)
			wantEnded(t, watch, false)
			if reads, asked := len(s.received(protocol.MethodReadResource)), len(s.received(method)); reads == 0 || asked < 2 {
				t.Errorf("%s: got %d reads and %d subscriptions, want at least one and 2", version, reads, asked)
			}
		})
	}
}

// acknowledgesNothing is the part of a server that leaves subscriptions unanswered.
func acknowledgesNothing(f frame) []string {
	if f.Method != protocol.MethodListen {
		return nil
	}
	return []string{}
}

// A server that does not acknowledge a subscription delays Restored by the timeout of a
// request only. If it does so later, everything granted counts as changed.
//
// Guarantees: G-0030.1
func TestServerThatAcknowledgesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported events
		s := onSecondLink(grantingServer(), acknowledgesNothing)
		session, err := connect(t, s, client.Options{OnEvent: reported.on}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		reported.want(t, "connected", "tools")
		reconnect(t, s, session)
		pass(29 * time.Second)
		reported.want(t, "within the timeout", "lost")
		pass(2 * time.Second)
		reported.want(t, "after the timeout", "restored but for 1")
		asked := s.received(protocol.MethodListen)
		s.sendFrame(asked[len(asked)-1].grants())
		reported.want(t, "after the acknowledgement", "tools")
	})
}

// An acknowledgement that names resources that the session has not asked for reports no
// change of them.
//
// Guarantees: G-0030.3
func TestGrantOfAnotherResourceReportsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported events
		s := grantingServer()
		session, err := connect(t, s, client.Options{OnEvent: reported.on}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		reported.want(t, "connected", "tools")
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"}); err != nil {
			t.Error(err)
		}
		reported.want(t, "after Subscribe")
		asked := s.received(protocol.MethodListen)
		last := asked[len(asked)-1]
		last.Params = []byte(`{"notifications":{"resourceSubscriptions":["file:///b","file:///a","file:///a/b","file:///a"]}}`)
		s.sendFrame(last.grants())
		reported.want(t, "after a grant of more", "updated file:///a")
	})
}
