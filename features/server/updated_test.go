package server_test

import (
	"context"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A change of a list is told to those clients alone of which the program says so, by the context of their session or of their listening request.
//
// Guarantees: G-0098.11
func TestListChangedFor(t *testing.T) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		type name struct{}
		list := &protocol.ListCapability{ListChanged: true}
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{
			Capabilities: protocol.ServerCapabilities{Tools: list, Prompts: list},
			SessionContext: func(ctx context.Context, s *server.Session) context.Context {
				return context.WithValue(ctx, name{}, s.Client().Info.Name)
			},
		})
		defer s.Close(context.Background())
		told := map[string]chan string{"ada": make(chan string, 10), "bob": make(chan string, 10)}
		for who, events := range told {
			o := client.Options{ProtocolVersion: version, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
				switch e.(type) {
				case *client.ToolsChanged:
					events <- "tools"
				case *client.PromptsChanged:
					events <- "prompts"
				}
			}}
			c := client.New(protocol.Implementation{Name: who, Version: "1"}, o)
			session, err := c.Connect(t.Context(), inmem.New(s.Accept, inmem.Options{}))
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close(context.Background())
		}
		is := func(who string) func(context.Context) bool {
			return func(ctx context.Context) bool {
				if r := server.RequestFrom(ctx); r != nil {
					return r.Client.Info.Name == who
				}
				return ctx.Value(name{}) == who
			}
		}
		for range 2 { // until both listen
			for _, events := range told {
				s.ListChanged(server.KindTool)
				<-events
			}
		}
		s.ListChanged(server.KindPrompt)
		for _, events := range told {
			for <-events != "prompts" {
			}
		}
		s.ListChangedFor(server.KindTool, is("ada"))
		s.ListChangedFor(server.KindPrompt, is("bob"))
		if ada, bob := <-told["ada"], <-told["bob"]; ada != "tools" || bob != "prompts" || len(told["ada"])+len(told["bob"]) != 0 {
			t.Errorf("%s: ada is told of %s, bob of %s", version, ada, bob)
		}
	}
}
