package client_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// ignoringFirst lets a server ignore the first requests of one method.
func ignoringFirst(method string, first int, s *fakeServer) *fakeServer {
	inner, asked := s.answer, 0
	s.answer = func(f frame) []string {
		if f.Method == method {
			if asked++; asked <= first {
				return nil
			}
		}
		return inner(f)
	}
	return s
}

// A second subscriber of a resource keeps its subscription if the request of the first
// one fails before the server has accepted it.
//
// Guarantees: G-0030.5
func TestSubscriptionOutlivesTheRequestOfAnother(t *testing.T) {
	const uri = "file:///1"
	for name, c := range map[string]struct {
		version, method string
		server          func() *fakeServer
	}{
		"legacy": {protocol.LatestLegacy, protocol.MethodSubscribe, func() *fakeServer { return &fakeServer{answer: allAnswers(protocol.LatestLegacy)} }},
		"modern": {protocol.Latest, protocol.MethodListen, grantingServer},
	} {
		for cause, fail := range map[string]func(*testing.T, *fakeServer, *client.Session, context.CancelFunc){
			"lost": func(t *testing.T, s *fakeServer, session *client.Session, _ context.CancelFunc) {
				reconnect(t, s, session)
			},
			"cancelled": func(_ *testing.T, _ *fakeServer, _ *client.Session, cancel context.CancelFunc) { cancel() },
		} {
			t.Run(name+" "+cause, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := ignoringFirst(c.method, 1, c.server())
					session := openFake(t, s, client.Options{ProtocolVersion: c.version, Calls: client.CallOptions{Timeout: -1}})
					first, cancel := context.WithCancel(t.Context())
					failed, yields := make(chan error, 1), 0
					go func() { failed <- session.Subscribe(first, &protocol.SubscribeParams{URI: uri}) }()
					synctest.Wait()
					watching, leave := context.WithCancel(t.Context())
					left := make(chan struct{})
					go func() {
						defer close(left)
						for _, err := range session.Watch(watching, uri) {
							if err == nil {
								yields++
							}
						}
					}()
					synctest.Wait()
					if yields != 0 {
						t.Fatal("Watch yielded before the server had accepted the subscription")
					}
					fail(t, s, session, cancel)
					if err := <-failed; err == nil {
						t.Fatal("the first request succeeded, want an error")
					}
					if c.method == protocol.MethodListen && cause == "cancelled" {
						reconnect(t, s, session) // the listen of both has no answer yet
					}
					synctest.Wait()
					if asked := len(s.received(c.method)); yields == 0 || asked < 2 {
						t.Fatalf("Watch yielded %d times, and the server got %d requests", yields, asked)
					}
					before := s.count()
					seen := yields
					reconnect(t, s, session)
					if restored := sentSince(s, before); !slices.ContainsFunc(restored, func(m string) bool {
						return m == protocol.MethodSubscribe+" "+uri || m == `listen false ["`+uri+`"]`
					}) || yields <= seen {
						t.Errorf("the next server got %q, and Watch yielded %d times", restored, yields-seen)
					}
					before = s.count()
					leave()
					<-left
					synctest.Wait()
					if c.method == protocol.MethodSubscribe && !slices.Contains(sentSince(s, before), protocol.MethodUnsubscribe+" "+uri) {
						t.Errorf("the last subscriber has not unsubscribed: got %q", sentSince(s, before))
					}
					cancel()
				})
			})
		}
	}
}

// A subscriber that waits for the request of another waits no longer than its own
// timeout and context allow.
func TestWaitForTheRequestOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		params := &protocol.SubscribeParams{URI: "file:///1"}
		s := ignoringFirst(protocol.MethodSubscribe, 1, &fakeServer{answer: allAnswers(protocol.LatestLegacy)})
		session := openFake(t, s, client.Options{})
		failed := make(chan error, 1)
		go func() { failed <- session.With(client.CallOptions{Timeout: time.Hour}).Subscribe(t.Context(), params) }()
		synctest.Wait()
		began := time.Now()
		err := session.With(client.CallOptions{Timeout: time.Second}).Subscribe(t.Context(), params)
		if !errors.Is(err, client.ErrTimedOut) || !client.NotExecuted(err) || time.Since(began) != time.Second {
			t.Errorf("the second caller got %v after %v", err, time.Since(began))
		}
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		var call *client.CallError
		if err := session.Subscribe(ended, params); !errors.As(err, &call) || !errors.Is(err, context.Cause(ended)) {
			t.Errorf("the third caller got %v", err)
		}
		if err := <-failed; !errors.Is(err, client.ErrTimedOut) {
			t.Errorf("the first caller got %v, want %v", err, client.ErrTimedOut)
		}
		before := s.count()
		reconnect(t, s, session)
		if asked := sentSince(s, before); slices.Contains(asked, protocol.MethodSubscribe+" "+params.URI) {
			t.Errorf("the next server got %q, want no subscription", asked)
		}
		if sent := s.received(protocol.MethodUnsubscribe); len(sent) != 1 {
			t.Errorf("got %d requests to unsubscribe, want one of the first caller: the server may have accepted what it has not answered", len(sent))
		}
	})
}

// A gatedContext blocks the goroutine that begins to wait for its end.
type gatedContext struct {
	context.Context
	open chan struct{}
}

func (c gatedContext) Done() <-chan struct{} {
	<-c.open
	return c.Context.Done()
}

// The first subscriptions of a session may come from many goroutines at once: each is made once, and once more at the
// next server, of whose loss the program hears once.
//
// Guarantees: G-0030.1
func TestFirstSubscriptionsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 8
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{})
		var ready atomic.Int32
		var subscribing sync.WaitGroup
		for n := range many {
			subscribing.Go(func() {
				for ready.Add(1); ready.Load() < many; runtime.Gosched() { // all run when the first one begins
				}
				if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: fmt.Sprintf("file:///%d", n)}); err != nil {
					t.Error(err)
				}
			})
		}
		subscribing.Wait()
		before := s.count()
		reconnect(t, s, session)
		synctest.Wait()
		sent := sentSince(s, before)
		slices.Sort(sent)
		sent = slices.DeleteFunc(sent, func(what string) bool { return !strings.HasPrefix(what, protocol.MethodSubscribe) })
		if all := len(s.received(protocol.MethodSubscribe)); all != 2*many || len(sent) != many || len(slices.Compact(sent)) != many {
			t.Errorf("%d requests at both servers, of which the second got %q; want %d and %d", all, sent, 2*many, many)
		}
	})
}

// The error of an Unsubscribe whose caller leaves says, as that of any call, that the server may have executed it.
func TestUnsubscribeThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{}
		s.answer = func(f frame) []string {
			if f.Method == protocol.MethodUnsubscribe {
				return nil
			}
			return allAnswers(protocol.LatestLegacy)(f)
		}
		session := openFake(t, s, client.Options{})
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///1"}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := session.Unsubscribe(ctx, &protocol.UnsubscribeParams{URI: "file:///1"})
		var failed *client.CallError
		if !errors.As(err, &failed) || failed.Method != protocol.MethodUnsubscribe || failed.Delivery == conn.NotSent || client.NotExecuted(err) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want a *client.CallError of an unsubscribe that was sent", err)
		}
	})
}

// A Subscribe or Unsubscribe that waits for that of another caller waits no longer than its own timeout.
func TestWaitingForASubscriptionOfAnotherIsLimited(t *testing.T) {
	const uri = "file:///1"
	for _, method := range []string{protocol.MethodSubscribe, protocol.MethodUnsubscribe} {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
			s.on(method, func(frame, func(frame) []string) []string { return nil })
			session := openFake(t, s, client.Options{Calls: client.CallOptions{Timeout: -1}})
			ask := func(ctx context.Context, from *client.Session) error {
				if method == protocol.MethodSubscribe {
					return from.Subscribe(ctx, &protocol.SubscribeParams{URI: uri})
				}
				return from.Unsubscribe(ctx, &protocol.UnsubscribeParams{URI: uri})
			}
			if method == protocol.MethodUnsubscribe {
				if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: uri}); err != nil {
					t.Fatal(err)
				}
			}
			ctx, leave := context.WithTimeout(t.Context(), time.Hour)
			defer leave()
			first := make(chan error, 1)
			go func() { first <- ask(ctx, session) }()
			synctest.Wait()
			began := time.Now()
			if err := ask(ctx, session.With(client.CallOptions{Timeout: time.Second})); !errors.Is(err, client.ErrTimedOut) || time.Since(began) != time.Second {
				t.Errorf("%s: got %v after %v, want %v after a second", method, err, time.Since(began), client.ErrTimedOut)
			}
			leave()
			<-first
		})
	}
}

// Unsubscribe also ends a Subscribe that has no answer yet. The last caller whose
// request is settled unsubscribes at the server.
func TestUnsubscribeDuringSubscribe(t *testing.T) {
	const uri = "file:///1"
	for name, c := range map[string]struct {
		version, method string
		answered        bool // whether Subscribe is answered before Unsubscribe
		leave           bool // whether the context of the latecomer ends
		again           bool // whether another Subscribe follows Unsubscribe
	}{
		"legacy":                           {protocol.LatestLegacy, protocol.MethodSubscribe, false, false, false},
		"legacy, latecomer leaves":         {protocol.LatestLegacy, protocol.MethodSubscribe, false, true, false},
		"legacy, latecomer leaves at last": {protocol.LatestLegacy, protocol.MethodSubscribe, true, true, false},
		"legacy, latecomer stays":          {protocol.LatestLegacy, protocol.MethodSubscribe, true, false, false},
		"legacy, again":                    {protocol.LatestLegacy, protocol.MethodSubscribe, false, false, true},
		"modern":                           {protocol.Latest, protocol.MethodListen, false, false, false},
		"modern, again":                    {protocol.Latest, protocol.MethodListen, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := grantingServer()
				if c.method == protocol.MethodSubscribe {
					s.answer = allAnswers(c.version)
				}
				inner, hold := s.answer, make(chan struct{})
				s.answer = func(f frame) []string {
					if f.Method == c.method {
						<-hold
					}
					return inner(f)
				}
				session := openFake(t, s, client.Options{ProtocolVersion: c.version, Calls: client.CallOptions{Timeout: -1}})
				subscribe := func(ctx context.Context) <-chan error {
					done := make(chan error, 1)
					go func() { done <- session.Subscribe(ctx, &protocol.SubscribeParams{URI: uri}) }()
					synctest.Wait()
					return done
				}
				first := subscribe(t.Context())
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				open := make(chan struct{})
				second := subscribe(gatedContext{ctx, open})
				answer := func() {
					close(hold)
					if err := <-first; err != nil {
						t.Errorf("the first caller got %v, want no error", err)
					}
					synctest.Wait()
				}
				if c.answered {
					answer()
				}
				if err := session.Unsubscribe(t.Context(), &protocol.UnsubscribeParams{URI: uri}); err != nil {
					t.Error(err)
				}
				if c.leave {
					leave()
				}
				close(open)
				synctest.Wait()
				var third <-chan error
				if c.again {
					third = subscribe(t.Context())
				}
				if !c.answered {
					answer()
				}
				if err := <-second; err != nil && !c.leave {
					t.Errorf("the second caller got %v", err)
				}
				want := 1
				if c.again {
					want = 0
					if err := <-third; err != nil {
						t.Errorf("the third caller got %v, want no error", err)
					}
				}
				synctest.Wait()
				if sent := len(s.received(protocol.MethodUnsubscribe)); c.method == protocol.MethodSubscribe && sent != want {
					t.Errorf("the server got %d requests to unsubscribe, want %d", sent, want)
				}
				before := s.count()
				reconnect(t, s, session)
				restored := sentSince(s, before)
				if asked := slices.ContainsFunc(restored, func(m string) bool { return strings.Contains(m, uri) }); asked != c.again {
					t.Errorf("the next server got %q, want %v", restored, c.again)
				}
			})
		})
	}
}

// A caller that gives up before a legacy server has answered leaves no subscription behind: the server may have accepted it.
// A server that has refused is not asked.
//
// Guarantees: G-0030.5
func TestASubscribeThatIsGivenUp(t *testing.T) {
	const uri = "file:///1"
	for name, want := range map[string]int{"given up": 1, "refused": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
				if want > 0 {
					s = ignoringFirst(protocol.MethodSubscribe, 1, s)
				} else {
					inner := s.answer
					s.answer = func(f frame) []string {
						if f.Method == protocol.MethodSubscribe {
							return []string{fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`, f.ID)}
						}
						return inner(f)
					}
				}
				session := openFake(t, s, client.Options{ProtocolVersion: protocol.LatestLegacy, Calls: client.CallOptions{Timeout: -1}})
				ctx, giveUp := context.WithCancel(t.Context())
				failed := make(chan error, 1)
				go func() { failed <- session.Subscribe(ctx, &protocol.SubscribeParams{URI: uri}) }()
				synctest.Wait()
				giveUp()
				if err := <-failed; err == nil {
					t.Error("Subscribe succeeded, want an error")
				}
				synctest.Wait()
				if sent := len(s.received(protocol.MethodUnsubscribe)); sent != want {
					t.Errorf("the server got %d requests to unsubscribe, want %d", sent, want)
				}
			})
		})
	}
}

// A SetLogLevel that fails restores the level of the last one that succeeded, unless a
// newer one has changed it.
func TestFailedSetLogLevelChangesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		refused []protocol.LogLevel // the first request is for error, the second for debug; error is answered at the next ping
		want    protocol.LogLevel
	}{
		"the older": {[]protocol.LogLevel{protocol.LogError}, protocol.LogDebug},
		"the newer": {[]protocol.LogLevel{protocol.LogDebug}, protocol.LogError},
		"neither":   {nil, protocol.LogDebug},
		"both":      {[]protocol.LogLevel{protocol.LogError, protocol.LogDebug}, protocol.LogInfo},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
				inner := s.answer
				var last string // the answer to the first request, which waits for the second one
				s.answer = func(f frame) []string {
					switch {
					case f.Link > 1:
						return inner(f)
					case f.Method == protocol.MethodPing:
						return []string{last, f.result(`{}`)}
					case f.Method != protocol.MethodSetLogLevel:
						return inner(f)
					}
					var params protocol.SetLogLevelParams
					if err := protocol.Unmarshal(f.Params, &params); err != nil {
						t.Error(err)
					}
					reply := f.result(`{}`)
					if slices.Contains(c.refused, params.Level) {
						reply = f.fault(-32603, `null`)
					}
					if params.Level == protocol.LogError {
						last = reply
						return nil
					}
					return []string{reply}
				}
				session := openFake(t, s, client.Options{LogLevel: protocol.LogInfo})
				synctest.Wait()
				var asking sync.WaitGroup
				for _, level := range []protocol.LogLevel{protocol.LogError, protocol.LogDebug} {
					asking.Go(func() {
						err := session.SetLogLevel(t.Context(), level)
						if refused := slices.Contains(c.refused, level); (err != nil) != refused {
							t.Errorf("%s: got %v, want %v", level, err, refused)
						}
					})
					synctest.Wait()
				}
				if err := session.Ping(t.Context()); err != nil {
					t.Error(err)
				}
				asking.Wait()
				reconnect(t, s, session)
				sent := s.received(protocol.MethodSetLogLevel)
				if newest := string(sent[len(sent)-1].Params); !strings.Contains(newest, string(c.want)) {
					t.Errorf("the next server got %s, want %s", newest, c.want)
				}
			})
		})
	}
}
