package places_test

import (
	"testing"

	"github.com/bowline-mcp/bowline/features/server/internal/places"
	"github.com/bowline-mcp/bowline/internal/share"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A request that takes more memory than its client ever gets has a place when the others are free, and gives back what it took.
//
// Guarantees: G-0083.6
func TestLargestRequestHasAPlace(t *testing.T) {
	p, of := places.Places{Handlers: share.NewPlaces(100), Bytes: share.NewLasting(24<<20, places.Piece(24<<20, 24<<20))}, share.Client{Identity: "a"}
	for range 3 {
		if err := p.Enter(of, 100<<20); err != nil {
			t.Fatal(err)
		}
		if err := p.Enter(of, 1<<20); err == nil {
			t.Error("the client got more than its share")
		}
		p.Leave(of, 100<<20)
		if held := p.Bytes.Held() + p.Handlers.Held(); held != 0 {
			t.Fatalf("%d is held at the end", held)
		}
	}
}
