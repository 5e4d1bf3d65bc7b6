package gateway

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/features/server"
)

// A session that ends while it chooses a level is not kept.
//
// Guarantees: G-0088.16
func TestLevelOfASessionThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l levels
		ctx, end := context.WithCancel(t.Context())
		s := new(server.Session)
		l.add(ctx, s)
		l.choose(s, "somebody")
		if all, same := l.everybody(new(connection).serves); len(all) != 1 || !same {
			t.Fatalf("%d have chosen a level, of one user: %t", len(all), same)
		}
		end()
		synctest.Wait()
		l.choose(s, "somebody")
		if all, _ := l.everybody(new(connection).serves); len(all) != 0 || len(l.users) != 0 {
			t.Errorf("%d have chosen a level, and %d are kept", len(all), len(l.users))
		}
	})
}
