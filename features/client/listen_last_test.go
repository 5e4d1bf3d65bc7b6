package client_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
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
