package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// holdingMiddleware returns a middleware that holds back one request of a method until the test
// lets it pass.
func holdingMiddleware(method string, which int) (hold client.Middleware, pass chan<- struct{}) {
	open, seen := make(chan struct{}), 0
	return func(next client.Handler) client.Handler {
		return func(ctx context.Context, r *client.Request) (any, error) {
			if r.Method == method {
				if seen++; seen == which {
					<-open
				}
			}
			return next(ctx, r)
		}
	}, open
}

// The server gets the requests for one resource in the order in which the session made
// them, so its last request is what the session wants.
//
// Guarantees: G-0030.5
func TestRequestsAboutOneResourceTakeTurns(t *testing.T) {
	const uri = "file:///1"
	params := func() *protocol.SubscribeParams { return &protocol.SubscribeParams{URI: uri} }
	subscribe := func(ctx context.Context, s *client.Session) error { return s.Subscribe(ctx, params()) }
	unsubscribe := func(ctx context.Context, s *client.Session) error {
		return s.Unsubscribe(ctx, &protocol.UnsubscribeParams{URI: uri})
	}
	watch := func(ctx context.Context, s *client.Session) error {
		for _, err := range s.Watch(ctx, uri) {
			return err
		}
		return nil
	}
	leave := func(ctx context.Context, s *client.Session) error {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := unsubscribe(ended, s); !errors.Is(err, context.Canceled) || !client.NotExecuted(err) {
			return fmt.Errorf("Unsubscribe with a short deadline: %w", err)
		}
		return nil
	}
	restored := func(context.Context, *client.Session) error { return nil }
	for name, c := range map[string]struct {
		method       string // the request that is held back
		which        int
		first, other func(context.Context, *client.Session) error
		restores     bool // the first operation is the restore of a new server
		wanted       bool // whether the subscription exists at the end
	}{
		"Subscribe during Unsubscribe":           {protocol.MethodUnsubscribe, 1, unsubscribe, subscribe, false, true},
		"Watch during Unsubscribe":               {protocol.MethodUnsubscribe, 1, unsubscribe, watch, false, false},
		"Unsubscribe during Unsubscribe":         {protocol.MethodUnsubscribe, 1, unsubscribe, unsubscribe, false, false},
		"Unsubscribe while a server is restored": {protocol.MethodSubscribe, 2, restored, unsubscribe, true, false},
		"Unsubscribe that does not wait":         {protocol.MethodSubscribe, 2, restored, leave, true, false},
		"Subscribe while a server is restored":   {protocol.MethodSubscribe, 2, restored, subscribe, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hold, pass := holdingMiddleware(c.method, c.which)
				s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
				session := openFake(t, s, client.Options{Middleware: []client.Middleware{hold}})
				if err := session.Subscribe(t.Context(), params()); err != nil {
					t.Fatal(err)
				}
				if c.restores {
					reconnect(t, s, session)
				}
				done := make(chan error, 2)
				for _, f := range []func(context.Context, *client.Session) error{c.first, c.other} {
					go func() { done <- f(t.Context(), session) }()
					synctest.Wait()
				}
				close(pass)
				for range cap(done) {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				synctest.Wait()
				asked := slices.DeleteFunc(sentSince(s, 0), func(m string) bool { return !strings.HasSuffix(m, uri) })
				if last := asked[len(asked)-1]; (last == protocol.MethodSubscribe+" "+uri) != c.wanted {
					t.Errorf("the server got %q, want %v", asked, c.wanted)
				}
				before := s.count()
				reconnect(t, s, session)
				if asked := slices.Contains(sentSince(s, before), protocol.MethodSubscribe+" "+uri); asked != c.wanted {
					t.Errorf("the next server got a subscription: %t, want %t", asked, c.wanted)
				}
			})
		})
	}
}

// If a new server has refused a subscription, the next Subscribe makes the request
// again.
func TestSubscribeAfterAFailedRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		params := &protocol.SubscribeParams{URI: "file:///1"}
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		inner, asked := s.answer, 0
		s.answer = func(f frame) []string {
			if f.Method == protocol.MethodSubscribe {
				if asked++; asked == 2 {
					return []string{f.fault(-32603, `null`)}
				}
			}
			return inner(f)
		}
		session := openFake(t, s, client.Options{})
		for i, want := range []int{1, 3, 3} {
			if err := session.Subscribe(t.Context(), params); err != nil || asked != want {
				t.Errorf("the server got %d requests, want %d: %v", asked, want, err)
			}
			if i == 0 {
				reconnect(t, s, session)
			}
		}
		reconnect(t, s, session)
		if asked != 4 {
			t.Errorf("with the next server: got %d requests, want 4", asked)
		}
	})
}

// A middleware that makes a request for a resource within a request for the same
// resource gets an error instead of waiting for itself, even with other requests in
// between.
func TestRequestInsideItsOwnTurn(t *testing.T) {
	const uri, other = "file:///1", "file:///2"
	subscribe := func(ctx context.Context, s *client.Session, uri string) error {
		return s.Subscribe(ctx, &protocol.SubscribeParams{URI: uri})
	}
	unsubscribe := func(ctx context.Context, s *client.Session, uri string) error {
		return s.Unsubscribe(ctx, &protocol.UnsubscribeParams{URI: uri})
	}
	watch := func(ctx context.Context, s *client.Session, uri string) error {
		for _, err := range s.Watch(ctx, uri) {
			return err
		}
		return nil
	}
	for name, c := range map[string]struct {
		method  string // of the outer request
		which   int    // which request of this method
		inner   func(context.Context, *client.Session, string) error
		between bool // there is a Subscribe of another resource between the two
	}{
		"Subscribe in Subscribe":                   {protocol.MethodSubscribe, 1, subscribe, false},
		"Subscribe in another in Subscribe":        {protocol.MethodSubscribe, 1, subscribe, true},
		"Watch in Subscribe":                       {protocol.MethodSubscribe, 1, watch, false},
		"Subscribe in Unsubscribe":                 {protocol.MethodUnsubscribe, 1, subscribe, false},
		"Unsubscribe in Unsubscribe":               {protocol.MethodUnsubscribe, 1, unsubscribe, false},
		"Subscribe in the Subscribe that restores": {protocol.MethodSubscribe, 2, subscribe, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen, got := 0, make(chan error, 1)
				middleware := func(next client.Handler) client.Handler {
					return func(ctx context.Context, r *client.Request) (any, error) {
						if subscribed, ok := r.Params.(*protocol.SubscribeParams); ok && subscribed.URI == other {
							got <- c.inner(ctx, r.Session, uri)
						} else if r.Method == c.method {
							if seen++; seen == c.which && c.between {
								_ = subscribe(ctx, r.Session, other)
							} else if seen == c.which {
								got <- c.inner(ctx, r.Session, uri)
							}
						}
						return next(ctx, r)
					}
				}
				s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
				session := openFake(t, s, client.Options{Middleware: []client.Middleware{middleware}})
				began := time.Now()
				if err := subscribe(t.Context(), session, uri); err != nil {
					t.Error(err)
				}
				reconnect(t, s, session)
				if err := unsubscribe(t.Context(), session, uri); err != nil {
					t.Error(err)
				}
				var failed *client.CallError
				if err := <-got; !errors.As(err, &failed) || !client.NotExecuted(err) || !strings.Contains(err.Error(), "inside") {
					t.Errorf("got %v", err)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("the call took %v, want at most %v", took, 10*time.Second)
				}
			})
		})
	}
}
