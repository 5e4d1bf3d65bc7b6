package client_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/supervisor/registry"
)

// A program can find, use and close a session by the name of its Conn.
//
// Guarantees: G-0013.15
func TestSessionIsFoundByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions := registry.New(registry.Options{})
		for _, name := range []string{"a", "b"} {
			s, _ := open(t, newServer(server.Options{}), client.Options{Conn: conn.Tuning{Name: name}})
			if err := sessions.Register(t.Context(), name, s.With(client.CallOptions{Epoch: 7}).Conn()); err != nil {
				t.Fatal(err)
			}
		}
		for name, c := range sessions.All() {
			s, found := client.SessionOf(c)
			if !found || s.Conn() != c || s.Server().Info.Name != serverInfo.Name {
				t.Fatalf("the session of %q is not found, want it", name)
			}
			if _, err := s.ListTools(t.Context(), nil); err != nil {
				t.Errorf("%q: %v", name, err)
			}
			if err := s.Close(context.Background()); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}
		if sessions.Len() != 0 {
			t.Errorf("%d closed sessions are found, want none", sessions.Len())
		}
	})
}
