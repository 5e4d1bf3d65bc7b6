//go:build !race

package auth

import (
	"context"
	"net/http"
	"testing"

	"github.com/bowline-mcp/bowline/auth/authtest"
	session "github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A call with a cached token costs at most one allocation more than a call whose token the
// program has put into the headers. The race detector allocates too.
//
// Guarantees: G-0044.17
func TestACallWithACachedTokenCostsLittle(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	f.quiet = true
	a := loggedIn(t, f, Options{})
	f.mcp(t)
	cost := func(to *streamable.Client) float64 {
		c := session.New(protocol.Implementation{Name: "test", Version: "1"}, session.Options{})
		defer c.Close(context.Background())
		to.URL = f.url
		s, err := c.Connect(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		call := func() {
			if _, err := s.CallTool(t.Context(), &protocol.CallToolParams{Name: "open"}); err != nil {
				t.Fatal(err)
			}
		}
		call()
		least := testing.AllocsPerRun(50, call)
		for range 10 { // other goroutines allocate too
			least = min(least, testing.AllocsPerRun(50, call))
		}
		return least
	}
	plain := cost(&streamable.Client{Header: http.Header{"Authorization": a.current.Load().header}})
	authorized := cost(&streamable.Client{Authorizer: a})
	t.Logf("%v allocations with a header, %v with an Authorizer", plain, authorized)
	if authorized > plain+1 {
		t.Errorf("an Authorizer adds %v allocations", authorized-plain)
	}
}
