package gateway_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// The client that was asked to open a page is told once when its user has finished there, and no other client is: the page of a question, and
// one that an error asks for.
//
// Guarantees: G-0088.18
func TestWhoOpenedAPageIsToldOfItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
		page := &protocol.ElicitParams{Mode: protocol.ElicitURL, Message: "?", URL: "https://example.com/"}
		server.AddTool(s, protocol.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
			asked := *page
			asked.ElicitationID = "asked"
			_, err := server.Ask(ctx, protocol.InputRequests{"q": &asked})
			return "", err
		}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
		server.AddTool(s, protocol.Tool{Name: "require"}, func(context.Context, struct{}) (string, error) {
			required := *page
			required.ElicitationID = "required"
			return "", protocol.URLElicitationRequired("first log in", &required)
		})
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		told := map[string][]string{}
		connect := func(who string) *client.Session {
			o := respondent(func(context.Context) error { return nil }, false)
			o.OnEvent = func(_ context.Context, _ *client.Session, e client.Event) {
				if over, ok := e.(*client.ElicitationComplete); ok {
					told[who] = append(told[who], over.ID)
				}
			}
			return f.client(protocol.LatestLegacy, o)
		}
		one := connect("one")
		connect("other")
		_, err := client.Call[string](timeout(t), one, "a__ask", nil)
		failOn(t, err)
		if _, err := client.Call[string](timeout(t), one, "a__require", nil); err == nil {
			t.Error("the page is not required")
		}
		for range 2 {
			for session := range s.Sessions() {
				for _, id := range []string{"asked", "required", "unknown"} {
					failOn(t, session.ElicitationComplete(t.Context(), id))
					synctest.Wait()
				}
			}
		}
		if got := told["one"]; len(got) != 2 || got[0] != "asked" || got[1] != "required" || told["other"] != nil {
			t.Errorf("told %q", told)
		}
	})
}
