package client_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

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
