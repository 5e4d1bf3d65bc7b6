package gateway

import (
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/pool"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// What asks for roots over a connection that has lost its owner gets those of no other client, and neither does what asks over that of a user.
//
// Guarantees: G-0088.21
func TestWhoseRootsAConnectionHas(t *testing.T) {
	g := New(Options{})
	defer g.Close(t.Context())
	u := &upstream{traffic: &traffic{notifier: g.notifier}, pool: new(pool.Pool[*connection])}
	u.Name = "a"
	g.servers = map[string]*upstream{"a": u}
	ada, bob := new(server.Session), new(server.Session)
	for as, owner := range map[string]pool.Owner{"a #1": {User: "ada", Session: ada}, "a #2": {User: "ada"}} {
		create := func(p *place) { p.Value = &connection{place: p, as: as} }
		if _, err := u.pool.Enter(t.Context(), owner, nil, create, nil); err != nil {
			t.Fatal(err)
		}
	}
	s := server.New(protocol.Implementation{Name: "a", Version: "1"}, server.Options{})
	for as, want := range map[string]*server.Session{"a": bob, "a #1": ada, "a #2": nil, "a #3": nil} {
		session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{}).Start(t.Context(), as, inmem.New(s.Accept, inmem.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		if got := g.keptFor(session, []*server.Session{bob}); got != want {
			t.Errorf("%s has the roots of another client", as)
		}
		session.Close(t.Context())
	}
}
