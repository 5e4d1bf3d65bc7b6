//go:build npm

package peers

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

// TestInterop runs every check with every peer in every revision, and compares
// what it has observed with the page.
func TestInterop(t *testing.T) {
	built := programs(t)
	peers, err := Peers(built)
	if err != nil {
		t.Fatal(err)
	}
	var observed record
	want := 0
	t.Run("peers", func(t *testing.T) {
		for i, peer := range peers {
			for _, revision := range peer.Transport.Revisions() {
				want += len(checks)
				t.Run(fmt.Sprintf("%s %s over %s/%s", peer.Name, peer.Role, peer.Transport, revision), func(t *testing.T) {
					t.Parallel()
					s := &subject{Peer: peer, revision: revision, programs: built}
					s.runChecks(t, func(feature Feature, seen string) {
						observed.add(Cell{i, revision, feature, seen})
					})
				})
			}
		}
	})
	if t.Failed() || len(observed.cells) < want { // some have failed, or -run left some out
		return
	}
	testenv.Page(t, "../docs/interop.md", Page(peers, features(), observed.cells), *update)
}

// runChecks opens the session and runs each check that the peer does not lack.
func (s *subject) runChecks(t *testing.T, observe func(Feature, string)) {
	opening, cancel := context.WithTimeout(schemaContext(t), hangGuard)
	defer cancel()
	var err error
	if s.session, s.server, err = s.open(opening, s.Server(s.revision)); err != nil {
		t.Fatal(err)
	}
	defer s.server.close()
	for _, check := range checks {
		if s.lack(check.feature, s.revision) != nil {
			observe(check.feature, "–")
			continue
		}
		ctx, cancel := context.WithTimeout(schemaContext(t), hangGuard)
		seen, err := check.run(ctx, s)
		cancel()
		if err != nil {
			t.Errorf("%s: %v", check.feature, err)
		}
		observe(check.feature, seen)
	}
}

// A record collects cells from checks that run in parallel.
type record struct {
	mu    sync.Mutex
	cells []Cell
}

func (r *record) add(cell Cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cells = append(r.cells, cell)
}

// programs builds the programs into a temporary folder of the test.
func programs(tb testing.TB) *Programs {
	tb.Helper()
	folder := tb.TempDir()
	built, err := BuildPrograms(folder)
	if err != nil {
		tb.Fatal(err)
	}
	return built
}
