package gateway

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/policy"
)

// A session that ends while it chooses a level is not kept.
//
// Guarantees: G-0088.16
func TestLevelOfASessionThatHasEnded(t *testing.T) {
	everyone := func(policy.Who, *server.Session) bool { return true }
	synctest.Test(t, func(t *testing.T) {
		var l levels
		ctx, end := context.WithCancel(t.Context())
		s := new(server.Session)
		l.add(ctx, s)
		l.choose(s, policy.Who{Identity: "somebody"})
		if all, same := l.everybody(everyone); len(all) != 1 || !same {
			t.Fatalf("%d have chosen a level, of one user: %t", len(all), same)
		}
		end()
		synctest.Wait()
		l.choose(s, policy.Who{Identity: "somebody"})
		if all, _ := l.everybody(everyone); len(all) != 0 || len(l.users) != 0 {
			t.Errorf("%d have chosen a level, and %d are kept", len(all), len(l.users))
		}
	})
}
