package client

import (
	"context"
	"fmt"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
)

// A suffix is not in use, even if another client has many. If the used suffixes have no
// gap, the lowest free one is chosen.
func TestSuffixIsFree(t *testing.T) {
	for _, test := range []struct {
		taken int // how many suffixes are taken, from 2 on
		last  int64
		want  string
	}{{0, 0, "n-2"}, {1, 0, "n-3"}, {2, 0, "n-4"}, {6, 0, "n-8"}, {299, 0, "n-301"}, {299, 150, "n-301"}, {3, 9, "n-10"}} {
		s := supervisor.New(supervisor.Options{})
		for n := range test.taken {
			spec := supervisor.ChildSpec{ID: fmt.Sprintf("n-%d", n+2), Run: func(ctx context.Context) error { <-ctx.Done(); return nil }}
			if _, err := s.Start(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
		}
		c := New(protocol.Implementation{}, Options{Supervisor: s, Conn: conn.Tuning{Name: "n"}})
		c.suffixes = map[string]int64{"n": test.last}
		if got := c.suffixed("n"); got != test.want {
			t.Errorf("after %d taken suffixes: got %s, want %s", test.taken, got, test.want)
		}
		var first, next int
		if _, err := fmt.Sscanf(test.want+" "+c.suffixed("n"), "n-%d n-%d", &first, &next); err != nil || next != first+1 {
			t.Errorf("after %s: got n-%d, want the next number: %v", test.want, next, err)
		}
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
