package server_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
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
		synctest.Test(t, func(t *testing.T) {
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

// If a later OnSubscribe panics, OnUnsubscribe is called for what was already granted.
//
// Guarantees: G-0020.6
func TestPanicOfOnSubscribeGivesBackWhatWasGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
