package gateway

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/transport"
)

// A gate fails at first, and after that opens for nobody.
type gate struct{ failed atomic.Bool }

// Open implements transport.Transport.
func (g *gate) Open(ctx context.Context) (transport.Link, error) {
	if g.failed.Swap(true) {
		<-ctx.Done()
	}
	return nil, errors.New("out of order")
}

// After a login, all connections of the person try again, under whichever identity they were opened, before the login counts as done. Those of others go on to wait.
//
// Guarantees: G-0102.4
func TestALoginWakesAllConnectionsOfItsPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "mcp.json")
		if err := os.WriteFile(path, []byte(`{"mcpServers":{"a":{"url":"https://a.example/mcp","bowline":{"login":"user"}}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := mcpjson.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		logins := &UserLogins{
			For: func(*mcpjson.Server) (auth.Options, error) {
				return auth.Options{Store: auth.NewMemory(), Resource: "https://a.example/mcp"}, nil
			},
			Person: func(identity string) string { return strings.TrimSuffix(identity, "-again") },
		}
		g := New(Options{UserLogins: logins, Each: func(s *mcpjson.Server, o *client.Options) {
			s.Transport, o.Conn.BackoffMin, o.Conn.BackoffMax = new(gate), time.Hour, time.Hour
		}})
		defer g.Close(context.WithoutCancel(t.Context()))
		if _, err := g.Apply(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		u, sessions := g.upstream("a"), make(map[string]*client.Session)
		for _, identity := range []string{"ada", "ada-again", "bob"} {
			of := &member{session: new(server.Session), ctx: t.Context()}
			of.user.Store(&user{identity: identity})
			c, err := g.lifecycle.connect(context.WithValue(t.Context(), memberKey{}, of), u)
			if err == nil {
				err = g.lifecycle.start(t.Context(), u, c)
			}
			if err != nil {
				t.Fatal(err)
			}
			sessions[identity], _ = g.lifecycle.session(u, c)
		}
		synctest.Wait()
		for identity, session := range sessions {
			if is := session.Status().State; is != conn.Backoff {
				t.Fatalf("%s: the connection is %v", identity, is)
			}
		}
		g.wakeFor(t.Context(), "a", "ada")
		for identity, session := range sessions {
			if waits := session.Status().State == conn.Backoff; waits != (identity == "bob") {
				t.Errorf("%s: the connection waits: %t", identity, waits)
			}
		}
	})
}
