package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// Concurrent requests for one resource take effect in the order in which they came.
// OnUnsubscribe follows each OnSubscribe that returned nil, once.
//
// Guarantees: G-0020.6
func TestConcurrentRequestsAboutOneResource(t *testing.T) {
	const subscribe, unsubscribe = `"method":"resources/subscribe","params":{"uri":"x://a"}}`, `"method":"resources/unsubscribe","params":{"uri":"x://a"}}`
	for name, test := range map[string]struct {
		requests, want []string
		refuses        int // how many of the first calls of OnSubscribe fail
		cancels        bool
	}{
		"subscribed twice":          {[]string{subscribe, subscribe}, []string{"on", "off"}, 0, false},
		"subscribed after an error": {[]string{subscribe, subscribe}, []string{"on", "on", "off"}, 1, false},
		"unsubscribed meanwhile":    {[]string{subscribe, unsubscribe}, []string{"on", "off"}, 0, false},
		"cancelled while waiting":   {[]string{subscribe, unsubscribe}, []string{"on", "off"}, 0, true},
	} {
		testenv.Bubble(t, func(t *testing.T) {
			release, calls := make(chan struct{}), make(chan string, 10)
			refuses := test.refuses
			s := newServer(server.Options{
				OnSubscribe: func(context.Context, string) error {
					calls <- "on"
					<-release
					if refuses--; refuses >= 0 {
						return server.ErrNotFound
					}
					return nil
				},
				OnUnsubscribe: func(context.Context, string) { calls <- "off" },
			})
			w := dial(t, s)
			w.initialize(protocol.Version20251125)
			for i, request := range test.requests {
				w.send(`{"jsonrpc":"2.0","id":` + string(rune('1'+i)) + `,` + request)
				synctest.Wait()
			}
			if len(calls) != 1 {
				t.Errorf("%s: %d callbacks were called, want 1", name, len(calls))
			}
			if test.cancels {
				w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
				synctest.Wait()
			}
			close(release)
			synctest.Wait()
			w.link.Close(0)
			synctest.Wait()
			close(calls)
			if got := slices.Collect(func(yield func(string) bool) {
				for call := range calls {
					yield(call)
				}
			}); !slices.Equal(got, test.want) {
				t.Errorf("%s: got %v, want %v", name, got, test.want)
			}
		})
	}
}

// Nothing comes after the answer to resources/unsubscribe, also not an update that is being sent, because a middleware
// takes its time.
//
// Guarantees: G-0029.4
func TestNoUpdateFollowsTheAnswerToUnsubscribe(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		slow := func(next server.Handler) server.Handler {
			return func(ctx context.Context, r *server.Request) (any, error) {
				if r.Method == protocol.NotificationResourcesUpdated {
					pass(time.Second)
				}
				return next(ctx, r)
			}
		}
		s := newServer(server.Options{OnSubscribe: func(context.Context, string) error { return nil }, Middleware: []server.Middleware{slow}})
		w := dial(t, s)
		w.initialize(protocol.Version20251125)
		request := func(id, method string) string { return legacy(id, method, `"uri":"x://a"`) }
		w.ask(request(`1`, protocol.MethodSubscribe))
		for range 2 { // the second one waits while the first is sent
			s.ResourceUpdated("x://a")
			pass(100 * time.Millisecond)
		}
		w.send(request(`2`, protocol.MethodUnsubscribe), request(`3`, protocol.MethodUnsubscribe))
		w.want(protocol.NotificationResourcesUpdated)
		w.want(`"result":{}`)
		w.want(`"result":{}`)
		pass(time.Minute)
		w.wantNothing()
	})
}

// A request that waits for an earlier one for the same resource waits as long as for a handler, and is then refused:
// nothing was done for it.
//
// Guarantees: G-0084.6
func TestSubscriptionsDoNotWaitForEver(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		asked, release := 0, make(chan struct{})
		s := newServer(server.Options{OnSubscribe: func(context.Context, string) error {
			asked++
			<-release
			return nil
		}})
		w := dial(t, s)
		w.initialize(protocol.Version20251125)
		request := func(id, method string) string { return legacy(id, method, `"uri":"x://a"`) }
		w.send(request(`1`, protocol.MethodSubscribe))
		pass(time.Second)
		w.send(request(`2`, protocol.MethodSubscribe), request(`3`, protocol.MethodUnsubscribe))
		pass(10*time.Second - 1)
		w.wantNothing()
		w.want("-32050")
		w.want("-32050")
		close(release)
		w.want(`"id":1`, `"result":{}`)
		if asked != 1 {
			t.Errorf("OnSubscribe was called %d times, want once", asked)
		}
	})
}

// If a later OnSubscribe panics, OnUnsubscribe is called for what was already granted.
//
// Guarantees: G-0020.6
func TestPanicOfOnSubscribeGivesBackWhatWasGranted(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		ended := make(chan string, 10)
		o, panics := reporting(server.Options{
			OnSubscribe: func(_ context.Context, uri string) error {
				if uri == "x://b" {
					panicBroken()
				}
				return nil
			},
			OnUnsubscribe: func(_ context.Context, uri string) { ended <- uri },
		})
		s := newServer(o)
		w := dial(t, s)
		w.wantFault(jsonrpc.CodeInternalError, modern(`1`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["x://a","x://b"]}`))
		wantPanics(t, panics, protocol.MethodListen)
		if len(ended) != 1 || <-ended != "x://a" {
			t.Error("OnUnsubscribe was not called for the first resource")
		}
		w.initialize(protocol.Version20251125)
		for range 2 { // later requests must not wait for the call that has panicked
			w.wantFault(jsonrpc.CodeInternalError, `{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"x://b"}}`)
			wantPanics(t, panics, protocol.MethodSubscribe)
		}
	})
}

// A URI of more than 8 KiB is refused wherever a client names a resource, before the program
// sees it.
//
// Guarantees: G-0029.12
func TestLongURIsAreRefused(t *testing.T) {
	s := newServer(server.Options{OnSubscribe: func(_ context.Context, uri string) error {
		if len(uri) > 8<<10 {
			t.Errorf("OnSubscribe got a URI of %d bytes, want at most %d", len(uri), 8<<10)
		}
		return nil
	}})
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "x://{id}", Name: "x"}, func(_ context.Context, in struct {
		ID string `json:"id"`
	}) (string, error) {
		return fmt.Sprint(len(in.ID)), nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	longest := "x://" + strings.Repeat("a,", 4<<10-2)
	legacy := func(method, uri string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"uri":"` + uri + `"}}`
	}
	for name, frame := range map[string]func(uri string) string{
		"resources/read":         func(uri string) string { return legacy(protocol.MethodReadResource, uri) },
		"resources/read, modern": func(uri string) string { return modern(`1`, protocol.MethodReadResource, `"uri":"`+uri+`"`) },
		"resources/subscribe":    func(uri string) string { return legacy(protocol.MethodSubscribe, uri) },
		"subscriptions/listen": func(uri string) string {
			return modern(`2`, protocol.MethodListen, `"notifications":{"resourceSubscriptions":["x://a","`+uri+`"]}`)
		},
	} {
		if fault := w.wantFault(jsonrpc.CodeInvalidParams, frame(longest+"a")); !strings.Contains(fault.Message, "8192") {
			t.Errorf("%s: the error is %q, want the limit in it", name, fault.Message)
		}
		w.send(frame(longest))
		if got := w.next(); strings.Contains(got, `"error"`) {
			t.Errorf("%s: a URI of 8 KiB was refused with %s", name, got)
		}
	}
}

// A server may declare subscriptions without OnSubscribe, before it has a resource. Then a
// client may subscribe to the resources that it may read.
//
// Guarantees: G-0029.4
func TestDeclaredSubscriptionsNeedNoHook(t *testing.T) {
	declared := protocol.ServerCapabilities{Resources: &protocol.ResourcesCapability{Subscribe: true}}
	s := newServer(server.Options{Capabilities: declared, Visible: func(_ context.Context, f server.Feature) bool { return f.Name != "x://hidden" }})
	early := dial(t, s)
	early.initialize(protocol.Version20251125)
	subscribe := func(uri string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"` + uri + `"}}`
	}
	early.wantFault(protocol.CodeResourceNotFound, subscribe("x://a"))
	for _, uri := range []string{"x://a", "x://hidden"} {
		server.AddResource(s, protocol.Resource{URI: uri, Name: "x"}, func(context.Context) (string, error) { return "", nil })
	}
	late := dial(t, s)
	late.initialize(protocol.Version20251125)
	for _, w := range []*rawPeer{early, late} {
		w.wantFault(protocol.CodeResourceNotFound, subscribe("x://hidden"))
		w.send(subscribe("x://a"))
		w.want(`"id":1`, `"result":{}`)
	}
	modernOne := dial(t, s)
	modernOne.send(modern(`1`, protocol.MethodListen, `"notifications":{"resourceSubscriptions":["x://a","x://hidden","x://b"]}`))
	modernOne.want(`"notifications":{"resourceSubscriptions":["x://a"]}`)
	s.ResourceUpdated("x://a")
	for _, w := range []*rawPeer{early, late, modernOne} {
		w.want(protocol.NotificationResourcesUpdated, `"uri":"x://a"`)
	}
}

// A legacy client subscribes to a bounded number of resources. Once it has unsubscribed from one, it can subscribe to another.
//
// Guarantees: G-0020.6
func TestTheNumberOfSubscriptionsIsBounded(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		asked := 0
		s := newServer(server.Options{OnSubscribe: func(context.Context, string) error { asked++; return nil }})
		w := dial(t, s)
		w.initialize(protocol.Version20251125)
		send := func(method, uri string) *fault {
			w.link.Grant(transport.Main, 1) // one credit for each answer
			w.send(`{"jsonrpc":"2.0","id":2,"method":"resources/` + method + `","params":{"uri":"` + uri + `"}}`)
			var got response
			w.read(&got)
			return got.Error
		}
		for n := range protocol.MaxItems {
			if err := send("subscribe", fmt.Sprint("x://", n)); err != nil {
				t.Fatalf("subscription %d: %v", n+1, err)
			}
		}
		if err := send("subscribe", "x://more"); !err.is(jsonrpc.CodeInvalidParams, "subscriptions") || asked != protocol.MaxItems {
			t.Errorf("one more: got %v, and the program was asked %d times, want %d and an error", err, asked, protocol.MaxItems)
		}
		if err := send("subscribe", "x://0"); err != nil {
			t.Errorf("one that it has: %v", err)
		}
		if err := send("unsubscribe", "x://0"); err != nil {
			t.Error(err)
		}
		if err := send("subscribe", "x://more"); err != nil {
			t.Errorf("in the place of another: %v", err)
		}
	})
}

// What all legacy sessions are subscribed to has a limit, which clients share: a session beyond it is refused before the program is
// asked. Room is free again when a session unsubscribes or ends, and when the program refuses.
//
// Guarantees: G-0083.14
func TestSubscriptionsOfSessionsAreShared(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		refuses, asked := false, 0
		s := newServer(server.Options{MaxMemory: 48 * 200_000, OnSubscribe: func(context.Context, string) error {
			asked++
			if refuses {
				return server.ErrNotFound
			}
			return nil
		}})
		session := func(from *transport.Origin) (send func(method string, n int) *fault, end func()) {
			w := dialFrom(t, s, from)
			w.initialize(protocol.Version20251125)
			return func(method string, n int) *fault {
				w.link.Grant(transport.Main, 1)
				w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"resources/%s","params":{"uri":"x://%s%d"}}`, method, strings.Repeat("a", 1000), n))
				var got response
				w.read(&got)
				return got.Error
			}, func() { w.link.Close(0) }
		}
		fill := func(send func(string, int) *fault) (n int) {
			for ; n < 200; n++ {
				before := asked
				if err := send("subscribe", n); err != nil {
					if !err.is(jsonrpc.CodeOverloaded, "share") || asked != before {
						t.Errorf("subscription %d: %v, and the program was asked %d times", n, err, asked-before)
					}
					break
				}
			}
			return n
		}
		first, end := session(nil)
		most := fill(first)
		if most < 60 || most > 75 {
			t.Errorf("a client is subscribed to %d resources of about 1,070 bytes, want 38 %% of 200 kB", most)
		}
		if err := first("unsubscribe", 0); err != nil {
			t.Error(err)
		}
		refuses = true
		for range 3 {
			if err := first("subscribe", most); err.is(jsonrpc.CodeOverloaded, "share") {
				t.Error("a refused subscription takes room")
			}
		}
		refuses = false
		if err := first("subscribe", most); err != nil {
			t.Errorf("in the place of another: %v", err)
		}
		second, endSecond := session(nil)
		if n := fill(second); n < 10 || n >= most {
			t.Errorf("another client is subscribed to %d resources, want some, and fewer than %d", n, most)
		}
		end()
		endSecond()
		synctest.Wait()
		third, endThird := session(&transport.Origin{Identity: "ada", RemoteAddr: "192.0.2.1:1"})
		if n := fill(third); n != most {
			t.Errorf("after both have ended a client is subscribed to %d resources, want %d", n, most)
		}
		elsewhere, _ := session(&transport.Origin{Identity: "ada", RemoteAddr: "198.51.100.1:1"})
		if n := fill(elsewhere); n != 0 {
			t.Errorf("in another session, from another network, the same user is subscribed to %d more, want none", n)
		}
		endThird()
	})
}
